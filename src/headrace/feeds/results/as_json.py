"""Results as JSON Feed 1.1."""

from __future__ import annotations

import json
from typing import Any

from headrace.feeds.results.entries import Entry, entries
from headrace.feeds.results.page import ResultPage


def json_feed(page: ResultPage) -> bytes:
    """Write a page of results as JSON Feed 1.1, as `rss` does; places are in the extension `_places`.

    Example
    -------
    >>> import json
    >>> import pyarrow as pa
    >>> from datetime import datetime, timezone
    >>> from headrace.feeds.results import ResultPage, json_feed
    >>> then = datetime(2026, 1, 1, tzinfo=timezone.utc)
    >>> rows = pa.record_batch({"_number": [1], "_produced": [then], "_id": [bytes(16)], "_places": [None], "n": [3]})
    >>> page = ResultPage("counts", "SELECT …", "http://localhost/counts.json", then, rows)
    >>> json.loads(json_feed(page))["items"][0]["content_text"]
    'n : 3'
    """
    feed = {
        "version": "https://jsonfeed.org/version/1.1",
        "title": page.query,
        "description": page.sql,
        "feed_url": page.link,
        **({"next_url": page.older} if page.older else {}),
        "items": [_item(entry) for entry in entries(page)],
    }
    # A '<' that is not there cannot end the script element of a page that holds the feed.
    return json.dumps(feed, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c").encode()


def _item(entry: Entry) -> dict[str, Any]:
    item: dict[str, Any] = {
        "id": entry.id,
        "title": entry.title,
        "content_text": "\n".join(entry.lines),
        "date_published": entry.produced.isoformat(),
    }
    if entry.link:
        item["url"] = entry.link
    if entry.places:
        item["_places"] = list(entry.places)
    return item
