"""What a pipeline file may say: one source, steps in their order, one sink. Each part is a model of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from headrace.pipeline.document import Document, filled
from headrace.pipeline.fields import (
    Column,
    Columns,
    Condition,
    Duration,
    Fields,
    Name,
    On,
    Options,
    Settings,
    Size,
    Sql,
    Text,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

#: what Spark's Kafka source gives
KAFKA = pa.schema({
    "key": pa.binary(), "value": pa.binary(), "topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"), "timestampType": pa.int32(),
})  # fmt: skip
RATE = pa.schema({"timestamp": pa.timestamp("us", "UTC"), "value": pa.int64()})


class Part(BaseModel):
    """A table of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, arbitrary_types_allowed=True)
    what: ClassVar[str] = "the file"


# -- sources -----------------------------------------------------------------------------------------------------------


class FileSource(Part):
    """Files that appear in a directory, read by Spark."""

    what: ClassVar[str] = "a source of files"
    format: Literal["parquet", "json", "csv"]
    path: Text
    columns: Fields
    required: Columns = ()
    header: bool = True
    files_per_batch: int | None = Field(None, ge=1)
    options: Options = {}

    @property
    def schema_(self) -> pa.Schema:
        """The columns of its rows."""
        return pa.schema(self.columns)


class KafkaSource(Part):
    """Topics of Kafka. Values are JSON or CSV of the columns, or stay as they are."""

    what: ClassVar[str] = "a source from Kafka"
    format: Literal["kafka"]
    servers: Text
    topic: Text
    value: Literal["json", "csv", "bytes"] = "json"
    columns: Fields | None = None
    required: Columns = ()
    starting: Literal["earliest", "latest"] = "earliest"
    rows_per_batch: int | None = Field(None, ge=1)
    options: Options = {}

    @property
    def schema_(self) -> pa.Schema:
        """The columns of its rows."""
        return KAFKA if self.value == "bytes" else pa.schema(self.columns or {})


class RateSource(Part):
    """Rows that Spark makes up, to try a pipeline: a time and a number."""

    what: ClassVar[str] = "a rate source"
    format: Literal["rate"]
    rows_per_second: int = Field(1000, ge=1)
    options: Options = {}

    @property
    def schema_(self) -> pa.Schema:
        """The columns of its rows."""
        return RATE


Source = FileSource | KafkaSource | RateSource
SOURCES: dict[str, type[Part]] = {
    "parquet": FileSource, "json": FileSource, "csv": FileSource, "kafka": KafkaSource, "rate": RateSource,
}  # fmt: skip


# -- steps -------------------------------------------------------------------------------------------------------------


class Enrich(Part):
    """`hr.enrich`: join with a relation."""

    what: ClassVar[str] = "an enrich step"
    enrich: Text
    on: On = None
    how: Literal["inner", "left", "semi", "anti"] = "inner"
    memory: Size = "64MiB"
    algorithm: Column = "auto"
    order: Literal["any", "stream"] = "any"
    condition: Condition = None
    columns: Columns | None = None
    suffix: Text = "_right"


class Filter(Part):
    """Keep the rows for which an SQL expression is true."""

    what: ClassVar[str] = "a filter step"
    filter: Sql


class Select(Part):
    """The columns of the result, each a name or an SQL expression with AS."""

    what: ClassVar[str] = "a select step"
    select: list[Sql] = Field(min_length=1)


Step = Enrich | Filter | Select
STEPS: dict[str, type[Part]] = {"enrich": Enrich, "filter": Filter, "select": Select}


# -- sinks -------------------------------------------------------------------------------------------------------------


class DeltaSink(Part):
    """`hr.load`: a Delta table, exactly once."""

    what: ClassVar[str] = "a Delta sink"
    format: Literal["delta"]
    path: Text
    partition_by: Columns = ()


class ParquetSink(Part):
    """Spark's Parquet files."""

    what: ClassVar[str] = "a Parquet sink"
    format: Literal["parquet"]
    path: Text
    partition_by: Columns = ()
    options: Options = {}


class KafkaSink(Part):
    """A topic of Kafka; each row is one JSON text."""

    what: ClassVar[str] = "a Kafka sink"
    format: Literal["kafka"]
    servers: Text
    topic: Text
    key: Column | None = None
    options: Options = {}


class ConsoleSink(Part):
    """The first rows of each micro-batch, shown."""

    what: ClassVar[str] = "a console sink"
    format: Literal["console"]
    rows: int = Field(20, ge=1)


class SparkSink(Part):
    """Any other sink that this Spark has."""

    what: ClassVar[str] = "a Spark sink"
    format: Literal["spark"]
    writer: Column
    mode: Literal["append", "update", "complete"] = "append"
    options: Options = {}


Sink = DeltaSink | ParquetSink | KafkaSink | ConsoleSink | SparkSink
SINKS: dict[str, type[Part]] = {
    "delta": DeltaSink, "parquet": ParquetSink, "kafka": KafkaSink, "console": ConsoleSink, "spark": SparkSink,
}  # fmt: skip


# -- the whole ---------------------------------------------------------------------------------------------------------


class Head(Part):
    """What stands before the tables."""

    name: Name
    state: Text | None = None
    every: Duration = "1s"
    cores: int | None = Field(None, ge=1)
    spark: Settings = {}


class Pipeline:
    """A pipeline file that was read and understood: see `read_pipeline`. Values from the environment are in no `repr`."""

    def __init__(self, document: Document, head: Head, source: Source, steps: tuple[Step, ...], sink: Sink) -> None:
        self.document = document
        self.head = head
        self.source = source
        self.steps = steps
        self.sink = sink

    @property
    def name(self) -> str:
        """Of the pipeline and of its query."""
        return self.head.name

    @property
    def state(self) -> Path:
        """Where it keeps its checkpoint, dead letters and log."""
        return self.at(self.head.state or f"{self.name}.state")

    @property
    def checkpoint(self) -> Path:
        """Where Spark keeps its offsets."""
        return self.state / "checkpoint"

    @property
    def dead_letters(self) -> Path:
        """Where records go that could not be read."""
        return self.state / "dead-letters"

    def at(self, path: str) -> Path:
        """A path of the file: a relative one begins at the file's directory."""
        return (self.document.path.parent / filled(path)).absolute()

    def check(self) -> None:
        """Refuse what cannot run, as far as that can be seen without Spark: paths, relations, columns and their types."""
        from headrace.pipeline.check import check_pipeline

        check_pipeline(self)

    def explain(self) -> dict[str, Any]:
        """The plan: the parts in order, the algorithms and why, the memory."""
        from headrace.pipeline.check import check_pipeline
        from headrace.pipeline.explain import explain

        return explain(self, check_pipeline(self))

    def start(self, spark: SparkSession, *, once: bool = False) -> StreamingQuery:
        """Start the query on a Spark of yours; with `once` it takes what is there, and ends."""
        from headrace.pipeline.build import start

        return start(self, spark, once=once)

    def __repr__(self) -> str:
        return f"Pipeline({str(self.document.path)!r}, name={self.name!r})"
