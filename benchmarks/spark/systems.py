"""The systems of the Spark section: each makes the joined stream of a stream."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast
from pyspark.sql.streaming import StreamingQuery

from benchmarks.data import Dataset
from benchmarks.spark import passthrough
from benchmarks.spark.sinks import DeltaLoad, ParquetSink, Sink
from benchmarks.spark.source import split
from benchmarks.systems.base import OUTPUT
from benchmarks.verify import joined

SHARDS = 2
PAGE_SIZE = "4KiB"  # rows are narrow: a miss reads half as much as with pages of the default size
FILL = 1.0  # R does not change here, as the Parquet file of the others does not
_COUNTERS = ("tuples_in", "results", "hits", "misses", "absent", "pages_read", "bytes_read", "io_seconds")


class SparkSystem:
    """One way to join a stream with R on Spark. Here: the static table read anew in every micro-batch."""

    in_python: ClassVar[bool] = False  # whether rows go through Python workers, whose memory is then measured
    optional: ClassVar[bool] = False  # whether R may be too large for it: then it does not fit, which is a result
    load: ClassVar[type[Sink]] = ParquetSink
    access: ClassVar[str]

    def __init__(self, spark: SparkSession, data: Dataset, memory: int) -> None:
        self.spark = spark
        self.data = data
        self.memory = memory

    @classmethod
    def build(cls, data: Dataset) -> Path | None:
        """Make the system's own copy of R, unless it is there; returns where it is."""
        return None

    def prepare(self) -> None:
        """What is done once, before the stream starts."""

    def frame(self, stream: DataFrame) -> DataFrame:
        return stream.join(self._relation(), "k")

    def _relation(self) -> DataFrame:
        return self.spark.read.parquet(str(self.data.parquet))

    def expected(self, stream: pa.RecordBatch) -> pa.Table:
        """The right result for a batch."""
        return joined(stream, self.data)

    def stats(self, query: StreamingQuery, since: int) -> dict[str, Any] | None:
        """The system's own counters from micro-batch `since` on, when it has any."""
        return None

    def settings(self) -> dict[str, Any]:
        return {"version": self.spark.version, "access": self.access, "options": "as all", "cache": "none"}


class Plain(SparkSystem):
    access = "stream.join(spark.read.parquet(...), 'k')"


class Broadcast(SparkSystem):
    """R sent to every executor as a hash table; Spark builds it again in every micro-batch."""

    optional = True
    access = "stream.join(broadcast(spark.read.parquet(...)), 'k')"

    def _relation(self) -> DataFrame:
        return broadcast(super()._relation())


class Cached(SparkSystem):
    """R in Spark's own columnar cache, filled before the stream starts."""

    access = "stream.join(spark.read.parquet(...).cache(), 'k')"

    def prepare(self) -> None:
        self._cached = super()._relation().cache()
        self._cached.count()

    def _relation(self) -> DataFrame:
        return self._cached

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "cache": "R, in memory and on disk where that is too small"}


class Shuffle(SparkSystem):
    """Both sides shuffled and sorted: what Spark does when it may broadcast neither."""

    access = "stream.join(spark.read.parquet(...).hint('merge'), 'k')"

    def _relation(self) -> DataFrame:
        return super()._relation().hint("merge")


class PassNarrow(SparkSystem):
    """The stream's own columns through Python and back."""

    in_python = True
    access = "stream.mapInArrow, columns returned as they came"

    def frame(self, stream: DataFrame) -> DataFrame:
        return stream.mapInArrow(passthrough.narrow, stream.schema)

    def expected(self, stream: pa.RecordBatch) -> pa.Table:
        return pa.Table.from_batches([stream])


class PassWide(PassNarrow):
    """The stream's columns in, those of the join out: the limit of a join in Python."""

    access = "stream.mapInArrow, payload columns of one prebuilt Arrow batch added"

    def frame(self, stream: DataFrame) -> DataFrame:
        columns = [f"{f.name} {_SPARK_TYPES[f.type]}" for f in OUTPUT]
        return stream.mapInArrow(passthrough.wide, ", ".join(columns))

    def expected(self, stream: pa.RecordBatch) -> pa.Table:
        return pa.Table.from_batches([wide for task in split(stream) for wide in passthrough.wide(iter([task]))])


class Headrace(SparkSystem):
    """`hr.enrich`, and `hr.load` into a Delta table."""

    in_python = True
    load = DeltaLoad
    access = "hr.enrich(stream, relation, on='k', memory=...); hr.load(...) into Delta"

    @classmethod
    def build(cls, data: Dataset) -> Path | None:
        import headrace as hr

        path = data.directory / f"headrace-spark-{PAGE_SIZE}"
        if not path.exists():
            partial = path.with_name(path.name + ".partial")
            shutil.rmtree(partial, ignore_errors=True)
            hr.Relation.create(partial, str(data.parquet), key="k", shards=SHARDS, page_size=PAGE_SIZE, fill=FILL)
            partial.replace(path)
        return path

    def prepare(self) -> None:
        import headrace as hr

        path = self.build(self.data)
        assert path is not None
        self._open = hr.Relation.open(path)

    def frame(self, stream: DataFrame) -> DataFrame:
        import headrace as hr

        return hr.enrich(stream, self._open, on="k", how="inner", memory=self.memory)

    def stats(self, query: StreamingQuery, since: int) -> dict[str, Any] | None:
        import headrace as hr

        measured = [p for p in hr.progress(query) if p.batch >= since]
        if not measured:
            return None
        last = measured[-1].stats
        return {
            **{name: sum(getattr(p.stats, name) for p in measured) for name in _COUNTERS},
            "task_seconds": [p.seconds for p in measured],
            "memory": dict(last.memory),
            "memory_peak": last.memory_peak,
            "generations": last.generations,
        }

    def settings(self) -> dict[str, Any]:
        import headrace as hr

        return {
            "version": hr.__version__,
            "access": self.access,
            "options": f"relation of {SHARDS} shards, full pages of {PAGE_SIZE}",
            "cache": f"the budget: {self.memory / 2**20:,.0f} MiB",
        }


class HeadraceBroadcast(Headrace):
    """`hr.enrich` with Spark's own join of the relation's rows: what `auto` advises for large micro-batches and a small R."""

    in_python = False
    access = "hr.enrich(stream, relation, on='k', algorithm='broadcast')"

    def frame(self, stream: DataFrame) -> DataFrame:
        import headrace as hr

        return hr.enrich(stream, self._open, on="k", how="inner", algorithm="broadcast")

    def stats(self, query: StreamingQuery, since: int) -> dict[str, Any] | None:
        return None


_SPARK_TYPES = {
    pa.int64(): "long",
    pa.int32(): "int",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.string(): "string",
}
