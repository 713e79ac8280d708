"""Results as RSS 2.0 with GeoRSS. [PQP] app. C"""

from __future__ import annotations

from datetime import UTC
from email.utils import format_datetime

from headrace.feeds.results.entries import Entry, entries, geometry, xml_text
from headrace.feeds.results.page import ResultPage


def rss(page: ResultPage) -> bytes:
    """Write a page of results as RSS 2.0: the newest first, each with a guid that it keeps, and its place.

    Example
    -------
    >>> import pyarrow as pa
    >>> from datetime import datetime, timezone
    >>> from headrace.feeds.results import ResultPage, rss
    >>> then = datetime(2026, 1, 1, tzinfo=timezone.utc)
    >>> rows = pa.record_batch({"_number": [1], "_produced": [then], "_id": [bytes(16)], "_places": [None], "a.title": ["M 5.6"]})
    >>> page = ResultPage("quakes", "SELECT a.title FROM rss('…') a", "http://localhost/quakes.rss", then, rows)
    >>> b"<title>1) M 5.6</title>" in rss(page), b"<description>a title : M 5.6</description>" in rss(page)
    (True, True)
    """
    link = xml_text(page.link)
    older = f'<atom:link rel="next" type="application/rss+xml" href="{xml_text(page.older)}"/>\n' if page.older else ""
    items = "".join(_item(entry) for entry in entries(page))
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom"'
        ' xmlns:geo="http://www.w3.org/2003/01/geo/wgs84_pos#" xmlns:georss="http://www.georss.org/georss">\n<channel>\n'
        f"<title>{xml_text(page.query)}</title>\n<link>{link}</link>\n<description>{xml_text(page.sql)}</description>\n"
        f"<lastBuildDate>{format_datetime(page.updated.astimezone(UTC), usegmt=True)}</lastBuildDate>\n"
        f"<generator>Headrace</generator>\n"
        f'<atom:link rel="self" type="application/rss+xml" href="{link}"/>\n{older}{items}</channel>\n</rss>\n'
    ).encode()


def _item(entry: Entry) -> str:
    parts = [f"<title>{xml_text(entry.title)}</title>"]
    if entry.link:
        parts.append(f"<link>{xml_text(entry.link)}</link>")
    parts += [
        f"<description>{xml_text(entry.html())}</description>",
        f"<pubDate>{format_datetime(entry.produced, usegmt=True)}</pubDate>",
        f'<guid isPermaLink="false">{entry.id}</guid>',
        *geometry(entry),
    ]
    return "<item>\n" + "\n".join(parts) + "\n</item>\n"
