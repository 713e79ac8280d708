"""Documents of feeds as rows: RSS 0.9x, 1.0 and 2.0, Atom 0.3 and 1.0, with W3C geo, GeoRSS and GML.

    content ─ decode ─ Tokeniser ─ events ─ kernel collect ─ slots ─ columns
                           └ refused? ─ mend ─ Tokeniser again

A document that is well-formed costs one scan. Only one that is not goes through the slower repair, and says so in `problems`.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from datetime import datetime
from itertools import chain

import numpy as np
import pyarrow as pa

from headrace.arrays import Int64s, UInt8s
from headrace.errors import BadInput, IllFormed, NotAFeed, shown
from headrace.feeds.columns import Collected, Collector
from headrace.feeds.limits import FeedLimits
from headrace.feeds.names import USUAL, Names
from headrace.feeds.repair import decode, mend
from headrace.feeds.vocabulary import ATOM03, ATOM10, RSS09, RSS10
from headrace.kernels import feed_items as f
from headrace.kernels import xml_scan as x
from headrace.xml import Limits, Tokeniser
from headrace.xml.reasons import reason_of

_NAMES = 4096  # different names in a document: feeds have some fifty
_NAME = 1024  # bytes of a name
_ATTRIBUTES = 256  # attributes of an element
_EVENTS = 1 << 21  # tags, texts and attributes of a document: 50 MB of events, some thirty times those of 1,000 items
_EVERYTHING = x.AS_ELEMENT | x.WITH_TEXT | x.AS_ATTRIBUTE
_FLAGS = {name.encode(): _EVERYTHING for name in USUAL}


@dataclass(frozen=True)
class ParsedFeed:
    """A feed as it was when it was pulled."""

    format: str
    """rss 0.90, rss 0.91, …, rss 1.0, rss 2.0, atom 0.3 or atom 1.0; without a number if the feed does not say"""
    title: str | None
    link: str | None
    description: str | None
    ttl: float | None
    """seconds that the feed asks to be left alone after a pull"""
    items: pa.RecordBatch
    """rows of ITEM_SCHEMA, in the order of the document"""
    problems: tuple[str, ...]
    """what was repaired, cut or left out, in words; empty for most feeds"""


def parse_feed(
    content: bytes,
    url: str,
    *,
    seen: datetime,
    content_type: str | None = None,
    limits: FeedLimits = FeedLimits(),  # noqa: B008 - immutable
) -> ParsedFeed:
    """Read a document of a feed.

    Parameters
    ----------
    content
        The bytes of the document, decompressed.
    url
        Where it came from: the column `feed`, and what relative links are relative to.
    seen
        When it was pulled: the column `seen`.
    content_type
        The HTTP header of that name, for its charset.
    limits
        What a feed may have at most.

    Raises
    ------
    NotAFeed
        The document is none of a format that is read. It names the url and the position.

    Example
    -------
    >>> from datetime import datetime, timezone
    >>> from headrace.feeds import parse_feed
    >>> feed = parse_feed(
    ...     b'''<rss version="2.0" xmlns:georss="http://www.georss.org/georss"><channel><title>Quakes</title>
    ...     <item><title>M 5.6</title><guid>q1</guid><georss:point>61.57 -150.84</georss:point></item></channel></rss>''',
    ...     "http://example.org/quakes.xml",
    ...     seen=datetime(2026, 1, 1, tzinfo=timezone.utc),
    ... )
    >>> feed.format, feed.title, feed.problems
    ('rss 2.0', 'Quakes', ())
    >>> feed.items.select(["title", "geoLat", "geoLong"]).to_pylist()
    [{'title': 'M 5.6', 'geoLat': 61.57, 'geoLong': -150.84}]
    """
    if not isinstance(content, bytes | bytearray | memoryview):
        raise BadInput(f"content is bytes, not {type(content).__name__} {shown(content)}")
    if seen.tzinfo is None:
        raise BadInput(f"seen={seen} has no time zone; give a moment such as datetime.now(timezone.utc)")
    return _reader(limits).read(bytes(content), url, seen, content_type)


_readers = threading.local()


def _reader(limits: FeedLimits) -> _Reader:
    """The reader of this thread: its memory serves all documents."""
    if getattr(_readers, "limits", None) != limits:
        _readers.reader, _readers.limits = _Reader(limits), limits
    reader: _Reader = _readers.reader
    return reader


@dataclass
class _Scan:
    """Events of a document, and why the tokeniser went no further."""

    words: Int64s
    data: UInt8s
    error: IllFormed | None

    @property
    def closed(self) -> bool:
        """Whether the root element has ended."""
        return self.words.size > 0 and self.words[-x.EVENT] & 0xFFFFFFFF == x.END | 1 << 8


class _Reader:
    """Reads one document after the other in the same memory."""

    def __init__(self, limits: FeedLimits) -> None:
        self.limits = limits
        scanned = Limits(depth=limits.depth, name=_NAME, names=_NAMES, attributes=_ATTRIBUTES)
        self._tokeniser = Tokeniser(_FLAGS, _EVERYTHING, limits=scanned)
        self._unfinished = reason_of(x.E_UNFINISHED, scanned)
        self._too_many = f"it has more than {_EVENTS} tags, attributes and pieces of text"
        self._names = Names()
        self._collector = Collector(limits)

    def read(self, content: bytes, url: str, seen: datetime, content_type: str | None) -> ParsedFeed:
        problems: list[str] = []
        if len(content) > self.limits.document:
            problems.append(
                f"the document has {len(content)} bytes, of which the first {self.limits.document} are read"
            )
            content = content[: self.limits.document]
        document, wrong = decode(content, content_type)
        if wrong:
            problems.append(wrong)
        scan = self._scan(document, url, problems)
        self._names.begin(self._tokeniser.names(len(USUAL)))
        collected = self._collector.collect(scan.words, scan.data, self._names)
        self._check(collected, document, url)
        format_ = _format(collected)
        return ParsedFeed(
            format=format_,
            title=collected.text(f.TITLE),
            link=collected.link(url),
            description=collected.text(f.DESCRIPTION),
            ttl=collected.ttl(),
            items=collected.items(url, seen, inherit_author=format_.startswith("atom")),
            problems=(*problems, *collected.problems(self.limits)),
        )

    def _scan(self, document: bytes, url: str, problems: list[str]) -> _Scan:
        """Return the events of a document, of the repaired one if it must be."""
        scan = self._tokenise(document, url)
        error = scan.error
        if error is not None and not scan.closed and error.reason not in (self._unfinished, self._too_many):
            mended, notes = mend(document, most=self.limits.repair, depth=self.limits.depth)
            problems += [f"line {error.line}, column {error.column}: {error.reason}; the document was repaired", *notes]
            scan = self._tokenise(mended, url)
            error = scan.error
        if error is not None and scan.words.size:
            if scan.closed:
                problems.append(f"what follows the root element is not read: {error.reason}")
            elif error.reason == self._unfinished:
                problems.append("the document is cut off")
            else:
                problems.append(f"the rest of the document is not read: {error.reason}")
        return scan

    def _tokenise(self, document: bytes, url: str) -> _Scan:
        tokeniser = self._tokeniser
        tokeniser.reset(url, text=True)
        parts: list[Int64s] = []
        error = None
        try:
            for events in chain(tokeniser.feed(document), tokeniser.end()):
                if tokeniser.events_made > _EVENTS:
                    raise tokeniser.refuse(self._too_many)
                if len(events):
                    words = events.words.copy()
                    if events.base:
                        texts = words[:: x.EVENT] & 0xFF == x.TEXT
                        words[1 :: x.EVENT][texts] += events.base
                    parts.append(words)
        except IllFormed as refusal:
            error = refusal
        words = parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.empty(0, np.int64)
        return _Scan(words, np.frombuffer(document, np.uint8), error)

    def _check(self, collected: Collected, document: bytes, url: str) -> None:
        """Refuse a document whose root element is not that of a feed."""
        found = collected.found
        if found[f.ROOT] < 0:
            raise NotAFeed(
                url, 1, 1, "there is no element in the document" if document.strip() else "the document is empty"
            )
        if found[f.ROOT_ACTION] not in (f.A_ROOT, f.A_CHANNEL, f.A_ITEM):
            name = self._tokeniser.names()[found[f.ROOT]]
            at = document.find(b"<" + name.encode())
            line = document.count(b"\n", 0, at) + 1
            column = len(document[document.rfind(b"\n", 0, at) + 1 : at].decode("utf-8", "replace")) + 1
            page = ", which is that of a web page" if name.lower() == "html" else ""
            raise NotAFeed(url, line, column, f"the root element is <{shown(name)[1:-1]}>{page}")


_NAMESPACE_FORMATS = {RSS10: "rss 1.0", RSS09: "rss 0.90", ATOM03: "atom 0.3", ATOM10: "atom 1.0"}


def _format(collected: Collected) -> str:
    """The name of the format, by its namespace or by the version that the root element has."""
    found = collected.found
    version = collected.span(found[f.VERSION_AT], found[f.VERSION_LENGTH])
    version = version if re.fullmatch(r"\d\.\d+", version) else ""
    if found[f.ROOT_ACTION] == f.A_ROOT:
        known = _NAMESPACE_FORMATS.get(found[f.ROOT_NAMESPACE], "") if not version else ""
        return known if known.startswith("rss") else f"rss {version}".strip()
    if found[f.ROOT_NAMESPACE] in (ATOM03, ATOM10):
        return _NAMESPACE_FORMATS[found[f.ROOT_NAMESPACE]]
    return f"atom {version}".strip()
