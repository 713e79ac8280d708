"""Results of a query as a feed: RSS, Atom or JSON Feed."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from urllib.parse import quote

import pyarrow as pa

from headrace.feeds.results.page import ResultPage

Format = Literal["rss", "atom", "json"]
FORMATS = ("rss", "atom", "json")


def as_feed(format: Format, name: str, sql: str, rows: pa.RecordBatch, *, link: str | None, updated: datetime) -> bytes:
    """Write results, oldest first and numbered, as a feed that has the newest first.

    Args:
        format: rss, atom or json.
        name: the query's name.
        sql: the query.
        rows: `_number`, `_produced`, what was selected, `_id` and `_places`.
        link: the address of the feed; one of this machine if None.
        updated: when the last result was produced.
    """
    from headrace.feeds.results import atom, json_feed, rss

    address = link or f"http://localhost/{quote(name, safe='')}.{format}"
    first = rows.column("_number")[0].as_py() if rows.num_rows else 1
    older = f"{address}{'&' if '?' in address else '?'}before={first}" if first > 1 else None
    page = ResultPage(query=name, sql=sql, link=address, updated=updated, rows=rows, older=older)
    written: bytes = {"rss": rss, "atom": atom, "json": json_feed}[format](page)
    return written
