"""Results as Atom 1.0 (RFC 4287) with GeoRSS, in pages as of RFC 5005."""

from __future__ import annotations

from datetime import UTC, datetime

from headrace.feeds.results.entries import Entry, entries, feed_id, geometry, xml_text
from headrace.feeds.results.page import ResultPage


def atom(page: ResultPage) -> bytes:
    """Write a page of results as Atom 1.0, as `rss` does.

    Example
    -------
    >>> import pyarrow as pa
    >>> from datetime import datetime, timezone
    >>> from headrace.feeds.results import ResultPage, atom
    >>> then = datetime(2026, 1, 1, tzinfo=timezone.utc)
    >>> rows = pa.record_batch({"_number": [1], "_produced": [then], "_id": [bytes(16)], "_places": [None], "n": [3]})
    >>> page = ResultPage("counts", "SELECT …", "http://localhost/counts.atom", then, rows)
    >>> b"<id>urn:uuid:00000000-0000-0000-0000-000000000000</id>" in atom(page)
    True
    """
    older = f'<link rel="next" type="application/atom+xml" href="{xml_text(page.older)}"/>\n' if page.older else ""
    written = "".join(_entry(entry) for entry in entries(page))
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<feed xmlns="http://www.w3.org/2005/Atom"'
        ' xmlns:geo="http://www.w3.org/2003/01/geo/wgs84_pos#" xmlns:georss="http://www.georss.org/georss">\n'
        f"<id>{feed_id(page)}</id>\n<title>{xml_text(page.query)}</title>\n<subtitle>{xml_text(page.sql)}</subtitle>\n"
        f"<updated>{_moment(page.updated)}</updated>\n<author><name>Headrace</name></author>\n"
        f'<link rel="self" type="application/atom+xml" href="{xml_text(page.link)}"/>\n{older}{written}</feed>\n'
    ).encode()


def _entry(entry: Entry) -> str:
    moment = _moment(entry.produced)
    parts = [
        f"<id>{entry.id}</id>",
        f"<title>{xml_text(entry.title)}</title>",
        f"<published>{moment}</published>",
        f"<updated>{moment}</updated>",
        f'<content type="html">{xml_text(entry.html())}</content>',
    ]
    if entry.link:
        parts.append(f'<link rel="alternate" href="{xml_text(entry.link)}"/>')
    return "<entry>\n" + "\n".join([*parts, *geometry(entry)]) + "\n</entry>\n"


def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
