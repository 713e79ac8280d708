"""SB and II: stream tuples that wait for pages, and for each page the tuples that wait for it. [SSIJ] §IV.A"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.kernels.cache import count_pages, unpack
from headrace.relation.columns import Bytes, Longs
from headrace.relation.keys import IntKeys, Ints, KeyCodec, Keys, concat_keys

SLOT_BYTES = 8 + 8 + 4 + 4 + 1 + 1 + 1 + 8  # of a tuple in SB, besides its columns; a key that is text is extra
PAIR_BYTES = 24  # of a tuple in the list of a page, and of bringing the lists in order

_PARTS = 64  # pieces before they are put together

Times = np.ndarray[Any, np.dtype[np.float64]]


class StreamBuffer:
    """SB: what is known of each waiting tuple, in slots. It stands where other joins have H and Q.

    Parameters
    ----------
    capacity
        Tuples there is room for.
    codec
        Of their keys.
    ranges
        Whether a tuple has two keys, the ends of a range.
    """

    def __init__(self, capacity: int, codec: KeyCodec, *, ranges: bool = False) -> None:
        self.capacity = capacity
        self._codec = codec
        self.number: Longs = np.empty(capacity, np.int64)  # in the order of arrival
        self.arrived = np.empty(capacity, np.float64)
        self.pending: Ints = np.zeros(capacity, np.int32)  # pages it has not met
        self.waits: Bytes = np.zeros(capacity, np.uint8)  # whether it is in II, and its key is known
        self._key: Ints = np.empty(
            0 if codec.integer else capacity, np.int32
        )  # where a key that is text is among `keys`
        self.matched: Bytes = np.zeros(capacity, np.uint8)
        self.deadline: Times | None = None  # inf in free slots too; there from the first tuple on that has one
        self._alive = np.zeros(capacity, np.bool_)
        self._free: Ints = np.arange(capacity - 1, -1, -1, dtype=np.int32)
        self.used = 0
        ends = 2 if ranges else 1
        self._values = [
            np.empty(capacity if codec.integer else 0, np.int64) for _ in range(ends)
        ]  # integer keys, by slot
        self._keys: list[list[Keys]] = [[] for _ in range(ends)]  # others
        self._count = 0

    @property
    def room(self) -> int:
        """Tuples there is room for."""
        return self.capacity - self.used

    def add(self, numbers: Longs, now: float, deadlines: Times) -> Ints:
        """Take tuples in; returns their slots."""
        left = self.capacity - self.used - numbers.size
        slots = self._free[left : left + numbers.size][::-1].copy()
        self.used += numbers.size
        self.number[slots], self.arrived[slots] = numbers, now
        if self.deadline is None and np.isfinite(deadlines).any():
            self.deadline = np.full(self.capacity, np.inf)
        if self.deadline is not None:
            self.deadline[slots] = deadlines
        self.matched[slots], self._alive[slots], self.waits[slots] = 0, True, 0
        return slots

    def remove(self, slots: Ints) -> None:
        """Let tuples go."""
        left = self.capacity - self.used
        self._free[left : left + slots.size] = slots
        self.used -= slots.size
        self._alive[slots] = False
        if self.deadline is not None:
            self.deadline[slots] = np.inf

    @property
    def earliest(self) -> float:
        """The first deadline of a tuple in it."""
        return np.inf if self.deadline is None else float(self.deadline.min(initial=np.inf))

    def late(self, slots: Ints, now: float) -> int:
        """How many of these tuples have passed their deadline."""
        return 0 if self.deadline is None else int((self.deadline[slots] < now).sum())

    def slots(self) -> Ints:
        """Of all tuples in it."""
        return np.flatnonzero(self._alive).astype(np.int32)

    def oldest(self, count: int) -> Ints:
        """Slots of the tuples that came first, in order."""
        slots = self.slots()
        return slots[np.argsort(self.number[slots])[:count]]

    def add_keys(self, slots: Ints, keys: list[Keys]) -> None:
        """Remember the keys of tuples that will wait: one a tuple, or both ends of a range."""
        self.waits[slots] = 1
        if self._codec.integer:
            for values, some in zip(self._values, keys, strict=True):
                assert isinstance(some, IntKeys)
                values[slots] = some.values
            return
        self._key[slots] = self._count + np.arange(slots.size, dtype=np.int32)
        self._count += slots.size
        for parts, some in zip(self._keys, keys, strict=True):
            parts.append(some)
            if len(parts) > _PARTS:
                parts[:] = [concat_keys(parts, self._codec)]

    def keys(self) -> list[Keys]:
        """Keys of the waiting tuples, found by `which`."""
        if self._codec.integer:
            return [IntKeys(values) for values in self._values]
        for parts in self._keys:
            parts[:] = [concat_keys(parts, self._codec)]
        return [parts[0] for parts in self._keys]

    def which(self, slots: Ints) -> Ints:
        """Where the keys of waiting tuples are among `keys`."""
        return slots if self._codec.integer else self._key[slots]

    def forget_keys(self) -> None:
        """Drop the keys of tuples that left."""
        if self._codec.integer:
            return
        alive = self.slots()
        alive = alive[self.waits[alive] == 1]
        kept = [keys.take(self._key[alive]) for keys in self.keys()]
        self._count = 0
        for parts in self._keys:
            parts.clear()
        self.add_keys(alive, kept)

    @property
    def key_bytes(self) -> int:
        """Of keys that are text, and of bringing them together."""
        return 2 * sum(keys.nbytes for parts in self._keys for keys in parts)


class InvertedIndex:
    """II: pairs of a page and a tuple in SB that waits for it, brought in the order of pages when asked for.

    Parameters
    ----------
    places
        Of all pages of the relation, sorted: a pair is the rank of its page and a slot in one number.
    """

    def __init__(self, places: Longs) -> None:
        self._all = places
        self._parts: list[Longs] = []
        self.pairs = 0
        self._distinct: int | None = 0

    def add(self, places: Longs, slots: Ints) -> None:
        """Tuples that wait for pages."""
        if places.size:
            self._parts.append((np.searchsorted(self._all, places) << 32) | slots)
            self.pairs += places.size
            self._distinct = None
            if len(self._parts) > _PARTS:
                self._parts = [np.concatenate(self._parts)]

    @property
    def distinct(self) -> int:
        """Pages in it: |P_u|."""
        if self._distinct is None:
            self._put_in_order()
            self._distinct = int(count_pages(self._parts[0]))
        return self._distinct

    def lists(self) -> tuple[Longs, Ints, Ints]:
        """P_u, sorted; where the list of each starts, and the end; the slots in the lists."""
        n = self.distinct
        places, start, slots = np.empty(n, np.int64), np.empty(n + 1, np.int32), np.empty(self.pairs, np.int32)
        if n:
            unpack(self._parts[0], self._all, places, start, slots)
        start[n] = self.pairs
        return places, start, slots

    def clear(self) -> None:
        """All pages were read."""
        self.__init__(self._all)  # type: ignore[misc]

    def _put_in_order(self) -> None:
        if len(self._parts) > 1:
            self._parts = [np.concatenate(self._parts)]
        self._parts[0].sort()
