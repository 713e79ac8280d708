"""`hr.sql`: a query over feeds, run in this process or on Spark."""

from __future__ import annotations

import asyncio
import tempfile
import weakref
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.clock import Clock, WallClock
from headrace.errors import BadInput, OutsideFailure, shown
from headrace.feeds.desk import KEEP, Desk
from headrace.feeds.fetcher import Fetcher
from headrace.feeds.http_fetcher import HttpFetcher
from headrace.feeds.items import MOMENT
from headrace.feeds.pulls import Pull, moment
from headrace.feeds.result_feed import Format, as_feed
from headrace.feeds.result_log import NUMBERED
from headrace.feeds.scanner import Scanner
from headrace.feeds.schedule import Schedule
from headrace.feeds.sql import QueryPlan, parse_query
from headrace.feeds.store import FeedStore
from headrace.files import remove_tree, temporary_directory
from headrace.paths import local_path

_NAME = "query"
_MOMENT = 0.05  # seconds between looks whether a host may be asked again


def sql(first: Any, text: str | None = None, **options: Any) -> Any:
    """Make a query over feeds: ``hr.sql("SELECT …")`` in this process, ``hr.sql(spark, "SELECT …")`` as a DataFrame on Spark.

    Args:
        first: the query, or a Spark session.
        text: the query, after a session.
        options: of FeedQuery, or of headrace.feeds.spark.sql.

    Example:
        >>> import headrace as hr
        >>> print(hr.sql("SELECT a.title FROM rss('https://example.org/feed') a").explain())
        result: a.title
        └─ rss('https://example.org/feed') a
    """
    if isinstance(first, str):
        if text is not None:
            raise BadInput(f"hr.sql takes one query, and here are two: {shown(first)} and {shown(text)}")
        return FeedQuery(first, **options)
    if text is None:
        raise BadInput("hr.sql(spark, …) takes the query as its second argument")
    from headrace.feeds.spark.sql import sql as on_spark

    return on_spark(first, text, **options)


class FeedQuery:
    """A query over feeds in this process.

    `run` pulls feeds and gives results as they come; what it has seen and produced is kept in `state`, so that the next run on
    the same state goes on, and gives no result twice.

    Parameters
    ----------
    text
        The query; docs/reference/feed-sql.md has the grammar.
    state
        A directory; a temporary one, which goes with this object, if None.
    memory
        The budget of the query.
    within_time
        Items of a result are seen at most so far apart, as with ``WITHIN '1 day'`` at the end of the query: bounds the state.
    keep
        Results that are kept in the state; all if None.
    interval
        Seconds between two pulls of a feed, where neither the feed nor its server asks for more.
    allow_private, allow_files
        Whether feeds may be at addresses of the own network, and in files of this machine (``file://``).
    fetcher, clock
        What fetches documents and tells the time, in place of HTTP and the machine's clock: recordings, for tests.

    Example
    -------
    >>> import tempfile, pathlib
    >>> place = pathlib.Path(tempfile.mkdtemp(), "feed.xml")
    >>> _ = place.write_text("<rss version='2.0'><channel><title>t</title><item><title>flood</title></item></channel></rss>")
    >>> query = FeedQuery(f"SELECT a.title FROM rss('{place.as_uri()}') a ORDER BY 1", allow_files=True)
    >>> [row["a.title"] for batch in query.run(once=True) for row in batch.to_pylist()]
    ['flood']
    """

    def __init__(
        self,
        text: str,
        *,
        state: str | Path | None = None,
        memory: int | str = "64MiB",
        within_time: str | float | None = None,
        keep: int | None = KEEP,
        interval: float = 60.0,
        allow_private: bool = False,
        allow_files: bool = False,
        fetcher: Fetcher | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.text, self.memory, self.within_time, self.keep, self.interval = text, memory, within_time, keep, interval
        self.plan: QueryPlan = parse_query(text, once=True, within_time=within_time)
        self.clock = clock or WallClock()
        if state is None:
            self.state = temporary_directory(Path(tempfile.gettempdir()), "headrace-feeds-")
            weakref.finalize(self, remove_tree, self.state)
        else:
            self.state = local_path(state, "state")
        self._fetcher = fetcher or HttpFetcher(allow_private=allow_private, allow_files=allow_files, clock=self.clock)
        self._desk: Desk | None = None
        self._snapshot: pa.Table | None = None

    def explain(self) -> str:
        """Draw the plan as a tree."""
        return self.plan.explain()

    def run(self, *, once: bool = False, until: datetime | None = None) -> Iterator[pa.RecordBatch]:
        """Pull feeds, and give results as they come: `_number`, `_produced`, what was selected, `_id`, `_places`.

        Args:
            once: pull each feed once, and give the results of all items that the state has then; the only way to run ORDER BY,
                LIMIT, and GROUP BY without a window.
            until: the moment to stop at; without one, it goes on until the iterator is left.
        """
        if self.plan.explained:
            raise BadInput("EXPLAIN shows the plan of a query and is not run; print explain()")
        if not once:
            parse_query(self.text, within_time=self.within_time)  # refuses what needs an end
        with asyncio.Runner() as runner:
            stream = self._once() if once else self._stream(until)
            try:
                while (batch := runner.run(_next(stream))) is not None:
                    yield batch
            finally:
                runner.run(_close(stream))

    def results(self) -> pa.Table:
        """All results that are kept: those of the last run(once=True), or those of all runs on this state."""
        if self._snapshot is not None:
            return self._snapshot
        batches, after = [], 0
        while (batch := self.results_after(after, 10_000)).num_rows:
            batches.append(batch)
            after = batch.column("_number")[-1].as_py()
        return pa.Table.from_batches(batches, batch.schema)

    def results_after(self, after: int, limit: int) -> pa.RecordBatch:
        """Results that are kept, with numbers above `after`, oldest first, at most so many."""
        return self._made().results(_NAME, after, limit)

    def feed(self, format: Format = "rss", *, limit: int = 100, link: str | None = None) -> bytes:
        """The newest results as a feed: rss, atom or json."""
        if self._snapshot is None:
            return self._made().feed(_NAME, format, limit=limit, link=link)
        rows = self._snapshot.slice(max(0, self._snapshot.num_rows - limit)).combine_chunks()
        batch = rows.to_batches()[0] if rows.num_rows else pa.RecordBatch.from_pylist([], rows.schema)
        return as_feed(format, _NAME, self.text, batch, link=link, updated=moment(self.clock.now()))

    # -- one run -----------------------------------------------------------------------------------------------------------------

    def _scanner(self) -> Scanner:
        store = FeedStore(self.state, clock=self.clock)
        return Scanner(self._fetcher, store, schedule=Schedule(interval=self.interval), listed=False)

    def _made(self) -> Desk:
        if self._desk is None:
            self._desk = Desk(self.state, self._scanner(), memory=self.memory, keep=self.keep, clock=self.clock)
            self._desk.subscribe(_NAME, self.text, within_time=self.within_time)
        return self._desk

    async def _stream(self, until: datetime | None) -> AsyncIterator[pa.RecordBatch]:
        self._snapshot = None
        desk = self._made()
        after = desk.queries()[0].results
        task = asyncio.create_task(desk.run(until))
        await asyncio.sleep(0)  # the run begins, so that following does not end with the last one
        try:
            async for batch in desk.follow(_NAME, after, while_running=True):
                yield batch
            if error := desk.queries()[0].error:
                raise OutsideFailure(f"the query has failed: {error}")
            await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _pull_all(self, scanner: Scanner) -> list[Pull]:
        """Pull each feed that is due, once; those of one host a moment after each other."""
        pulls: list[Pull] = []
        waiting = set(self.plan.urls)
        while waiting:
            pulls += await scanner.step()
            waiting -= {pull.url for pull in pulls}
            due = {url: scanner.store.state(url).due for url in waiting}
            waiting = {url for url, at in due.items() if at is not None and at <= self.clock.now()}
            if waiting:
                await asyncio.to_thread(self.clock.sleep, _MOMENT)
        return pulls

    async def _once(self) -> AsyncIterator[pa.RecordBatch]:
        operator = self.plan.operator(self.memory)
        scanner = self._scanner()
        scanner.claim(_NAME, self.plan.urls)
        async with scanner:
            pulls = await self._pull_all(scanner)
            parts = [part async for part in _inserted(operator, scanner.store, self.plan)]
        parts += list(operator.finish())
        failed = [pull for pull in pulls if pull.error]
        if failed and not parts and len(failed) == len(pulls):
            raise BadInput(f"no feed could be read: {failed[0].error}")
        produced, number = moment(self.clock.now()), 1
        numbered = []
        for part in parts:
            numbered.append(_numbered(part, number, produced))
            number += part.num_rows
            yield numbered[-1]
        self._snapshot = pa.Table.from_batches(numbered, pa.schema([*NUMBERED, *self.plan.schema]))


async def _inserted(operator: Any, store: FeedStore, plan: QueryPlan) -> AsyncIterator[pa.RecordBatch]:
    """What the logged pulls of a query's feeds give."""
    for pull in store.pulls():
        if pull.url in plan.urls:
            for part in operator.insert(pull.url, pull.items):
                yield part


async def _next(stream: AsyncIterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    return await anext(stream, None)


async def _close(stream: Any) -> None:
    await stream.aclose()


def _numbered(batch: pa.RecordBatch, first: int, produced: datetime) -> pa.RecordBatch:
    numbers = pa.array(np.arange(first, first + batch.num_rows, dtype=np.int64))
    columns = [numbers, pa.repeat(pa.scalar(produced, MOMENT), batch.num_rows), *batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([*NUMBERED, *batch.schema]))


__all__ = ["FeedQuery", "Pull", "sql"]
