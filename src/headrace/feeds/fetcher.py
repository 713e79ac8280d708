"""What a scanner asks of whoever fetches documents: a request with validators, and an answer."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Protocol

from headrace.sources.secret import hide_secrets

_MAX_AGE = re.compile(r"(?:^|[,\s])max-age\s*=\s*\"?(\d{1,12})", re.IGNORECASE)
_NO_CACHE = re.compile(r"(?:^|[,\s])no-(?:cache|store)\b", re.IGNORECASE)
_LONGEST_VALIDATOR = 1024  # characters of an ETag or a date: it is sent again with every request
_PRINTABLE = re.compile(r"[\x20-\x7e]+")


def shown_url(url: str) -> str:
    """The address of a feed as messages and logs show it: without tokens and keys that it may have as parameters.

    Example
    -------
    >>> shown_url("https://example.org/feed?user=7&token=5f3a9c")
    'https://example.org/feed?user=7&token=***'
    """
    return hide_secrets(url)


@dataclass(frozen=True)
class Request:
    """A document asked for; with validators, only if it has changed."""

    url: str
    etag: str | None = None
    modified: str | None = None
    source: str | None = None
    """the address that the validators came from, which a redirect may lead to; None: `url` itself"""


@dataclass(frozen=True)
class Answer:
    """What came back: a document (200), that it has not changed (304), that it is gone (410), or to come later (429, 503)."""

    status: int
    content: bytes = b""
    content_type: str | None = None
    etag: str | None = None
    modified: str | None = None
    source: str | None = None
    """the address that the answer came from, if it is another than was asked"""
    moved: str | None = None
    """the address that all permanent redirects from the beginning led to, if there was one"""
    max_age: float | None = None
    """seconds that the answer may be kept (Cache-Control)"""
    retry_after: float | None = None
    """seconds that the server asks to wait"""


class Fetcher(Protocol):
    """Fetches documents. An address that may not be asked raises FeedRefused, every failure FeedUnavailable."""

    async def fetch(self, request: Request) -> Answer:
        """Fetch a document."""
        ...

    async def close(self) -> None:
        """Close connections. A later fetch opens them again."""
        ...


def answer_of(
    status: int,
    headers: Mapping[str, str],
    content: bytes,
    *,
    now: float,
    source: str | None = None,
    moved: str | None = None,
) -> Answer:
    """Return the answer that a status, headers (names in lower case) and a body give.

    Example
    -------
    >>> answer_of(503, {"retry-after": "Thu, 01 Jan 1970 00:02:00 GMT"}, b"", now=60.0).retry_after
    60.0
    """
    return Answer(
        status,
        content,
        headers.get("content-type"),
        _validator(headers.get("etag")),
        _validator(headers.get("last-modified")),
        source,
        moved,
        _max_age(headers.get("cache-control")),
        _retry_after(headers.get("retry-after"), now),
    )


def _validator(text: str | None) -> str | None:
    """Return a validator if it can be sent back as it came; without it the next request just asks for everything."""
    return text if text and len(text) <= _LONGEST_VALIDATOR and _PRINTABLE.fullmatch(text) else None


def _max_age(text: str | None) -> float | None:
    if not text or _NO_CACHE.search(text):
        return None
    found = _MAX_AGE.search(text)
    return float(found[1]) if found else None


def _retry_after(text: str | None, now: float) -> float | None:
    """Return the seconds to wait, which are given as such or as a date; None for what is neither."""
    if not text:
        return None
    try:
        seconds = float(text) if text.strip().isdigit() else parsedate_to_datetime(text).timestamp() - now
    except (ValueError, TypeError, OverflowError):
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
