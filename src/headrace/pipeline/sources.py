"""The sources of a pipeline as streaming DataFrames, without malformed records, which become dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyspark
from pyspark.errors import AnalysisException
from pyspark.sql import functions as fn
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StringType, StructField, StructType

from headrace.errors import BadInput
from headrace.pipeline.dead_letters import DeadLetterSplitter
from headrace.pipeline.document import filled
from headrace.pipeline.fields import filled_size
from headrace.pipeline.models import Pipeline
from headrace.pipeline.parts import FileSource, KafkaSource, PostgreSQLSource, RateSource, XmlSource
from headrace.spark.postgresql.source import stream_postgresql
from headrace.spark.xml_fragments import xml_fragments

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

_RECORD = "_headrace_record"
_FROM = "_headrace_from"
_CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"


def spark_schema(schema: pa.Schema) -> StructType:
    """Convert an Arrow schema to Spark's."""
    return StructType([StructField(f.name, from_arrow_type(f.type, prefer_timestamp_ntz=True)) for f in schema])


def stand_in(spark: SparkSession, schema: pa.Schema) -> DataFrame:
    """Make a streaming DataFrame with these columns for checks of later steps; it is never started."""
    nothing = spark.readStream.format("rate").load()
    return nothing.select(*(fn.lit(None).cast(f.dataType).alias(f.name) for f in spark_schema(schema)))


def open_source(pipeline: Pipeline, spark: SparkSession, name: str = "") -> DataFrame:
    """Open the source, or one that steps join with, by its name; returns its rows."""
    source = pipeline.sources[name] if name else pipeline.source
    if isinstance(source, FileSource):
        return _files(pipeline, source, spark, name)
    if isinstance(source, KafkaSource):
        return _kafka(pipeline, source, spark, name)
    if isinstance(source, PostgreSQLSource):
        return stream_postgresql(
            spark,
            filled(source.table),
            by=source.by,
            url=filled(source.url),
            columns=source.columns,
            lag=filled_size(source.lag),
            max_rows=source.rows_per_batch,
            tasks=source.tasks,
        )
    if isinstance(source, XmlSource):
        return _documents(pipeline, source, spark)
    assert isinstance(source, RateSource)
    return _with(spark.readStream.format("rate").option("rowsPerSecond", source.rows_per_second), source.options).load()


def _with(reader: DataStreamReader, options: dict[str, str]) -> DataStreamReader:
    return reader.options(**{name: filled(value) for name, value in options.items()})


def _files(pipeline: Pipeline, source: FileSource, spark: SparkSession, name: str) -> DataFrame:
    reader = spark.readStream.format(source.format)
    if source.files_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", source.files_per_batch)
    schema = spark_schema(source.schema_)
    if source.format != "parquet":
        reader = reader.option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", _RECORD)
        schema = StructType([*schema.fields, StructField(_RECORD, StringType())])
    if source.format == "csv":
        # Without this, Spark would take the columns of a file by position, whatever its header says.
        reader = reader.option("header", source.header).option("enforceSchema", not source.header)
    rows = _with(reader, source.options).schema(schema).load(str(pipeline.at(source.path)))
    if source.format == "parquet":
        if not source.required:
            return rows
        rows = rows.withColumn(_RECORD, fn.lit(None).cast("string"))
    # Only malformed rows carry the path, which would be most of the bytes of every other row.
    wrong = fn.col(_RECORD).isNotNull()
    for column in source.required:
        wrong = wrong | fn.col(_quoted(column)).isNull()
    return _sorted(pipeline, source, rows.withColumn(_FROM, fn.when(wrong, fn.col("_metadata.file_path"))), name)


def _documents(pipeline: Pipeline, source: XmlSource, spark: SparkSession) -> DataFrame:
    options = {name: filled(value) for name, value in source.options.items()}
    if source.files_per_batch is not None:
        options["maxFilesPerTrigger"] = str(source.files_per_batch)
    return xml_fragments(
        pipeline.at(source.path),
        source.pattern,
        document=source.document,
        streaming=True,
        options=options,
        dead_letters=pipeline.dead_letters,
        partial=source.partial,
        memory=filled_size(source.memory),
        spark=spark,
    )


def _kafka(pipeline: Pipeline, source: KafkaSource, spark: SparkSession, name: str) -> DataFrame:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", filled(source.servers))
    reader = reader.option("subscribe", filled(source.topic)).option("startingOffsets", source.starting)
    if source.rows_per_batch is not None:
        reader = reader.option("maxOffsetsPerTrigger", source.rows_per_batch)
    try:
        rows = _with(reader, source.options).load()
    except AnalysisException as error:
        if "data source: kafka" not in str(error):
            raise
        raise BadInput(
            f"this Spark has no Kafka connector; add to the file, under [spark]: jars.packages = {_CONNECTOR!r}"
        ) from error
    return rows if source.value == "bytes" else parse_values(pipeline, source, rows, name)


def parse_values(pipeline: Pipeline, source: KafkaSource, rows: DataFrame, name: str = "") -> DataFrame:
    """Parse the values of Kafka's rows to columns; a value that does not parse, or is null, becomes a dead letter."""
    schema = StructType([*spark_schema(source.schema_).fields, StructField(_RECORD, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _RECORD}
    text = fn.col("value").cast("string")
    parsed = fn.col("parsed")
    place = fn.concat_ws("/", "topic", fn.col("partition").cast("string"), fn.col("offset").cast("string"))
    # from_csv takes a schema as text only
    values = fn.from_json(text, schema, options) if source.value == "json" else fn.from_csv(text, _ddl(schema), options)
    rows = rows.select(values.alias("parsed"), text.alias("text"), place.alias(_FROM))
    unread = parsed.isNull() | ~fn.is_valid_utf8("text")
    record = fn.when(unread, fn.coalesce("text", fn.lit(""))).otherwise(parsed.getField(_RECORD))
    columns = [parsed.getField(column).alias(column) for column in source.schema_.names]
    return _sorted(pipeline, source, rows.select(*columns, record.alias(_RECORD), fn.col(_FROM)), name)


def _ddl(schema: StructType) -> str:
    """Return a schema as text with quoted names."""
    return ", ".join(f"{_quoted(field.name)} {field.dataType.simpleString()}" for field in schema)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _sorted(pipeline: Pipeline, source: FileSource | KafkaSource, rows: DataFrame, name: str) -> DataFrame:
    """Return the good rows; the others are written as dead letters."""
    format_ = source.value if isinstance(source, KafkaSource) else source.format
    separator = filled(source.options.get("sep", source.options.get("delimiter", ",")))
    directory, required = str(pipeline.dead_letters), tuple(source.required)
    letters = DeadLetterSplitter(directory, format_, source.schema_, required, separator, name)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        return letters.sort(batches, context.getLocalProperty("streaming.sql.batchId") or "0", context.partitionId())

    schema = spark_schema(source.schema_)
    # Columns are numbered on the way, because mapInArrow cannot resolve every name that a user's column may have.
    numbered = StructType([StructField(f"c{i}", f.dataType) for i, f in enumerate(schema)])
    count = len(schema.fields)
    return rows.toDF(*(f"c{i}" for i in range(count + 2))).mapInArrow(run, numbered).toDF(*schema.names)
