"""FeedRoom: the feed desk as the server and its pages see it. The only module of the console that knows `headrace.feeds.desk`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import pyarrow as pa

from headrace.console.rows import as_rows
from headrace.errors import BadInput, shown
from headrace.feeds.desk import Desk, FeedStatus, QueryStatus
from headrace.feeds.items import ITEM_SCHEMA
from headrace.feeds.result_feed import Format
from headrace.feeds.sql.functions import known_names
from headrace.feeds.sql.mistakes import BadQuery

MOST_NAME = 60  # characters
FEEDS_SHOWN = 200  # of thousands, those with errors first


class UnknownQuery(BadInput):
    """There is no query of this name."""


class FeedRoom:
    """Queries and feeds of a desk, in plain values.

    A query has an `id` beside its name: one that is removed and made again counts its results from 1, and who followed the first
    must not take its place in the second for the old one. The desk keeps it, so that it is the same after a restart.
    """

    def __init__(self, desk: Desk) -> None:
        self.desk = desk

    def status(self) -> dict[str, Any]:
        """Every query with its counters, and the feeds: how many there are, and those that are shown, with errors first."""
        feeds = [_feed(feed) for feed in self.desk.feeds()]
        items = {feed["url"]: feed["items"] for feed in feeds}
        shown_feeds = sorted(feeds, key=lambda feed: (not feed["error"], feed["url"]))[:FEEDS_SHOWN]
        return {
            "queries": [_query(query, items) for query in self.desk.queries()],
            "feeds": {"count": len(feeds), "shown": shown_feeds},
        }

    def counts(self) -> list[tuple[str, str, int]]:
        """The id, the name and the number of results of each query."""
        return [(query.id, query.name, query.results) for query in self.desk.queries()]

    def columns(self) -> list[dict[str, str]]:
        """The columns of a feed, for the editor."""
        return [{"name": field.name, "type": str(field.type)} for field in ITEM_SCHEMA]

    def functions(self) -> list[str]:
        """The functions that a query may call, for the editor."""
        return sorted({"rss", *known_names()})

    def plan(self, sql: str) -> str:
        """The plan of a query; raises BadQuery."""
        return self.desk.plan(sql)

    def save(self, name: str, sql: str, *, run: bool) -> None:
        """Keep a query, and run it or not. One with another SQL takes the place of that of the same name: it begins anew."""
        name = _checked(name)
        known = {query.name: query for query in self.desk.queries()}
        self.desk.plan(sql)  # what is wrong must not cost the query that it would take the place of
        if name in known and known[name].sql.strip() != sql.strip():
            self.remove(name)
            known.pop(name)
        if name not in known:
            self.desk.subscribe(name, sql)
            if not run:
                self.desk.stop(name)
        elif run and known[name].state != "running":
            self.desk.start(name)

    def start(self, name: str) -> None:
        """Let a query go on."""
        self.desk.start(self._known(name).name)

    def stop(self, name: str) -> None:
        """Stop a query; its results stay."""
        self.desk.stop(self._known(name).name)

    def remove(self, name: str) -> None:
        """Forget a query and its results."""
        self.desk.remove(self._known(name).name)

    def rows(self, name: str, after: int, limit: int) -> list[dict[str, Any]]:
        """Results with numbers above `after`, oldest first."""
        return as_rows(self.desk.results(self._known(name).name, after, limit))

    def follow(self, name: str, after: int) -> AsyncIterator[pa.RecordBatch]:
        """Results above `after` and all that come later."""
        return self.desk.follow(name, after)

    def feed(self, name: str, format: Format, link: str, before: int | None) -> bytes:
        """The newest results, or those with numbers below `before`, as a feed whose address is `link`."""
        return self.desk.feed(self._known(name).name, format, before=before, link=link)

    def _known(self, name: str) -> QueryStatus:
        for query in self.desk.queries():
            if query.name == name:
                return query
        raise UnknownQuery(f"there is no query {shown(name)}")


def mistake(error: BadQuery) -> dict[str, Any]:
    """Where a query is wrong, for the editor."""
    return {"at": error.at, "length": error.length, "line": error.line, "column": error.column}


def _query(query: QueryStatus, items: dict[str, int]) -> dict[str, Any]:
    return {
        "id": query.id,
        "name": query.name,
        "sql": query.sql,
        "state": query.state,
        "error": query.error,
        "columns": list(query.columns),
        "sources": [{"alias": alias, "url": url} for alias, url in query.sources],
        "items": sum(items.get(url, 0) for url in {url for _, url in query.sources}),
        "count": query.results,
        "memory": query.memory,
        "flushed": query.spilled,
        "produced": _moment(query.produced),
    }


def _checked(name: str) -> str:
    name = name.strip()
    if not name or len(name) > MOST_NAME or not name.isprintable() or "/" in name or name.startswith("."):
        raise BadInput(
            f"a query cannot be named {shown(name)}; give 1 to {MOST_NAME} characters other than /, with no dot first"
        )
    return name


def _moment(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


def _feed(feed: FeedStatus) -> dict[str, Any]:
    return {
        "url": feed.url,
        "title": feed.title,
        "pulled": _moment(feed.pulled),
        "items": feed.items,
        "error": feed.error,
    }
