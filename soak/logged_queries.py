"""Queries without Spark: micro-batches by script, an operator over the run log, and a sink that takes each micro-batch once.

    rows of micro-batch n, from the seed --> operator over RunLog --> out/n.arrow, which gets its name by a link

A process runs a query from the first micro-batch that the sink does not have. It may be killed anywhere and another goes on; two
may run at the same time; one that was stopped may wake up when others are far ahead. Every row must leave once.
"""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr
from headrace.arrays import Int64s
from headrace.errors import VersionGone
from headrace.progressive.grids.partitioning_for import partitioning_for
from headrace.progressive.logged.join import LoggedJoin
from headrace.progressive.logged.join_spec import JoinSpec
from headrace.progressive.logged.sharding import Sharding
from headrace.progressive.logged.state_cache import StateCache
from headrace.progressive.policies import POLICIES
from headrace.relation.batch_versions import BatchNote, batch_notes, read_batch_note, write_batch_note
from headrace.runlog import RunLog, ShardLog, close_finish, unfinished
from headrace.sampling import FairWindow
from headrace.sampling.arrival_order import FROM, ArrivalOrder
from headrace.sampling.logged import LoggedSample, WarmOperator
from headrace.sampling.shard_operators import ShardSample
from headrace.semistream import AdaptiveJoin
from headrace.semistream.deferred.deferral import MARK, Deferral
from headrace.semistream.deferred.join import DeferredJoin
from soak.versions import NONE, Contents

LATE = 1 << 62  # a number later than every micro-batch's
_FINISH = "finish"


@dataclass
class Verdict:
    """What is wrong with the results of a query, in rows."""

    rows: int = 0
    lost: int = 0
    doubled: int = 0
    wrong: list[str] = field(default_factory=list)

    def add(self, other: Verdict) -> None:
        """Count that of another query too."""
        self.rows += other.rows
        self.lost += other.lost
        self.doubled += other.doubled
        self.wrong += other.wrong


class LoggedQuery(ABC):
    """One query: where its state and its results are, and what comes in.

    Parameters
    ----------
    root
        Its own directory.
    seed
        Of its rows.
    batches
        Micro-batches until it ends.
    drop
        The sink forgets a row, so that the harness can show that it notices.
    out
        Where its results go; below `root` by default.
    """

    name: str

    def __init__(self, root: Path, seed: int, batches: int, drop: bool = False, out: Path | None = None) -> None:
        self.root, self.seed, self.batches, self.drop = root, seed, batches, drop
        self.out = out or root / "out"
        self.out.mkdir(parents=True, exist_ok=True)
        self.log = RunLog(root / "state", "soak", self.name, shards=1)

    @abstractmethod
    def attempt(self, shard: ShardLog, batch: int) -> list[pa.RecordBatch]:
        """The results of an attempt at a micro-batch."""

    def finish(self, shard: ShardLog) -> list[pa.RecordBatch]:
        """The results of all that is still owed."""
        return []

    @abstractmethod
    def verdict(self) -> Verdict:
        """Compare all results with the oracle. Nobody is at work."""

    def close(self) -> None:
        """Remove what the query leaves outside of its directories: nothing, unless it says otherwise."""
        return

    # -- a process -------------------------------------------------------------------------------------------------------

    @property
    def done(self) -> int:
        """The micro-batches that the sink has."""
        return sum(1 for path in self.out.glob("[0-9]*.arrow"))

    @property
    def finished(self) -> bool:
        """Whether all results are there."""
        return (self.root / "finished").exists()

    def run(self) -> None:
        """Run to the end, from where the sink stands."""
        while (batch := self.done) < self.batches:
            with self.log.shard(0) as shard:
                overtaken = self.done > batch
                try:
                    results = self.attempt(shard, batch)
                except hr.RunLogError:
                    # As a task that Spark has given up: it may do what it likes, so long as others do not suffer by it.
                    if not overtaken:
                        raise
                    continue
            self._commit(f"{batch:06d}", results, once=True)
        with self.log.shard(0) as shard:
            if unfinished(shard) >= 0:
                # Its results replace those of a finish that was killed before it was closed.
                self._commit(_FINISH, self.finish(shard), once=False)
                close_finish(shard)
        (self.root / "finished").touch()

    def results(self) -> Iterator[pa.RecordBatch]:
        """All that has arrived in the sink, and is not forgotten."""
        forgotten = not self.drop
        for path in sorted(self.out.glob("*.arrow")):
            with pa.ipc.open_file(path) as reader:
                for batch in (reader.get_batch(i) for i in range(reader.num_record_batches)):
                    yield batch if forgotten else batch.slice(1)
                    forgotten = forgotten or batch.num_rows > 0

    def _commit(self, name: str, batches: list[pa.RecordBatch], *, once: bool) -> None:
        draft, path = self.out / f".{name}-{os.getpid()}", self.out / f"{name}.arrow"
        with pa.OSFile(str(draft), "wb") as file:
            schema = batches[0].schema if batches else pa.schema([])
            with pa.ipc.new_file(file, schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
        if once:
            with suppress(FileExistsError):  # another process was faster, with the same rows
                os.link(draft, path)
            draft.unlink()
        else:
            draft.replace(path)


class Enrichment(LoggedQuery):
    """Sales enriched with their products by a deadline; those without one are tried again, and are dead letters in the end.

    Parameters
    ----------
    relation, contents
        The products, and what each version says. Its versions are noted for each micro-batch as Spark's tasks note them.
    """

    name = "enrichment"
    ROWS = 150
    STREAM = pa.schema({"id": pa.int64(), "product": pa.int64()})
    DEFERRAL = Deferral(deadline=0.15, unmatched="retry", retry_for=0.6, period=0.05)

    def __init__(
        self,
        root: Path,
        seed: int,
        batches: int,
        relation: Path,
        contents: Contents,
        drop: bool = False,
        out: Path | None = None,
    ) -> None:
        super().__init__(root, seed, batches, drop, out)
        self.relation, self.contents = relation, contents
        self.notes = batch_notes(relation, f"soak-{root.name}")

    def products(self, batch: int) -> Int64s:
        """The products of the sales of a micro-batch, popular ones among them; some that no version has."""
        rng = np.random.default_rng([self.seed, batch])
        keys = self.contents.keys
        drawn: Int64s = (keys ** rng.random(self.ROWS)).astype(np.int64) * 7919 % keys
        return drawn

    def attempt(self, shard: ShardLog, batch: int) -> list[pa.RecordBatch]:
        """Join with the version that the first attempt noted."""
        first = batch * self.ROWS
        ids = np.arange(first, first + self.ROWS)
        rows = pa.RecordBatch.from_arrays([pa.array(ids), pa.array(self.products(batch))], schema=self.STREAM)
        with self._noted(batch) as relation:
            join = self._join(relation, shard, batch)
            return [_with_version(out, relation) for out in join.join([rows], self.STREAM)]

    def finish(self, shard: ShardLog) -> list[pa.RecordBatch]:
        """Join what waits with the latest version."""
        with hr.Relation.open(self.relation) as relation:
            join = self._join(relation, shard, LATE)
            return [_with_version(out, relation) for out in join.finish(self.STREAM)]

    def _join(self, relation: hr.Relation, shard: ShardLog, batch: int) -> DeferredJoin:
        operator = AdaptiveJoin(
            relation, "product", "1MiB", how="left", order="any", columns=["price"], mark=MARK, whole=False
        )
        return DeferredJoin(operator, shard, self.DEFERRAL, batch, run=str(os.getpid()))

    def _noted(self, batch: int) -> hr.Relation:
        self.notes.mkdir(parents=True, exist_ok=True)
        note = read_batch_note(self.notes, batch)
        if note is not None:
            with suppress(VersionGone):
                return hr.Relation.open(self.relation, version=note.version)
        relation = hr.Relation.open(self.relation)
        run = str(os.getpid())
        write_batch_note(
            self.notes, BatchNote(batch=batch, version=relation.version, run=run, identity=relation.identity)
        )
        return relation

    def close(self) -> None:
        """Remove the notes of its micro-batches, which hold versions for a day."""
        shutil.rmtree(self.notes, ignore_errors=True)

    def verdict(self) -> Verdict:
        """Each sale is there once: with the price that its version says, or as a dead letter of a version without its product."""
        out = [batch for batch in self.results() if batch.num_rows]
        kept = self.log.path / "dead_letter"
        letters = pq.read_table(kept) if kept.is_dir() else None
        ids, product = (np.concatenate([b[name].to_numpy() for b in out]) for name in ("id", "product"))
        price, version = (np.concatenate([b[name].to_numpy() for b in out]) for name in ("price", "version"))
        if letters is not None:
            ids = np.concatenate([ids, letters["id"].to_numpy()])
            product = np.concatenate([product, letters["product"].to_numpy()])
            price = np.concatenate([price, np.full(letters.num_rows, NONE)])
            version = np.concatenate([version, letters["_relation_version"].to_numpy()])
        rows = self.batches * self.ROWS
        wanted = np.concatenate([self.products(batch) for batch in range(self.batches)])
        verdict = once(ids, rows)
        said = np.array([self.contents.prices(int(v))[p] for v, p in zip(version, product, strict=True)])
        if wrong := int((said != price).sum()):
            verdict.wrong.append(f"{self.name}: {wrong} prices are not those of the version that the row names")
        if not verdict.wrong and (product != wanted[ids]).any():
            verdict.wrong.append(f"{self.name}: products are not those of the sales that came in")
        return verdict


class Pairs(LoggedQuery):
    """Two streams joined progressively in little memory: most pairs are owed for a while."""

    name = "pairs"
    ROWS, KEYS = 40, 50
    SCHEMAS = pa.schema({"k": pa.int64(), "a": pa.int64()}), pa.schema({"k": pa.int64(), "b": pa.int64()})

    def __init__(self, root: Path, seed: int, batches: int, drop: bool = False, out: Path | None = None) -> None:
        super().__init__(root, seed, batches, drop, out)
        partitioning, ask = partitioning_for(hr.equal("k"), 5)
        self._spec = JoinSpec(
            condition=hr.equal("k"), schemas=self.SCHEMAS, partitioning=partitioning, ask=ask, capacity=150
        )
        sharding = Sharding(self._spec.partitioning)
        self._cache = StateCache(sharding, POLICIES["rrpj"](), 1 << 18, self._spec.schemas)

    def keys(self, side: int, batch: int) -> Int64s:
        """The keys of a side's rows in a micro-batch."""
        drawn: Int64s = np.random.default_rng([self.seed, side, batch]).integers(0, self.KEYS, self.ROWS)
        return drawn

    def attempt(self, shard: ShardLog, batch: int) -> list[pa.RecordBatch]:
        """Join the rows of both sides; what memory does not hold any more is owed."""
        numbers = pa.array(np.arange(batch * self.ROWS, (batch + 1) * self.ROWS))
        rows = [
            (side, pa.RecordBatch.from_arrays([pa.array(self.keys(side, batch)), numbers], schema=schema))
            for side, schema in enumerate(self.SCHEMAS)
        ]
        return list(LoggedJoin(self._spec, shard, self._cache, batch, idle=0.0).join(iter(rows)))

    def finish(self, shard: ShardLog) -> list[pa.RecordBatch]:
        """The pairs that are owed."""
        return list(LoggedJoin(self._spec, shard, self._cache, LATE, idle=0.0).finish())

    def verdict(self) -> Verdict:
        """Each pair with equal keys is there once, and no other."""
        left, right = (np.concatenate([self.keys(side, b) for b in range(self.batches)]) for side in (0, 1))
        wanted = np.flatnonzero((left[:, None] == right[None, :]).ravel())
        out = [batch for batch in self.results() if batch.num_rows]
        a, b = (np.concatenate([batch[name].to_numpy() for batch in out]) for name in ("a", "b"))
        return once(np.searchsorted(wanted, a * right.size + b), wanted.size, wanted, a * right.size + b)


class Sample(LoggedQuery):
    """A sample of a window, with a seed: each micro-batch gives the whole sample, the same one whoever is killed."""

    name = "sample"
    ROWS = 60

    def __init__(self, root: Path, seed: int, batches: int, drop: bool = False, out: Path | None = None) -> None:
        super().__init__(root, seed, batches, drop, out)
        self._warm = WarmOperator()

    def attempt(self, shard: ShardLog, batch: int) -> list[pa.RecordBatch]:
        """The sample after a micro-batch."""
        order = ArrivalOrder(hr.rows(200), (None,))
        sample = LoggedSample(self._make, shard, self._warm, batch, order=order, step="soak")
        return list(sample.run(iter([(0, self.rows(batch))])))

    def _make(self) -> ShardSample:
        return ShardSample(FairWindow(40, window=hr.rows(200), seed=self.seed))

    def rows(self, batch: int) -> pa.RecordBatch:
        """The rows of a micro-batch, of two tasks."""
        ids = np.arange(batch * self.ROWS, (batch + 1) * self.ROWS)
        return pa.record_batch({"id": ids, FROM: pa.array(ids % self.ROWS // 30, pa.int32())})

    def verdict(self) -> Verdict:
        """Compare with a query of the same seed that nobody disturbs, micro-batch by micro-batch."""
        quiet = Sample(self.root.with_name(f"{self.root.name}-quiet"), self.seed, self.batches)
        quiet.run()
        verdict = Verdict()
        for batch in range(self.batches):
            mine, other = (np.sort(_ids(query.out / f"{batch:06d}.arrow")) for query in (self, quiet))
            verdict.rows += other.size
            verdict.lost += np.setdiff1d(other, mine).size
            verdict.doubled += mine.size - np.unique(mine).size
            if (others := np.setdiff1d(mine, other).size) != 0:
                verdict.wrong.append(f"{self.name}: {others} rows of micro-batch {batch} are of another sample")
        return verdict


def once(numbers: Int64s, rows: int, wanted: Int64s | None = None, codes: Int64s | None = None) -> Verdict:
    """Whether each of so many numbers is there once. With codes: each of the wanted ones."""
    verdict = Verdict(rows=rows)
    if wanted is not None and codes is not None:
        known = numbers < rows
        known[known] = wanted[numbers[known]] == codes[known]
        if not known.all():
            verdict.wrong.append(f"{int((~known).sum())} results that the oracle does not have")
        numbers = numbers[known]
    elif numbers.size and (numbers.min() < 0 or numbers.max() >= rows):
        verdict.wrong.append("rows that never came in")
        numbers = numbers[(numbers >= 0) & (numbers < rows)]
    times = np.bincount(numbers, minlength=rows)
    verdict.lost, verdict.doubled = int((times == 0).sum()), int((times - 1)[times > 1].sum())
    return verdict


def _with_version(batch: pa.RecordBatch, relation: hr.Relation) -> pa.RecordBatch:
    return batch.append_column("version", pa.array(np.full(batch.num_rows, relation.version)))


def _ids(path: Path) -> Int64s:
    with pa.ipc.open_file(path) as reader:
        ids: Int64s = reader.read_all()["id"].to_numpy() if reader.schema.names else np.empty(0, np.int64)
    return ids
