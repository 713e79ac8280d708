"""Puller: a scanner beside Spark's planner, which asks now and then how many pulls there are."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future
from threading import Thread
from typing import Any, TypeVar

from headrace.clock import Clock, ManualClock, SystemClock, WallClock
from headrace.errors import RunLogError, choice
from headrace.feeds.fetcher import Fetcher
from headrace.feeds.http_fetcher import HttpFetcher
from headrace.feeds.recorded import RecordedFetcher
from headrace.feeds.scanner import Scanner
from headrace.feeds.schedule import Schedule
from headrace.feeds.spark.options import HORIZON, FeedOptions
from headrace.feeds.store import FeedStore

_NAME = "spark"  # of the one query of a store, which holds its pulls and claims its feeds
_PATIENCE = 20.0  # seconds for the scanner of a query that was stopped or killed to let go of the store
_RETRY = 0.1  # seconds between two attempts, and between two looks at feeds that wait for their host's turn

Found = TypeVar("Found")


def fetcher_of(options: FeedOptions, clock: Clock) -> Fetcher:
    """What documents come from: the network, files, or a recording, as it is at the time of the clock."""
    if options.recorded is not None:
        recorded = RecordedFetcher(options.recorded, clock)
        for url in options.urls:
            choice("url", url, recorded.urls)
        return recorded
    return HttpFetcher(allow_private=options.allow_private, allow_files=options.allow_files)


class Puller:
    """Has a scanner pull feeds into the store of a query, in an event loop of its own thread.

    Parameters
    ----------
    options
        The feeds, the directory of the store, and how feeds are pulled. A recording is replayed from pull to pull, as fast as
        it is asked for, and goes on where the last puller left it.
    """

    def __init__(self, options: FeedOptions) -> None:
        self.options = options
        self.clock: Clock = WallClock() if options.recorded is None else ManualClock()
        self.store = FeedStore(options.state, horizon=options.horizon, keep=HORIZON, clock=self.clock)
        self.store.hold(_NAME, 0)
        self._fetcher = fetcher_of(options, self.clock)
        self._running: Future[None] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="headrace-feeds", daemon=True)
        self._thread.start()
        try:
            self._scanner = self._wait(self._open())
        except BaseException:
            self._end_thread()
            raise
        if isinstance(self._fetcher, RecordedFetcher):
            # A recording goes on where its last replay ended.
            pulled = [self.store.state(url).pulled or 0.0 for url in options.urls]
            self.clock.sleep(max(self._fetcher.start.timestamp(), *pulled))

    @property
    def newest(self) -> int:
        """The number of the last pull that is on disk. Raises what the scanner ended with, if it did."""
        if self._running is not None and self._running.done():
            self._running.result()
        return self.store.newest

    def keep(self, after: int) -> None:
        """Keep pulls with higher numbers, whatever their age."""
        self.store.hold(_NAME, after)

    def pull(self, after: int) -> None:
        """Begin to pull feeds whenever they are due; of a recording, have a pull with a higher number, if there is one."""
        if isinstance(self.clock, ManualClock) and isinstance(self._fetcher, RecordedFetcher):
            if self.store.newest <= after:
                self._wait(self._replay(self.clock, self._fetcher, after))
        elif self._running is None:
            self._running = asyncio.run_coroutine_threadsafe(self._scanner.run(), self._loop)

    def pull_once(self) -> None:
        """Pull each feed that is due, once; of a recording, make all pulls that are left."""
        if isinstance(self.clock, ManualClock) and isinstance(self._fetcher, RecordedFetcher):
            self._wait(self._replay(self.clock, self._fetcher, None))
        else:
            self._wait(self._pull_due(self.clock.now()))

    def close(self) -> None:
        """Stop pulling, and let go of the store."""
        try:
            if self._running is not None:
                self._running.cancel()
            self._wait(self._scanner.__aexit__(None, None, None))
        finally:
            self._end_thread()

    def _end_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wait(self, work: Coroutine[Any, Any, Found]) -> Found:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _open(self) -> Scanner:
        """A scanner that holds the store. That of a query that has just ended may need a moment to let go of it."""
        replays = isinstance(self.clock, ManualClock)
        scanner = Scanner(
            self._fetcher,
            self.store,
            schedule=Schedule(interval=self.options.interval),
            host_gap=0.0 if replays else "200ms",  # a recording has no host to be spared
            commit_gap=0.0 if replays else "50ms",
            listed=False,
        )
        scanner.claim(_NAME, self.options.urls)
        waits, begun = SystemClock(), SystemClock().now()
        while True:
            try:
                return await scanner.__aenter__()
            except RunLogError as error:
                if type(error) is not RunLogError or waits.now() - begun > _PATIENCE:
                    raise
            await asyncio.sleep(_RETRY)

    async def _pull_due(self, now: float) -> None:
        """Pull until no feed is left that was due at a moment: one may wait because its host was asked just before."""
        while True:
            await self._scanner.step()
            due = self._next_due()
            if due is None or due > now:
                return
            await asyncio.sleep(_RETRY)

    async def _replay(self, clock: ManualClock, recorded: RecordedFetcher, after: int | None) -> None:
        """Pull, and advance the clock to the next feed that is due, until each was pulled after the end of the recording.

        With a number, only until the log has a higher one.
        """
        end = recorded.end.timestamp()
        while True:
            await self._scanner.step()
            states = [self.store.state(url) for url in self.options.urls]
            if all(state.due is None or (state.pulled or 0.0) >= end for state in states):
                return
            if after is not None and self.store.newest > after:
                return
            clock.advance(max(0.0, (self._next_due() or end) - clock.now()))

    def _next_due(self) -> float | None:
        due = [self.store.state(url).due for url in self.options.urls]
        return min((time for time in due if time is not None), default=None)
