"""Construction of a pipeline as a DataFrame, and its start as a streaming query."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as fn

from headrace.errors import BadInput
from headrace.etl.duplicates import find_duplicates
from headrace.etl.surrogate import assign_surrogate_keys
from headrace.pipeline.build_sampling import add_sampling_step
from headrace.pipeline.check import check_sink
from headrace.pipeline.dead_letters import last_done, settle
from headrace.pipeline.document import Document, Key, filled
from headrace.pipeline.fields import filled_size
from headrace.pipeline.models import Pipeline
from headrace.pipeline.noting import located, refuse
from headrace.pipeline.parts import (
    ConsoleSink,
    DeltaSink,
    Duplicates,
    Enrich,
    Filter,
    KafkaSink,
    Keys,
    ParquetSink,
    PostgreSQLSink,
    Select,
    SparkSink,
    Step,
)
from headrace.pipeline.sampling_parts import Sampling
from headrace.pipeline.sources import open_source
from headrace.relation import Relation
from headrace.spark.defer import Defer
from headrace.spark.delta.load import load
from headrace.spark.enrich import enrich
from headrace.spark.plan import derived
from headrace.spark.postgresql.sink import load_postgresql
from headrace.spark.schemas import stream_schema
from headrace.spark.shed import Shedding
from headrace.units import parse_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

Show = Callable[[list[str], list[list[Any]]], None]


def start(pipeline: Pipeline, spark: SparkSession, *, once: bool = False, show: Show | None = None) -> StreamingQuery:
    """Start the query. With `once`, it reads what is available and ends.

    Parameters
    ----------
    pipeline
        The pipeline to run.
    spark
        The session to run it on.
    once
        Whether to end when all data that are available now have been read.
    show
        Called with the columns and the rows of a console sink.
    """
    document = pipeline.document
    settle(pipeline.dead_letters, last_done(pipeline.checkpoint), begin=True)
    with refused(document, ("source",)), located(document, ("source",)):
        df = open_source(pipeline, spark)
    sources: dict[str, DataFrame] = {}
    for name in pipeline.sources:
        with refused(document, ("sources", name)), located(document, ("sources", name)):
            sources[name] = open_source(pipeline, spark, name)
    for number, step in enumerate(pipeline.steps):
        df = add_step(pipeline, step, ("step", number), df, sources)
    with located(document, ("sink",)):
        check_sink(pipeline, stream_schema(df.schema))
    milliseconds = max(1, round(1000 * parse_duration(filled_size(pipeline.head.every), name="every")))
    trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": f"{milliseconds} milliseconds"}
    checkpoint = str(pipeline.checkpoint)
    with refused(document, ("sink",)), located(document, ("sink",)):
        sink = pipeline.sink
        if isinstance(sink, DeltaSink):
            path = pipeline.at(sink.path)
            return load(
                df, path, checkpoint=checkpoint, partition_by=sink.partition_by, trigger=trigger, name=pipeline.name
            )
        if isinstance(sink, PostgreSQLSink):
            return load_postgresql(
                df,
                filled(sink.table),
                url=filled(sink.url),
                key=sink.key,
                latest_by=sink.latest_by,
                checkpoint=checkpoint,
                trigger=trigger,
                name=pipeline.name,
            )
        writer = _writer(pipeline, df, show).option("checkpointLocation", checkpoint)
        return writer.trigger(**trigger).queryName(pipeline.name).start()


def add_step(
    pipeline: Pipeline, step: Step, at: Key, df: DataFrame, sources: Mapping[str, DataFrame] = MappingProxyType({})
) -> DataFrame:
    """Return the rows after a step. `sources`: those that it may join with, by name."""
    return derived(_after_step(pipeline, step, at, df, sources), df)


def _after_step(pipeline: Pipeline, step: Step, at: Key, df: DataFrame, sources: Mapping[str, DataFrame]) -> DataFrame:
    if isinstance(step, Filter):
        with refused(pipeline.document, (*at, "filter")):
            return df.filter(step.filter)
    if isinstance(step, Select):
        with refused(pipeline.document, (*at, "select")):
            return df.selectExpr(*step.select)
    with refused(pipeline.document, at), located(pipeline.document, at):
        if isinstance(step, Sampling):
            return add_sampling_step(pipeline, step, df, sources)
        if isinstance(step, Keys):
            return _with_keys(pipeline, step, df)
        if isinstance(step, Duplicates):
            return find_duplicates(
                df,
                Relation.open(pipeline.at(step.duplicates)),
                step.on,
                condition=step.condition,
                flag=step.flag,
                columns=step.columns,
                suffix=filled(step.suffix),
                memory=filled_size(step.memory),
                algorithm=step.algorithm,
            )
        assert isinstance(step, Enrich)
        return enrich(df, Relation.open(pipeline.at(step.enrich)), **_enrich_options(pipeline, step))


def _with_keys(pipeline: Pipeline, step: Keys, df: DataFrame) -> DataFrame:
    source = filled(step.source) if isinstance(step.source, str) else step.source
    return assign_surrogate_keys(
        df,
        Relation.open(pipeline.at(step.surrogate_keys)),
        key=step.key,
        source=source,
        source_column=step.source_column,
        surrogate=step.surrogate,
        inferred=step.inferred,
        first=step.first,
        memory=filled_size(step.memory),
        same_as=None if step.same_as is None else Relation.open(pipeline.at(step.same_as)),
    )


def _enrich_options(pipeline: Pipeline, step: Enrich) -> dict[str, Any]:
    """The parameters of `enrich`; a file has those of `hr.Defer` and `hr.Shedding` beside the others."""
    return {
        "on": step.on,
        "how": step.how,
        "memory": filled_size(step.memory),
        "algorithm": step.algorithm,
        "order": step.order,
        "condition": step.condition,
        "columns": step.columns,
        "suffix": filled(step.suffix),
        "version_column": step.version_column,
        "defer": Defer(
            deadline=filled_size(step.deadline),
            unmatched=step.unmatched,
            retry_for=filled_size(step.retry_for),
            state=pipeline.run_log if step.waits else None,
            shards=step.shards if step.remembers else None,
        ),
        "shed": _shedding(pipeline, step),
    }


def _shedding(pipeline: Pipeline, step: Enrich) -> Shedding | None:
    delay = filled_size(step.target_delay)
    if step.shed is None:
        if delay is not None:
            raise BadInput(
                f"target_delay={delay!r} needs shed=...: what to put aside when rows cannot be joined in time"
            )
        if step.estimate is not False:
            raise BadInput("estimate needs shed: it says what the rows that are put aside would have added")
        return None
    target = "5s" if delay is None else delay
    return Shedding(step.shed, target_delay=target, state=pipeline.run_log, estimate=step.estimate)


def _writer(pipeline: Pipeline, df: DataFrame, show: Show | None) -> DataStreamWriter:
    sink = pipeline.sink
    if isinstance(sink, ParquetSink):
        writer = df.writeStream.format("parquet").option("path", str(pipeline.at(sink.path)))
        if sink.partition_by:
            writer = writer.partitionBy(*sink.partition_by)
    elif isinstance(sink, KafkaSink):
        value = fn.to_json(fn.struct(*(df[_quoted(name)] for name in df.columns))).alias("value")
        keys = [] if sink.key is None else [df[_quoted(sink.key)].cast("string").alias("key")]
        writer = df.select(*keys, value).writeStream.format("kafka")
        writer = writer.option("kafka.bootstrap.servers", filled(sink.servers)).option("topic", filled(sink.topic))
    elif isinstance(sink, ConsoleSink):
        if show is None:
            raise BadInput("a console sink needs somebody who shows its rows; run it with: headrace run")
        return df.writeStream.foreachBatch(_Console(sink.rows, show))
    else:
        assert isinstance(sink, SparkSink)
        writer = df.writeStream.format(sink.writer).outputMode(sink.mode)
    return writer.options(**{name: filled(value) for name, value in sink.options.items()})


class _Console:
    """Passes the first rows of each micro-batch to `show`, which escapes them; Spark's console sink writes values as they are."""

    def __init__(self, rows: int, show: Show) -> None:
        self.rows = rows
        self.show = show

    def __call__(self, df: DataFrame, batch: int) -> None:
        rows = df.limit(self.rows).collect()
        if rows:
            self.show(list(df.columns), [list(row) for row in rows])


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


@contextmanager
def refused(document: Document, key: Key) -> Iterator[None]:
    """Translate errors of Spark to problems at a place in the file, without Spark's plans and codes."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise refuse(document, key, spark_words(error)) from error


def spark_words(error: Exception) -> str:
    """Return the message of an error of Spark in one line."""
    words = str(error).strip().split("\n\n")[0].split("\nJVM stacktrace")[0].replace("\n", " ")
    words = re.sub(r"^\[[A-Z_.0-9]+\]\s*", "", words)
    return re.sub(r"\s*SQLSTATE: \w+(?:; line \d+ pos \d+)?;?.*$", "", words).strip() or type(error).__name__
