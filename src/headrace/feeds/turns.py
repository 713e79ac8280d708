"""Whose turn it is among the feeds that are due: hosts in turn, each with few connections and a gap between requests."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field

from headrace.errors import BadInput


@dataclass
class _Host:
    waiting: deque[str] = field(default_factory=deque)
    running: int = 0
    free_at: float = 0.0
    """when the gap after the last request has passed"""
    queued: bool = False
    """whether the host is among those that may be served, now or when its gap has passed"""


class Turns:
    """Gives out feeds that are due. A host with thousands of them keeps no other host waiting.

    Parameters
    ----------
    most
        Pulls at a time.
    per_host
        Pulls at a time of one host.
    gap
        Seconds between the beginnings of two pulls of one host.

    Example
    -------
    >>> turns = Turns(most=10, per_host=1, gap=0)
    >>> for url, host in [("a1", "a"), ("a2", "a"), ("b1", "b")]:
    ...     turns.add(url, host)
    >>> turns.next(0.0), turns.next(0.0), turns.next(0.0)
    ('a1', 'b1', None)
    >>> turns.done("a")
    >>> turns.next(0.0)
    'a2'
    """

    def __init__(self, most: int, per_host: int, gap: float) -> None:
        for name, value in (("concurrency", most), ("per_host", per_host)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise BadInput(f"{name}={value!r} is not a number of pulls; give 1 or more")
        self.most, self.per_host, self.gap = most, per_host, gap
        self.running = 0
        self._hosts: dict[str, _Host] = {}
        self._ready: deque[str] = deque()
        self._later: list[tuple[float, str]] = []

    def add(self, url: str, host: str) -> None:
        """Add a feed that is due."""
        entry = self._hosts.setdefault(host, _Host())
        entry.waiting.append(url)
        self._queue(host, entry)

    def next(self, now: float) -> str | None:
        """Return a feed that may be pulled now; None if all that may are being pulled."""
        while self._later and self._later[0][0] <= now:
            self._ready.append(heapq.heappop(self._later)[1])
        if self.running >= self.most or not self._ready:
            return None
        host = self._ready.popleft()
        entry = self._hosts[host]
        entry.queued = False
        url = entry.waiting.popleft()
        entry.running += 1
        entry.free_at = now + self.gap
        self.running += 1
        self._queue(host, entry)
        return url

    def done(self, host: str) -> None:
        """Note that a pull of a host has ended."""
        entry = self._hosts[host]
        entry.running -= 1
        self.running -= 1
        if entry.waiting:
            self._queue(host, entry)
        elif not entry.running and not self.gap:
            del self._hosts[host]

    def next_at(self) -> float | None:
        """Return when the gap of a host with feeds to pull has passed; None if none waits for that."""
        return self._later[0][0] if self._later else None

    def _queue(self, host: str, entry: _Host) -> None:
        """Have a host served when its gap has passed, if it has feeds to pull and a connection free for them."""
        if entry.queued or not entry.waiting or entry.running >= self.per_host:
            return
        entry.queued = True
        if self.gap:
            heapq.heappush(self._later, (entry.free_at, host))
        else:
            self._ready.append(host)
