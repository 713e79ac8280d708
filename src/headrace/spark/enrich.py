"""`enrich`: join a Spark DataFrame, streaming or batch, with a relation. (DESIGN D6)

A stateless map over Arrow batches: each task joins its rows to the end, so exactly-once is Spark's own. Several `enrich` in a row
become one pass through Python.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import StructField, StructType

from headrace.conditions import Condition
from headrace.errors import BadInput, UnsupportedType, choice
from headrace.relation import Relation
from headrace.semistream import ALGORITHMS, CONDITIONAL
from headrace.semistream.base import How, On, Order
from headrace.spark import worker
from headrace.spark.progress import reporter
from headrace.spark.worker import Step
from headrace.units import parse_size

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PLAN = "_headrace_plan"


@dataclass(frozen=True)
class Plan:
    """A DataFrame that `enrich` gave, as what it is made of: another `enrich`, or `load`, goes on in the same pass."""

    source: DataFrame
    steps: tuple[Step, ...]
    relations: tuple[Relation, ...]
    schema: StructType

    @classmethod
    def of(cls, df: DataFrame) -> Plan:
        """The plan of a DataFrame; one without steps if `enrich` did not give it."""
        plan: Plan | None = getattr(df, _PLAN, None)
        return plan or cls(df, (), (), df.schema)

    def then(self, step: Step, rel: Relation, schema: StructType) -> DataFrame:
        """The DataFrame that one more step gives."""
        plan = replace(self, steps=(*self.steps, step), relations=(*self.relations, rel), schema=schema)
        numbered = StructType(
            [StructField(f"c{i}", f.dataType, f.nullable, f.metadata) for i, f in enumerate(schema.fields)]
        )
        out = plan.map(plan.source, numbered, worker.Task(plan.steps)).toDF(*schema.names)
        setattr(out, _PLAN, plan)  # with it the relation stays open, and so its version, as long as the DataFrame is there
        return out

    def map(self, source: DataFrame, schema: StructType | str, task: worker.Task) -> DataFrame:
        """The rows of `source` through the steps and what comes after them, as a DataFrame."""
        report = reporter(source.sparkSession)

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            # Only names and numbers travel; the operators live in the imported module, as long as the Python worker does.
            from headrace.spark import worker

            return worker.run(task, batches, report)

        # On the way columns go by number: mapInArrow cannot resolve every name that a user's column may have, nor one twice.
        return source.toDF(*(f"c{i}" for i in range(len(source.columns)))).mapInArrow(run, schema)


def enrich(
    df: DataFrame,
    rel: Relation,
    on: On | None = None,
    how: How = "inner",
    *,
    memory: int | str = "64MiB",
    algorithm: str = "auto",
    order: Order = "any",
    condition: Condition | None = None,
    columns: Sequence[str] | None = None,
    suffix: str | None = "_right",
    workers: int | None = None,
) -> DataFrame:
    """Join a DataFrame, streaming or batch, with a relation. Lazy; usable as ``df.transform(hr.enrich, rel, on=...)``.

    A streaming DataFrame sees the relation's latest version, one version in each micro-batch. A batch one sees the version that
    `rel` was opened at: keep `rel` open until the job has run.

    Parameters
    ----------
    df
        The stream.
    rel
        An open relation, in a directory that driver and executors see under the same path.
    on
        "col", ["a", "b"], or {"stream column": "relation column"}: the relation's whole key.
    how
        inner, left, semi or anti. A null key matches nothing.
    memory
        The budget of each executor for this relation, however many Python workers it runs.
    algorithm
        "auto": AdaptiveJoin. Or a published one by its name: inl, meshjoin, ameshjoin, rmeshjoin, hybridjoin, xhybridjoin, ssij.
        Those share no memory: each worker has its part of the budget, and joins the rows of a task as one stream, to its end.
    order
        "stream": the results of a task's rows come in the order of the rows. "any" is faster.
    condition
        What must hold besides, or instead where `on` is left out: hr.compare, between, band, within, all_of. For meshjoin,
        ameshjoin and rmeshjoin; ssij takes a range of its key, hr.between(key, low, high, of="right").
    columns
        Payload columns wanted in the result; all by default.
    suffix
        Added to the name of a payload column that the stream has too; None refuses it.
    workers
        Tasks that an executor runs at the same time; found out by default.
    """
    choice("algorithm", algorithm, ("auto", *ALGORITHMS))
    choice("order", order, ("any", "stream"))
    if condition is not None and algorithm not in CONDITIONAL:
        raise BadInput(
            f"algorithm={algorithm!r} joins by equality of the key alone; for condition={condition} choose one of"
            f" {', '.join(CONDITIONAL)}"
        )
    if on is None and condition is None:
        raise BadInput("neither on= nor condition= is given; say what to join on, on='product_id' for example")
    if not isinstance(rel, Relation):
        raise BadInput(f"rel={rel!r} is not a relation; open one with hr.Relation.open(path)")
    plan = Plan.of(df)
    session = df.sparkSession
    many = workers if workers is not None else workers_of(session)
    if many < 1:
        raise BadInput(f"workers={workers} is not a number of tasks; give 1 or more, or leave it out")
    stream = stream_schema(plan.schema)
    step = Step(
        id=uuid.uuid4().hex, path=str(rel.path), disk=rel.disk.kind, on=on, how=how, algorithm=algorithm, order=order,
        condition=condition, memory=parse_size(memory, name="memory"),
        columns=None if columns is None else tuple(columns), suffix=suffix, workers=many, names=tuple(stream.names),
        version=rel.version, follow=df.isStreaming, casts=(),
    )  # fmt: skip
    # Made here only to have everything refused here that can be refused.
    operator = worker.make_operator(step, rel, Path())
    schema, casts = _result_schema(plan.schema, stream, operator.output_schema(stream))
    step = replace(step, casts=casts)
    return plan.then(step, rel, schema)


def stream_schema(schema: StructType) -> pa.Schema:
    """A DataFrame's schema as its Arrow batches have it; refuses a column that Arrow has no type for, by name."""
    fields = []
    for field in schema.fields:
        try:
            fields.append(pa.field(field.name, to_arrow_type(field.dataType, timezone="UTC")))
        except PySparkException as error:
            raise UnsupportedType(
                f"column {field.name!r} has type {field.dataType.simpleString()}, which cannot go through Arrow; drop it or"
                " cast it first"
            ) from error
    return pa.schema(fields)


def _result_schema(
    spark: StructType, stream: pa.Schema, result: pa.Schema
) -> tuple[StructType, tuple[tuple[int, pa.DataType], ...]]:
    """The result's schema for Spark, and which columns must become another Arrow type for it."""
    fields, casts = list(spark.fields), []
    for i in range(len(stream), len(result)):
        field = result.field(i)
        type_ = from_arrow_type(field.type, prefer_timestamp_ntz=True)
        fields.append(StructField(field.name, type_))
        wanted = to_arrow_type(type_, timezone="UTC")
        if not wanted.equals(field.type):
            casts.append((i, wanted))
    return StructType(fields), tuple(casts)


def workers_of(session: SparkSession) -> int:
    """Tasks that an executor runs at the same time: its cores by the cores of a task."""
    context = session.sparkContext
    each = int(context.getConf().get("spark.task.cpus", "1"))
    local = str(context.master).startswith("local")
    cores = None if local else context.getConf().get("spark.executor.cores")
    if cores is None:
        # A standalone executor takes all cores of its machine unless told otherwise: ask those that are there.
        executors = context._jsc.sc().statusStore().executorList(True)
        cores = max((executors.apply(i).totalCores() for i in range(executors.size())), default=0)
    return max(1, (int(cores) or int(context.defaultParallelism)) // each)
