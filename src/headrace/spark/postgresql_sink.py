"""`load_postgresql`: upsert a DataFrame into a PostgreSQL table, exactly once.

Python workers copy the rows beside the table, in the same pass that enriches where there is one; the driver merges them in one
transaction together with the number of the micro-batch. See sources/upsert.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from headrace.errors import BadInput
from headrace.sources.upsert import Stage, Target
from headrace.spark.enrich import Plan, stream_schema
from headrace.spark.load import _absolute, _transaction
from headrace.spark.pins import Pins
from headrace.spark.table import FACTS
from headrace.spark.worker import Task

if TYPE_CHECKING:
    from pyspark import TaskContext
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery


@dataclass(frozen=True)
class Upserted:
    """What a load of a batch DataFrame did."""

    rows: int
    """inserted or changed"""
    repeated: bool
    """whether the transaction was committed before, so nothing was written"""


def load_postgresql(
    df: DataFrame,
    table: str | Sequence[str],
    *,
    url: str,
    key: str | Sequence[str] = (),
    latest_by: str | None = None,
    checkpoint: str | Path | None = None,
    trigger: Mapping[str, Any] | None = None,
    name: str | None = None,
    transaction: tuple[str, int] | None = None,
) -> StreamingQuery | Upserted:
    """Load a DataFrame, streaming or batch, into a PostgreSQL table that is there, exactly once.

    Parameters
    ----------
    df
        What to load; its columns are columns of the table. If `enrich` gave it, rows are joined and copied in one pass.
    table, url
        As for `read_postgresql`.
    key
        Columns with a unique index: a row replaces the one with the same key. Without it rows are appended.
    latest_by
        Of rows with the same key, in a micro-batch or in the table, the one with the highest value of this column stays.
    checkpoint, trigger, name
        Of a streaming DataFrame: as for `load`.
    transaction
        Of a batch DataFrame: as for `load`.

    Returns
    -------
    StreamingQuery | Upserted
        The started query of a streaming DataFrame; what was written of a batch one.
    """
    plan = Plan.of(df)
    if df.isStreaming and checkpoint is None:
        raise BadInput("a streaming DataFrame needs checkpoint=...: without it a restart could not know what is loaded")
    if df.isStreaming and transaction is not None:
        raise BadInput("transaction=... is for a batch DataFrame; a streaming one counts its micro-batches itself")
    for option, value in (("checkpoint", checkpoint), ("trigger", trigger), ("name", name)):
        if value is not None and not df.isStreaming:
            raise BadInput(f"{option}={value!r} is for a streaming DataFrame, and this is a batch one")
    app, number = _transaction(transaction)
    keys = (key,) if isinstance(key, str) else tuple(key)
    sink = PostgreSQLSink(Target.describe(table, url, stream_schema(plan.schema), keys, latest_by), plan)
    if not df.isStreaming:
        return sink.load(plan.source, app, number, plan)
    writer = plan.source.writeStream.foreachBatch(sink.load_batch).option("checkpointLocation", _absolute(checkpoint))
    if trigger:
        writer = writer.trigger(**trigger)
    if name:
        writer = writer.queryName(name)
    return writer.start()


class PostgreSQLSink:
    """The table, seen from the driver.

    Parameters
    ----------
    target
        The table.
    plan
        What is loaded.
    """

    def __init__(self, target: Target, plan: Plan) -> None:
        self.target = target
        self._pins = Pins(plan)

    def load_batch(self, df: DataFrame, batch: int) -> None:
        """Load one micro-batch; called by Spark, again after a restart that does not know it is done."""
        query = df.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        self.load(df, f"headrace-{query}", batch, self._pins.latest())

    def load(self, df: DataFrame, app: str, number: int, plan: Plan) -> Upserted:
        """Copy and merge the rows of a batch DataFrame, unless this transaction was committed before."""
        if self.target.last(app) >= number:
            return Upserted(0, repeated=True)
        stage = self.target.new_stage(app)
        try:
            writer = cast(Any, StageWriter(stage))  # not files of a table; a task only calls its `write`
            rows = plan.map(df, FACTS, Task(plan.steps, writer)).collect()
            facts = [json.loads(row.facts) for row in rows]
            written = self.target.merge(stage, app, number, [fact["tag"] for fact in facts])
        except Exception:
            self.target.drop(stage)
            raise
        return Upserted(written or 0, repeated=written is None)


@dataclass(frozen=True)
class StageWriter:
    """What a task does with its rows."""

    stage: Stage

    def write(self, batches: Iterator[pa.RecordBatch], context: TaskContext) -> Iterator[pa.RecordBatch]:
        """Copy all batches; gives the attempt's tag."""
        tag, rows = self.stage.copy(batches, context.partitionId())
        fact = json.dumps({"tag": tag, "rows": rows})
        yield pa.record_batch({"facts": pa.array([fact], pa.string())})
