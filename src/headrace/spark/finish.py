"""`finish`: the end of a bounded run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, overload

from headrace.errors import BadInput, choice
from headrace.spark.delta.load import Loaded
from headrace.spark.plan import Plan
from headrace.spark.postgresql.sink import Upserted
from headrace.spark.sinks import sink_of
from headrace.spark.state.stateful import Finishing, OnReplaced

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery


@overload
def finish(what: StreamingQuery, *, on_replaced: OnReplaced = ...) -> Loaded | Upserted: ...
@overload
def finish(
    what: DataFrame,
    query: StreamingQuery | str,
    write: Callable[[DataFrame, int], object],
    *,
    on_replaced: OnReplaced = ...,
) -> None: ...
def finish(
    what: StreamingQuery | DataFrame,
    query: StreamingQuery | str | None = None,
    write: Callable[[DataFrame, int], object] | None = None,
    *,
    on_replaced: OnReplaced = "refuse",
) -> Loaded | Upserted | None:
    """The end of a bounded run: join all rows that still wait, and hand them to the sink. The query must have stopped.

    Stopped in between, it can be called again; until it has been, the query refuses to go on where its sink cannot know what
    arrived. Rows that were to be tried again and have no match now become dead letters.

    Parameters
    ----------
    what
        The query that `hr.load` or `hr.load_postgresql` gave: its rows go to the same table, exactly once. Or the DataFrame that
        `hr.enrich` gave, for other sinks.
    query
        With a DataFrame: the query, or its id.
    write
        With a DataFrame: called with a batch DataFrame of the same columns, and a number that is the same when it is called again
        for the same rows.
    on_replaced
        What to do if another relation was made in the place of the one that rows were looked up in when they came
        (Relation.create with overwrite=True): "refuse" raises RelationReplaced, "join" joins them with the new one.

    Returns
    -------
    Loaded | Upserted | None
        What was loaded, of a query that `hr.load` or `hr.load_postgresql` gave.
    """
    choice("on_replaced", on_replaced, ("refuse", "join"))
    sink = sink_of(what)
    if sink is not None:
        _check_stopped(what)
        loaded: Loaded | Upserted = sink.finish(str(what.id), on_replaced)
        return loaded
    plan = Plan.found(what)
    if plan is None or query is None or write is None:
        raise BadInput(
            "hr.finish needs the query that hr.load or hr.load_postgresql gave, or a DataFrame that hr.enrich gave, with"
            f" query=... and write=...; this is {what!r}"
        )
    _check_stopped(query)
    last = Finishing(plan, query if isinstance(query, str) else str(query.id), on_replaced)
    if last.number >= 0:
        write(last.rows(), last.number)
        last.close()
    return None


def finish_deadlines(query: StreamingQuery) -> None:
    """Finish a query whose rows wait for their deadline; those that wait for a match go on waiting.

    Where other steps lie between the join and the sink, or the sink knows no numbers (Kafka, files), rows wait for the next run.
    """
    sink = sink_of(query)
    if sink is None or not sink.plan.steps or sink.plan.earlier:
        return
    keeping = sink.plan.steps[0].remembers
    if keeping is not None and keeping.ends_with_run:
        finish(query)


def _check_stopped(query: StreamingQuery | str) -> None:
    if not isinstance(query, str) and query.isActive:
        raise BadInput(f"the query {query.id} is still running; stop it, or wait for its end, before hr.finish")
