"""Sinks that know the number of a micro-batch: each micro-batch is loaded once, and so is the end of a bounded run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from pyspark.sql.streaming import StreamingQuery

from headrace.shedding.ledger import Ledger
from headrace.spark.batches import application, start
from headrace.spark.checkpoint import LocalCheckpoint, local_checkpoint
from headrace.spark.plan import Plan
from headrace.spark.state.pins import Pins
from headrace.spark.state.stateful import Finishing, OnReplaced
from headrace.spark.steps import Step
from headrace.spark.worker import Task, Writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Done = TypeVar("Done")


class NumberedSink(ABC, Generic[Done]):
    """A table that is committed together with an application's number, seen from the driver.

    Parameters
    ----------
    plan
        What is loaded.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._pins = Pins(plan)
        self._settled = False
        self._checkpoint: LocalCheckpoint | None = None

    @abstractmethod
    def load(self, df: DataFrame, app: str, number: int, plan: Plan, finish: str | None = None) -> Done:
        """Write and commit the rows of a batch DataFrame, unless this transaction was committed before."""

    @abstractmethod
    def last(self, app: str) -> int:
        """The application's last number in the table as it is now; -1 if none."""

    @abstractmethod
    def nothing(self) -> Done:
        """The result of a load without rows."""

    def start(
        self, checkpoint: str | Path | None, trigger: Mapping[str, Any] | None, name: str | None
    ) -> StreamingQuery:
        """Start the query that loads the plan's rows; `hr.finish` finds this sink by it."""
        if checkpoint is not None and (local := local_checkpoint(checkpoint)) is not None:
            self._checkpoint = LocalCheckpoint(local)
            self._checkpoint.check()
        query = start(self.plan.source, self.load_batch, checkpoint, trigger, name)
        _sinks[query] = self
        return query

    def load_batch(self, df: DataFrame, batch: int) -> None:
        """Load one micro-batch; called by Spark, again after a restart that does not know it is done."""
        query = df.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        self._settle_finish(query)
        if self._checkpoint is not None:
            self._checkpoint.sync()
        self.load(df, application(df), batch, self._pins.latest())
        note_finished(self.plan.steps, query, batch)

    def finish(self, query: str, on_replaced: OnReplaced) -> Done:
        """Load the rows that the run log of a query still holds, once."""
        last = Finishing(self.plan, query, on_replaced)
        if last.number < 0:
            return self.nothing()
        loaded = self.load(last.source(), _finish(query), last.number, last.latest(), query)
        last.close()
        return loaded

    def _settle_finish(self, query: str) -> None:
        """Once a run: a finish that was stopped either reached the table, or its rows wait again."""
        if self._settled or not self.plan.steps or self.plan.steps[0].remembers is None:
            return
        self._settled = True
        last = Finishing(replace(self.plan, earlier=()), query)
        if 0 <= last.number <= self.last(_finish(query)):
            last.close()
        else:
            last.forget()


def writing_task(plan: Plan, df: DataFrame, files: Writer, finish: str | None) -> Task:
    """The task that takes a micro-batch's rows through the steps of a plan and writes them."""
    partitions: int | None = None
    if any(step.shed is not None for step in plan.steps):
        # How much a task sheds depends on how many there are, which only the driver knows.
        partitions = int(df._jdf.queryExecution().toRdd().getNumPartitions())
    return Task(plan.steps, files, finish, partitions)


def note_finished(steps: tuple[Step, ...], query: str, batch: int) -> None:
    """Note that a micro-batch is loaded: the rows that it shed may be replayed."""
    for step in steps:
        if step.shed is not None:
            Ledger(step.shed.state, query, step.shed.operator).finish(batch)


def sink_of(query: object) -> NumberedSink[Any] | None:
    """The sink of a query that `load` or `load_postgresql` gave; None for anything else."""
    return _sinks.get(query) if isinstance(query, StreamingQuery) else None


_sinks: WeakKeyDictionary[StreamingQuery, NumberedSink[Any]] = WeakKeyDictionary()


def _finish(query: str) -> str:
    """The application whose transactions are the ends of a query's runs: its own numbers go on counting micro-batches."""
    return f"headrace-{query}-finish"
