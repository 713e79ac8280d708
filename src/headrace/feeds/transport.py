"""The way to HTTP servers: an httpx transport whose connections go to addresses that were judged, and nowhere else."""

from __future__ import annotations

import functools
import ssl
import typing
from collections.abc import AsyncIterator, Iterable

import httpcore
import httpx

from headrace.feeds.addresses import AddressRules

_KEPT = (
    8  # idle connections: the pool looks at each of them for every request, and feeds of most hosts come one a minute
)
_KEPT_OPEN = 15.0  # seconds that an idle connection stays open: longer than a host's feeds take one after the other


class CheckedTransport(httpx.AsyncBaseTransport):
    """Sends requests over connections that `AddressRules` allows. Proxies are not used: they would resolve names themselves.

    Parameters
    ----------
    rules
        Which addresses may be connected to.
    connections
        How many connections may be open at a time.
    """

    def __init__(self, rules: AddressRules, connections: int) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=_certificates(),
            max_connections=connections,
            max_keepalive_connections=_KEPT,
            keepalive_expiry=_KEPT_OPEN,
            network_backend=_CheckedBackend(rules),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; the body of the response is read by whoever gets it."""
        sent = httpcore.Request(
            method=request.method,
            url=httpcore.URL(
                scheme=request.url.raw_scheme,
                host=request.url.raw_host,
                port=request.url.port,
                target=request.url.raw_path,
            ),
            headers=request.headers.raw,
            extensions=request.extensions,
        )
        got = await self._pool.handle_async_request(sent)
        assert isinstance(got.stream, typing.AsyncIterable)
        return httpx.Response(got.status, headers=got.headers, stream=_Stream(got.stream), extensions=got.extensions)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()


@functools.cache
def _certificates() -> ssl.SSLContext:
    """Return the certificates that servers are checked by, which take a few hundredths of a second to read."""
    return httpx.create_ssl_context()


class _Stream(httpx.AsyncByteStream):
    """The body of a response, as it comes."""

    def __init__(self, stream: typing.AsyncIterable[bytes]) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            yield piece

    async def aclose(self) -> None:
        close = getattr(self._stream, "aclose", None)
        if close is not None:
            await close()


class _CheckedBackend(httpcore.AsyncNetworkBackend):
    """Opens connections: resolves a host once, and connects to an address of the result that is allowed."""

    def __init__(self, rules: AddressRules) -> None:
        self._rules = rules
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[typing.Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first address of a host that answers."""
        failure: Exception | None = None
        for address in await self._rules.addresses(host, port):
            try:
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        assert failure is not None
        raise failure

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[typing.Any] | None = None
    ) -> httpcore.AsyncNetworkStream:
        """No feed is at a local socket."""
        raise httpcore.ConnectError("feeds are not pulled from local sockets")

    async def sleep(self, seconds: float) -> None:
        """Let seconds pass."""
        await self._inner.sleep(seconds)
