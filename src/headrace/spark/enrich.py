"""`enrich`: join a Spark DataFrame, streaming or batch, with a relation. (DESIGN D6)

A stateless map over Arrow batches: each task joins its rows to the end, so exactly-once is Spark's own. Several `enrich` in a row
become one pass through Python. With a deadline, or rows to put aside or try again, rows come by shard and a run log remembers
them (D7, see `state/stateful.py`). What a task does is in `enrich_step.py`.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.conditions import Condition, parse_on
from headrace.cost.broadcast import BROADCAST
from headrace.errors import BadInput, choice
from headrace.relation import Relation
from headrace.semistream import ALGORITHMS, algorithm_for, check_condition
from headrace.semistream.base import How, On, Order
from headrace.semistream.deferred.deferral import MARK, Deferral
from headrace.spark.broadcast_join import advice_for, broadcast_join, check_broadcast
from headrace.spark.choice import Algorithm
from headrace.spark.column_names import ColumnNames
from headrace.spark.dataframes import check_dataframe, check_relation
from headrace.spark.defer import QUEUEING, Defer
from headrace.spark.enrich_step import EnrichStep, Waiting
from headrace.spark.executors import workers_of
from headrace.spark.plan import Plan
from headrace.spark.relation_join import ADAPTIVE, RelationJoin, open_alone, open_join
from headrace.spark.schemas import ResultColumns, result_schema, stream_schema
from headrace.spark.shed import Shedding, check_shed, shed_room, shed_step
from headrace.spark.state.stateful import by_shard, state_path
from headrace.spark.steps import StateKeeping
from headrace.units import format_size, parse_size

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger(__name__)


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
    version_column: str | None = None,
    deadline: str | float | None = None,
    defer: Defer | None = None,
    shed: str | Shedding | None = None,
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
        "col", ["a", "b"], or {"stream column": "relation column"}: the relation's whole key; or any of its columns, for meshjoin,
        ameshjoin and rmeshjoin, of which auto then takes meshjoin.
    how
        inner, left, semi or anti. A null key matches nothing.
    memory
        The budget of each executor for this relation, however many Python workers it runs.
    algorithm
        "auto": AdaptiveJoin, unless this machine has a calibration (`headrace calibrate`) whose models expect another algorithm
        to be faster; chosen once for the query from its first rows. Or one by its name: adaptive, inl, meshjoin, ameshjoin,
        rmeshjoin, hybridjoin, xhybridjoin, ssij. Or broadcast: Spark's own broadcast join with the relation's rows, in the JVM
        and without `memory`; where that should be faster, "auto" says so. The published ones share no memory: each worker has
        its part of the budget, and joins the rows of a task as one stream, to its end; with a deadline, all but inl keep their
        queue from one micro-batch to the next.
    order
        "stream": the results of a task's rows come in the order of the rows. "any" is faster.
    condition
        What must hold besides, or instead where `on` is left out: any condition, such as hr.between, hr.edit_distance or
        hr.predicate. Besides `on` it is for auto, meshjoin, ameshjoin and rmeshjoin; alone it is for the last three, of which
        auto takes meshjoin, and ssij takes a range of its key, hr.between(key, low, high, of="right").
    columns
        Payload columns wanted in the result; all by default.
    suffix
        Added to the name of a payload column that the stream has too; None refuses it. Names in `on`, `columns` and
        `condition`, and those of the two sides, are compared as spark.sql.caseSensitive says.
    workers
        Tasks that an executor runs at the same time; found out by default.
    version_column
        The name of a column of the result that says which version of the relation the row was joined with.
    deadline
        "10s" stands for defer=hr.Defer(deadline="10s").
    defer
        Of a streaming DataFrame: rows that may wait for their deadline or for a match, and where they are kept. See hr.Defer.
    shed
        Of a streaming DataFrame: what to keep of a micro-batch that has more rows than can be joined in time: keep, sample, topw,
        cluster, auto, or hr.Shedding(...). The other rows are put aside; hr.replay joins and loads them later.
    """
    check_dataframe(df, otherwise=", and AdaptiveJoin(rel, on=..., memory=...).run(df) joins it without Spark")
    check_relation(rel)
    choice("algorithm", algorithm, ("auto", BROADCAST, *ALGORITHMS))
    if algorithm == BROADCAST:
        ordered = None if order == "any" else order
        check_broadcast(order=ordered, version_column=version_column, deadline=deadline, defer=defer, shed=shed)
    choice("order", order, ("any", "stream"))
    check_condition(algorithm, condition)
    if on is None and condition is None:
        raise BadInput("neither on= nor condition= is given; say what to join on, on='product_id' for example")
    defer = _defer(defer, deadline)
    shedding = Shedding(shed) if isinstance(shed, str) else shed
    session = df.sparkSession
    if workers is not None and workers < 1:
        raise BadInput(f"workers={workers} is not a number of tasks; give 1 or more, or leave it out")
    plan = Plan.of(df)
    place = len(plan.steps) + len(plan.earlier)
    stream = stream_schema(plan.schema)
    names = ColumnNames.of(session)
    on = None if on is None else names.resolve_on(on, stream.names, rel.schema.names)
    condition = None if condition is None else names.resolve_condition(condition, stream.names, rel.schema.names)
    join = RelationJoin(
        path=str(rel.path),
        identity=rel.identity,
        disk=rel.disk.kind,
        on=on,
        how=defer.how(how),
        algorithm=algorithm_for(algorithm, on, condition, rel),
        order=order,
        condition=condition,
        memory=parse_size(memory, name="memory"),
        columns=None if columns is None else tuple(names.resolve(name, rel.schema.names) for name in columns),
        suffix=suffix,
        workers=workers if workers is not None else workers_of(session),
    )
    if algorithm == BROADCAST:
        operator = open_alone(join, rel).operator  # made only to have refused what cannot be joined
        schema, _ = result_schema(plan.schema, stream, operator.output_schema(stream), None, names, suffix)
        return broadcast_join(df, rel, join, schema)
    held = 0 if shedding is None else shed_room(join.worker_memory)
    join = replace(join, memory=join.memory - join.workers * held)
    waiting: Waiting | None = None
    deferral = defer.deferral()
    if deferral is not None:
        defer.check_join(join.algorithm, join.order)
        key = _check_deferral(df, join, stream, deferral)
        waiting = Waiting(deferral, _keeping(df, plan, rel, key, defer, deferral))
        if join.algorithm not in QUEUEING:
            join = replace(join, algorithm=ADAPTIVE, mark=MARK if deferral.sorts_out else None, whole=False)
        source = by_shard(df, key, waiting.log.shards, deferral)
        plan = Plan(source, (), (), df.schema, stream=df.schema, earlier=plan.logs)
    # The operator is made here only to have everything refused here that can be refused.
    operator = open_join(join, join.algorithm, rel, Path()).operator
    joined = _without_mark(operator.output_schema(stream))
    schema, result = result_schema(plan.schema, stream, joined, version_column, names, suffix)
    step = enrich_step(join, stream, rel.version, follow=df.isStreaming, result=result)
    if algorithm == "auto" and waiting is None and shedding is None and version_column is None:
        step = replace(step, algorithm=replace(step.algorithm, advice=advice_for(join, rel)))
    default = step.algorithm.default
    _log.info(
        "enrich with %s on %s: %s%s, %s an executor for %d workers%s",
        rel.path,
        on or condition,
        default.algorithm if step.algorithm.chooser is None else "an algorithm that the first rows decide",
        f" ({default.why})" if default.why else "",
        format_size(parse_size(memory, name="memory")),
        join.workers,
        "" if waiting is None else f", {deferral.asked}" if deferral is not None else "",
    )
    step = replace(step, waiting=waiting)
    if shedding is not None:
        check_shed(plan.schema, df.isStreaming)
        given = shedding.state if shedding.state is not None or waiting is None else waiting.log.directory
        shed_rows = shed_step(
            shedding,
            plan.schema,
            rel,
            keys=operator.stream_key if on is not None and set(parse_on(on).right) == set(rel.key) else (),
            place=place,
            state=state_path(session, given, "shed=hr.Shedding(..., state=DIRECTORY)"),
            workers=join.workers,
            held=held,
            result=joined,
        )
        if shed_rows.estimate is not None and waiting is not None:
            raise BadInput(
                "shed=hr.Shedding(estimate=...) is for results that come with their rows, and here rows may wait; leave out the"
                " deadline, or the estimate"
            )
        step = replace(step, shed=shed_rows)
    return plan.then(step, rel, schema)


def enrich_step(
    join: RelationJoin, stream: pa.Schema, version: int, *, follow: bool, result: ResultColumns
) -> EnrichStep:
    """A step with a new id."""
    return EnrichStep(
        id=uuid.uuid4().hex,
        join=join,
        algorithm=Algorithm.of(join),
        stream=stream,
        version=version,
        follow=follow,
        result=result,
    )


def _defer(defer: Defer | None, deadline: str | float | None) -> Defer:
    if deadline is None:
        return defer or Defer()
    if defer is not None:
        raise BadInput(
            f"deadline={deadline!r} and defer={defer} are both given; give defer=hr.Defer(deadline={deadline!r}, ...) alone"
        )
    return Defer(deadline=deadline)


def _check_deferral(df: DataFrame, join: RelationJoin, stream: pa.Schema, deferral: Deferral) -> tuple[str, ...]:
    """Refuse a join whose rows cannot wait; gives the columns that rows come to their shards by: the key, or a condition's."""
    if not df.isStreaming:
        raise BadInput(
            f"{deferral.asked} is for a streaming DataFrame: a batch one is joined at once; filter it by how='anti' if need be"
        )
    deferral.check(stream)
    if join.on is None:
        assert join.condition is not None
        key = join.condition.left_columns
    else:
        key = tuple(parse_on(join.on).left)
    missing = [name for name in key if stream.names.count(name) != 1]
    if missing:
        raise BadInput(f"the stream has no one column {missing[0]!r}; its columns are {', '.join(stream.names)}")
    return key


def _keeping(
    df: DataFrame, plan: Plan, rel: Relation, key: tuple[str, ...], defer: Defer, deferral: Deferral
) -> StateKeeping:
    """The run log of a step whose rows may wait. Two steps of a query have logs of different names."""
    log = f"enrich {rel.path.name} by {', '.join(key)}"
    log += f" {1 + plan.logs.count(log)}" if log in plan.logs else ""
    shards = defer.shards if defer.shards is not None else int(df.sparkSession.sparkContext.defaultParallelism)
    return StateKeeping(
        directory=state_path(df.sparkSession, defer.state, "defer=hr.Defer(..., state=DIRECTORY)"),
        log=log,
        shards=shards,
        ends_with_run=deferral.deadline is not None and deferral.unmatched != "retry",
    )


def _without_mark(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field for field in schema if field.name != MARK])
