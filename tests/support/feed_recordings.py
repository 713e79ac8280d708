"""Recordings of pulls of feeds, for tests that replay them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from headrace.feeds.recorded import record
from tests.support.feed_queries import document

BEGIN = datetime(2024, 5, 1, 6, tzinfo=UTC)
Item = dict[str, object]


def item(guid: str, title: str, lat: float | None = None, long: float | None = None) -> Item:
    return {"guid": guid, "title": title, **({} if lat is None else {"lat": lat, "long": long})}


def recording(directory: Path, feeds: dict[str, list[tuple[int, list[Item]]]]) -> Path:
    """A recording: of each feed, documents by the minute at which they were there."""
    for url, documents in feeds.items():
        for minute, items in documents:
            record(directory, url, BEGIN + timedelta(minutes=minute), document(*items))
    return directory
