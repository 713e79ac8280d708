"""How long SSIJ can take in more than its highest steady rate, until there is no more room. [SSIJ] §VI.D, Table III"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from headrace.cost import Stream
from headrace.relation import Relation
from headrace.semistream import SSIJ

_LONGEST = 20.0  # times a burst is looked at, the time in which what waits in all of the memory comes


@dataclass(frozen=True)
class Burst:
    """Tuples come at a steady rate, and from a moment on at a higher one."""

    rate: float
    begins: float
    increase: float

    def by(self, seconds: float) -> float:
        """Tuples that have come."""
        return self.rate * (seconds + self.increase * max(0.0, seconds - self.begins))

    def when(self, count: float) -> float:
        """When so many have come."""
        before = self.rate * self.begins
        return (
            count / self.rate if count <= before else self.begins + (count - before) / self.rate / (1 + self.increase)
        )


def longest_burst(
    relation: Relation, stream: Stream, memory: int, rate: float, increase: float, begins: list[int]
) -> float:  # fmt: skip
    """Seconds until tuples overflow: the median of bursts that begin after so many tuples each."""
    return median(_lasts(relation, stream, memory, Burst(rate, tuples / rate, increase)) for tuples in begins)


def _lasts(relation: Relation, stream: Stream, memory: int, burst: Burst) -> float:
    op = SSIJ(relation, on="k", memory=memory)
    feed, begun = stream.open(), op.clock.now()
    op.offer(feed.take(1))  # it chooses its sizes when it has seen a tuple
    most = _LONGEST * memory / stream.tuple_bytes / burst.rate
    while True:
        now = op.clock.now() - begun
        room = op.backlog_room
        come = int(burst.by(now)) - feed.taken
        if come + op.buffered > room:  # when the first came that found no room, during the step before
            return max(0.0, burst.when(feed.taken - op.buffered + room) - burst.begins)
        if now - burst.begins > most:
            return most
        if come + op.buffered < op.wanted:
            op.clock.sleep(max(1e-9, burst.when(feed.taken + op.wanted - op.buffered) - now))
            continue
        if come > 0:
            op.offer(feed.take(come))
        for _ in op.advance():
            pass
