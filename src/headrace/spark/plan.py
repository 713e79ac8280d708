"""Plan: what a DataFrame that `enrich` gave is made of, so that another step, or a sink, goes on in the same pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from headrace.relation import Relation
from headrace.spark import worker
from headrace.spark.journal import reporter
from headrace.spark.schemas import numbered
from headrace.spark.steps import Step


@dataclass(frozen=True)
class Plan:
    """A DataFrame as a source and the steps that its rows go through.

    Parameters
    ----------
    source
        The DataFrame before the first step.
    steps, relations
        The steps, and the relation of each; None for one that has none.
    schema
        Of the result.
    stream
        Where the first step remembers rows: the schema of those rows, which come by shard.
    earlier
        Names of the run logs of steps before `source`.
    """

    source: DataFrame
    steps: tuple[Step, ...]
    relations: tuple[Relation | None, ...]
    schema: StructType
    stream: StructType | None = None
    earlier: tuple[str, ...] = ()

    @classmethod
    def of(cls, df: DataFrame) -> Plan:
        """The plan of a DataFrame; one without steps for a DataFrame that is not the result of a step."""
        return cls.found(df) or cls(df, (), (), df.schema, earlier=_logs.get(df, ()))

    @classmethod
    def found(cls, df: object) -> Plan | None:
        """The plan of a DataFrame that is the result of a step; None for anything else."""
        return _plans.get(df) if isinstance(df, DataFrame) else None

    @property
    def logs(self) -> tuple[str, ...]:
        """Names of the run logs of all its steps that remember rows."""
        return *self.earlier, *(step.remembers.log for step in self.steps if step.remembers is not None)

    @property
    def worker_memory(self) -> int | None:
        """Bytes that one worker has for all steps; None without steps."""
        return sum(step.worker_memory for step in self.steps) if self.steps else None

    def then(self, step: Step, rel: Relation | None, schema: StructType) -> DataFrame:
        """The DataFrame that one more step gives."""
        plan = replace(self, steps=(*self.steps, step), relations=(*self.relations, rel), schema=schema)
        out = plan.map(plan.source, numbered(schema), worker.Task(plan.steps)).toDF(*schema.names)
        _plans[out] = plan
        return out

    def map(self, source: DataFrame, schema: StructType | str, task: worker.Task) -> DataFrame:
        """The rows of `source` through a task's steps, and to its writer, as a DataFrame."""
        report = reporter(source.sparkSession)

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            # Only names and numbers travel; the operators live in the imported module, as long as the Python worker does.
            return worker.run(task, batches, report)

        # On the way columns go by number: mapInArrow cannot resolve every name that a user's column may have, nor one twice.
        return source.toDF(*(f"c{i}" for i in range(len(source.columns)))).mapInArrow(run, schema)


def derived(out: DataFrame, *before: DataFrame) -> DataFrame:
    """Have a DataFrame that Spark made of others know the run logs of the steps before it: their names are taken in its query."""
    if Plan.found(out) is None:
        taken = [name for df in (*before, out) for name in Plan.of(df).logs]
        _logs[out] = tuple(dict.fromkeys(taken))
    return out


#: Plans by the DataFrame that they give. A plan keeps its relations open, and so their versions, as long as the DataFrame lives.
_plans: WeakKeyDictionary[DataFrame, Plan] = WeakKeyDictionary()
#: Names of the run logs of steps before a DataFrame that is not the result of one.
_logs: WeakKeyDictionary[DataFrame, tuple[str, ...]] = WeakKeyDictionary()
