"""RowsStep: a function of record batches that a query plan has, in the executors' Python workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from headrace.feeds.spark.schemas import typed
from headrace.relation import Relation
from headrace.spark.steps import Batches, SparkTask


@dataclass(frozen=True, kw_only=True)
class RowsStep:
    """Rows in, rows out; it remembers nothing.

    Parameters
    ----------
    id
        Names the step in reports.
    make
        Gives the rows for those of a batch.
    takes
        The schema that `make` is given. Spark's batches have other names, and some other types.
    gives
        The schema that Spark expects.
    """

    id: str
    make: Callable[[pa.RecordBatch], pa.RecordBatch]
    takes: pa.Schema
    gives: pa.Schema
    remembers: None = None
    shed: None = None
    worker_memory: int = 0

    def with_relation(self, relation: Relation, *, follow: bool) -> RowsStep:
        """The step as it is: it joins with no relation."""
        return self

    def recorded(self) -> None:
        """Nothing: rows are never shed before it."""

    def run(self, batches: Batches, task: SparkTask) -> Batches:
        """The rows of a task, made into others."""
        for batch in batches:
            if batch.num_rows:
                made = self.make(typed(batch, self.takes))
                if made.num_rows:
                    yield typed(made, self.gives)
