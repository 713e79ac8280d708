"""H and Q in one: the stream tuples that wait, found by the hash of their key and in the order they came. [MESH] §3.1"""

from __future__ import annotations

import numpy as np

from headrace.arrays import Float64s, Int32s, Int64s, UInt8s, UInt64s
from headrace.kernels import multimap

_BUCKETS = 1.5  # buckets a slot: chains stay short
# Bytes of a tuple in H, besides its columns: hash, four links, number, time, whether it matched, buckets, bits of its nulls
SLOT_BYTES = 8 + 4 * 4 + 8 + 8 + 1 + int(4 * _BUCKETS) + 1
POINTER_BYTES = 8  # the queue's part of these: a link each way


class HashQueue:
    """H and Q in one: a multi-map by hash whose tuples are also queued in the order they came.

    Parameters
    ----------
    capacity
        Tuples it has room for.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._heads = np.empty(max(1, int(_BUCKETS * capacity)), np.int32)
        self._hashes = np.empty(capacity, np.uint64)
        self._before, self._after, self._older, self._younger = (np.empty(capacity, np.int32) for _ in range(4))
        self._ends = np.empty(4, np.int64)
        self.number: Int64s = np.empty(capacity, np.int64)  # of the tuple in a slot
        self.arrived = np.empty(capacity, np.float64)  # when
        self.matched: UInt8s = np.empty(capacity, np.uint8)
        multimap.clear(self._heads, self._after, self._older, self._younger, self._ends)

    @staticmethod
    def size(capacity: int) -> int:
        """Bytes for so many tuples."""
        return capacity * SLOT_BYTES

    @property
    def used(self) -> int:
        """Tuples in it."""
        return int(self._ends[multimap.USED])

    @property
    def room(self) -> int:
        """Tuples there is room for."""
        return self.capacity - self.used

    def insert(self, hashes: UInt64s, numbers: Int64s, times: Float64s) -> Int32s:
        """Queue tuples that came at these times; returns their slots."""
        slots = np.empty(hashes.size, np.int32)
        multimap.insert(
            self._heads, self._hashes, self._before, self._after, self._older, self._younger, self._ends, hashes, slots
        )
        self.number[slots] = numbers
        self.arrived[slots] = times
        self.matched[slots] = 0
        return slots

    def remove(self, slots: Int32s) -> None:
        """Let tuples go."""
        multimap.remove(
            self._heads, self._hashes, self._before, self._after, self._older, self._younger, self._ends, slots
        )

    def waited(self, slots: Int32s, now: float) -> Float64s:
        """Seconds since tuples came."""
        waited: Float64s = now - self.arrived[slots]
        return waited

    def hashes(self, slots: Int32s) -> UInt64s:
        """The hashes by which tuples are found."""
        hashes: UInt64s = self._hashes[slots]
        return hashes

    def oldest(self, count: int) -> Int32s:
        """Slots of the tuples that have waited longest, in order."""
        slots = np.empty(min(count, self.used), np.int32)
        multimap.oldest(self._younger, self._ends, slots)
        return slots

    def probe(self, hashes: UInt64s, stop: Int64s, number: Int32s, slots: Int32s) -> int:
        """KeyPages of a hash and a slot, as many as the output takes; see the kernel."""
        return int(multimap.probe(self._heads, self._hashes, self._after, hashes, stop, number, slots))

    def resize(self, capacity: int) -> None:
        """Room for another number of tuples; those in it stay, in their order. Slots change."""
        slots = self.oldest(self.used)
        old = self._hashes[slots], self.number[slots], self.arrived[slots], self.matched[slots]
        self.__init__(max(capacity, slots.size))  # type: ignore[misc]
        new = self.insert(old[0], old[1], old[2])
        self.matched[new] = old[3]
