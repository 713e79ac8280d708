"""Q of the MESHJOIN family: packets of tuples that came in together, oldest first, and the pages that each has still to meet."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np

from headrace.arrays import Bools, Int32s, Int64s, UInt64s
from headrace.semistream.hash_probe import HashProbe
from headrace.semistream.waiting_store import HashWindow


class Packets:
    """Q. The scan is counted in pages, so that a packet may begin at any page and still meets each page once."""

    def __init__(self) -> None:
        self._packets: deque[tuple[int, int]] = deque()  # tuples, and the count of pages at which they have met all
        self._seen = 0  # pages that the scan has brought since the beginning

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Tuples of each packet, and the pages that it has still to meet."""
        return ((tuples, end - self._seen) for tuples, end in self._packets)

    def enter(self, tuples: int, pages: int) -> None:
        """A packet comes in that is to meet so many pages, not fewer than any before it."""
        if tuples:
            self._packets.append((tuples, self._seen + pages))

    def saw(self, pages: int) -> None:
        """All packets have met so many pages more."""
        self._seen += pages

    @property
    def next_leaves(self) -> int | None:
        """Pages until the oldest packet has met all of them; None where there is no packet."""
        return self._packets[0][1] - self._seen if self._packets else None

    def most(self, *bounds: int | None) -> int | None:
        """Pages that may come at once, within these bounds, so that the oldest packet meets none twice; None for any number."""
        return min((bound for bound in (self.next_leaves, *bounds) if bound is not None), default=None)

    def leave(self) -> int:
        """Take out the packets that have met all their pages; returns how many tuples they had."""
        tuples = 0
        while self._packets and self._packets[0][1] <= self._seen:
            tuples += self._packets.popleft()[0]
        return tuples

    def pages_left(self) -> Int64s:
        """Pages that each tuple has still to meet, oldest first."""
        counts, left = np.array([*self], np.int64).reshape(-1, 2).T
        return np.repeat(left, counts)

    def clear(self) -> None:
        """Forget all packets."""
        self._packets.clear()


def go_on(probe: HashProbe, H: HashWindow, Q: Packets, left: int, matched: Bools) -> None:
    """Take a packet in again that has so many pages still to meet: its tuples are all that is in the stream buffer."""
    entered: list[tuple[Int32s, UInt64s]] = []
    for _ in probe.take_in(matched.size, entered):
        raise AssertionError("a tuple with a null has left before it could be kept")
    H.matched[np.concatenate([slots for slots, _ in entered])] = matched
    Q.enter(matched.size, left)
