"""The sections of a pipeline file: a model for each kind of source, step and sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from headrace.pipeline.document import filled
from headrace.pipeline.fields import (
    Column,
    ColumnOrNone,
    Columns,
    Condition,
    Content,
    Duration,
    Fields,
    On,
    Options,
    Size,
    SourceValue,
    Sql,
    Summed,
    Text,
    TwigPath,
)
from headrace.pipeline.sampling_parts import Estimate, JoinInPart, JoinWindows, Sample
from headrace.pipeline.section import Section

if TYPE_CHECKING:
    from headrace.xml import Twig

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


# -- sources -----------------------------------------------------------------------------------------------------------


class FileSource(Section):
    """A source of files that appear in a directory, read by Spark."""

    what: ClassVar[str] = "a source of files"
    format: Literal["parquet", "json", "csv"]
    path: Text
    columns: Fields
    required: Columns = ()
    header: bool = True
    files_per_batch: int | None = Field(None, ge=1)
    options: Options = Field(default_factory=dict)

    @property
    def schema_(self) -> pa.Schema:
        """The columns of its rows."""
        return pa.schema(self.columns)


class XmlSource(Section):
    """A source of XML documents that appear in a directory, as fragments that match a twig: `hr.xml_fragments`."""

    what: ClassVar[str] = "a source of XML documents"
    format: Literal["xml"]
    path: Text
    twig: TwigPath
    content: Content = Field(default_factory=dict)
    optional: Columns = ()
    strict: bool = False
    document: ColumnOrNone = "document"
    partial: Literal["drop", "keep"] = "drop"
    memory: Size = "64MiB"
    files_per_batch: int | None = Field(None, ge=1)
    options: Options = Field(default_factory=dict)

    @property
    def pattern(self) -> Twig:
        """The twig."""
        from headrace.xml import Twig

        return Twig(self.twig, content=self.content, optional=self.optional, strict=self.strict)

    @property
    def schema_(self) -> pa.Schema:
        """The columns of its rows."""
        last = [] if self.document is None else [pa.field(self.document, pa.string())]
        return pa.schema([*self.pattern.schema, *last])


class KafkaSource(Section):
    """A source of Kafka topics, whose values are JSON, CSV or raw bytes."""

    what: ClassVar[str] = "a source from Kafka"
    format: Literal["kafka"]
    servers: Text
    topic: Text
    value: Literal["json", "csv", "bytes"] = "json"
    columns: Fields | None = None
    required: Columns = ()
    starting: Literal["earliest", "latest"] = "earliest"
    rows_per_batch: int | None = Field(None, ge=1)
    options: Options = Field(default_factory=dict)

    @property
    def schema_(self) -> pa.Schema:
        """The columns of its rows."""
        return KAFKA if self.value == "bytes" else pa.schema(self.columns or {})


class PostgreSQLSource(Section):
    """A source of new rows of a PostgreSQL table, found by a growing column. The server knows the columns."""

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


class RateSource(Section):
    """A source of generated rows, a time and a number, to try a pipeline."""

    what: ClassVar[str] = "a rate source"
    format: Literal["rate"]
    rows_per_second: int = Field(1000, ge=1)
    options: Options = Field(default_factory=dict)

    @property
    def schema_(self) -> pa.Schema:
        """The columns of its rows."""
        return RATE


Source = FileSource | XmlSource | KafkaSource | PostgreSQLSource | RateSource
SOURCES: dict[str, type[Section]] = {
    "parquet": FileSource,
    "json": FileSource,
    "csv": FileSource,
    "xml": XmlSource,
    "kafka": KafkaSource,
    "postgresql": PostgreSQLSource,
    "rate": RateSource,
}


# -- steps -------------------------------------------------------------------------------------------------------------


class Enrich(Section):
    """A step that joins with a relation: `hr.enrich`."""

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
    estimate: Summed = False
    shards: int | None = Field(None, ge=1)

    @property
    def remembers(self) -> bool:
        """Whether rows may wait, or be put aside, in the run log."""
        return self.waits or self.shed is not None

    @property
    def waits(self) -> bool:
        """Whether rows may wait for their deadline or for a match, or are put aside without one."""
        return self.deadline is not None or self.unmatched in ("dead_letter", "retry")


class Keys(Section):
    """A step that replaces production keys by surrogate keys: `hr.assign_surrogate_keys`."""

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


class Duplicates(Section):
    """A step that adds a column which tells whether a row is in the relation: `hr.find_duplicates`."""

    what: ClassVar[str] = "a duplicates step"
    duplicates: Text
    on: On = None
    condition: Condition = None
    flag: Column = "duplicate"
    columns: Columns | None = None
    suffix: Text = "_right"
    memory: Size = "64MiB"
    algorithm: Column = "auto"


class Filter(Section):
    """A step that keeps the rows for which an SQL expression is true."""

    what: ClassVar[str] = "a filter step"
    filter: Sql


class Select(Section):
    """A step that selects columns, each a name or an SQL expression with AS."""

    what: ClassVar[str] = "a select step"
    select: list[Sql] = Field(min_length=1)


Step = Enrich | Keys | Duplicates | JoinWindows | JoinInPart | Sample | Estimate | Filter | Select
STEPS: dict[str, type[Section]] = {
    "enrich": Enrich,
    "surrogate_keys": Keys,
    "duplicates": Duplicates,
    "window_join": JoinWindows,
    "approximate_join": JoinInPart,
    "sample": Sample,
    "estimate": Estimate,
    "filter": Filter,
    "select": Select,
}


# -- sinks -------------------------------------------------------------------------------------------------------------


class DeltaSink(Section):
    """A sink that loads a Delta table exactly once: `hr.load`."""

    what: ClassVar[str] = "a Delta sink"
    format: Literal["delta"]
    path: Text
    partition_by: Columns = ()


class ParquetSink(Section):
    """A sink of Parquet files, written by Spark."""

    what: ClassVar[str] = "a Parquet sink"
    format: Literal["parquet"]
    path: Text
    partition_by: Columns = ()
    options: Options = Field(default_factory=dict)


class KafkaSink(Section):
    """A sink to a Kafka topic, with each row as one JSON text."""

    what: ClassVar[str] = "a Kafka sink"
    format: Literal["kafka"]
    servers: Text
    topic: Text
    key: Column | None = None
    options: Options = Field(default_factory=dict)


class PostgreSQLSink(Section):
    """A sink that loads a PostgreSQL table exactly once: `hr.load_postgresql`."""

    what: ClassVar[str] = "a PostgreSQL sink"
    format: Literal["postgresql"]
    url: Text
    table: Text
    key: Columns = ()
    latest_by: Column | None = None


class ConsoleSink(Section):
    """A sink that shows the first rows of each micro-batch."""

    what: ClassVar[str] = "a console sink"
    format: Literal["console"]
    rows: int = Field(20, ge=1)


class SparkSink(Section):
    """Any other sink of Spark."""

    what: ClassVar[str] = "a Spark sink"
    format: Literal["spark"]
    writer: Column
    mode: Literal["append", "update", "complete"] = "append"
    options: Options = Field(default_factory=dict)


Sink = DeltaSink | PostgreSQLSink | ParquetSink | KafkaSink | ConsoleSink | SparkSink
SINKS: dict[str, type[Section]] = {
    "delta": DeltaSink,
    "postgresql": PostgreSQLSink,
    "parquet": ParquetSink,
    "kafka": KafkaSink,
    "console": ConsoleSink,
    "spark": SparkSink,
}
