"""SampleStep: an operator that samples, in the executors' Python workers: window joins, approximate joins, samples, estimates.

A worker keeps the operator of the last shard that it ran; one that meets another shard begins with the snapshot in its run log.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa

from headrace.clock import SystemClock
from headrace.files import scratch_directory
from headrace.memory import release_freed_memory
from headrace.metrics import JoinStats
from headrace.relation import Relation
from headrace.row_copies import POOL
from headrace.runlog import RunLog
from headrace.sampling.arrival_order import FROM, ArrivalOrder, SideBatch
from headrace.sampling.logged import LoggedSample, ShardOperator, WarmOperator
from headrace.spark.executors import executor_directory
from headrace.spark.pair_step import struct_rows
from headrace.spark.reports import TaskReport
from headrace.spark.state.shards import by_shard, open_log
from headrace.spark.steps import Batches, SparkTask, StateKeeping
from headrace.windows import Window


class CountingOperator(ShardOperator, Protocol):
    """An operator that says what it has counted."""

    def counters(self) -> JoinStats:
        """Say what was counted, and what memory is held."""
        ...


class OperatorSpec(Protocol):
    """An operator as it travels to the executors."""

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    def open(self, shard: int) -> CountingOperator:
        """Make the operator of a shard, empty."""
        ...


@dataclass(frozen=True, kw_only=True)
class SampleStep:
    """One of them, as it travels to the executors."""

    id: str
    operator: OperatorSpec
    stream: pa.Schema
    """of the rows: a struct for each side, one of which is null, and the number of the task that they come from"""
    schemas: tuple[pa.Schema, ...]
    """of each side"""
    window: Window | None
    """by which rows are put in order"""
    delays: tuple[float | None, ...]
    """seconds that rows of each side may be late; None: they never are"""
    static: tuple[bool, ...]
    """sides that are read once, and not a stream"""
    memory: int
    """bytes of an executor"""
    workers: int
    """tasks that an executor runs at the same time"""
    batch_column: str | None
    """a last column with the number of the micro-batch"""
    remembers: StateKeeping
    shed: None = None
    """it takes all rows"""

    @property
    def worker_memory(self) -> int:
        """Bytes of its budget that one worker has."""
        return self.memory // self.workers

    def with_relation(self, relation: Relation, *, follow: bool) -> SampleStep:
        """The step as it is: it joins with no relation."""
        return self

    def recorded(self) -> None:
        """Nothing: `replay` cannot repeat it."""

    def run(self, batches: Batches, task: SparkTask) -> Batches:
        """The results of a task's rows."""
        if task.finishing:
            return
        pa.set_memory_pool(
            POOL
        )  # Arrow's own pool of this worker would keep the memory of Spark's batches for later ones
        clock = SystemClock()
        with ExitStack() as stack:
            log, number = self._log(task, stack)
            for shard, rows in by_shard(batches, self.stream, struct_rows):
                begun, warm = clock.now(), _warm(self.id, shard)
                order = ArrivalOrder(self.window, self.delays)
                with log.shard(shard) as held:
                    sample = LoggedSample(
                        self._make(shard), held, warm, number, order=order, step=self._columns, static=self.static
                    )
                    results = 0
                    for out in sample.run(self._by_side(rows)):
                        results += out.num_rows
                        yield self._numbered(out, number)
                if task.reporter is not None and any(sample.came):
                    stats = self._counted(warm, sample, results)
                    task.reporter.add([self._report(task, clock.now() - begun, stats, shard)])
                release_freed_memory()  # the memory of this shard's batches, to the system

    @property
    def _columns(self) -> str:
        """The columns of its sides, which tell it from other steps of the query."""
        return " and ".join(", ".join(f"{field.name} {field.type}" for field in schema) for schema in self.schemas)

    def _log(self, task: SparkTask, stack: ExitStack) -> tuple[RunLog, int]:
        """The run log; of a batch DataFrame, one that goes with the task."""
        if task.query is None:
            directory = stack.enter_context(scratch_directory("headrace-"))
            return RunLog(directory, "batch", self.remembers.log, shards=self.remembers.shards), 0
        return open_log(self.remembers, task, f"{self.operator.name} remembers rows; start a streaming query")

    def _make(self, shard: int) -> Callable[[], ShardOperator]:
        return lambda: self.operator.open(shard)

    def _by_side(self, rows: Batches) -> Iterator[SideBatch]:
        """The rows of each side, with the numbers of their tasks. Of the structs of a row, one is not null."""
        for batch in rows:
            tasks = batch.column(len(self.schemas))
            for side, schema in enumerate(self.schemas):
                structs, of_tasks = batch.column(side), tasks
                if structs.null_count:
                    there = structs.is_valid()
                    structs, of_tasks = structs.filter(there), tasks.filter(there)
                if len(structs):
                    columns = [
                        column if column.type.equals(field.type) else column.cast(field.type)
                        for column, field in zip(structs.flatten(), schema, strict=True)
                    ]
                    names = [*schema.names, FROM]
                    yield side, pa.RecordBatch.from_arrays([*columns, of_tasks], names=names)

    def _numbered(self, out: pa.RecordBatch, number: int) -> pa.RecordBatch:
        if self.batch_column is None:
            return out
        return out.append_column(self.batch_column, pa.repeat(pa.scalar(number, pa.int64()), out.num_rows))

    def _counted(self, warm: WarmOperator, sample: LoggedSample, results: int) -> JoinStats:
        operator: Any = warm.operator
        counted: JoinStats = operator.counters()
        late = sum(sample.order.late)
        said = {"late": f"{late} rows came after the watermark had passed them, and were left out"} if late else {}
        return replace(counted, tuples_in=sum(sample.came), results=results, nulls=0, late=late, warnings=said)

    def _report(self, task: SparkTask, seconds: float, stats: JoinStats, shard: int) -> TaskReport:
        return TaskReport(
            step=self.id,
            relation=self.remembers.log,
            version=0,
            query=task.query,
            batch=task.number,
            partition=task.partition,
            executor=f"{executor_directory()}/{os.getpid()}/{shard}",
            seconds=seconds,
            stats=stats,
            algorithm=self.operator.name,
        )


_last: dict[str, tuple[int, WarmOperator]] = {}  # by step: the shard that this worker ran last, and its operator
_STEPS = 8  # steps whose operators a worker keeps: those of queries that have ended are of no use


def _warm(step: str, shard: int) -> WarmOperator:
    """The shard's operator in this worker, or none."""
    last, warm = _last.pop(step, (shard, WarmOperator()))
    if last != shard:
        warm = WarmOperator()
    _last[step] = shard, warm
    while len(_last) > _STEPS:
        del _last[next(iter(_last))]
    return warm
