"""`enrich`: join a Spark DataFrame, streaming or batch, with a relation. (DESIGN D6)

A stateless map over Arrow batches: each task joins its rows to the end, so exactly-once is Spark's own. Several `enrich` in a row
become one pass through Python. With a deadline, or rows to put aside or try again, rows come by shard and a run log remembers
(D7, see `remember`).
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
from pyspark.sql.types import LongType, StructField, StructType

from headrace.conditions import Condition, parse_on
from headrace.errors import BadInput, UnsupportedType, choice
from headrace.relation import Relation
from headrace.semistream import ALGORITHMS, CONDITIONAL
from headrace.semistream.base import How, On, Order
from headrace.semistream.deferred.deferral import MARK, Unmatched
from headrace.spark import worker
from headrace.spark.progress import reporter
from headrace.spark.shed import Shedding, shed_step
from headrace.spark.state.stateful import by_shard, deferral_of, state_path
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
    relations: tuple[Relation | None, ...]  # of the steps; None for one that has none
    schema: StructType
    stream: StructType | None = None  # of the rows that come by shard into a step that remembers
    earlier: tuple[str, ...] = ()  # run logs of steps before `source`

    @classmethod
    def of(cls, df: DataFrame) -> Plan:
        """The plan of a DataFrame; one without steps if `enrich` did not give it."""
        plan: Plan | None = getattr(df, _PLAN, None)
        return plan or cls(df, (), (), df.schema)

    def then(self, step: Step, rel: Relation | None, schema: StructType) -> DataFrame:
        """The DataFrame that one more step gives."""
        plan = replace(self, steps=(*self.steps, step), relations=(*self.relations, rel), schema=schema)
        out = plan.map(plan.source, numbered(schema), worker.Task(plan.steps)).toDF(*schema.names)
        # With it the relation stays open, and so its version, as long as the DataFrame is there.
        setattr(out, _PLAN, plan)
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
    unmatched: Unmatched | None = None,
    retry_for: str | float = "1h",
    version_column: str | None = None,
    deadline: str | float | None = None,
    state: str | Path | None = None,
    shards: int | None = None,
    shed: str | Shedding | None = None,
    target_delay: str | float | None = None,
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
        What must hold besides, or instead where `on` is left out: hr.compare, between, band, within, all_of. Besides `on` it is
        for auto, meshjoin, ameshjoin and rmeshjoin; alone it is for the last three, of which auto takes meshjoin, and ssij
        takes a range of its key, hr.between(key, low, high, of="right").
    columns
        Payload columns wanted in the result; all by default.
    suffix
        Added to the name of a payload column that the stream has too; None refuses it.
    workers
        Tasks that an executor runs at the same time; found out by default.
    unmatched
        What becomes of rows without a match, instead of `how`: "drop" (inner), "null" (left), "dead_letter" (put aside as Parquet
        in `state`), or "retry" (kept, and tried again when the relation has a new version; a dead letter after `retry_for`).
    retry_for
        How long, with unmatched="retry".
    version_column
        The name of a column of the result that says which version of the relation the row was joined with.
    deadline
        "10s": rows that must be read for may wait so long, in the run log, to share reads. Rows found in memory leave in their
        micro-batch. A bounded run ends with `hr.finish`.
    state
        Where the run log is kept, for deadline=, shed=, "dead_letter" and "retry": a directory that driver and executors see
        under the same path. By default `headrace` in spark.sql.streaming.checkpointLocation.
    shards
        Parts of the stream by key, each a task that remembers its rows; as many as there are cores by default. It cannot change
        while the query's checkpoint is used.
    shed
        Of a streaming DataFrame: what to keep of a micro-batch that has more rows than can be joined in time: keep, sample, topw,
        cluster, auto, or hr.Shedding(...). The other rows are put aside in `state`; hr.replay joins and loads them later.
    target_delay
        With shed: how long after its arrival a row should be joined at the latest; 5s by default.
    """
    choice("algorithm", algorithm, ("auto", *ALGORITHMS))
    choice("order", order, ("any", "stream"))
    if on is None and condition is not None and algorithm in ("auto", "adaptive"):
        algorithm = "meshjoin"  # no key to look up: every page is wanted
    if condition is not None and algorithm not in ("auto", *CONDITIONAL):
        raise BadInput(
            f"algorithm={algorithm!r} joins by equality of the key alone; for condition={condition} choose one of"
            f" {', '.join(CONDITIONAL)}"
        )
    if on is None and condition is None:
        raise BadInput("neither on= nor condition= is given; say what to join on, on='product_id' for example")
    if not isinstance(rel, Relation):
        raise BadInput(f"rel={rel!r} is not a relation; open one with hr.Relation.open(path)")
    how = _how(how, unmatched)
    deferral = deferral_of(deadline, unmatched or "drop", retry_for)
    plan = Plan.of(df)
    place = len(plan.steps) + len(plan.earlier)
    session = df.sparkSession
    many = workers if workers is not None else workers_of(session)
    if many < 1:
        raise BadInput(f"workers={workers} is not a number of tasks; give 1 or more, or leave it out")
    stream = stream_schema(plan.schema)
    step = Step(
        id=uuid.uuid4().hex,
        path=str(rel.path),
        disk=rel.disk.kind,
        on=on,
        how=how,
        algorithm=algorithm,
        order=order,
        condition=condition,
        memory=parse_size(memory, name="memory"),
        columns=None if columns is None else tuple(columns),
        suffix=suffix,
        workers=many,
        names=tuple(stream.names),
        version=rel.version,
        follow=df.isStreaming,
        casts=(),
        version_column=version_column,
    )
    if deferral is not None:
        plan, step = _remembering(df, plan, replace(step, deferral=deferral, stream=stream), state, shards)
    elif shards is not None or (state is not None and shed is None):
        raise BadInput(
            "state= and shards= are for deadline=..., unmatched='dead_letter' and unmatched='retry'; state= for shed=... too"
        )
    # Made here only to have everything refused here that can be refused.
    operator = worker.make_operator(step, rel, Path())
    schema, casts = _result_schema(plan.schema, stream, _without_mark(operator.output_schema(stream)), version_column)
    step = replace(step, casts=casts)
    if shed is not None or target_delay is not None:
        keys = operator.stream_key if on is not None else ()
        step = replace(step, shed=shed_step(shed, target_delay, df, plan.schema, rel, keys, place, many))
        step = replace(step, state=step.state or state_path(session, state))
    return plan.then(step, rel, schema)


def numbered(schema: StructType) -> StructType:
    """The schema with columns named by number, as they are on the way."""
    return StructType([StructField(f"c{i}", f.dataType, f.nullable, f.metadata) for i, f in enumerate(schema.fields)])


def _how(how: How, unmatched: Unmatched | None) -> How:
    if unmatched is None:
        return how
    choice("unmatched", unmatched, ("drop", "null", "dead_letter", "retry"))
    if how != "inner":
        raise BadInput(
            f"how={how!r} and unmatched={unmatched!r} both say what becomes of rows without a match; give one of them"
        )
    return "inner" if unmatched == "drop" else "left"


def _remembering(
    df: DataFrame, plan: Plan, step: Step, state: str | Path | None, shards: int | None
) -> tuple[Plan, Step]:
    """A step whose rows come by shard: a plan begins with it."""
    deferral = step.deferral
    assert deferral is not None and step.stream is not None
    asked = f"deadline={deferral.deadline}" if deferral.deadline is not None else f"unmatched={deferral.unmatched!r}"
    if not df.isStreaming:
        raise BadInput(
            f"{asked} is for a streaming DataFrame: a batch one is joined at once; filter it by how='anti' if need be"
        )
    if step.algorithm not in ("auto", "adaptive"):
        raise BadInput(
            f"{asked} works with algorithm='auto'; algorithm={step.algorithm!r} joins the rows of a task to their end"
        )
    if step.order != "any":
        raise BadInput(f"{asked} lets rows leave in another order; order={step.order!r} cannot be kept")
    many = shards if shards is not None else int(df.sparkSession.sparkContext.defaultParallelism)
    if many < 1:
        raise BadInput(f"shards={shards} is not a number of shards; give 1 or more, or leave it out")
    deferral.check(step.stream)
    assert step.on is not None  # a condition alone is not for algorithm='auto'
    key = tuple(parse_on(step.on).left)
    missing = [name for name in key if step.stream.names.count(name) != 1]
    if missing:
        raise BadInput(f"the stream has no one column {missing[0]!r}; its columns are {', '.join(step.stream.names)}")
    log, earlier = f"enrich {Path(step.path).name} by {', '.join(key)}", plan.earlier
    earlier += tuple(s.log for s in plan.steps if s.deferral is not None)
    log += f" {1 + earlier.count(log)}" if log in earlier else ""
    step = replace(step, algorithm="adaptive", state=state_path(df.sparkSession, state), log=log, shards=many)
    return Plan(by_shard(df, key, many, deferral), (), (), df.schema, df.schema, earlier), step


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
    spark: StructType, stream: pa.Schema, result: pa.Schema, version_column: str | None
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
    if version_column is not None:
        if version_column in result.names:
            raise BadInput(f"version_column={version_column!r} is the name of another column; choose another")
        fields.append(StructField(version_column, LongType()))
    return StructType(fields), tuple(casts)


def _without_mark(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field for field in schema if field.name != MARK])


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
