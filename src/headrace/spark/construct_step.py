"""ConstructStep: makes the results of a query of joined rows, in the executors' Python workers."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headrace.relation import Relation
from headrace.spark.steps import Batches, SparkTask
from headrace.xml.fwr.construction import Construction
from headrace.xml.fwr.plan import Semantics, plan_query


@dataclass(frozen=True, kw_only=True)
class ConstructStep:
    """The construction of a query, as it travels to the executors: the query's text. It remembers nothing."""

    id: str
    text: str
    semantics: Semantics
    columns: tuple[str, ...]
    """names of the columns of the rows; those of Spark's are numbered"""
    remembers: None = None
    shed: None = None
    worker_memory: int = 0

    def with_relation(self, relation: Relation, *, follow: bool) -> ConstructStep:
        """The step as it is: it joins with no relation."""
        return self

    def recorded(self) -> None:
        """Nothing: rows are never shed before it."""

    def run(self, batches: Batches, task: SparkTask) -> Batches:
        """The results of a task's rows."""
        construction = Construction(plan_query(self.text, self.semantics))
        for batch in batches:
            if batch.num_rows:
                # Spark may be set to send large strings.
                texts = [column.cast(pa.string()) for column in batch.columns]
                yield construction.make(pa.RecordBatch.from_arrays(texts, names=list(self.columns)))
