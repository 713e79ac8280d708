"""PairStep: one `progressive_join` or `multiway_join`, in the executors' Python workers: rows, shard by shard, are joined.
(DESIGN D7)

The copy of a shard's state in memory lives in this module as long as the worker does; a worker that meets a shard again brings
its copy up to date from the run log.
"""

from __future__ import annotations

import os
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from headrace import files
from headrace.clock import SystemClock
from headrace.conditions import Condition
from headrace.memory import release_freed_memory
from headrace.progressive.grids.partitioning_for import CellWidth, unbounded_partitioning_for
from headrace.progressive.logged.join import LoggedJoin, LoggedSpec
from headrace.progressive.logged.join_spec import JoinSpec, TimeBound
from headrace.progressive.logged.outer_output import How, numbered_schemas
from headrace.progressive.logged.sharding import Sharding
from headrace.progressive.logged.state_cache import StateCache
from headrace.progressive.policies import FlushPolicy, policy_of
from headrace.relation import Relation
from headrace.row_copies import POOL
from headrace.runlog import RunLog
from headrace.spark.executors import executor_directory
from headrace.spark.reports import TaskReport
from headrace.spark.state.shards import by_shard, open_log
from headrace.spark.steps import Batches, SparkTask, StateKeeping

OWED = "owed"  # a directory of the log: a file for each shard that owes pairs
_JOINS = 8  # joins whose copies a worker keeps: those of queries that have ended are of no use
# A part of a worker's memory is for rows on their way: Spark's record batches (10,000 rows), pieces of the log, results. It is
# one part in _WAY_SHARE, at least _WAY bytes, and at most half.
_WAY, _WAY_SHARE = 4 << 20, 4


class JoinedSides(Protocol):
    """Sides and how they are joined, as they travel to the executors: `Sides`, or `MultiWaySides`."""

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        """The columns of each side."""
        ...

    def pairing(self) -> LoggedSpec:
        """The join of them."""
        ...


@dataclass(frozen=True, kw_only=True)
class Sides:
    """Two sides and how they are joined, as they travel to the executors."""

    condition: Condition
    schemas: tuple[pa.Schema, pa.Schema]
    suffix: str | None
    partitions: int
    cell: CellWidth | None
    bound: TimeBound | None
    static: tuple[bool, bool]
    pivots: Any = None
    """vectors that divide vectors in many dimensions, one a row; None for none"""
    how: How = "inner"

    def pairing(self) -> JoinSpec:
        """The join of them."""
        partitioning, ask = unbounded_partitioning_for(self.condition, self.partitions, self.cell, self.pivots)
        return JoinSpec(
            condition=self.condition,
            schemas=numbered_schemas(self.schemas, self.how),
            partitioning=partitioning,
            ask=ask,
            suffix=self.suffix,
            bound=self.bound,
            static=self.static,
            how=self.how,
        )


@dataclass(frozen=True, kw_only=True)
class PairStep:
    """One `progressive_join` or `multiway_join`, as it travels to the executors."""

    id: str
    called: str
    """the function that made it"""
    sides: JoinedSides
    flush: str | FlushPolicy
    idle: float
    """seconds that a micro-batch without rows may take to catch up"""
    memory: int
    """bytes of an executor"""
    workers: int
    """tasks that an executor runs at the same time"""
    copies: int
    """shards of which a worker may keep a copy in memory"""
    by_key: bool
    """whether rows come by the hash of their key, and not by cells"""
    stream: pa.Schema
    """of the rows: a struct for each side, one of which is null"""
    remembers: StateKeeping
    streaming: bool = True
    """whether a side is a stream; otherwise the run log goes with the task, which gives all results"""
    shed: None = None
    """a join of streams takes all rows"""

    @property
    def worker_memory(self) -> int:
        """Bytes of its budget that one worker has."""
        return self.memory // self.workers

    def with_relation(self, relation: Relation, *, follow: bool) -> PairStep:
        """The step as it is: it joins with no relation."""
        return self

    def recorded(self) -> None:
        """Nothing: `replay` cannot repeat a join of streams."""

    def run(self, batches: Batches, task: SparkTask) -> Batches:
        """The results of a task's rows, and of earlier ones as many as there is time for; all, when the query is finished."""
        clock = SystemClock()
        pa.set_memory_pool(
            POOL
        )  # Arrow's own pool of this worker would keep the memory of Spark's batches for later ones
        with ExitStack() as stack:
            log, number = self._log(task, stack)
            for shard, rows in by_shard(batches, self.stream, struct_rows):
                begun = clock.now()
                warm = _warm(self, shard)
                with log.shard(shard) as held:
                    join = LoggedJoin(warm[0], held, warm[1], number, idle=self.idle)
                    yield from join.finish() if task.finishing else join.join(by_side(rows, self.sides.schemas))
                    if not self.streaming:
                        last = LoggedJoin(warm[0], held, warm[1], number + 1)
                        yield from last.finish()
                        join.stats.results, join.stats.waiting = join.stats.results + last.stats.results, 0
                if self.streaming and not task.finishing:
                    _note_owed(log.path, shard, join.stats.waiting)
                if task.reporter is not None and (join.stats.tuples_in or join.stats.results or join.stats.waiting):
                    task.reporter.add([self._report(task, clock.now() - begun, join, shard)])
                release_freed_memory()  # the memory of this shard's batches, to the system

    def _log(self, task: SparkTask, stack: ExitStack) -> tuple[RunLog, int]:
        """The run log and the micro-batch's number there; without a stream, a log that goes with the task."""
        if self.streaming:
            return open_log(
                self.remembers,
                task,
                f"{self.called} remembers rows, and this task is not of a streaming query; start one",
            )
        directory = stack.enter_context(files.scratch_directory("headrace-"))
        stack.callback(_copies.pop, self.id, None)
        return RunLog(directory, "batch", self.remembers.log, shards=self.remembers.shards), 0

    def _report(self, task: SparkTask, seconds: float, join: LoggedJoin, shard: int) -> TaskReport:
        return TaskReport(
            step=self.id,
            relation=self.remembers.log,
            version=0,
            query=task.query,
            batch=task.number,
            partition=task.partition,
            executor=f"{executor_directory()}/{os.getpid()}/{shard}",
            seconds=seconds,
            stats=join.stats,
            algorithm=self.flush if isinstance(self.flush, str) else type(self.flush).__name__,
        )


_copies: OrderedDict[str, OrderedDict[int, tuple[LoggedSpec, StateCache]]] = OrderedDict()  # by join and shard


def _warm(step: PairStep, shard: int) -> tuple[LoggedSpec, StateCache]:
    """The shard's copy in this worker. Beyond the limits on shards and joins, the least recently used is dropped."""
    mine = _copies.setdefault(step.id, OrderedDict())
    _copies.move_to_end(step.id)
    while len(_copies) > _JOINS:
        _copies.popitem(last=False)
    if shard not in mine:
        pairing = step.sides.pairing()
        division = Sharding(pairing.partitioning, 0 if step.by_key else step.remembers.shards, shard)
        divides = pairing.partitioning.nbytes // step.copies  # a worker's copies share pivots and directions in part
        memory = warm_memory(step.memory, step.workers, step.copies) - divides
        policy = deepcopy(policy_of(step.flush))  # what it learns of a shard is of that shard
        mine[shard] = pairing, StateCache(division, policy, memory, pairing.schemas)
    mine.move_to_end(shard)
    while len(mine) > step.copies:
        mine.popitem(last=False)
    return mine[shard]


def shard_memory(memory: int, workers: int, copies: int) -> int:
    """The part of an executor's memory for a shard's copy in one worker: any worker may get any shard."""
    return memory // workers // copies


def warm_memory(memory: int, workers: int, copies: int) -> int:
    """Of that, the part for rows that are kept; the rest is for rows on their way."""
    mine = memory // workers
    return (mine - min(mine // 2, max(mine // _WAY_SHARE, _WAY))) // copies


def by_side(rows: Batches, schemas: tuple[pa.Schema, ...]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each side. A row is a struct for each side, and those of other sides are null."""
    for batch in rows:
        for side in range(len(schemas)):
            structs = batch.column(side)
            if structs.null_count:
                structs = structs.drop_null()
            if len(structs):
                columns = [
                    column if column.type.equals(field.type) else column.cast(field.type)
                    for column, field in zip(structs.flatten(), schemas[side], strict=True)
                ]
                yield side, pa.RecordBatch.from_arrays(columns, schema=schemas[side])


def struct_rows(batch: pa.RecordBatch, stream: pa.Schema) -> pa.RecordBatch:
    """The structs of all sides, without shard and heartbeat; in a heartbeat all structs are null."""
    return batch.select(list(range(len(stream))))


def _note_owed(log: Path, shard: int, owed: int) -> None:
    """Note whether a shard owes pairs: the heartbeat ends a bounded run when none does.

    Whether the note is there outlives a power cut. What it says counts in this run alone, so it is not synced.
    """
    path = log / OWED / f"shard-{shard:04d}"
    there = files.exists(path)
    if owed:
        files.make_directory(path.parent)
        draft = files.draft_name(path)
        with files.open_new(draft) as file:
            file.write(f"{owed} {uuid.uuid4().hex}".encode())
        files.replace(draft, path, sync=False)
    elif there:
        files.remove(path)
    if bool(owed) != there:
        files.sync_directory(path.parent)


def spread(sides: JoinedSides, side: int, shards: int, batches: Batches) -> Batches:
    """The rows of a side, each once for every shard that owns one of its cells, with the shard as a last column."""
    division = Sharding(sides.pairing().partitioning, shards)
    for batch in batches:
        schema = sides.schemas[side]
        columns = [c if c.type.equals(f.type) else c.cast(f.type) for c, f in zip(batch.columns, schema, strict=True)]
        rows, at = division.shards_of(side, pa.RecordBatch.from_arrays(columns, schema=schema))
        taken = batch.take(pa.array(rows))
        yield pa.RecordBatch.from_arrays(
            [*taken.columns, pa.array(at)], names=[f"c{i}" for i in range(len(columns) + 1)]
        )
