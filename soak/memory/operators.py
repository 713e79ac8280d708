"""Runs one operator on an endless stream, for a while, and throws its results away."""

from __future__ import annotations

import itertools
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import headrace as hr
from headrace.memory import release_freed_memory
from headrace.progressive import ProgressiveJoin
from headrace.progressive.grids.partitioning_for import unbounded_partitioning_for
from headrace.progressive.logged.join import LoggedJoin
from headrace.progressive.logged.join_spec import JoinSpec
from headrace.progressive.logged.sharding import Sharding
from headrace.progressive.logged.state_cache import StateCache
from headrace.progressive.policies import policy_of
from headrace.row_copies import POOL
from headrace.runlog import RunLog
from headrace.sampling import ApproximateJoin, FairWindow, Reservoir, WindowJoin
from headrace.semistream import AdaptiveJoin
from soak.memory.cells import Cell
from soak.memory.relations import giant_keys
from soak.memory.streams import BOX, MATCHES, VECTOR, Rows

_SIDES = ("left", "right")
_ABSENT = 0.1  # of the keys of a stream that no row of the relation has
_GIANT = 1_000  # one row in so many asks for a key with 10,000 rows
_ROUND = 6  # times the budget is what comes of two streams before both end, and two others begin
_LARGEST_ROUND = 3 << 30  # bytes
_WINDOW = 1_000_000  # rows
_WARM = 16 << 20  # the budget of the operator that warms up
_WARM_INPUT = 4 << 20  # bytes that it joins


@dataclass
class Facts:
    """What a stream did while it was watched."""

    rows_in: int = 0
    bytes_in: int = 0
    results: int = 0
    rounds: int = 0
    counted: int = 0
    """the most that the operator itself says it held"""
    notes: dict[str, Any] = field(default_factory=dict)


class Watched(ABC):
    """An operator that is watched."""

    def __init__(self, cell: Cell, place: Path) -> None:
        self.cell, self.place = cell, place
        self.rows = Rows(cell.shape)
        self.facts = Facts()

    @abstractmethod
    def warm_up(self) -> None:
        """Load kernels and libraries, and join a few rows."""

    @abstractmethod
    def run(self, until: float) -> None:
        """Join until time.monotonic() is there."""

    def _came(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.facts.rows_in += batch.num_rows
        self.facts.bytes_in += batch.nbytes
        return batch

    def _left(self, results: Iterable[pa.RecordBatch]) -> None:
        for out in results:
            self.facts.results += out.num_rows


class Enrich(Watched):
    """AdaptiveJoin in this process."""

    def warm_up(self) -> None:
        """Join with a small relation of the same columns."""
        small = self.rows.batch({"k": np.arange(256) * 2}, 256, long_texts=1)
        path = self.place / f"warm-{time.monotonic_ns()}"
        page_size = "1MiB" if self.cell.shape == "long" else "8KiB"
        with hr.Relation.create(path, small.slice(0, 256), key="k", shards=1, page_size=page_size) as relation:
            op = self._make(relation, 64 << 20 if self.cell.shape == "long" else _WARM)
            self._left(op.run([self.rows.batch({"k": self.rows.popular(256, 50) * 2}, 50, long_texts=1)]))
        shutil.rmtree(path)

    def _make(self, relation: hr.Relation, memory: int) -> AdaptiveJoin:
        order: Any = "stream" if self.cell.operator == "enrich-stream-order" else "any"
        return AdaptiveJoin(
            relation, on="k", memory=memory, order=order, whole=self.cell.operator == "enrich-whole", suffix="_r"
        )

    def run(self, until: float) -> None:
        """One endless stream."""
        with hr.Relation.open(self.place / self.cell_relation) as relation:
            op = self._make(relation, self.cell.budget)
            self.facts.notes["way"] = op._way()
            self._left(op.run(self._stream(relation, until)))
            self.facts.counted = op.stats.memory_peak
            self.facts.notes |= {"parts": op.budget.peak_by_part, "left out": dict(op.stats.left_out)}
            self.facts.notes["hits"] = op.stats.hits / max(1, op.stats.tuples_in)

    cell_relation: str = ""

    def _stream(self, relation: hr.Relation, until: float) -> Iterator[pa.RecordBatch]:
        keys, giants = relation.distinct_keys, giant_keys(relation)
        while time.monotonic() < until:
            yield self._came(self._keyed(keys, giants))

    def _keyed(self, keys: int, giants: int) -> pa.RecordBatch:
        """A batch that asks for popular keys, for absent ones, and for some with 10,000 rows if there are such."""
        rng, n = self.rows.rng, self.rows.batch_rows
        some = (giants + self.rows.popular(keys - giants, n)) * 2 + (rng.random(n) < _ABSENT)
        if giants:
            some = np.where(rng.random(n) < 1 / _GIANT, 2 * rng.integers(0, giants, n), some)
        return self.rows.batch({"k": some})


class TwoStreams(Watched):
    """Rows of two streams that find few partners, some of them 10,000."""

    def _keys(self, side: str, at: int) -> dict[str, Any]:
        rng, n, kind = self.rows.rng, self.rows.batch_rows, self.cell.operator
        many = self.cell.shape == "many"
        # Of the left side 10,000 rows of every 400,000 have the one key, or lie in one place; of the right side, one in 2,000.
        giant = rng.random(n) < (MATCHES / 400_000 if side == "left" else 1 / 2_000) if many else np.zeros(n, np.bool_)
        if kind == "progressive-box":
            boxes = self.rows.boxes(n, 0.002)
            for low, high in ((0, 2), (1, 3)):
                boxes[BOX[low]][giant] = 0.5 + 1e-6 * rng.random(int(giant.sum()))
                boxes[BOX[high]][giant] = boxes[BOX[low]][giant] + 1e-3
            columns = boxes
        elif kind == "progressive-vector":
            columns = self.rows.vectors(n)
            for name in VECTOR:
                columns[name][giant] = 0.5 + 1e-4 * rng.random(int(giant.sum()))
        else:
            # As many keys as rows of 1 KB fit the budget: a row finds about one partner among those in memory.
            columns = {"k": np.where(giant, -1 - at // 400_000, rng.integers(0, self.cell.budget >> 10, n))}
        return {**columns, side: np.arange(at, at + n)}

    def _batches(self, until: float, most: int | None = None) -> Iterator[tuple[Any, pa.RecordBatch]]:
        """Batches of both sides in turns, until the time is over or so many bytes have come."""
        at = came = 0
        while time.monotonic() < until and (most is None or came < most):
            for side in _SIDES:
                batch = self._came(self.rows.batch(self._keys(side, at)))
                came += batch.nbytes
                yield side, batch
            at += self.rows.batch_rows

    def _condition(self) -> Any:
        kinds = {"progressive-box": hr.intersects(BOX), "progressive-vector": hr.within(VECTOR, eps=0.007)}
        return kinds.get(self.cell.operator, hr.equal("k"))

    @property
    def _round_bytes(self) -> int:
        return min(_ROUND * self.cell.budget, _LARGEST_ROUND)


class Progressive(TwoStreams):
    """ProgressiveJoin: when the two streams have ended, two others begin."""

    def warm_up(self) -> None:
        """A round in a small budget, up to its end."""
        self._round(_WARM, time.monotonic() + 60, _WARM_INPUT)
        self.facts = Facts()

    def run(self, until: float) -> None:
        """Round after round."""
        while time.monotonic() < until:
            self._round(self.cell.budget, until, self._round_bytes)

    def _round(self, memory: int, until: float, most: int) -> None:
        op = ProgressiveJoin(self._condition(), memory=memory)
        for number, (side, batch) in enumerate(self._batches(until, most)):
            self._left(op.insert(side, batch))
            if number % 7 == 6:
                self._left(op.idle(0.02))
        self._left(itertools.takewhile(lambda _: time.monotonic() < until, op.finish()))
        self.facts.rounds += 1
        self.facts.counted = max(self.facts.counted, op.budget.peak)
        self.facts.notes["flushes"] = op.stats.flushes


class Logged(TwoStreams):
    """What a Spark worker does: two shards in turn, micro-batch by micro-batch, each with its copy of the state."""

    def warm_up(self) -> None:
        """A few micro-batches in a small budget."""
        pa.set_memory_pool(POOL)
        self._round(2 * _WARM, time.monotonic() + 60, _WARM_INPUT)
        self.facts = Facts()

    def run(self, until: float) -> None:
        """Log after log."""
        while time.monotonic() < until:
            self._round(self.cell.budget, until, self._round_bytes)

    def _round(self, memory: int, until: float, most: int) -> None:
        from headrace.spark.pair_step import warm_memory

        batches = self._batches(until, most)
        schemas = tuple(self.rows.batch(self._keys(side, 0)).schema for side in _SIDES)
        partitioning, ask = unbounded_partitioning_for(hr.equal("k"), 64, None)
        spec = JoinSpec(condition=hr.equal("k"), schemas=schemas, partitioning=partitioning, ask=ask)
        directory = self.place / f"log-{time.monotonic_ns()}"
        log = RunLog(directory, "q", "join", shards=2)
        try:
            caches = [
                StateCache(Sharding(spec.partitioning, 0, shard), policy_of("rrpj"), warm_memory(memory, 1, 2), schemas)
                for shard in (0, 1)
            ]
            for number in itertools.count():
                some = ((_SIDES.index(side), batch) for side, batch in itertools.islice(batches, 16))
                first = next(some, None)
                if first is None:
                    break
                with log.shard(number % 2) as held:
                    join = LoggedJoin(spec, held, caches[number % 2], number // 2, idle=0.2)
                    self._left(join.join(itertools.chain([first], some)))
                release_freed_memory()
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        self.facts.rounds += 1


class Sampling(TwoStreams):
    """A sampler, or a join over samples, on endless streams."""

    def warm_up(self) -> None:
        """A small one."""
        self._stream(_WARM, time.monotonic() + 60, _WARM_INPUT)
        self.facts = Facts()

    def run(self, until: float) -> None:
        """One endless stream."""
        self._stream(self.cell.budget, until, None)

    def _stream(self, memory: int, until: float, most: int | None) -> None:
        op: Any
        if self.cell.operator in ("reservoir", "fair-window"):
            if self.cell.operator == "reservoir":
                op = Reservoir(memory=memory)
            else:
                op = FairWindow(memory=memory, window=hr.rows(_WINDOW))
            for side, batch in self._batches(until, most):
                if side == "left":
                    op.insert(batch)
        else:
            if self.cell.operator == "window-join":
                op = WindowJoin(hr.equal("k"), window=hr.rows(_WINDOW), memory=memory)
            else:
                op = ApproximateJoin(hr.equal("k"), memory=memory)
            for side, batch in self._batches(until, most):
                self._left(op.insert(side, batch))
        self.facts.counted = op.stats.memory_peak
        self.facts.notes = {"parts": dict(op.stats.memory), "held": getattr(op.stats, "held", None)}


def watched(cell: Cell, place: Path, relation: str) -> Watched:
    """The operator of a cell."""
    if cell.operator == "enrich-spark":
        from soak.memory.on_spark import EnrichOnSpark

        return EnrichOnSpark(cell, place, relation)
    if cell.family == "enrich":
        op = Enrich(cell, place)
        op.cell_relation = relation
        return op
    if cell.operator == "progressive-logged":
        return Logged(cell, place)
    return Progressive(cell, place) if cell.family == "progressive" else Sampling(cell, place)
