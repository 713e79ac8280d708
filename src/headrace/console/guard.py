"""Guard: what every request to the console must pass, and the headers that every answer has."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN_HEADER = "X-Headrace-Token"
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
HEADERS = {
    # Scripts, styles, images and requests of this server alone: an inline script that got into a page would not run.
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "geolocation=(), camera=(), microphone=()",
}


class Guard:
    """Passes on the requests that are meant for this server, and those that change something only with the token.

    A page of another site can make a browser send requests here: by a name of its own that it lets point to this machine (refused
    by the Host header), or across origins (refused by the token, which it cannot know, and by the Origin header).

    Args:
        app: what answers.
        token: what a request that changes something must have in the header ``X-Headrace-Token``.
        names: the names under which the server may be asked, beside those of the loopback interface.
        by_address: whether it may be asked by any address in digits: for a server that others may reach. No site can make such a
            name point elsewhere.
    """

    def __init__(self, app: ASGIApp, *, token: str, names: Iterable[str] = (), by_address: bool = False) -> None:
        self.app = app
        self.token = token
        self.names = _LOOPBACK | {name.lower() for name in names}
        self.by_address = by_address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(scope["method"], Headers(scope=scope))
        await (refusal or self.app)(scope, receive, with_headers)

    def _refusal(self, method: str, headers: Headers) -> JSONResponse | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_ours(_name(hosts[0])):
            return _refuse(
                421,
                f"this server is not {', '.join(hosts) or 'nameless'}; it answers to {', '.join(sorted(self.names))}",
            )
        if method in _READING:
            return None
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != hosts[0].lower():
            return _refuse(403, f"a page of {origin} may not change anything here")
        given = headers.get(TOKEN_HEADER, "")
        if not hmac.compare_digest(given.encode(), self.token.encode()):
            return _refuse(403, "this needs the token: open the address that the server printed when it started")
        return None

    def _is_ours(self, name: str) -> bool:
        return name in self.names or (self.by_address and _is_address(name))


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach an address to listen on.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
        (True, True, False)
    """
    return address == "localhost" or (_is_address(address) and ipaddress.ip_address(address).is_loopback)


def _name(host: str) -> str:
    """The name of a Host header, without its port, in small letters; empty where it is none."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _refuse(status: int, reason: str) -> JSONResponse:
    return JSONResponse({"error": reason}, status)
