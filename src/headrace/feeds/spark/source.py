"""Feeds as a source of Spark: ``spark.readStream.format("rss")``, and ``spark.read`` for one pull.

Spark starts a Python process to look at a source, to plan it and to ask it for offsets: each imports only what it needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from headrace.feeds.spark.options import NAME, FeedOptions, url_options
from headrace.feeds.spark.schemas import spark_schemas

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from headrace.feeds.spark.batch_reader import PullReader
    from headrace.feeds.spark.stream_reader import LogReader


def register_sources(spark: SparkSession) -> None:
    """Register the sources that Headrace has for Spark: after that, ``spark.readStream.format("rss")`` is known."""
    spark.dataSource.register(FeedSource)


def stream_feeds(spark: SparkSession, urls: Iterable[str], **options: object) -> DataFrame:
    """A streaming DataFrame of the items of feeds. `options` are those of the source."""
    register_sources(spark)
    given = {name: str(value) for name, value in options.items()}
    df: DataFrame = spark.readStream.format(NAME).options(**url_options(tuple(urls)), **given).load()
    return df


class FeedSource(DataSource):  # type: ignore[misc]
    """``spark.readStream.format("rss")`` and ``spark.read.format("rss")``."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self.feeds = FeedOptions.of(options)

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    def schema(self) -> StructType:
        """The columns of an item."""
        return spark_schemas(self.feeds.schema)[0]

    def reader(self, schema: StructType) -> PullReader:
        """The reader of a batch DataFrame."""
        from headrace.feeds.spark.batch_reader import PullReader

        return PullReader(self.feeds)

    def streamReader(self, schema: StructType) -> LogReader:
        """The reader of a streaming DataFrame."""
        from headrace.feeds.spark.stream_reader import LogReader

        return LogReader(self.feeds)
