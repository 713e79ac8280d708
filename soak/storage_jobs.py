"""Small jobs that change files, each with what a reader sees after every step: faults and crash states are tried on them.

A job is prepared once and then takes its steps, each of which is acknowledged when it returns. Whatever happens to a step, a
reader sees the state before it or the state after it, and that step and those after it bring the last state about.
"""

from __future__ import annotations

import ast
import re
import shutil
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql.types import LongType, StructField, StructType

import headrace as hr
from headrace import files
from headrace.clock import ManualClock
from headrace.errors import OutsideFailure
from headrace.progressive import ProgressiveJoin
from headrace.progressive.grids.partitioning_for import partitioning_for
from headrace.progressive.logged.join import LoggedJoin
from headrace.progressive.logged.join_spec import JoinSpec
from headrace.progressive.logged.sharding import Sharding
from headrace.progressive.logged.state_cache import StateCache
from headrace.progressive.policies import POLICIES
from headrace.relation.update import Change
from headrace.runlog import RunLog, close_finish, unfinished
from headrace.shedding.ledger import Decision, Ledger, TaskRecord
from headrace.spark.delta.load import Sink
from headrace.spark.delta.log_sync import refuse_cut_short

# What differs between two runs of the same job: random names, and numbers of versions.
_RANDOM = re.compile(r"[0-9a-f]{32}|[0-9a-f]{12}|[0-9a-f]{8}(?=-|$)|(?<=\D)[0-9]{6}(?!\d)")

Rows = tuple[tuple[Any, ...], ...]


class Job(ABC):
    """A job over files below a directory."""

    name: str
    steps: int = 1
    durable: bool = True
    """whether what it acknowledges has to survive a power cut"""
    native: str | None = None
    """a pattern of the names that others than Headrace write"""

    @abstractmethod
    def prepare(self, root: Path) -> None:
        """Make what is there before the first step."""

    @abstractmethod
    def step(self, root: Path, number: int) -> None:
        """Take a step, as a process that has just started. When it returns it is acknowledged; it may be taken again."""

    @abstractmethod
    def observe(self, root: Path) -> object:
        """Return what a reader sees, having checked all that can be checked; the same value for the same state."""

    def left(self, root: Path) -> Counter[str]:
        """Return the names of all files, without what is random in them: what a job leaves that was never disturbed."""
        return Counter(_RANDOM.sub("*", str(path.relative_to(root))) for path in root.rglob("*") if path.is_file())

    def __repr__(self) -> str:
        return self.name


# -- relations ---------------------------------------------------------------------------------------------------------


def rows_of(seed: int, many: int = 40) -> pa.Table:
    """Rows of a small relation: keys that repeat, a number, a text."""
    rng = np.random.default_rng(seed)
    keys = np.sort(rng.integers(0, many, many))
    return pa.table({"k": keys, "v": rng.integers(0, 1000, many), "t": [f"text {seed} {i}" for i in range(many)]})


class _RelationJob(Job):
    def observe(self, root: Path) -> object:
        path = root / "r"
        if not path.exists():
            return None
        with hr.Relation.open(path) as relation:
            relation.verify()
            rows = sorted(tuple(row.values()) for row in relation.to_arrow().to_pylist())
            return relation.order, tuple(rows)

    def prepare(self, root: Path) -> None:
        create(root, 1)


def create(root: Path, seed: int, **options: Any) -> None:
    """Create the relation of a job."""
    hr.Relation.create(root / "r", rows_of(seed), key="k", shards=2, page_size="4KiB", **options).close()


class Create(_RelationJob):
    """A relation is created where there was none."""

    name = "create"

    def prepare(self, root: Path) -> None:
        """Nothing is there."""

    def step(self, root: Path, number: int) -> None:
        create(root, 1, overwrite=(root / "r").exists())


class Overwrite(_RelationJob):
    """A relation is created in the place of another."""

    name = "overwrite"

    def step(self, root: Path, number: int) -> None:
        create(root, 2, overwrite=True)


class Apply(_RelationJob):
    """Rows are replaced, added and removed, three times."""

    name = "apply"
    steps = 3

    def step(self, root: Path, number: int) -> None:
        with hr.Relation.open(root / "r") as relation:
            relation.apply(upserts=rows_of(10 + number, 6), deletes=[30 + number])


class Revise(_RelationJob):
    """A change is decided by what the latest version holds, as surrogate keys are given out."""

    name = "revise"
    steps = 2

    def step(self, root: Path, number: int) -> None:
        def decide(latest: hr.Relation) -> Change | None:
            if latest.lookup([100 + number]).num_rows:
                return None
            most = max(latest.to_arrow()["v"].to_pylist())
            return Change(pa.table({"k": [100 + number], "v": [most + 1], "t": ["new"]}), None)

        with hr.Relation.open(root / "r") as relation:
            relation.revise(decide)


class Compact(_RelationJob):
    """A relation with changes is written anew in order."""

    name = "compact"

    def prepare(self, root: Path) -> None:
        create(root, 1)
        with hr.Relation.open(root / "r") as relation:
            relation.apply(upserts=rows_of(10, 6), deletes=[30])

    def step(self, root: Path, number: int) -> None:
        with hr.Relation.open(root / "r") as relation:
            relation.compact()


class Reorder(Compact):
    """A relation is ordered by popularity, and changed then."""

    name = "reorder"
    steps = 2

    def prepare(self, root: Path) -> None:
        keys = rows_of(1)["k"].unique()
        unique = pa.table({"k": keys, "v": pa.array(range(len(keys)), pa.int64()), "t": ["x"] * len(keys)})
        hr.Relation.create(root / "r", unique, key="k", shards=2, page_size="4KiB").close()

    def step(self, root: Path, number: int) -> None:
        with hr.Relation.open(root / "r") as relation:
            if number == 0:
                popular = pa.table({"k": [5, 3], "frequency": [9, 4]})
                relation.compact(order="frequency", popularity=popular)
            else:
                relation.apply(upserts=pa.table({"k": [3, 99], "v": [7, 8], "t": ["a", "b"]}))


# -- run logs ----------------------------------------------------------------------------------------------------------

SCHEMAS = pa.schema({"k": pa.int64(), "a": pa.int64()}), pa.schema({"k": pa.int64(), "b": pa.int64()})


class LoggedPairs(Job):
    """Micro-batches of two streams through a join that remembers rows in a run log, until decisions are compacted; then the end.

    The sink is a directory of one file a micro-batch, which stands for any that counts transactions: a micro-batch that is in it
    is not run again.
    """

    name = "progressive join"

    def __init__(self, steps: int = 6) -> None:
        self.steps = steps + 1  # the last one finishes
        condition = hr.equal("k")
        partitioning, ask = partitioning_for(condition, 3)
        self._spec = JoinSpec(condition=condition, schemas=SCHEMAS, partitioning=partitioning, ask=ask, capacity=6)

    def prepare(self, root: Path) -> None:
        (root / "sink").mkdir()
        self._run(root, 0)

    def step(self, root: Path, number: int) -> None:
        if number < self.steps - 1:
            self._run(root, number + 1)
        else:
            log = RunLog(root / "state", "q", "join", shards=1)
            with log.shard(0) as shard:
                if unfinished(shard) >= 0:
                    self._give(root, "end", list(self._operator(shard, 1 << 62).finish()))
                    close_finish(shard)

    def _run(self, root: Path, batch: int) -> None:
        with RunLog(root / "state", "q", "join", shards=1).shard(0) as shard:
            self._give(root, str(batch), list(self._operator(shard, batch).join(iter(self._rows(batch)))))

    def _operator(self, shard: Any, batch: int) -> LoggedJoin:
        sharding = Sharding(self._spec.partitioning)
        cache = StateCache(sharding, POLICIES["rrpj"](), 1 << 18, self._spec.schemas)
        return LoggedJoin(self._spec, shard, cache, batch, idle=0.35, clock=ManualClock())

    def _rows(self, batch: int) -> list[tuple[int, pa.RecordBatch]]:
        rng = np.random.default_rng(batch)
        return [
            (side, pa.record_batch({"k": rng.integers(0, 5, 4), name: np.arange(4) + 10 * batch}, schema=SCHEMAS[side]))
            for side, name in ((0, "a"), (1, "b"))
        ]

    def _give(self, root: Path, name: str, results: Sequence[pa.RecordBatch]) -> None:
        """The sink takes the results of an attempt that came to its end. What it wrote, it never loses."""
        rows = sorted(tuple(row.values()) for batch in results for row in batch.to_pylist())
        draft = files.draft_name(root / "sink" / name)
        with files.open_new(draft) as file:
            file.write(repr(rows).encode())
            file.sync()
        files.replace(draft, root / "sink" / name)

    def left(self, root: Path) -> Counter[str]:
        """The files of the log: drafts of the sink are none of ours."""
        return Counter({name: count for name, count in super().left(root).items() if not name.startswith("sink/")})

    def observe(self, root: Path) -> object:
        """The sink's pairs; the log itself is checked by going on with it."""
        given = (path for path in (root / "sink").iterdir() if not path.name.startswith("."))
        pairs = Counter(pair for path in given for pair in ast.literal_eval(path.read_text()))
        assert max(pairs.values(), default=1) == 1, "a pair came twice"
        return tuple(sorted(pairs))


class LogCompaction(Job):
    """Files of a kind in a run log are merged into one, and expire."""

    name = "log compaction"
    steps = 4

    def prepare(self, root: Path) -> None:
        with RunLog(root, "q", "op", shards=1).shard(0) as shard:
            for batch in range(5):
                shard.write("rows", batch, pa.schema({"v": pa.int64()}), [pa.record_batch({"v": [batch, 10 * batch]})])

    def step(self, root: Path, number: int) -> None:
        with RunLog(root, "q", "op", shards=1).shard(0) as shard:
            rows = pa.record_batch({"v": [5]})
            if number == 0:
                shard.compact("rows", before=4)
            elif number == 1:
                shard.write("rows", 5, rows.schema, [rows])
            elif number == 2:
                shard.keep("dead_letter", 5, rows.schema, [rows])
            else:
                shard.expire("rows", before=4)

    def observe(self, root: Path) -> object:
        log = RunLog(root, "q", "op", shards=1)
        with log.shard(0) as shard:
            rows = [v for file in shard.read("rows", before=99) for v in file.table()["v"].to_pylist()]
            kept = shard.kept("dead_letter", 5)
            return tuple(rows), kept.exists()


class Shed(Job):
    """A micro-batch sheds rows, they are replayed into the sink, and the ledger forgets them."""

    name = "replay"
    steps = 4

    def prepare(self, root: Path) -> None:
        self._ledger(root)

    def _ledger(self, root: Path) -> Ledger:
        return Ledger(root / "state", "q", "shed 0 rel")

    def step(self, root: Path, number: int) -> None:
        ledger = self._ledger(root)
        rows = pa.record_batch({"k": [1, 2, 3]})
        if number in (0, 1):
            _, run = ledger.decide(number, "run", Decision())
            if not ledger.shed_file(number, run, 0).exists():
                draft = ledger.draft(number, run, 0, rows.schema)
                try:
                    draft.add(rows)
                    draft.commit()
                except Exception:
                    draft.discard()
                    raise
            ledger.record_task(number, run, 0, TaskRecord(10, 3, 1.0, "x", 1))
            ledger.finish(number)
        elif number == 2:
            with ledger.replaying():
                ledger.mark_replayed(0)
        else:
            with ledger.replaying():
                ledger.mark_replayed(1)

    def observe(self, root: Path) -> object:
        ledger = self._ledger(root)
        return ledger.finished(), ledger.replayed()


# -- sinks -------------------------------------------------------------------------------------------------------------


class _InProcess:
    """A plan whose tasks run in this process, one after the other."""

    steps: tuple[Any, ...] = ()
    relations: tuple[Any, ...] = ()
    earlier: tuple[str, ...] = ()
    worker_memory = None
    schema = StructType([StructField("k", LongType()), StructField("day", LongType())])

    def map(self, df: list[pa.RecordBatch], schema: str, task: Any) -> _InProcess:
        self._facts = [
            facts
            for partition, batch in enumerate(df)
            for facts in task.files.write(iter([batch]), _Context(partition))
        ]
        return self

    def collect(self) -> list[Any]:
        return [_Facts(text) for batch in self._facts for text in batch["facts"].to_pylist()]


class _Context:
    def __init__(self, partition: int) -> None:
        self._partition = partition

    def partitionId(self) -> int:
        return self._partition


class _Facts:
    def __init__(self, facts: str) -> None:
        self.facts = facts


class Load(Job):
    """Micro-batches of two tasks are loaded into a Delta table, which the first of them makes."""

    name = "load"
    steps = 3
    native = "_delta_log/*"

    def prepare(self, root: Path) -> None:
        """Nothing is there."""

    def step(self, root: Path, number: int) -> None:
        plan: Any = _InProcess()
        sink = Sink(root / "table", plan, ("day",))
        rows: Any = [pa.record_batch({"k": [10 * number + task], "day": [number % 2]}) for task in range(2)]
        sink.load(rows, "app", number, plan)

    def observe(self, root: Path) -> object:
        """The rows of the table; an entry that is cut short is named, and removed as the error says."""
        try:
            refuse_cut_short(root / "table")
        except OutsideFailure as error:
            Path(str(error).partition(" is cut short")[0]).unlink()
        if not DeltaTable.is_deltatable(str(root / "table")):
            return ()
        try:
            rows = DeltaTable(str(root / "table")).to_pyarrow_table().to_pylist()
        except (DeltaError, pa.ArrowException) as error:  # what other readers of the table say
            raise OutsideFailure(f"{root / 'table'}: {error}") from error
        return tuple(sorted((row["k"], row["day"]) for row in rows))

    def left(self, root: Path) -> Counter[str]:
        """Only names of Parquet files are compared: delta-rs may leave drafts of its log, which readers do not look at."""
        return Counter({name: count for name, count in super().left(root).items() if name.endswith(".parquet")})


# -- memory that overflows ---------------------------------------------------------------------------------------------


class Spill(Job):
    """A progressive join in memory far too small for its rows: what is spilled comes back, or the call can be made again."""

    name = "spill"
    durable = False

    def prepare(self, root: Path) -> None:
        (root / "spill").mkdir()

    def step(self, root: Path, number: int) -> None:
        rng = np.random.default_rng(3)
        join = ProgressiveJoin(hr.equal("k"), memory="256KiB", flush="rrpj", spill=root / "spill")
        results: list[pa.RecordBatch] = []
        for i in range(12):
            for side, name in (("left", "a"), ("right", "b")):
                rows = pa.record_batch({"k": rng.integers(0, 4000, 1500), name: np.arange(1500) + 10_000 * i})
                results += _insisted(partial(join.insert, side, rows))
        results += _insisted(join.finish)
        (root / "sink").write_text(repr(sorted(tuple(row.values()) for batch in results for row in batch.to_pylist())))

    def observe(self, root: Path) -> object:
        return (root / "sink").read_text() if (root / "sink").exists() else None


def _insisted(call: Any) -> Iterator[pa.RecordBatch]:
    """Make a call; errors come to the caller, who starts over: what was spilled has no name and is gone with the join."""
    results: Iterable[pa.RecordBatch] = call()
    yield from results


JOBS: tuple[Job, ...] = (
    Create(), Overwrite(), Apply(), Revise(), Compact(), Reorder(), LoggedPairs(), LogCompaction(), Shed(), Load(), Spill(),
)  # fmt: skip


def fresh(root: Path) -> Path:
    """Return a directory with nothing in it."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    return root
