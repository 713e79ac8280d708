"""Steps that remember rows: the shuffle by shard, heartbeats, and the rows that a run log holds in the end. (DESIGN D7)"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from pyspark.sql.functions import col, lit, pmod, xxhash64

from headrace.errors import BadInput
from headrace.paths import local_path
from headrace.relation import Relation
from headrace.runlog import RunLog, ShardLog, close_finish, forget_finish, owing, unfinished
from headrace.semistream.deferred.deferral import Deferral
from headrace.semistream.deferred.notes import Notes
from headrace.spark.plan import Plan
from headrace.spark.schemas import numbered
from headrace.spark.state.heartbeat import heartbeat
from headrace.spark.worker import Task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SHARD, BEAT = "__headrace_shard", "__headrace_beat"
_CHECKPOINTS = "spark.sql.streaming.checkpointLocation"

Found = TypeVar("Found")
OnReplaced = Literal["refuse", "join"]


def state_path(session: SparkSession, state: str | Path | None, parameter: str) -> str:
    """Where rows are kept that a query remembers. `parameter`: what to give where nothing says so, for the message."""
    if state is None:
        checkpoints = session.conf.get(_CHECKPOINTS, None)
        if checkpoints is None:
            raise BadInput(
                f"what waits must be kept somewhere; give {parameter}, which driver and executors see under the same path, or"
                f" set {_CHECKPOINTS}"
            )
        return str(local_path(checkpoints, _CHECKPOINTS) / "headrace")
    return str(local_path(state, "state"))


def by_shard(df: DataFrame, key: tuple[str, ...], shards: int, deferral: Deferral) -> DataFrame:
    """Rows and heartbeats, a partition for each shard: the columns c0, c1, ..., then the shard and whether it is a heartbeat."""
    names = [f"c{i}" for i in range(len(df.columns))]
    at = [col(names[df.columns.index(name)]) for name in key]
    shard = pmod(xxhash64(*at), lit(shards)).cast("int")
    rows = df.toDF(*names).select(*names, shard.alias(SHARD), lit(False).alias(BEAT))
    if deferral.deadline is not None or deferral.unmatched == "retry":
        rows = rows.union(beats(heartbeat(df.sparkSession, shards, deferral.period), df.schema))
    return rows.repartitionById(shards, SHARD)


def beats(shards: DataFrame, schema: StructType) -> DataFrame:
    """Heartbeats: a row of nulls for each shard."""
    nulls = [lit(None).cast(f.dataType).alias(f"c{i}") for i, f in enumerate(schema.fields)]
    return shards.select(*nulls, col("shard").cast("int").alias(SHARD), lit(True).alias(BEAT))


class Finishing:
    """The rows that the run log of a plan still holds when the query has stopped.

    Parameters
    ----------
    plan
        Of a DataFrame that `enrich`, `progressive_join` or `multiway_join` gave.
    query
        The query's id.
    on_replaced
        What to do if another relation was made in the place of the one that rows were looked up in when they came: refuse, or
        join them with the new one.
    """

    def __init__(self, plan: Plan, query: str, on_replaced: OnReplaced = "refuse") -> None:
        self.plan = plan
        self.query = query
        self.on_replaced = on_replaced
        keeping = plan.steps[0].remembers if plan.steps else None
        if keeping is None:
            raise BadInput(
                "nothing of this DataFrame waits: hr.finish is for what comes straight from hr.progressive_join,"
                " hr.multiway_join, hr.enrich(..., deadline=...) or hr.Defer(unmatched='retry'); where there are transformations"
                " between it and the sink, give hr.finish the DataFrame that they gave, and write=... with the transformations"
            )
        if plan.earlier:
            raise BadInput(
                "two steps in a row remember rows, and hr.finish cannot send those of the first through the second; let the query"
                " run until nothing waits: joins of streams end a run with trigger availableNow when nothing is owed"
            )
        self.log = RunLog(keeping.directory, query, keeping.log, shards=keeping.shards)
        self.number = max(self._each(unfinished))

    def rows(self) -> DataFrame:
        """All rows that wait, joined."""
        plan = self.latest()
        return plan.map(self.source(), numbered(plan.schema), Task(plan.steps, finish=self.query)).toDF(
            *plan.schema.names
        )

    def source(self) -> DataFrame:
        """A heartbeat for each shard."""
        session, shards = self.plan.source.sparkSession, self.log.shards
        assert self.plan.stream is not None
        ids = session.range(shards).withColumnRenamed("id", "shard")
        return beats(ids, self.plan.stream).repartitionById(shards, SHARD)

    def latest(self) -> Plan:
        """The plan with each relation at its latest version, which stays open as long as the plan."""
        latest = tuple(None if relation is None else relation.refresh() for relation in self.plan.relations)
        if self.on_replaced == "refuse":
            self._check_relations(latest)
        pairs = zip(self.plan.steps, latest, strict=True)
        steps = (s if r is None else s.with_relation(r, follow=False) for s, r in pairs)
        return replace(self.plan, steps=tuple(steps), relations=latest)

    def _check_relations(self, latest: tuple[Relation | None, ...]) -> None:
        """Refuse a relation that was made in the place of one of the plan, or of the one that rows wait for."""
        for opened, now in zip(self.plan.relations, latest, strict=True):
            if opened is not None and now is not None:
                now.check_identity(opened.identity)
        if (first := latest[0]) is not None:
            for decision in self._each(owing):
                Notes.of(decision).check_relation(first, self.log.path)

    def close(self) -> None:
        """Note that the rows have arrived in the sink."""
        self._each(close_finish)

    def forget(self) -> None:
        """Note that the rows have not arrived, and the query goes on: they wait again."""
        self._each(forget_finish)

    def _each(self, do: Callable[[ShardLog], Found]) -> list[Found]:
        done: list[Found] = []
        for number in range(self.log.shards):
            with self.log.shard(number) as shard:
                done.append(do(shard))
        return done
