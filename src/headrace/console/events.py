"""Broadcast: results and counters for any number of pages, as server-sent events that resume where they were cut.

    desk.follow ── one pump a query ──> ring of the newest events, encoded once, of at most RING bytes
                                          │
    client = cursor (query -> number) ────┴─ ahead of the ring's start: its bytes;  behind: the desk's own log of results

There is no queue for a client. One that reads slowly falls behind and is served from the log when it reads again; one that
never reads holds a cursor and what the system has in its socket's buffer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from headrace.clock import Clock
from headrace.console.room import FeedRoom, UnknownQuery
from headrace.console.rows import as_rows, to_json
from headrace.errors import HeadraceError

RING = 1 << 20  # bytes of events kept for each query: some 2,000 results, or several seconds of a busy one
ROWS = 100  # results in an event: some 50 KB
ALIVE = 15.0  # seconds of silence after which a client is told that the server lives; proxies give up after 30 to 60
TICK = 0.5  # seconds between looks at counters and new queries: what a person sees as at once
POINTS = 600  # of a curve; a full one drops every other
MOST_CLIENTS = 4000  # sockets: a process may open 1,024 to 65,536


@dataclass
class Event:
    """Results `first` to `last` of a query, as the lines of an event without its id."""

    first: int
    last: int
    lines: bytes


@dataclass
class Ring:
    """The newest events of a query. Results up to `before` are in the desk's log only."""

    name: str
    before: int
    events: deque[Event] = field(default_factory=deque)
    size: int = 0

    @property
    def last(self) -> int:
        """The number of the newest result."""
        return self.events[-1].last if self.events else self.before

    def add(self, event: Event) -> None:
        """Take the newest event, and forget the oldest ones that there is no room for."""
        self.events.append(event)
        self.size += len(event.lines)
        while self.size > RING and len(self.events) > 1:
            gone = self.events.popleft()
            self.before, self.size = gone.last, self.size - len(gone.lines)

    def after(self, number: int) -> Event | None:
        """The event that begins just after a result; none if that is in the log only, or in the middle of an event."""
        return next((event for event in self.events if event.first == number + 1), None)


@dataclass
class Cursor:
    """Where a client is: the number of the last result of each query that it was sent, by the query's id."""

    numbers: dict[str, int]
    only: str | None = None
    status: int = 0

    def position(self) -> bytes:
        """The id of the event that brings the client here; a client that comes back gives it as Last-Event-ID."""
        return ",".join(f"{query}:{number}" for query, number in self.numbers.items()).encode()


def read_position(text: str) -> dict[str, int]:
    """Read the id of an event; parts that are none of ours are passed over.

    Example:
        >>> read_position("0a1b:17,ff:0,nonsense")
        {'0a1b': 17, 'ff': 0}
    """
    parts = (part.partition(":") for part in text.split(","))
    return {
        query: int(number)
        for query, _, number in parts
        if query and number.isascii() and number.isdigit() and len(number) < 16
    }


class Broadcast:
    """Follows the queries of a room and serves what they produce.

    Args:
        room: whose queries are followed.
        clock: gives the moments of the curves.
    """

    def __init__(self, room: FeedRoom, clock: Clock) -> None:
        self.room = room
        self.clock = clock
        self.clients = 0
        self._rings: dict[str, Ring] = {}
        self._pumps: dict[str, asyncio.Task[None]] = {}
        self._curves: dict[str, list[tuple[int, int]]] = {}
        self._status: tuple[int, bytes] = (0, b"")
        self._changed = asyncio.Event()
        self._closed = False

    async def run(self) -> None:
        """Follow the queries until cancelled."""
        try:
            while True:
                self.look()
                await asyncio.sleep(TICK)
        finally:
            self.close()
            for pump in self._pumps.values():
                pump.cancel()

    def look(self) -> None:
        """See which queries there are, and note their counters."""
        status = self.room.status()
        known = {query["id"]: query for query in status["queries"]}
        for gone in self._rings.keys() - known.keys():
            del self._rings[gone]
            self._curves.pop(gone, None)
            self._pumps.pop(gone).cancel()
        for identity, query in known.items():
            if identity not in self._rings:
                ring = self._rings[identity] = Ring(query["name"], query["count"])
                self._pumps[identity] = asyncio.create_task(self._pump(identity, ring))
            self._note(identity, query["count"])
        said = to_json(status)
        if said != self._status[1]:
            self._status = (self._status[0] + 1, said)
            self._wake()

    def now(self) -> int:
        """The moment, in milliseconds since 1970."""
        return round(self.clock.now() * 1000)

    def curves(self) -> dict[str, list[tuple[int, int]]]:
        """How many results each query had, and when, since the server began."""
        return self._curves

    def cursor(self, given: Mapping[str, int], last: int, *, resumed: bool, only: str | None = None) -> Cursor:
        """Where a client begins: after what it has; of other queries with all results if it resumes, else the last."""
        numbers = {}
        for identity, name, produced in self.room.counts():
            if only is not None and name != only:
                continue
            had = given.get(identity, 0 if resumed else max(0, produced - last))
            numbers[identity] = had if had <= produced else 0
        if only is not None and not numbers:
            raise UnknownQuery(f"there is no query {only!r} to follow")
        return Cursor(numbers, only)

    def held(self) -> int:
        """Bytes of events in memory, for all clients together."""
        return sum(ring.size for ring in self._rings.values())

    async def stream(self, cursor: Cursor) -> AsyncIterator[bytes]:
        """The events of a client, until it goes or the server stops."""
        self.clients += 1
        try:
            yield b"retry: 1000\n" + _with_id(cursor, b"event: alive\ndata: {}\n\n")
            while not self._closed:
                changed = self._changed
                chunk = self._next(cursor)
                if chunk:
                    yield chunk
                    continue
                try:
                    async with asyncio.timeout(ALIVE):
                        await changed.wait()
                except TimeoutError:
                    yield b"event: alive\ndata: {}\n\n"
        finally:
            self.clients -= 1

    def close(self) -> None:
        """End the streams of all clients; they come back to the next server."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _note(self, identity: str, results: int) -> None:
        curve = self._curves.setdefault(identity, [])
        if not curve or curve[-1][1] != results:
            curve.append((self.now(), results))
        if len(curve) > POINTS:
            del curve[1:-1:2]

    async def _pump(self, identity: str, ring: Ring) -> None:
        """Encode what a query produces; where it fails, clients are still served from the log."""
        with suppress(HeadraceError):
            async for batch in self.room.follow(ring.name, ring.before):
                for begin in range(0, batch.num_rows, ROWS):
                    ring.add(_encode(identity, as_rows(batch.slice(begin, ROWS))))
                self._wake()

    def _next(self, cursor: Cursor) -> bytes:
        """What a client has not been sent: at most one event of each query, and the counters."""
        chunks = []
        for identity in cursor.numbers.keys() - self._rings.keys():
            del cursor.numbers[identity]
        for identity, ring in self._rings.items():
            if cursor.only is not None and ring.name != cursor.only:
                continue
            number = cursor.numbers.setdefault(identity, 0)
            event = self._after(identity, ring, number) if number < ring.last else None
            if event is not None:
                cursor.numbers[identity] = event.last
                chunks.append(_with_id(cursor, event.lines))
        version, said = self._status
        if version != cursor.status:
            cursor.status = version
            chunks.append(b"event: status\ndata: " + said + b"\n\n")
        return b"".join(chunks)

    def _after(self, identity: str, ring: Ring, number: int) -> Event | None:
        event = ring.after(number) if number >= ring.before else None
        if event is not None:
            return event
        try:
            rows = self.room.rows(ring.name, number, ROWS)
        except HeadraceError:
            return None
        return _encode(identity, rows) if rows else None


def _encode(identity: str, rows: list[dict[str, Any]]) -> Event:
    data = to_json({"query": identity, "rows": rows})
    return Event(rows[0]["n"], rows[-1]["n"], b"event: results\ndata: " + data + b"\n\n")


def _with_id(cursor: Cursor, lines: bytes) -> bytes:
    return b"id: " + cursor.position() + b"\n" + lines
