"""PullReader: ``spark.read.format("rss")``, one pull of each feed, in the executors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from headrace.clock import Clock, ManualClock, WallClock
from headrace.errors import BadInput, FeedUnavailable
from headrace.feeds.documents import read_document
from headrace.feeds.fetcher import Fetcher, Request, shown_url
from headrace.feeds.items import ITEM_SCHEMA
from headrace.feeds.limits import FeedLimits
from headrace.feeds.recorded import RecordedFetcher
from headrace.feeds.seen import NOTHING_SEEN
from headrace.feeds.spark.options import FeedOptions
from headrace.feeds.spark.puller import fetcher_of
from headrace.feeds.spark.schemas import spark_schemas, typed

TASKS = 64  # at most, each of which pulls its feeds one after the other
_ARROW = spark_schemas(ITEM_SCHEMA)[1]


class Feeds(InputPartition):  # type: ignore[misc]
    """Feeds that one task pulls."""

    def __init__(self, urls: tuple[str, ...]) -> None:
        super().__init__(urls)
        self.urls = urls


class PullReader(DataSourceReader):  # type: ignore[misc]
    """Pulls each feed once, in the executors; a feed that cannot be pulled fails the query.

    Parameters
    ----------
    options
        The feeds, and how they are pulled. Of a recording, the last answer of each feed.
    """

    def __init__(self, options: FeedOptions) -> None:
        if options.pulls:
            raise BadInput('a batch read has no numbered pulls; leave option "pulls" out, or read a stream')
        self.options = options

    def partitions(self) -> Sequence[Feeds]:
        """Some feeds for each task."""
        urls = self.options.urls
        tasks = min(TASKS, len(urls))
        return [Feeds(urls[task::tasks]) for task in range(tasks)]

    def read(self, partition: Feeds) -> Iterator[pa.RecordBatch]:
        """The items of a task's feeds."""
        return iter(asyncio.run(self._pulled(partition.urls)))

    async def _pulled(self, urls: tuple[str, ...]) -> list[pa.RecordBatch]:
        clock: Clock = WallClock() if self.options.recorded is None else ManualClock()
        fetcher = fetcher_of(self.options, clock)
        if isinstance(fetcher, RecordedFetcher):
            clock.sleep(fetcher.end.timestamp())  # a manual clock does not sleep: it is there at once
        try:
            return [await _items(url, fetcher, clock) for url in urls]
        finally:
            await fetcher.close()


async def _items(url: str, fetcher: Fetcher, clock: Clock) -> pa.RecordBatch:
    """The items of a feed that has never been pulled."""
    answer = await fetcher.fetch(Request(url))
    if answer.status != 200:
        raise FeedUnavailable(f"{shown_url(url)} answered {answer.status}, without a document")
    document = read_document(url, answer, clock.now(), NOTHING_SEEN, 0.0, "append", FeedLimits())
    return typed(document.rows.select(ITEM_SCHEMA.names), _ARROW)
