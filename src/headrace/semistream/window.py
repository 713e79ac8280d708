"""The stream tuples that wait: their columns as Arrow, and H with Q over them. [MESH] §3.1

A tuple has a number that counts up with arrival, and a slot in H while it waits. In a StreamWindow its columns stay in the record
batch that it came in; batches are put together when there are many, and copied without their dead tuples when half of them left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.kernels import multimap
from headrace.relation.columns import Bytes, Longs
from headrace.relation.keys import Hashes, Ints

_CHUNKS = 32  # batches held before some are put together
_WHOLE = 2  # times its own size: what a slice may keep alive
_BUCKETS = 1.5  # a slot
SLOT_BYTES = 8 + 4 * 4 + 8 + 8 + 1 + int(4 * _BUCKETS) + 1  # of a tuple in H, besides its columns; 1 for their nulls
POINTER_BYTES = 8  # of which the queue: a link each way


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
        self.number: Longs = np.empty(capacity, np.int64)  # of the tuple in a slot
        self.arrived = np.empty(capacity, np.float64)  # when
        self.matched: Bytes = np.empty(capacity, np.uint8)
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

    def insert(self, hashes: Hashes, numbers: Longs, now: float) -> Ints:
        """Queue tuples; returns their slots."""
        slots = np.empty(hashes.size, np.int32)
        multimap.insert(
            self._heads, self._hashes, self._before, self._after, self._older, self._younger, self._ends, hashes, slots
        )
        self.number[slots] = numbers
        self.arrived[slots] = now
        self.matched[slots] = 0
        return slots

    def remove(self, slots: Ints) -> None:
        """Let tuples go."""
        multimap.remove(
            self._heads, self._hashes, self._before, self._after, self._older, self._younger, self._ends, slots
        )

    def oldest(self, count: int) -> Ints:
        """Slots of the tuples that have waited longest, in order."""
        slots = np.empty(min(count, self.used), np.int32)
        multimap.oldest(self._younger, self._ends, slots)
        return slots

    def probe(self, hashes: Hashes, stop: Longs, number: Ints, slots: Ints) -> int:
        """Pairs of a hash and a slot, as many as the output takes; see the kernel."""
        return int(multimap.probe(self._heads, self._hashes, self._after, hashes, stop, number, slots))

    def resize(self, capacity: int) -> None:
        """Room for another number of tuples; those in it stay, in their order. Slots change."""
        slots = self.oldest(self.used)
        old = self._hashes[slots], self.number[slots], self.arrived[slots], self.matched[slots]
        self.__init__(max(capacity, slots.size))  # type: ignore[misc]
        new = self.insert(old[0], old[1], 0.0)
        self.arrived[new], self.matched[new] = old[2], old[3]


@dataclass
class _Chunk:
    batch: pa.RecordBatch
    numbers: Longs  # of its rows, ascending
    alive: int


class StreamWindow:
    """Columns of the stream tuples that wait, found by number. It takes what waits and no more: SSIJ lends the rest to CR."""

    def __init__(self) -> None:
        self._chunks: list[_Chunk] = []

    @property
    def rows(self) -> int:
        """Tuples held, with those that left and were not dropped yet: at most twice as many as wait, and a batch."""
        return sum(chunk.numbers.size for chunk in self._chunks)

    def enter(self, batch: pa.RecordBatch, numbers: Longs, slots: Ints) -> None:
        """Hold tuples with these numbers, which are higher than all before."""
        if batch.num_rows:
            if batch.get_total_buffer_size() > _WHOLE * batch.nbytes:
                batch = batch.take(pa.array(np.arange(batch.num_rows)))  # a slice would keep all of a batch alive
            self._chunks.append(_Chunk(batch, numbers, batch.num_rows))
        if len(self._chunks) > _CHUNKS:
            self._put_together()

    def resize(self, capacity: int, before: Ints, after: Ints) -> None:
        """Tuples have other slots now, which it knows nothing of."""

    def take(self, numbers: Longs, slots: Ints) -> pa.RecordBatch:
        """The tuples with these numbers, in this order."""
        order = np.argsort(numbers, kind="stable") if bool((numbers[1:] < numbers[:-1]).any()) else None
        rising = numbers if order is None else numbers[order]
        firsts = np.array([chunk.numbers[0] for chunk in self._chunks])
        begins = np.append(np.searchsorted(rising, firsts), rising.size)
        parts = []
        for chunk, a, b in zip(self._chunks, begins[:-1], begins[1:], strict=True):
            if b > a:
                parts.append(chunk.batch.take(pa.array(np.searchsorted(chunk.numbers, rising[a:b]))))
        out = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
        if order is None:
            return out
        back = np.empty(order.size, np.int64)
        back[order] = np.arange(order.size)
        return out.take(pa.array(back))

    def leave(self, numbers: Longs, waiting: Callable[[], Longs]) -> None:
        """Some tuples left; `waiting` tells which did not, ascending: a batch that lost half is copied without its dead."""
        rising = np.sort(numbers)
        firsts = np.array([chunk.numbers[0] for chunk in self._chunks])
        begins = np.append(np.searchsorted(rising, firsts), rising.size)
        for chunk, a, b in zip(self._chunks, begins[:-1], begins[1:], strict=True):
            chunk.alive -= int(b - a)
        self._chunks = [chunk for chunk in self._chunks if chunk.alive]
        sparse = [chunk for chunk in self._chunks if 2 * chunk.alive < chunk.numbers.size]
        if sparse:
            alive = waiting()
            for chunk in sparse:
                low, high = np.searchsorted(alive, [chunk.numbers[0], chunk.numbers[-1] + 1])
                kept = alive[low:high]
                chunk.batch = chunk.batch.take(pa.array(np.searchsorted(chunk.numbers, kept)))
                chunk.numbers = kept

    def _put_together(self) -> None:
        """The neighbours that are smallest together become one: each tuple is copied a few times at most."""
        sizes = np.array([chunk.numbers.size for chunk in self._chunks])
        i = int(np.argmin(sizes[1:] + sizes[:-1]))
        a, b = self._chunks[i : i + 2]
        batch = pa.concat_batches([a.batch, b.batch])
        self._chunks[i : i + 2] = [_Chunk(batch, np.concatenate([a.numbers, b.numbers]), a.alive + b.alive)]
