"""Operators of a shard: what the rows of a micro-batch are given to, and what they make of it. See `LoggedSample`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.metrics import JoinStats
from headrace.progressive.grids.partitioning import SIDES
from headrace.sampling.approximate_join import ApproximateJoin
from headrace.sampling.estimates import Asked, SampleTotals, answer
from headrace.sampling.event_times import START
from headrace.sampling.intervals import Stratum
from headrace.sampling.sampler import Sampler
from headrace.sampling.snapshot import Parts
from headrace.sampling.window_join import WindowJoin

_ROWS = 1 << 14  # of a sample that are given at a time

Batches = Iterator[pa.RecordBatch]


class _Kept:
    """What all of them share: the state is that of the sampler or join."""

    def __init__(self, kept: Sampler | WindowJoin | ApproximateJoin) -> None:
        self.kept = kept

    def snapshot(self) -> Parts:
        """The state."""
        return self.kept.snapshot()

    def restore(self, snapshot: Iterable[pa.RecordBatch]) -> None:
        """Go on from a snapshot."""
        self.kept.restore(snapshot)

    def counters(self) -> JoinStats:
        """What it has counted since it was made, or since the first snapshot of its stream."""
        stats: Any = self.kept.stats
        return JoinStats(
            tuples_in=_sum(stats.tuples_in),
            nulls=_sum(getattr(stats, "skipped", 0)) + _sum(getattr(stats, "untimed", 0)),
            results=getattr(stats, "results", 0),
            late=_sum(getattr(stats, "late", 0)),
            memory=dict(stats.memory),
            memory_limit=stats.memory_limit,
            memory_peak=stats.memory_peak,
        )


def _sum(counter: int | list[int]) -> int:
    return counter if isinstance(counter, int) else sum(counter)


class ShardJoin(_Kept):
    """A window join or an approximate join: results come as rows do."""

    kept: WindowJoin | ApproximateJoin

    def insert(self, side: int, batch: pa.RecordBatch) -> Batches:
        """Join rows of a side."""
        return self.kept.insert(SIDES[side], batch)

    def end(self) -> Batches:
        """Nothing more."""
        return iter(())


class ShardSample(_Kept):
    """A sample: all of it comes at the end of each micro-batch."""

    kept: Sampler

    def insert(self, side: int, batch: pa.RecordBatch) -> Batches:
        """Take in rows."""
        self.kept.insert(batch)
        return iter(())

    def end(self) -> Batches:
        """Give the sample."""
        if self.kept.clock:
            rows = self.kept.sample()
            yield from (rows.slice(at, _ROWS) for at in range(0, rows.num_rows, _ROWS))


@dataclass(frozen=True)
class Quantities:
    """What is estimated: the quantities, by which groups, and the types of the columns with groups and times."""

    asked: Asked
    group: pa.Field | None
    groups: int
    time: pa.DataType | None
    """None: the window is not by time"""

    @property
    def parts(self) -> pa.Schema:
        """The schema of what one shard knows: a row without means begins a sample, and its groups follow."""
        return pa.schema(
            {
                "value": pa.null() if self.group is None else self.group.type,
                "other": pa.bool_(),
                "population": pa.float64(),
                "drawn": pa.int64(),
                "means": pa.list_(pa.float64()),
                "spread": pa.list_(pa.float64()),
                "at": pa.int64(),
            }
        )

    @property
    def schema(self) -> pa.Schema:
        """The schema of estimates."""
        empty = answer(self.asked, self.asked.columns, [], self.group).schema
        return empty if self.time is None else empty.append(pa.field("at", self.time))

    def combine(self, parts: Iterable[pa.RecordBatch]) -> pa.Table:
        """Estimate from what all shards know."""
        found: list[SampleTotals] = []
        now = START
        for batch in parts:
            for row in batch.rename_columns(self.parts.names).to_pylist():
                now = max(now, row["at"])
                if row["means"] is None:
                    found.append(SampleTotals(row["population"], row["drawn"], {}))
                    continue
                means, width = np.array(row["means"]), len(row["means"])
                spread = np.array(row["spread"]).reshape(width, width)
                stratum = Stratum(row["population"], row["drawn"], means, spread)
                found[-1].by_group[row["value"], row["other"]] = stratum
        table = answer(self.asked, self.asked.columns, found, self.group)
        if self.time is None:
            return table
        at = pa.array([None if now == START else now] * table.num_rows, pa.int64()).cast(self.time)
        return table.append_column("at", at)


class ShardEstimate(_Kept):
    """Estimates of a window, or of two joined: what this shard knows of them comes at the end of each micro-batch.

    Parameters
    ----------
    kept
        A window join, or a fair sample.
    quantities
        What is estimated.
    """

    kept: WindowJoin | Sampler

    def __init__(self, kept: WindowJoin | Sampler, quantities: Quantities) -> None:
        super().__init__(kept)
        self.quantities = quantities

    def insert(self, side: int, batch: pa.RecordBatch) -> Batches:
        """Take in rows."""
        if isinstance(self.kept, Sampler):
            self.kept.insert(batch)
        else:
            for _ in self.kept.insert(SIDES[side], batch):
                raise AssertionError("a join that estimates makes no results")
        return iter(())

    def end(self) -> Batches:
        """Give what is known."""
        samples = self._samples()
        if samples:
            yield self._batch(samples)

    def _samples(self) -> list[SampleTotals]:
        q = self.quantities
        if isinstance(self.kept, WindowJoin):
            return self.kept.totals(grouped=q.group is not None)
        if not self.kept.clock:
            return []
        return [self.kept.totals(q.asked.columns, None if q.group is None else q.group.name, q.groups)[0]]

    def _batch(self, samples: Sequence[SampleTotals]) -> pa.RecordBatch:
        rows: list[tuple[Any, ...]] = []
        for one in samples:
            head = one.population, one.drawn
            rows.append((None, False, *head, None, None, self.kept.now))
            for (value, other), stratum in one.by_group.items():
                rows.append(
                    (value, other, *head, stratum.means.tolist(), stratum.spread.reshape(-1).tolist(), self.kept.now)
                )
        schema = self.quantities.parts
        return pa.RecordBatch.from_arrays(
            [pa.array(list(column), field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)],
            schema=schema,
        )
