"""What sinks have in common that know the number of a micro-batch: each is loaded once, and so is the end of a bounded run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, TypeVar

from headrace.spark.batches import application
from headrace.spark.shed import note_finished
from headrace.spark.state.pins import Pins
from headrace.spark.state.stateful import Finishing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.spark.enrich import Plan

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

    @abstractmethod
    def load(self, df: DataFrame, app: str, number: int, plan: Plan, finish: str | None = None) -> Done:
        """Write and commit the rows of a batch DataFrame, unless this transaction was committed before."""

    @abstractmethod
    def last(self, app: str) -> int:
        """The application's last number in the table as it is now; -1 if none."""

    @abstractmethod
    def nothing(self) -> Done:
        """What a load without rows did."""

    def load_batch(self, df: DataFrame, batch: int) -> None:
        """Load one micro-batch; called by Spark, again after a restart that does not know it is done."""
        query = df.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        self._settle_finish(query)
        self.load(df, application(df), batch, self._pins.latest())
        note_finished(self.plan.steps, query, batch)

    def finish(self, query: str) -> Done:
        """Load what the run log of a query still holds, once."""
        last = Finishing(self.plan, query)
        if last.number < 0:
            return self.nothing()
        loaded = self.load(last.source(), _finish(query), last.number, last.latest(), query)
        last.close()
        return loaded

    def _settle_finish(self, query: str) -> None:
        """Once a run: a finish that was stopped either reached the table, or its rows wait again."""
        if self._settled or not self.plan.steps or self.plan.steps[0].deferral is None:
            return
        self._settled = True
        last = Finishing(replace(self.plan, earlier=()), query)
        if 0 <= last.number <= self.last(_finish(query)):
            last.close()
        else:
            last.forget()


def _finish(query: str) -> str:
    """The application whose transactions are the ends of a query's runs: its own numbers go on counting micro-batches."""
    return f"headrace-{query}-finish"
