"""Desk: several queries over feeds that one scanner pulls, with results that are kept, each once. [PQP] app. C

scanner: pulls feeds, logs what is new ──> pulls, numbered ──> query a: operator ──> its results, in files
                                                          └──> query b: operator ──> its results, in files ──> feeds, followers
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from headrace.clock import Clock
from headrace.errors import BadInput, HeadraceError, choice, shown
from headrace.feeds.addresses import check_url
from headrace.feeds.pulls import Pull, moment
from headrace.feeds.query_run import AT_ONCE, QueryRun
from headrace.feeds.result_feed import FORMATS, Format, as_feed
from headrace.feeds.scanner import Scanner
from headrace.feeds.sql import parse_query
from headrace.feeds.sql.plan import QueryPlan
from headrace.files import make_directory, paths_in, remove_tree, replace, status
from headrace.paths import local_path
from headrace.runlog.files import read_facts, replace_facts
from headrace.runlog.log import safe_name
from headrace.units import parse_size

_FACTS = "query.json"
_WAITING = 16  # pulls that wait for queries to take them; more stay in the log
_REMOVED = ".removed-"
_ID = 12  # hexadecimal digits of a query's id: clients send those of all queries when they come back
KEEP = 100_000  # results of a query that are kept by default: some 50 MB

State = Literal["running", "stopped", "failed"]


@dataclass(frozen=True)
class FeedStatus:
    """How a feed stands."""

    url: str
    title: str | None
    format: str | None
    pulled: datetime | None
    items: int
    outcome: str | None
    error: str | None
    due: datetime | None
    queries: tuple[str, ...]


@dataclass(frozen=True)
class QueryStatus:
    """How a query stands."""

    id: str
    """tells it from one that was removed and made again, also after a restart"""
    name: str
    sql: str
    state: State
    error: str | None
    results: int
    pull: int
    produced: datetime | None
    sources: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]
    memory: int
    spilled: int


class _Query:
    """A query of the desk: what it is, whether it is to run, and its run."""

    def __init__(self, id: str, name: str, plan: QueryPlan, directory: Path, run: QueryRun, running: bool) -> None:
        self.id, self.name, self.plan, self.directory, self.run = id, name, plan, directory, run
        self.running, self.removed, self.catching_up = running, False, False
        self.error: str | None = None
        self.changed = asyncio.Event()

    @property
    def state(self) -> State:
        return "failed" if self.error else "running" if self.running else "stopped"

    def halted(self) -> bool:
        """Whether work on it should end at the next pull."""
        return not self.running or self.removed

    def notify(self) -> None:
        """Wake those who follow it."""
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


class Desk:
    """Runs queries over feeds until they are removed. A desk made again on the same state goes on where the last one stopped.

    Names of queries are texts. All methods are for the thread that runs the event loop; queries work in a thread of their own,
    one after the other.

    Parameters
    ----------
    state
        The directory of queries and their results. The scanner's store may lie in the same one.
    scanner
        Pulls feeds; the desk tells it which, and runs it.
    memory
        The budget of each query, unless `subscribe` gives another.
    keep
        Results of each query that are kept; None keeps all.
    clock
        Says when results are produced; the scanner's if None.

    Example
    -------
    >>> import tempfile
    >>> from headrace.feeds.file_fetcher import FileFetcher
    >>> from headrace.feeds.store import FeedStore
    >>> place = tempfile.mkdtemp()
    >>> desk = Desk(place, Scanner(FileFetcher(), FeedStore(place)))
    >>> desk.subscribe("floods", "SELECT a.title FROM rss('https://example.org/feed') a WHERE a.title LIKE '%flood%'").state
    'running'
    >>> [query.name for query in desk.queries()], desk.results("floods").num_rows
    (['floods'], 0)

    Reference: [PQP] app. C.
    """

    def __init__(
        self,
        state: str | Path,
        scanner: Scanner,
        *,
        memory: int | str = "64MiB",
        keep: int | None = KEEP,
        clock: Clock | None = None,
    ) -> None:
        self.state, self.scanner, self.memory, self.keep = local_path(state, "state"), scanner, memory, keep
        self.clock = clock or scanner.clock
        self._directory = self.state / "queries"
        make_directory(self._directory, parents=True)
        self._queries: dict[str, _Query] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = False
        self._pool = ThreadPoolExecutor(1, "headrace-feeds-query")
        for path in paths_in(self._directory):
            if path.name.startswith(_REMOVED):
                remove_tree(path)
            elif (
                status(path / _FACTS, follow=False) is not None
            ):  # whatever it is: a query must not be gone without a word
                self._load(path)

    # -- queries -----------------------------------------------------------------------------------------------------------------

    def subscribe(
        self, name: str, sql: str, *, memory: int | str | None = None, within_time: str | float | None = None
    ) -> QueryStatus:
        """Add a query and start it; BadQuery if it is wrong, BadInput if the name is taken by another one.

        A query begins with the items that were seen before it, as far as they are still logged.
        """
        plan = parse_query(sql, within_time=within_time)
        for url in plan.urls:
            check_url(url, allow_files=True)
        if plan.explained:
            raise BadInput("EXPLAIN shows the plan of a query and is not run; ask for it with plan(sql)")
        if (known := self._queries.get(name)) is not None:
            if known.plan.text != sql:
                raise BadInput(f"there is a query {shown(name)} already; remove it first, or take another name")
            return self._status(known)
        path = self._directory / safe_name("name", name)
        make_directory(path, parents=True)
        size = parse_size(self.memory if memory is None else memory, name="memory")
        plan.operator(size)  # refuses here what is too little
        facts = {"id": _new_id(), "name": name, "sql": sql, "memory": size, "within_time": plan.within_time}
        facts["running"] = True
        replace_facts(path / _FACTS, facts, levels=2)
        query = self._load(path)
        self._begin(query)
        return self._status(query)

    def start(self, name: str) -> None:
        """Run a query that was stopped or has failed: it goes on with the pull after its last."""
        query = self._known(name)
        query.error = None
        if not query.running:
            self._note(query, running=True)
        self._begin(query)

    def stop(self, name: str) -> None:
        """Stop a query; its results stay."""
        query = self._known(name)
        self._note(query, running=False)
        self.scanner.disclaim(name)
        query.notify()

    def remove(self, name: str) -> None:
        """Stop a query and forget it with its results."""
        query = self._known(name)
        query.removed = True
        del self._queries[name]
        self.scanner.disclaim(name)
        self.scanner.store.release(name)
        gone = query.directory.with_name(f"{_REMOVED}{os.urandom(8).hex()}")
        replace(query.directory, gone)
        remove_tree(gone)
        query.notify()

    def plan(self, sql: str) -> str:
        """The plan of a query as text; BadQuery if it is wrong."""
        return parse_query(sql).explain()

    def queries(self) -> list[QueryStatus]:
        """The status of each query, in the order of their names."""
        return [self._status(self._queries[name]) for name in sorted(self._queries)]

    def feeds(self) -> list[FeedStatus]:
        """The status of each feed that a query reads, in the order of their addresses."""
        readers: dict[str, list[str]] = {}
        for name, query in self._queries.items():
            for url in query.plan.urls:
                readers.setdefault(url, []).append(name)
        known = self.scanner.store.states()
        found = []
        for url in sorted(readers):
            state = known.get(url) or self.scanner.store.state(url)
            found.append(
                FeedStatus(
                    url=url,
                    title=state.title,
                    format=state.format,
                    pulled=None if state.pulled is None else moment(state.pulled),
                    items=state.items,
                    outcome=state.outcome,
                    error=state.error,
                    due=moment(state.due) if state.due else None,
                    queries=tuple(sorted(readers[url])),
                )
            )
        return found

    # -- results -----------------------------------------------------------------------------------------------------------------

    def results(self, name: str, after: int = 0, limit: int = 100) -> pa.RecordBatch:
        """Results with numbers above `after`, oldest first: `_number`, `_produced`, what was selected, `_id`, `_places`."""
        return self._known(name).run.log.read(after, limit)

    async def follow(
        self, name: str, after: int = 0, *, limit: int = 1000, while_running: bool = False
    ) -> AsyncIterator[pa.RecordBatch]:
        """Results above `after` and all that come later, in batches of at most `limit`, until the query or the desk ends.

        Nothing waits in memory for a follower: results are read from the files when it asks, so one that never does costs
        nothing. One that comes back when old results have been removed sees it in a gap of `_number`. With `while_running` it
        ends, too, when the query is stopped or fails.
        """
        query = self._known(name)
        while True:
            changed = query.changed
            batch = await asyncio.to_thread(query.run.log.read, after, limit)
            if batch.num_rows:
                after = batch.column("_number")[-1].as_py()
                yield batch
            elif query.removed or self._over or (while_running and query.state != "running"):
                return
            else:
                await changed.wait()

    def feed(
        self, name: str, format: Format = "rss", *, limit: int = 100, before: int | None = None, link: str | None = None
    ) -> bytes:
        """The newest results as a feed, newest first; with `before`, those with lower numbers. `link` is the feed's address."""
        choice("format", format, FORMATS)
        query = self._known(name)
        log = query.run.log
        last = log.last if before is None else min(before - 1, log.last)
        rows = log.read(max(0, last - limit), min(limit, last)) if last > 0 else log.read(0, 0)
        return as_feed(format, name, query.plan.text, rows, link=link, updated=log.produced or moment(self.clock.now()))

    # -- running -----------------------------------------------------------------------------------------------------------------

    async def run(self, until: datetime | None = None) -> None:
        """Pull feeds and run queries until a moment, or until cancelled."""
        self._loop, self._over = asyncio.get_running_loop(), False
        try:
            async with self.scanner:
                for query in self._queries.values():
                    query.notify()  # the last event may belong to another loop
                    self._begin(query)
                news: asyncio.Queue[Pull] = asyncio.Queue(_WAITING)
                pump = self._task(self._listen(news))
                serve = self._task(self._serve(news))
                scan = asyncio.create_task(self.scanner.run(until))
                try:
                    done, _ = await asyncio.wait((pump, serve, scan), return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        task.result()
                finally:
                    scan.cancel()
                    for task in self._tasks:
                        task.cancel()
                    await asyncio.gather(scan, *self._tasks, return_exceptions=True)
                if until is not None:
                    for query in list(self._queries.values()):
                        await self._catch_up(query)
        finally:
            # What a query has begun is on disk before anybody else may go on with it.
            await asyncio.get_running_loop().run_in_executor(self._pool, int)
            self._over, self._loop = True, None
            for query in self._queries.values():
                query.notify()

    async def _listen(self, news: asyncio.Queue[Pull]) -> None:
        async for pull in self.scanner.follow(self.scanner.store.newest):
            await news.put(pull)

    async def _serve(self, news: asyncio.Queue[Pull]) -> None:
        """Give pulls to the queries as they come, several at once where several have come."""
        while True:
            pulls = [await news.get()]
            while len(pulls) < AT_ONCE and not news.empty():
                pulls.append(news.get_nowait())
            for query in list(self._queries.values()):
                # One that is further behind catches up by itself, and has these pulls from the log.
                if query.halted() or query.error:
                    continue
                if query.run.pull + 1 == pulls[0].number:
                    await self._advance(query, pulls)
                elif not query.catching_up and query.run.pull < (pulls[-1].number or 0):
                    self._begin(query)

    async def _catch_up(self, query: _Query) -> None:
        query.catching_up = True
        try:
            while not query.halted() and not query.error and await self._advance(query, []):
                pass
        finally:
            query.catching_up = False

    async def _advance(self, query: _Query, pulls: list[Pull]) -> int:
        """Bring a query further, in the thread of queries. What goes wrong ends this query and no other."""
        before = query.run.log.last
        try:
            taken = await asyncio.get_running_loop().run_in_executor(self._pool, query.run.advance, pulls, query.halted)
        except Exception as error:
            if query.removed:
                return 0
            query.error = str(error) if isinstance(error, HeadraceError) else f"{type(error).__name__}: {shown(error)}"
            query.run.forget()
            query.notify()
            return 0
        if not query.running:
            query.run.forget()
        if query.run.log.last > before:
            query.notify()
        return taken

    def _begin(self, query: _Query) -> None:
        """Have the feeds of a query pulled, and let it catch up with what was pulled before."""
        if not query.running:
            return
        self.scanner.claim(query.name, query.plan.urls)
        if self._loop is not None:
            self._task(self._catch_up(query))

    def _task(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # -- what is on disk -----------------------------------------------------------------------------------------------

    def _load(self, path: Path) -> _Query:
        facts = read_facts(path / _FACTS)
        if "id" not in facts:  # of a release in which queries had none
            facts["id"] = _new_id()
            replace_facts(path / _FACTS, {key: value for key, value in facts.items() if key != "rows"}, levels=2)
        plan = parse_query(facts["sql"], within_time=facts["within_time"])
        name = facts["name"]
        run = QueryRun(name, plan, self.scanner.store, path, memory=facts["memory"], keep=self.keep, clock=self.clock)
        query = self._queries[name] = _Query(facts["id"], name, plan, path, run, facts["running"])
        return query

    def _note(self, query: _Query, *, running: bool) -> None:
        query.running = running
        facts = read_facts(query.directory / _FACTS)
        with suppress(KeyError):
            del facts["rows"]
        replace_facts(query.directory / _FACTS, {**facts, "running": running}, levels=2)

    def _known(self, name: str) -> _Query:
        query = self._queries.get(name)
        if query is None:
            names = ", ".join(sorted(self._queries)) or "none yet"
            raise BadInput(f"there is no query {shown(name)}; there are {names}")
        return query

    def _status(self, query: _Query) -> QueryStatus:
        operator, log = query.run.operator, query.run.log
        return QueryStatus(
            id=query.id,
            name=query.name,
            sql=query.plan.text,
            state=query.state,
            error=query.error,
            results=log.last,
            pull=query.run.pull,
            produced=log.produced,
            sources=tuple((one.alias, one.url) for one in query.plan.sources),
            columns=tuple(query.plan.output.names),
            memory=0 if operator is None else operator.memory,
            spilled=0 if operator is None else operator.spilled,
        )


def _new_id() -> str:
    return uuid.uuid4().hex[:_ID]
