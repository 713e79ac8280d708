"""RowsStep: a function of record batches that a query plan has, in the executors' Python workers."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.feeds.spark.schemas import spark_schemas, typed
from headrace.relation import Relation
from headrace.spark.plan import Plan
from headrace.spark.steps import Batches, SparkTask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
    first
        Whether the first task of a micro-batch begins with a row of nulls, so that there is one in each.
    """

    id: str
    make: Callable[[pa.RecordBatch], pa.RecordBatch]
    takes: pa.Schema
    gives: pa.Schema
    first: bool = False
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
        if self.first and task.partition == 0:
            yield pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in self.gives], schema=self.gives)
        for batch in batches:
            if batch.num_rows:
                made = self.make(typed(batch, self.takes))
                if made.num_rows:
                    yield typed(made, self.gives)


def then_rows(
    rows: DataFrame, make: Callable[[pa.RecordBatch], pa.RecordBatch], takes: pa.Schema, *, first: bool = False
) -> tuple[DataFrame, pa.Schema]:
    """Rows made into others by a function of a query plan, and the schema of these."""
    gives = make(pa.RecordBatch.from_arrays([pa.array([], field.type) for field in takes], schema=takes)).schema
    fields, arrow = spark_schemas(gives)
    step = RowsStep(id=uuid.uuid4().hex, make=make, takes=takes, gives=arrow, first=first)
    return Plan.of(rows).then(step, None, fields), gives
