"""A real HTTP server on loopback for feeds: it answers as a test says, byte by byte where needed, and keeps what it was asked."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

REASONS = {200: "OK", 301: "Moved Permanently", 302: "Found", 304: "Not Modified", 404: "Not Found", 410: "Gone"}


@dataclass
class Reply:
    """An answer; with an ETag or a Last-Modified in its headers, 304 to whoever has them."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Asked:
    path: str
    headers: dict[str, str]


Raw = Callable[[asyncio.StreamWriter], Awaitable[None]]


class FeedServer:
    """Serves `pages` by their paths: a Reply, a list of Replies for one request after the other, or what writes bytes itself."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.host, self.port, self.tls = host, port, tls
        self.pages: dict[str, Reply | list[Reply] | Raw] = {}
        self.requests: list[Asked] = []
        self.connections = 0

    async def __aenter__(self) -> FeedServer:
        self._server = await asyncio.start_server(self._serve, self.host, self.port, backlog=512, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        self._open: set[asyncio.Task[None]] = set()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def url(self, path: str = "/", host: str | None = None) -> str:
        return f"http{'s' if self.tls else ''}://{host or self.host}:{self.port}{path}"

    def asked(self, path: str) -> list[Asked]:
        return [asked for asked in self.requests if asked.path == path]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            while await self._answer(reader, writer):
                pass
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            self._open.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.split(": ", 1) for line in head[1:] if line)
        asked = Asked(head[0].split()[1], {name.lower(): value for name, value in pairs})
        self.requests.append(asked)
        page = self.pages.get(asked.path, Reply(status=404))
        if isinstance(page, list):
            page = page.pop(0) if len(page) > 1 else page[0]
        if not isinstance(page, Reply):
            await page(writer)
            return False
        tags = {name.lower(): value for name, value in page.headers.items()}
        known = {"if-none-match": tags.get("etag"), "if-modified-since": tags.get("last-modified")}
        if page.status == 200 and any(value and asked.headers.get(name) == value for name, value in known.items()):
            page = Reply(status=304, headers=page.headers)
        lines = [f"HTTP/1.1 {page.status} {REASONS.get(page.status, 'Other')}"]
        lines += [f"{name}: {value}" for name, value in page.headers.items()]
        if page.status != 304:
            lines.append(f"Content-Length: {len(page.body)}")
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + (b"" if page.status == 304 else page.body))
        await writer.drain()
        return True
