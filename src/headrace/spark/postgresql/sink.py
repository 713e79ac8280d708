"""`load_postgresql`: upsert a DataFrame into a PostgreSQL table, exactly once.

Python workers copy the rows beside the table, in the same pass that enriches where there is one; the driver merges them in one
transaction together with the number of the micro-batch. See sources/upsert.py.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.clock import SystemClock
from headrace.sources.upsert import StagingTable, UpsertTarget
from headrace.spark.batches import check_options, check_transaction
from headrace.spark.dataframes import check_dataframe
from headrace.spark.delta.files import FACTS
from headrace.spark.plan import Plan
from headrace.spark.schemas import stream_schema
from headrace.spark.sinks import NumberedSink, writing_task
from headrace.units import format_duration

if TYPE_CHECKING:
    from pyspark import TaskContext
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

_log = logging.getLogger(__name__)
_CLOCK = SystemClock()  # of what is logged


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
    check_dataframe(df)
    plan = Plan.of(df)
    check_options(df, checkpoint, trigger, name, transaction)
    app, number = check_transaction(transaction)
    keys = (key,) if isinstance(key, str) else tuple(key)
    sink = PostgreSQLSink(UpsertTarget.describe(table, url, stream_schema(plan.schema), keys, latest_by), plan)
    if not df.isStreaming:
        return sink.load(plan.source, app, number, plan)
    return sink.start(checkpoint, trigger, name)


class PostgreSQLSink(NumberedSink[Upserted]):
    """The table, seen from the driver.

    Parameters
    ----------
    target
        The table.
    plan
        What is loaded.
    """

    def __init__(self, target: UpsertTarget, plan: Plan) -> None:
        super().__init__(plan)
        self.target = target

    def last(self, app: str) -> int:
        """The application's last number in the database; -1 if none."""
        return self.target.last(app)

    def nothing(self) -> Upserted:
        """The result of a load without rows."""
        return Upserted(0, repeated=False)

    def load(self, df: DataFrame, app: str, number: int, plan: Plan, finish: str | None = None) -> Upserted:
        """Copy and merge the rows of a batch DataFrame, unless this transaction was committed before."""
        if self.target.last(app) >= number:
            _log.info(
                "%s: micro-batch %d was committed before a restart; nothing is written again",
                ".".join(self.target.table),
                number,
            )
            return Upserted(0, repeated=True)
        begun = _CLOCK.now()
        stage = self.target.new_stage(app)
        try:
            rows = plan.map(df, FACTS, writing_task(plan, df, StageWriter(stage), finish)).collect()
            facts = [json.loads(row.facts) for row in rows]
            written = self.target.merge(stage, app, number, [fact["tag"] for fact in facts])
        except Exception:
            self.target.drop(stage)
            raise
        _log.info(
            "%s: micro-batch %d, %s rows merged in %s",
            ".".join(self.target.table),
            number,
            f"{written or 0:,}",
            format_duration(_CLOCK.now() - begun),
        )
        return Upserted(written or 0, repeated=written is None)


@dataclass(frozen=True)
class StageWriter:
    """Copies the rows of a task beside the table."""

    stage: StagingTable

    def write(self, batches: Iterator[pa.RecordBatch], context: TaskContext) -> Iterator[pa.RecordBatch]:
        """Copy all batches; gives the attempt's tag."""
        tag, rows = self.stage.copy(batches, context.partitionId())
        fact = json.dumps({"tag": tag, "rows": rows})
        yield pa.record_batch({"facts": pa.array([fact], pa.string())})
