"""Where the joined stream goes: nowhere, into Spark's Parquet sink, or into a Delta table by `hr.load`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery


class Sink(ABC):
    """A sink with its files, and the query's checkpoint, in one directory."""

    def __init__(self, work: Path) -> None:
        self.table = work / "table"
        self.checkpoint = work / "checkpoint"

    @abstractmethod
    def start(self, frame: DataFrame) -> StreamingQuery:
        """Start the query: it takes the files that are there, in micro-batches, and ends."""

    @abstractmethod
    def committed(self, frame: DataFrame) -> Any:
        """What the sink holds for its readers, as an Arrow dataset; None where it keeps nothing."""


class Noop(Sink):
    """Every row is computed and thrown away."""

    def start(self, frame: DataFrame) -> StreamingQuery:
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(availableNow=True).start()

    def committed(self, frame: DataFrame) -> Any:
        return None


class ParquetSink(Sink):
    """Spark's own way to load a table."""

    def start(self, frame: DataFrame) -> StreamingQuery:
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(availableNow=True).start(str(self.table))

    def committed(self, frame: DataFrame) -> Any:
        # Asked of Spark: the sink's log says which of the files count.
        files = frame.sparkSession.read.schema(frame.schema).parquet(str(self.table)).inputFiles()
        return ds.dataset([f.removeprefix("file://") for f in files], format="parquet")


class DeltaLoad(Sink):
    """`hr.load`: workers write Parquet, the driver commits it."""

    def start(self, frame: DataFrame) -> StreamingQuery:
        import headrace as hr

        trigger = {"availableNow": True}
        return hr.load(frame, str(self.table), checkpoint=str(self.checkpoint), trigger=trigger)

    def committed(self, frame: DataFrame) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(str(self.table)).to_pyarrow_dataset()
