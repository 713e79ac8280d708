"""A streaming source of a single row: what a batch DataFrame is joined with to come into a stream once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAME = "headrace_once"
_SENT = "sent"
_MADE = "_headrace_once"


class OnceReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """One row in the first micro-batch of a query, and never again: its checkpoint knows."""

    def initialOffset(self) -> dict[str, int]:
        """The offset before the row."""
        return {_SENT: 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """The offset after the row, from the start: the first micro-batch has it."""
        return {_SENT: 1}

    def prepareForTriggerAvailableNow(self) -> None:
        """Spark asks for this of a source for bounded runs; this source needs no preparation."""

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """One partition, for the one row."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The one row."""
        yield pa.record_batch({"once": pa.array([0], pa.int32())})


class Once(DataSource):  # type: ignore[misc]
    """``spark.readStream.format(NAME)``."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    def schema(self) -> str:
        """One column, whose value nobody reads."""
        return "once int"

    def streamReader(self, schema: object) -> OnceReader:
        """The reader."""
        return OnceReader()


def once(df: DataFrame) -> DataFrame:
    """A streaming DataFrame of the rows of a batch one, all in the first micro-batch.

    Later micro-batches do not read it: Spark joins it with nothing then, and leaves it out.
    """
    session = df.sparkSession
    # Kept with the session, and gone with it: to make one starts a Python process, which takes a second.
    made: DataFrame | None = session.__dict__.get(_MADE)
    if made is None:
        session.dataSource.register(Once)
        made = session.__dict__[_MADE] = session.readStream.format(NAME).load()
    return df.crossJoin(made.withColumnRenamed("once", "__headrace_once")).drop("__headrace_once")
