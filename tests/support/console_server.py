"""A console that tests can talk to: a real server on loopback, over feeds whose documents a test writes."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import httpx

from headrace.console import assets
from headrace.console.app import Console
from headrace.console.opening import open_desk
from headrace.console.server import ConsoleServer, Listening
from headrace.errors import FeedUnavailable
from headrace.feeds.fetcher import Answer, Request

TOKEN = "a-token-of-the-tests"
PATIENCE = 60  # seconds for what takes a tenth of one on an idle machine
LEFT, RIGHT = "https://left.example/feed", "https://right.example/feed"
PAIRS = f"SELECT a.title, b.title FROM rss('{LEFT}') a, rss('{RIGHT}') b WHERE a.title = b.title"


def wait_for(found: Callable[[], Any], what: str) -> Any:
    """Ask again and again until there is an answer."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if answer := found():
            return answer
        time.sleep(0.02)
    raise AssertionError(f"waited {PATIENCE} seconds for {what}")


def rss(titles: list[str], *, place: tuple[float, float] | None = None) -> bytes:
    """A feed with an item for each title, at places in a row if there is a first one."""
    items = []
    for i, title in enumerate(titles):
        where = f"<georss:point>{place[0] + i % 40} {place[1] + i % 90}</georss:point>" if place else ""
        items.append(f"<item><guid>{escape(title)}</guid><title>{escape(title)}</title>{where}</item>")
    space = 'xmlns:georss="http://www.georss.org/georss"'
    return f'<rss version="2.0" {space}><channel><title>Test</title>{"".join(items)}</channel></rss>'.encode()


class WrittenFeeds:
    """Documents by address; a test writes them, and the scanner of the console finds them at its next pull."""

    def __init__(self, documents: dict[str, bytes] | None = None) -> None:
        self.documents = documents or {}
        self.asked: list[str] = []

    async def fetch(self, request: Request) -> Answer:
        self.asked.append(request.url)
        content = self.documents.get(request.url)
        if content is None:
            raise FeedUnavailable(f"{request.url} is not written")
        etag = f'"{hashlib.blake2b(content, digest_size=8).hexdigest()}"'
        return Answer(304, etag=etag) if request.etag == etag else Answer(200, content, "application/xml", etag)

    async def close(self) -> None:
        pass


class RunningConsole:
    """A server in a thread, and a client of it."""

    def __init__(self, server: ConsoleServer, console: Console, port: int, thread: threading.Thread) -> None:
        self.server, self.console, self.port, self.thread = server, console, port, thread
        self.base = f"http://127.0.0.1:{port}"
        self.http = httpx.Client(base_url=self.base, timeout=PATIENCE, trust_env=False)

    @property
    def address(self) -> str:
        return f"{self.base}/#token={TOKEN}"

    def change(
        self, method: str, path: str, body: dict[str, Any] | None = None, token: str | None = TOKEN
    ) -> httpx.Response:
        headers = {} if token is None else {"X-Headrace-Token": token}
        return self.http.request(method, path, json=body, headers=headers)

    def stop(self) -> None:
        """Stop the server, and wait until it has let go of port and state."""
        self.server.stop()
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive(), "the server did not stop"

    def run(self, name: str, sql: str) -> None:
        answer = self.change("PUT", f"/api/queries/{name}", {"sql": sql})
        assert answer.status_code == 200, answer.text

    def query(self, name: str) -> dict[str, Any]:
        found = [query for query in self.http.get("/api/state").json()["queries"] if query["name"] == name]
        return found[0] if found else {}

    def wait_for_results(self, name: str, count: int) -> None:
        wait_for(lambda: self.query(name).get("count", 0) >= count, f"{count} results of {name}")


@contextmanager
def running_console(
    state: Path, feeds: WrittenFeeds | None = None, *, port: int = 0, stalled: int = 30, place: Path = assets.PLACE
) -> Iterator[RunningConsole]:
    """A console over a state directory; without feeds it would fetch over HTTP."""
    listening = Listening(port=port)
    listener = listening.bind()
    opened = open_desk(state, interval="100ms", fetcher=feeds)
    console = Console(opened.room, token=TOKEN, clock=opened.clock, place=place)
    server = ConsoleServer(console, listening, stalled=stalled)
    thread = threading.Thread(target=server.serve_on, args=(listener,), daemon=True)
    thread.start()
    running = RunningConsole(server, console, listener.getsockname()[1], thread)
    try:
        wait_for(lambda: server.started, "the server")
        yield running
    finally:
        running.http.close()
        running.stop()
        listener.close()


class Event:
    """A server-sent event."""

    def __init__(self, kind: str, identity: str | None, data: Any) -> None:
        self.kind, self.id, self.data = kind, identity, data


def read_events(lines: Iterator[str]) -> Iterator[Event]:
    """The events of the lines of a stream."""
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "data" in fields:
            yield Event(fields.get("event", "message"), fields.get("id"), json.loads(fields["data"]))
            fields = {}


def take_results(
    server: RunningConsole, count: int, *, headers: dict[str, str] | None = None, after: str = "last=1000"
) -> tuple[list[int], str]:
    """The numbers of the next results of a stream of events, and the id of the last event."""
    numbers: list[int] = []
    last = ""
    with server.http.stream("GET", f"/api/events?{after}", headers=headers or {}) as stream:
        for event in read_events(stream.iter_lines()):
            last = event.id or last
            if event.kind == "results":
                numbers += [row["n"] for row in event.data["rows"]]
            if len(numbers) >= count:
                break
    return numbers, last
