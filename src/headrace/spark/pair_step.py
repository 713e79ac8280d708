"""What a task of `progressive_join` does: rows of both sides, of one shard, through the shard's operator. (DESIGN D7)

Runs inside the executors' Python workers. A shard's warm copy lives in this module as long as the worker does; a worker that
meets a shard again brings its copy up to date from the log.
"""

from __future__ import annotations

import os
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.clock import SystemClock
from headrace.conditions import Condition
from headrace.errors import RunLogError
from headrace.memory import release_freed_memory
from headrace.progressive.grids.partitioning import LEFT, RIGHT
from headrace.progressive.grids.partitioning_for import CellWidth, unbounded_partitioning_for
from headrace.progressive.logged.join import LoggedJoin
from headrace.progressive.logged.join_spec import JoinSpec, TimeBound
from headrace.progressive.logged.sharding import Sharding
from headrace.progressive.logged.state_cache import StateCache
from headrace.progressive.memory.row_chunks import POOL
from headrace.progressive.policies import FlushPolicy, policy_of
from headrace.runlog import RunLog
from headrace.spark.state.shards import by_shard
from headrace.spark.worker import Batches, Step, executor_directory

if TYPE_CHECKING:
    from pyspark import TaskContext

OWED = "owed"  # a directory of the log: a file for each shard that owes pairs
_JOINS = 8  # whose copies a worker keeps: those of queries that have ended are of no use
_AFTER_ALL = 1 << 62  # later than every micro-batch
# Of a worker's memory is for rows on their way: Spark's record batches (10,000 rows), what is read from the log and written to
# it, results. A quarter, and where that is little so much, but never more than half.
_WAY, _WAY_SHARE = 4 << 20, 4


@dataclass(frozen=True)
class Sides:
    """Two sides and how they are joined, as they travel to the executors."""

    condition: Condition
    schemas: tuple[pa.Schema, pa.Schema]
    suffix: str | None
    partitions: int
    cell: CellWidth | None
    bound: TimeBound | None
    static: tuple[bool, bool]

    def pairing(self) -> JoinSpec:
        """The join of them."""
        partitioning, ask = unbounded_partitioning_for(self.condition, self.partitions, self.cell)
        return JoinSpec(
            condition=self.condition,
            schemas=self.schemas,
            partitioning=partitioning,
            ask=ask,
            suffix=self.suffix,
            bound=self.bound,
            static=self.static,
        )


@dataclass(frozen=True, kw_only=True)
class PairStep(Step):
    """One `progressive_join`, as it travels to the executors."""

    sides: Sides
    flush: str | FlushPolicy
    idle: float
    copies: int  # warm copies that a worker may have
    by_key: bool  # whether rows come by the hash of their key

    def run(
        self,
        batches: Batches,
        context: TaskContext,
        report: Any,
        finish: str | None = None,
        rest: tuple[Step, ...] = (),
    ) -> Batches:
        """Results of a task's rows, and of earlier ones what there is time for. With `finish`: all that query owes."""
        local, clock = context.getLocalProperty, SystemClock()
        query, batch = finish or local("sql.streaming.queryId"), local("streaming.sql.batchId")
        if query is None or (batch is None and not finish):
            raise RunLogError(
                "hr.progressive_join remembers rows, and this task is not of a streaming query; start one"
            )
        assert self.stream is not None
        pa.set_memory_pool(POOL)  # of this worker: what Spark's rows took goes back, and is not kept for the next ones
        log = RunLog(self.state, query, self.log, shards=self.shards)
        for shard, rows in by_shard(batches, self.stream, struct_rows):
            begun = clock.now()
            warm = _warm(self, shard)
            with log.shard(shard) as held:
                number = _AFTER_ALL if finish else int(batch)
                join = LoggedJoin(warm[0], held, warm[1], number, idle=self.idle)
                yield from join.finish() if finish else join.join(_by_side(rows, self.sides.schemas))
            if not finish:
                _note_owed(log.path, shard, join.stats.waiting)
            if report is not None and (join.stats.tuples_in or join.stats.results or join.stats.waiting):
                report.add([self._report(context, query, clock.now() - begun, join, shard, finish)])
            release_freed_memory()  # rows on their way came and went

    def _report(
        self, context: TaskContext, query: str, seconds: float, join: LoggedJoin, shard: int, finish: str | None
    ) -> dict[str, Any]:
        local = context.getLocalProperty
        execution = int(local("spark.sql.execution.id") or 0)
        return {
            "step": self.id,
            "relation": self.log,
            "version": 0,
            "query": query,
            "batch": -1 - execution if finish else int(local("streaming.sql.batchId")),
            "partition": context.partitionId(),
            "executor": f"{executor_directory()}/{os.getpid()}/{shard}",
            "seconds": seconds,
            "algorithm": self.algorithm,
            "stats": join.stats.as_dict(),
        }


_copies: OrderedDict[str, OrderedDict[int, tuple[JoinSpec, StateCache]]] = OrderedDict()  # by join and shard


def _warm(step: PairStep, shard: int) -> tuple[JoinSpec, StateCache]:
    """The shard's copy in this worker. Of too many of a join, and of too many joins, the least recently used goes."""
    mine = _copies.setdefault(step.id, OrderedDict())
    _copies.move_to_end(step.id)
    while len(_copies) > _JOINS:
        _copies.popitem(last=False)
    if shard not in mine:
        pairing = step.sides.pairing()
        division = Sharding(pairing.partitioning, 0 if step.by_key else step.shards, shard)
        memory = warm_memory(step.memory, step.workers, step.copies)
        policy = deepcopy(policy_of(step.flush))  # what it learns of a shard is of that shard
        mine[shard] = pairing, StateCache(division, policy, memory, step.sides.schemas)
    mine.move_to_end(shard)
    while len(mine) > step.copies:
        mine.popitem(last=False)
    return mine[shard]


def shard_memory(memory: int, workers: int, copies: int) -> int:
    """Of an executor's memory, what a shard's copy in one worker has: any worker may have any shard."""
    return memory // workers // copies


def warm_memory(memory: int, workers: int, copies: int) -> int:
    """Of that, what rows have that are kept."""
    mine = memory // workers
    return (mine - min(mine // 2, max(mine // _WAY_SHARE, _WAY))) // copies


def _by_side(rows: Batches, schemas: tuple[pa.Schema, pa.Schema]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Rows are structs, one of which is null: the side that it is not of."""
    for batch in rows:
        for side in (LEFT, RIGHT):
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
    """Without what only says where a row goes; a heartbeat is of neither side."""
    return batch.select(list(range(len(stream))))


def _note_owed(log: Path, shard: int, owed: int) -> None:
    """For the heartbeat, which ends a bounded run when nothing is owed."""
    path = log / OWED / f"shard-{shard:04d}"
    if not owed:
        path.unlink(missing_ok=True)
        return
    with suppress(FileExistsError):
        path.parent.mkdir()
    draft = path.with_name(f".{uuid.uuid4().hex}")
    draft.write_text(f"{owed} {uuid.uuid4().hex}")
    draft.replace(path)


def spread(sides: Sides, side: int, shards: int, batches: Batches) -> Batches:
    """Rows of a side, each with every shard that has a cell of its."""
    division = Sharding(sides.pairing().partitioning, shards)
    for batch in batches:
        schema = sides.schemas[side]
        columns = [c if c.type.equals(f.type) else c.cast(f.type) for c, f in zip(batch.columns, schema, strict=True)]
        rows, at = division.shards_of(side, pa.RecordBatch.from_arrays(columns, schema=schema))
        taken = batch.take(pa.array(rows))
        yield pa.RecordBatch.from_arrays(
            [*taken.columns, pa.array(at)], names=[f"c{i}" for i in range(len(columns) + 1)]
        )
