"""The parts of a pipeline file: sources, steps and sinks, each a model of its own."""

from __future__ import annotations

from typing import ClassVar, Literal

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from headrace.pipeline.document import filled
from headrace.pipeline.fields import (
    Column,
    ColumnOrNone,
    Columns,
    Condition,
    Duration,
    Fields,
    On,
    Options,
    Size,
    SourceValue,
    Sql,
    Text,
)

#: what Spark's Kafka source gives
KAFKA = pa.schema(
    {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestampType": pa.int32(),
    }
)
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


class PostgreSQLSource(Part):
    """What is new in a table of PostgreSQL, by a column that grows. The server knows the columns."""

    what: ClassVar[str] = "a source from PostgreSQL"
    format: Literal["postgresql"]
    url: Text
    table: Text
    by: Column
    columns: Columns | None = None
    lag: Duration = None
    rows_per_batch: int = Field(1_000_000, ge=1)
    tasks: int = Field(1, ge=1)

    @property
    def schema_(self) -> pa.Schema:
        """The columns of its rows, from the server."""
        from headrace.sources.postgresql import TableReader

        return TableReader.describe(filled(self.table), filled(self.url), columns=self.columns, by=self.by).schema


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


Source = FileSource | KafkaSource | PostgreSQLSource | RateSource
SOURCES: dict[str, type[Part]] = {
    "parquet": FileSource,
    "json": FileSource,
    "csv": FileSource,
    "kafka": KafkaSource,
    "postgresql": PostgreSQLSource,
    "rate": RateSource,
}


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
    unmatched: Literal["drop", "null", "dead_letter", "retry"] | None = None
    retry_for: Duration = "1h"
    version_column: Column | None = None
    deadline: Duration = None
    shed: Literal["auto", "keep", "sample", "topw", "cluster"] | None = None
    target_delay: Duration = None
    shards: int | None = Field(None, ge=1)

    @property
    def remembers(self) -> bool:
        """Whether rows may wait, or be put aside, in the run log."""
        return self.waits or self.shed is not None

    @property
    def waits(self) -> bool:
        """Whether rows may wait for their deadline or for a match, or are put aside without one."""
        return self.deadline is not None or self.unmatched in ("dead_letter", "retry")


class Keys(Part):
    """`hr.assign_surrogate_keys`: production keys become the warehouse's."""

    what: ClassVar[str] = "a surrogate_keys step"
    surrogate_keys: Text
    key: On
    source: SourceValue = None
    source_column: Column | None = None
    surrogate: Column = "skey"
    inferred: ColumnOrNone = "inferred"
    same_as: Text | None = None
    first: int = 1
    memory: Size = "64MiB"


class Duplicates(Part):
    """`hr.find_duplicates`: a column says whether a row is in the relation already."""

    what: ClassVar[str] = "a duplicates step"
    duplicates: Text
    on: On = None
    condition: Condition = None
    flag: Column = "duplicate"
    columns: Columns | None = None
    suffix: Text = "_right"
    memory: Size = "64MiB"
    algorithm: Column = "auto"


class Filter(Part):
    """Keep the rows for which an SQL expression is true."""

    what: ClassVar[str] = "a filter step"
    filter: Sql


class Select(Part):
    """The columns of the result, each a name or an SQL expression with AS."""

    what: ClassVar[str] = "a select step"
    select: list[Sql] = Field(min_length=1)


Step = Enrich | Keys | Duplicates | Filter | Select
STEPS: dict[str, type[Part]] = {
    "enrich": Enrich,
    "surrogate_keys": Keys,
    "duplicates": Duplicates,
    "filter": Filter,
    "select": Select,
}


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


class PostgreSQLSink(Part):
    """`hr.load_postgresql`: a table of PostgreSQL, exactly once."""

    what: ClassVar[str] = "a PostgreSQL sink"
    format: Literal["postgresql"]
    url: Text
    table: Text
    key: Columns = ()
    latest_by: Column | None = None


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


Sink = DeltaSink | PostgreSQLSink | ParquetSink | KafkaSink | ConsoleSink | SparkSink
SINKS: dict[str, type[Part]] = {
    "delta": DeltaSink,
    "postgresql": PostgreSQLSink,
    "parquet": ParquetSink,
    "kafka": KafkaSink,
    "console": ConsoleSink,
    "spark": SparkSink,
}
