"""Steps: what the Python workers do with the rows of a task, one after the other.

EnrichStep joins with a relation, PairStep joins streams, ConstructStep makes XML of joined rows, SampleStep samples, KeyStep (in
`etl`) gives out surrogate keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from headrace.relation import Relation
from headrace.spark.recorded import RecordedJoin
from headrace.spark.reports import TaskReport
from headrace.spark.shed import ShedStep

if TYPE_CHECKING:
    from pyspark import TaskContext

Batches = Iterator[pa.RecordBatch]


class Reporter(Protocol):
    """Takes what tasks report; on Spark, an accumulator."""

    def add(self, reports: list[TaskReport]) -> None:
        """Take reports."""
        ...


@dataclass(frozen=True, kw_only=True)
class SparkTask:
    """The Spark task that steps run in."""

    partition: int
    query: str | None = None
    """id of the streaming query; with `finishing`, of the one whose waiting rows are joined; None for a batch DataFrame"""
    batch: int | None = None
    """number of the micro-batch"""
    run: str = ""
    """id of this run of the query: a restart has another"""
    execution: int = 0
    """Spark's number of the execution"""
    finishing: bool = False
    """whether the task joins the rows that wait in the query's log, and nothing else"""
    partitions: int | None = None
    """partitions of the micro-batch, where the driver knows"""
    reporter: Reporter | None = None
    following: tuple[Step, ...] = ()
    """steps that take the rows after the one that runs"""

    @classmethod
    def of(
        cls, context: TaskContext, *, reporter: Reporter | None, finish: str | None, partitions: int | None
    ) -> SparkTask:
        """The task of a Spark context. `finish`: the query whose waiting rows are joined."""
        local = context.getLocalProperty
        batch = local("streaming.sql.batchId")
        return cls(
            partition=context.partitionId(),
            query=finish or local("sql.streaming.queryId"),
            batch=None if batch is None or finish else int(batch),
            run=local("spark.jobGroup.id") or "",
            execution=int(local("spark.sql.execution.id") or 0),
            finishing=finish is not None,
            partitions=partitions,
            reporter=reporter,
        )

    @property
    def number(self) -> int:
        """What progress reports name the task's micro-batch by: see `Progress.batch`."""
        if self.finishing:
            return -1 - self.execution
        return self.execution if self.batch is None else self.batch


@dataclass(frozen=True)
class StateKeeping:
    """The run log of a step that remembers rows from one micro-batch to the next.

    Parameters
    ----------
    directory
        The directory of the query's state.
    log
        The step's name there.
    shards
        How many shards its rows come in.
    ends_with_run
        Whether rows that wait leave when a bounded run ends. Rows that wait for a match go on waiting.
    division
        What rows are divided by, where the log refuses another; None where it does not matter.
    """

    directory: str
    log: str
    shards: int
    ends_with_run: bool = False
    division: str | None = None


class Step(Protocol):
    """One step, as it travels to the executors."""

    @property
    def id(self) -> str:
        """Names the step in reports and in the workers' caches."""
        ...

    @property
    def remembers(self) -> StateKeeping | None:
        """Its run log; None for a step that remembers nothing."""
        ...

    @property
    def shed(self) -> ShedStep | None:
        """What it puts aside under overload; None for a step that takes all rows."""
        ...

    @property
    def worker_memory(self) -> int:
        """Bytes of its budget that one worker has."""
        ...

    def run(self, batches: Batches, task: SparkTask) -> Batches:
        """The rows of a task through this step."""
        ...

    def with_relation(self, relation: Relation, *, follow: bool) -> Step:
        """The step with its relation as it is open; with `follow`, a micro-batch sees the version that its first task noted."""
        ...

    def recorded(self) -> RecordedJoin | None:
        """How `replay` repeats the step for rows that were shed before it; None if it cannot."""
        ...
