"""Scanner: pulls thousands of feeds when they are due, and logs what is new in them. [PQP] app. C

due (heap) -> turns (hosts in turn) -> fetch (event loop) -> parse, compare with what was seen (threads) -> commit (a thread)
                                      a pull keeps its place among `concurrency` until it is on disk, so memory is bounded
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import datetime, timedelta

import httpx

from headrace.clock import Clock, ManualClock
from headrace.errors import HeadraceError, choice, shown
from headrace.feeds.commits import Commits
from headrace.feeds.documents import Document, read_document
from headrace.feeds.feed_list import Feed, Stamp
from headrace.feeds.feed_state import FeedState
from headrace.feeds.fetcher import Answer, Fetcher, Request, shown_url
from headrace.feeds.limits import FeedLimits
from headrace.feeds.pulls import Outcome, Pull, moment
from headrace.feeds.recorded import ReplayClock
from headrace.feeds.schedule import Schedule
from headrace.feeds.seen import OnChange
from headrace.feeds.store import Change, FeedStore
from headrace.feeds.turns import Turns
from headrace.sources.secret import hide_secrets
from headrace.units import format_duration, parse_duration

_log = logging.getLogger(__name__)

_LOOK = 1.0  # seconds after which the list of feeds is looked at again, for those that another process added
_FLUSH = 5.0  # seconds that the outcome of a pull without items may wait to be written
_LONGEST_TEXT = 300  # characters of a title or an error that are remembered of a feed


class Scanner:
    """Pulls the feeds of a store, each once for all queries, and logs new and changed items. Used by ``async with``.

    Parameters
    ----------
    fetcher
        `HttpFetcher`, or another.
    store
        Where all is remembered. One scanner at a time works on it.
    clock
        Seconds since 1970; by default the store's. With a `ManualClock` nothing is waited for: `run` advances it.
    schedule
        How often feeds are pulled.
    on_change
        "append": an item that says something else than before is a new tuple; "ignore": it is not given again.
    concurrency
        Pulls at a time; each holds at most one document.
    per_host, host_gap
        Pulls at a time of one host, and the time between the beginnings of two.
    parsers
        Threads that parse documents.
    limits
        Of documents.
    listed
        Whether the feeds of the store's list are pulled, beside those that are claimed.
    commit_gap
        Time between two commits, each of which takes two syncs of the disk.

    Example
    -------
    >>> import tempfile
    >>> from headrace.feeds.file_fetcher import FileFetcher
    >>> async def pull_once() -> list[Pull]:
    ...     store = FeedStore(tempfile.mkdtemp())
    ...     store.add(["file:///nowhere/feed.xml"])
    ...     async with Scanner(FileFetcher(), store) as scanner:
    ...         return await scanner.step()
    >>> asyncio.run(pull_once())[0].error
    'file:///nowhere/feed.xml could not be read: No such file or directory'
    """

    def __init__(
        self,
        fetcher: Fetcher,
        store: FeedStore,
        *,
        clock: Clock | None = None,
        schedule: Schedule | None = None,
        on_change: OnChange = "append",
        concurrency: int = 32,
        per_host: int = 2,
        host_gap: str | float | timedelta = "200ms",
        parsers: int = 2,
        limits: FeedLimits | None = None,
        listed: bool = True,
        commit_gap: str | float | timedelta = "50ms",
    ) -> None:
        self.fetcher, self.store = fetcher, store
        self.clock = clock or store.clock
        self.schedule = schedule or Schedule()
        choice("on_change", on_change, ("append", "ignore"))
        self.on_change = on_change
        self.concurrency, self.per_host, self.parsers, self.listed = concurrency, per_host, parsers, listed
        self.host_gap = parse_duration(host_gap, name="host_gap", zero=True)
        self.commit_gap = parse_duration(commit_gap, name="commit_gap", zero=True)
        self.limits = limits or FeedLimits()
        self._claims: dict[str, frozenset[str]] = {}
        self._flushed = 0.0
        self._wake = asyncio.Event()
        self._stack = ExitStack()
        self._reset()

    def _reset(self) -> None:
        """Forget what is due and what is being pulled: it is made anew from the store."""
        self._turns = Turns(self.concurrency, self.per_host, self.host_gap)
        self._feeds: dict[str, Feed] = {}
        self._stamp: Stamp | None = None
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self._busy: set[str] = set()
        self._tasks: dict[asyncio.Task[Pull], str] = {}

    # -- life -------------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Scanner:
        # An event belongs to the loop that first waits for it, and this may be another one.
        self._wake = asyncio.Event()
        self._commits = Commits(self.store, self.commit_gap)
        await asyncio.to_thread(self._stack.enter_context, self.store.held())
        self._pool = self._stack.enter_context(ThreadPoolExecutor(self.parsers, "headrace-feeds-parser"))
        self._reset()
        self._refresh()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._commits.close()
        await self.fetcher.close()
        await asyncio.to_thread(self._stack.close)

    def claim(self, name: str, urls: Iterable[str]) -> None:
        """Have feeds pulled for a query, as long as it claims them, whether they are in the list or not."""
        self._claims[name] = frozenset(urls)
        self._stamp = None
        self._wake.set()

    def disclaim(self, name: str) -> None:
        """Forget the feeds that a query claimed."""
        self._claims.pop(name, None)
        self._stamp = None
        self._wake.set()

    # -- pulling -----------------------------------------------------------------------------------------------------------

    async def step(self) -> list[Pull]:
        """Pull every feed that is due now and whose host may be asked; return how each pull ended, when all is on disk."""
        ended: list[Pull] = []
        self._refresh()
        self._start()
        while self._tasks:
            done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            ended += self._collect(done)
            self._start()
        await self._commits.flush()
        return ended

    async def run(self, until: datetime | None = None) -> None:
        """Pull feeds whenever they are due, until a moment, or until the task is cancelled."""
        end = None if until is None else until.timestamp()
        while True:
            self._wake.clear()  # before ended pulls are collected: one that ends later sets it again
            self._collect([task for task in self._tasks if task.done()])
            self._refresh()
            if end is None or self.clock.now() < end:
                self._start()
                await self._rest(end)
            elif self._tasks:
                await self._wake.wait()
            else:
                break
            if self._commits.noted and self.clock.now() >= self._flushed + _FLUSH:
                self._flushed = self.clock.now()
                await self._commits.flush()
        await self._commits.flush()

    async def follow(self, after: int = 0) -> AsyncIterator[Pull]:
        """Iterate over the logged pulls with higher numbers, and go on with those to come, until the scanner is closed."""
        commits = self._commits
        while True:
            # Both are taken before the log is read: what is committed while its end is looked for is read in another round.
            news, closed = commits.news, commits.closed
            pulls = self.store.pulls(after)
            while (pull := await asyncio.to_thread(next, pulls, None)) is not None:
                after = pull.number or after
                yield pull
            if closed:
                return
            await news.wait()

    # -- schedule ----------------------------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        """Take over the list of feeds if it has changed, and what queries claim."""
        stamp = self.store.list.stamp() if self.listed else ()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        feeds = self.store.list.read() if self.listed else {}
        for urls in self._claims.values():
            feeds.update((url, feeds.get(url) or Feed(url)) for url in urls)
        before, self._feeds = self._feeds, feeds
        for url, feed in feeds.items():
            if before.get(url) != feed and url not in self._busy:
                self._plan(url)
        self._due = {url: due for url, due in self._due.items() if url in feeds}

    def _plan(self, url: str) -> None:
        """Put a feed into the heap at the time when it is due."""
        state = self.store.state(url)
        due = state.due
        if due is None:  # it is gone, unless it was added again since
            if self._feeds[url].added <= (state.pulled or 0.0):
                return
            due = self._feeds[url].added
        self._due[url] = due
        heapq.heappush(self._heap, (due, url))

    def _start(self) -> None:
        """Begin the pulls that may begin now."""
        now = self.clock.now()
        while self._heap and self._heap[0][0] <= now:
            due, url = heapq.heappop(self._heap)
            if self._due.get(url) == due:  # otherwise it was removed, or planned anew
                del self._due[url]
                self._busy.add(url)
                self._turns.add(url, self._host(url))
        while (chosen := self._turns.next(now)) is not None:
            if chosen not in self._feeds:  # removed while it waited for its turn
                self._turns.done(self._host(chosen))
                self._busy.discard(chosen)
                continue
            task = asyncio.create_task(self._pull(chosen, self._host(chosen)))
            task.add_done_callback(lambda _: self._wake.set())
            self._tasks[task] = chosen

    def _collect(self, done: Iterable[asyncio.Task[Pull]]) -> list[Pull]:
        """Plan the next pull of feeds whose pull has ended."""
        ended = []
        for task in done:
            url = self._tasks.pop(task)
            self._busy.discard(url)
            ended.append(task.result())
            if url in self._feeds:
                self._plan(url)
        return ended

    async def _rest(self, end: float | None) -> None:
        """Wait until a pull ends, something is claimed, or the next feed is due."""
        times = [self._heap[0][0] if self._heap else None, self._turns.next_at(), end]
        now = self.clock.now()
        delay = min((max(0.0, time - now) for time in times if time is not None), default=None)
        if isinstance(self.clock, ManualClock):
            if self._tasks or delay is None:
                await self._wake.wait()
            else:
                self.clock.advance(delay)
                await asyncio.sleep(0)
            return
        speed = self.clock.speed if isinstance(self.clock, ReplayClock) else 1.0
        # Not wait_for: of Python 3.11 it forgets that it was cancelled when what it waits for comes at the same moment.
        with suppress(TimeoutError):
            async with asyncio.timeout(min(_LOOK, _LOOK if delay is None else delay / speed)):
                await self._wake.wait()

    def _host(self, url: str) -> str:
        return httpx.URL(self.store.state(url).moved or url).host

    # -- one pull ----------------------------------------------------------------------------------------------------------

    async def _pull(self, url: str, host: str) -> Pull:
        """Pull a feed. Whatever goes wrong with it is its own error: it keeps no other feed from being pulled."""
        state = self.store.state(url)
        try:
            change = await self._asked(state)
            if change.pull is not None:
                return await self._commits.commit(change)
        except Exception as error:
            change = Change(self._failed(state, error))
        finally:
            self._turns.done(host)
        self._commits.note(change)
        now = change.state
        assert now.outcome is not None
        return Pull(url, moment(now.pulled or 0.0), now.outcome, error=now.error)

    async def _asked(self, state: FeedState) -> Change:
        asked = state.moved or state.url
        answer = await self.fetcher.fetch(Request(asked, state.etag, state.modified, state.source))
        if answer.status == 200:
            seen, loop = self.store.seen(state.url), asyncio.get_running_loop()
            document = await loop.run_in_executor(
                self._pool, read_document, state.url, answer, self.clock.now(), seen, self.store.horizon, self.on_change,
                self.limits,
            )  # fmt: skip
            return self._changed(state, answer, document)
        if answer.status == 304:
            kept = answer.etag or state.etag, answer.modified or state.modified
            return Change(
                self._went_well(replace(state, etag=kept[0], modified=kept[1]), "unchanged", answer, self.clock.now())
            )
        return Change(self._refused(state, answer))

    def _changed(self, state: FeedState, answer: Answer, document: Document) -> Change:
        """Return what a document changes."""
        rows, parsed = document.rows, document.parsed
        outcome: Outcome = "items" if rows.num_rows else "nothing"
        state = replace(
            state,
            etag=answer.etag,
            modified=answer.modified,
            source=answer.source or state.moved or state.url,
            title=parsed.title and parsed.title[:_LONGEST_TEXT],
            format=parsed.format,
            problems=tuple(problem[:_LONGEST_TEXT] for problem in parsed.problems[:5]),
            ttl=parsed.ttl,
            items=state.items + rows.num_rows,
            newest=document.at if rows.num_rows else state.newest,
        )
        state = self._went_well(state, outcome, answer, document.at)
        pull = Pull(state.url, moment(document.at), outcome, rows) if rows.num_rows else None
        return Change(state, document.seen, pull)

    def _went_well(self, state: FeedState, outcome: Outcome, answer: Answer, at: float) -> FeedState:
        delay = self.schedule.after_success(state.ttl, answer.max_age, self._interval(state))
        moved = answer.moved or state.moved
        return replace(_pulled(state, at, outcome, None), due=at + delay, failures=0, moved=moved)

    def _refused(self, state: FeedState, answer: Answer) -> FeedState:
        """Return the state of a feed that is gone, or whose server asks to come later."""
        at, failures = self.clock.now(), state.failures + 1
        if answer.status == 410:
            error = f"{shown_url(state.url)} is gone for good (410): it is not pulled again unless it is added again"
            return replace(_pulled(state, at, "gone", error), due=None, failures=failures)
        delay = self.schedule.after_refusal(state.url, failures, answer.retry_after, self._interval(state))
        error = f"{shown_url(state.url)} answered {answer.status}: it is pulled again in {format_duration(delay)}"
        _log.info("%s", error)
        return replace(_pulled(state, at, "later", error), due=at + delay, failures=failures)

    def _failed(self, state: FeedState, error: Exception) -> FeedState:
        """Return the state of a feed that could not be pulled. One that has moved is looked for at its old address again."""
        at, failures = self.clock.now(), state.failures + 1
        text = hide_secrets(
            str(error) if isinstance(error, HeadraceError) else f"{type(error).__name__}: {shown(error)}"
        )
        delay = self.schedule.after_failure(state.url, failures, self._interval(state))
        wait = format_duration(delay)
        _log.info(
            "%s failed (%d in a row) and is pulled again in %s: %s", shown_url(state.url), failures, wait, shown(text)
        )
        state = replace(state, moved=None, due=at + delay, failures=failures)
        return _pulled(state, at, "failed", text[:_LONGEST_TEXT])

    def _interval(self, state: FeedState) -> float | None:
        feed = self._feeds.get(state.url)
        return None if feed is None else feed.interval


def _pulled(state: FeedState, at: float, outcome: Outcome, error: str | None) -> FeedState:
    return replace(state, pulled=at, outcome=outcome, error=error, pulls=state.pulls + 1)
