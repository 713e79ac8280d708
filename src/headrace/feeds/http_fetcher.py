"""HttpFetcher: conditional requests over HTTP with limits of size, time, redirects and addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import httpcore
import httpx

from headrace.clock import Clock, WallClock
from headrace.errors import BadInput, FeedRefused, FeedUnavailable, shown
from headrace.feeds.addresses import AddressRules, Resolver, check_url
from headrace.feeds.decoding import ACCEPTED, Body
from headrace.feeds.fetcher import Answer, Request, answer_of, shown_url
from headrace.feeds.file_fetcher import FileFetcher
from headrace.feeds.transport import CheckedTransport
from headrace.units import format_duration, format_size, parse_duration, parse_size

_PERMANENT, _REDIRECTS = (301, 308), (301, 302, 303, 307, 308)
_ANSWERS = (200, 304, 410, 429, 503)  # what a scanner knows what to do with; all others are failures
_FORMATS = "application/rss+xml, application/atom+xml, application/rdf+xml;q=0.9, application/xml;q=0.8, */*;q=0.5"
_AGENT = "headrace (continuous queries over feeds)"


class HttpFetcher:
    """Fetches feeds over HTTP and HTTPS, from public addresses unless told otherwise.

    Parameters
    ----------
    allow_private
        True: private, loopback and link-local addresses too; or a list of networks that are allowed besides.
    allow_files
        Whether ``file://`` may be fetched. A redirect never leads there.
    max_size
        Bytes of a document, unpacked; what has more is refused.
    connect_timeout, timeout
        Time for a connection, and for everything from the first byte of the request to the last of the body, redirects included.
    max_redirects
        Redirects that are followed, each to an address that is judged anew.
    connections
        How many connections may be open at a time.
    clock
        The wall clock that dates of Retry-After are compared with.
    resolve
        Gives the addresses of a host; by default the system does.

    Example
    -------
    >>> fetcher = HttpFetcher()
    >>> asyncio.run(fetcher.fetch(Request("http://127.0.0.1:8080/feed")))
    Traceback (most recent call last):
    ...
    headrace.errors.FeedRefused: the host '127.0.0.1' is not known, or has no address that feeds may be pulled from: ...
    """

    def __init__(
        self,
        *,
        allow_private: bool | Sequence[str] = False,
        allow_files: bool = False,
        max_size: int | str = "8MiB",
        connect_timeout: str | float | timedelta = "10s",
        timeout: str | float | timedelta = "30s",
        max_redirects: int = 5,
        connections: int = 128,
        clock: Clock | None = None,
        resolve: Resolver | None = None,
    ) -> None:
        if isinstance(max_redirects, bool) or not isinstance(max_redirects, int) or max_redirects < 0:
            raise BadInput(f"max_redirects={max_redirects!r} is not a number of redirects; give 0 or more")
        self.allow_private, self.allow_files = allow_private, allow_files
        self.max_size = parse_size(max_size, name="max_size")
        self.connect_timeout = parse_duration(connect_timeout, name="connect_timeout")
        self.timeout = parse_duration(timeout, name="timeout")
        self.max_redirects, self.connections = max_redirects, connections
        self.clock = clock or WallClock()
        self._rules = AddressRules(allow_private, resolve)
        self._files = FileFetcher(max_size=self.max_size) if allow_files else None
        self._transport: CheckedTransport | None = None

    async def fetch(self, request: Request) -> Answer:
        """Fetch a document, if it has changed since the one with these validators."""
        url = self._checked(request.url, allow_files=self._files is not None)
        if url.scheme == "file":
            assert self._files is not None
            return await self._files.fetch(request)
        if self._transport is None:
            self._transport = CheckedTransport(self._rules, self.connections)
        try:
            async with asyncio.timeout(self.timeout):
                return await self._follow(self._transport, request, url)
        except TimeoutError:
            late = format_duration(self.timeout)
            raise FeedUnavailable(f"{shown_url(request.url)} was not there whole within {late}") from None
        except (httpcore.TimeoutException, httpx.TimeoutException):
            late = format_duration(self.connect_timeout)
            raise FeedUnavailable(f"{shown_url(request.url)}: no connection within {late}") from None
        except (
            httpcore.NetworkError, httpcore.ProtocolError, httpx.TransportError, httpx.InvalidURL, OSError
        ) as error:  # fmt: skip
            raise FeedUnavailable(f"{shown_url(request.url)}: {type(error).__name__}: {shown(error)}") from None

    async def close(self) -> None:
        """Close connections. A later fetch opens them again."""
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.aclose()

    def _checked(self, url: str, *, allow_files: bool = False) -> httpx.URL:
        return check_url(url, allow_files=allow_files, any_port=self._rules.any_port)

    async def _follow(self, transport: CheckedTransport, request: Request, url: httpx.URL) -> Answer:
        """Ask, and follow redirects. Validators go only where they came from: a date says nothing about another document."""
        permanent, moved = True, None
        source = url if request.source is None else httpx.URL(request.source)
        passed = [url]
        while True:
            headers = self._headers(request, known=url == source)
            limits = dict.fromkeys(("connect", "pool", "read", "write"), self.timeout) | {
                "connect": self.connect_timeout
            }
            got = await transport.handle_async_request(
                httpx.Request("GET", url, headers=headers, extensions={"timeout": limits})
            )
            try:
                if got.status_code not in _REDIRECTS:
                    return await self._answer(got, str(url), None if len(passed) == 1 else str(url), moved)
                place = got.headers.get("location")
            finally:
                await got.aclose()
            permanent = permanent and got.status_code in _PERMANENT
            url = self._redirected(request.url, url, place)
            if url in passed or len(passed) > self.max_redirects:
                why = "in a circle" if url in passed else f"more than {self.max_redirects} times"
                raise FeedUnavailable(f"{shown_url(request.url)} redirects {why}")
            passed.append(url)
            moved = str(url) if permanent else moved

    def _redirected(self, asked: str, url: httpx.URL, place: str | None) -> httpx.URL:
        if not place:
            raise FeedUnavailable(f"{shown_url(asked)} redirects to nowhere: it names no location")
        try:
            return self._checked(str(url.join(place).copy_with(fragment=None)))
        except (FeedRefused, httpx.InvalidURL, ValueError):
            # The location is the server's to choose, and must not tell it or its readers anything about what is there.
            raise FeedRefused(f"{shown_url(asked)} redirects to an address that feeds may not be pulled from") from None

    def _headers(self, request: Request, *, known: bool) -> dict[str, str]:
        headers = {"Accept": _FORMATS, "Accept-Encoding": ACCEPTED, "User-Agent": _AGENT}
        if known and request.etag:
            headers["If-None-Match"] = request.etag
        if known and request.modified:
            headers["If-Modified-Since"] = request.modified
        return headers

    async def _answer(self, got: httpx.Response, url: str, source: str | None, moved: str | None) -> Answer:
        status = got.status_code
        if status not in _ANSWERS:
            raise FeedUnavailable(f"{shown_url(url)} answered {status} {got.reason_phrase}".rstrip())
        content = await self._body(got, url) if status == 200 else b""
        return answer_of(status, got.headers, content, now=self.clock.now(), source=source, moved=moved)

    async def _body(self, got: httpx.Response, url: str) -> bytes:
        told = got.headers.get("content-length", "")
        if told.isdigit() and int(told) > self.max_size:
            raise FeedUnavailable(
                f"{shown_url(url)} has {format_size(int(told))}, more than the {format_size(self.max_size)} allowed"
            )
        body = Body(url, got.headers.get("content-encoding"), self.max_size)
        assert isinstance(got.stream, httpx.AsyncByteStream)
        async for piece in got.stream:
            body.add(piece)
        return body.whole()
