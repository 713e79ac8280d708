"""`enrich` that remembers: rows shuffled by shard, heartbeats, and the end of a bounded run. (DESIGN D7)"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.functions import col, lit, pmod, xxhash64

from headrace.errors import BadInput
from headrace.runlog import RunLog, ShardLog, close_finish, forget_finish, unfinished
from headrace.semistream.deferred.deferral import Deferral, Unmatched
from headrace.spark.shared_paths import local_path
from headrace.spark.state.heartbeat import heartbeat
from headrace.spark.worker import Task
from headrace.units import parse_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from headrace.spark.delta.load import Loaded
    from headrace.spark.enrich import Plan
    from headrace.spark.postgresql.sink import Upserted

SHARD, BEAT = "__headrace_shard", "__headrace_beat"
_OFTEN, _SELDOM = 0.25, 10.0  # seconds between two heartbeats
_BEATS = 8  # heartbeats until a deadline
_CHECKPOINTS = "spark.sql.streaming.checkpointLocation"


def deferral_of(deadline: str | float | None, unmatched: Unmatched, retry_for: str | float) -> Deferral | None:
    """What may be put off; None if nothing has to be remembered."""
    limit = None if deadline is None else parse_duration(deadline, name="deadline")
    again = parse_duration(retry_for, name="retry_for")
    if limit is None and unmatched not in ("dead_letter", "retry"):
        return None
    waits = [seconds for seconds in (limit, again if unmatched == "retry" else None) if seconds is not None]
    period = min(_SELDOM, max(_OFTEN, min(waits, default=_BEATS * _SELDOM) / _BEATS))
    return Deferral(limit, unmatched, again, period)


def state_path(session: SparkSession, state: str | Path | None) -> str:
    """Where the run log is kept."""
    if state is None:
        checkpoints = session.conf.get(_CHECKPOINTS, None)
        if checkpoints is None:
            raise BadInput(
                "what waits must be kept somewhere; give state=DIRECTORY, which driver and executors see under the same path, or"
                f" set {_CHECKPOINTS}"
            )
        return str(local_path(checkpoints, _CHECKPOINTS) / "headrace")
    return str(local_path(state, "state"))


def by_shard(df: DataFrame, key: tuple[str, ...], shards: int, deferral: Deferral) -> DataFrame:
    """The rows and heartbeats, each where its shard is: the columns, then shard and whether it is a heartbeat."""
    numbered = [col(f"c{i}") for i in range(len(df.columns))]
    renamed = df.toDF(*(f"c{i}" for i in range(len(df.columns))))
    at = [numbered[df.columns.index(name)] for name in key]
    shard = pmod(xxhash64(*at), lit(shards)).cast("int")
    rows = renamed.select(*numbered, shard.alias(SHARD), lit(False).alias(BEAT))
    if deferral.deadline is not None or deferral.unmatched == "retry":
        rows = rows.union(beats(heartbeat(df.sparkSession, shards, deferral.period), df.schema))
    return rows.repartitionById(shards, SHARD)


def beats(shards: DataFrame, schema: StructType) -> DataFrame:
    """Rows of nulls, one a shard."""
    nulls = [lit(None).cast(f.dataType).alias(f"c{i}") for i, f in enumerate(schema.fields)]
    return shards.select(*nulls, col("shard").cast("int").alias(SHARD), lit(True).alias(BEAT))


def finish(
    what: Any, query: Any = None, write: Callable[[DataFrame, int], object] | None = None
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

    Returns
    -------
    Loaded | Upserted | None
        What was loaded, of a query that `hr.load` or `hr.load_postgresql` gave.
    """
    sink = getattr(what, "_headrace_sink", None)
    if sink is not None:
        _stopped(what)
        loaded: Loaded | Upserted = sink.finish(str(what.id))
        return loaded
    plan: Plan | None = getattr(what, "_headrace_plan", None)
    if plan is None or query is None or write is None:
        raise BadInput(
            "hr.finish needs the query that hr.load or hr.load_postgresql gave, or a DataFrame that hr.enrich gave, with"
            f" query=... and write=...; this is {what!r}"
        )
    _stopped(query)
    name = query if isinstance(query, str) else str(query.id)
    last = Finishing(plan, name)
    if last.number >= 0:
        write(last.rows(), last.number)
        last.close()
    return None


def _stopped(query: Any) -> None:
    if not isinstance(query, str) and query.isActive:
        raise BadInput(f"the query {query.id} is still running; stop it, or wait for its end, before hr.finish")


class Finishing:
    """What the log of a plan still holds.

    Parameters
    ----------
    plan
        Of a DataFrame that `enrich` gave.
    query
        The query's id.
    """

    def __init__(self, plan: Plan, query: str) -> None:
        self.plan = plan
        self.query = query
        step = plan.steps[0] if plan.steps else None
        if step is None or step.deferral is None:
            raise BadInput(
                "nothing of this DataFrame waits: hr.finish is for what comes straight from hr.progressive_join, or from"
                " hr.enrich(..., deadline=...) or unmatched='retry'; where there are transformations between it and the sink,"
                " give hr.finish the DataFrame that they gave, and write=... with the transformations"
            )
        if plan.earlier:
            raise BadInput(
                "two steps in a row remember rows, and hr.finish cannot send those of the first through the second; let the query"
                " run until nothing waits: hr.progressive_join ends a run with trigger availableNow when nothing is owed"
            )
        self.step = step
        self.log = RunLog(step.state, query, step.log, shards=step.shards)
        self.number = max(self._each(unfinished))

    def rows(self) -> DataFrame:
        """Everything that waits, joined."""
        from headrace.spark.enrich import numbered

        plan = self.latest()
        return plan.map(self.source(), numbered(plan.schema), Task(plan.steps, finish=self.query)).toDF(
            *plan.schema.names
        )

    def source(self) -> DataFrame:
        """A row for each shard."""
        session, shards = self.plan.source.sparkSession, self.step.shards
        assert self.plan.stream is not None
        ids = session.range(shards).withColumnRenamed("id", "shard")
        return beats(ids, self.plan.stream).repartitionById(shards, SHARD)

    def latest(self) -> Plan:
        """The plan with each relation at its latest version."""
        pairs = zip(self.plan.steps, self.plan.relations, strict=True)
        steps = tuple(s if r is None else replace(s, version=r.refresh().version, follow=False) for s, r in pairs)
        return replace(self.plan, steps=steps)

    def close(self) -> None:
        """The rows have arrived."""
        self._each(close_finish)

    def forget(self) -> None:
        """They have not, and the query goes on: they wait again."""
        self._each(forget_finish)

    def _each(self, do: Callable[[ShardLog], Any]) -> list[Any]:
        done = []
        for number in range(self.log.shards):
            with self.log.shard(number) as shard:
                done.append(do(shard))
        return done
