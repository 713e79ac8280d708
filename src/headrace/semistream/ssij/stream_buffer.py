"""SB and II: stream tuples that wait for pages, and for each page the tuples that wait for it. [SSIJ] §IV.A"""

from __future__ import annotations

import mmap
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

import numpy as np

from headrace.kernels.pairs import count_pages, free_slots, take_slots, unpack
from headrace.relation.columns import Bytes, Longs
from headrace.relation.keys import IntKeys, Ints, KeyCodec, Keys, concat_keys

SLOT_BYTES = 8 + 4 + 1 + 1 + 8  # of a tuple in SB, besides its columns; a key that is text is extra
PAIR_BYTES = 8  # of a tuple in the list of a page
LIST_BYTES = 4 + 4 + 4 + 7  # of a page in II during a join phase: its rank, its list, its worth, and whether to keep it
NUMBER_BYTES = 8  # of a tuple among the columns: its number

_PARTS = 64  # pieces of keys before they are put together
_FREE, _LOOKED_UP, _WAITS = 0, 1, 2  # what a slot is: nobody's, of a tuple in an online phase, of one that is in II

Times = np.ndarray[Any, np.dtype[np.float64]]


def tuples_that_fit(room: float, each: float, pages_each: float, pages: int) -> float:
    """Tuples that wait in so many bytes: `each` of a tuple itself, and pairs of it with `pages_each` of the relation's pages."""
    few = room / (each + pages_each * (PAIR_BYTES + LIST_BYTES))
    if few * pages_each <= pages:
        return few
    return (room - LIST_BYTES * pages) / (each + pages_each * PAIR_BYTES)  # every page has its list


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
        self.pending: Ints = np.arange(1, capacity + 1, dtype=np.int32)  # pages to meet; of a free slot, the next one
        self._head: Longs = np.zeros(1, np.int64)  # the first free slot
        self._state: Bytes = np.zeros(capacity, np.uint8)
        self.matched: Bytes = np.zeros(capacity, np.uint8)
        # Where a key that is text is among `keys`
        self._key: Ints = np.empty(0 if codec.integer else capacity, np.int32)
        self.deadline: Times | None = None  # inf in free slots too; there from the first tuple on that has one
        self.used = 0
        # Numbers rise with time, so that the first of each online phase tells when a tuple came.
        self._firsts: list[int] = []
        self._times: list[float] = []
        ends = 2 if ranges else 1
        # Integer keys, by slot
        self._values = [np.empty(capacity if codec.integer else 0, np.int64) for _ in range(ends)]
        self._keys: list[list[Keys]] = [[] for _ in range(ends)]  # others
        self._count = 0

    @property
    def room(self) -> int:
        """Tuples there is room for."""
        return self.capacity - self.used

    def add(self, numbers: Longs, now: float, deadlines: Times) -> Ints:
        """Take tuples in, which came later than all that are in it; returns their slots."""
        slots = np.empty(numbers.size, np.int32)
        if not numbers.size:
            return slots
        take_slots(self.pending, self._head, slots)
        self.used += slots.size
        self._firsts.append(int(numbers[0]))
        self._times.append(now)
        self.number[slots] = numbers
        if self.deadline is None and np.isfinite(deadlines).any():
            self.deadline = np.full(self.capacity, np.inf)
        if self.deadline is not None:
            self.deadline[slots] = deadlines
        self.matched[slots], self._state[slots], self.pending[slots] = 0, _LOOKED_UP, 0
        return slots

    def remove(self, slots: Ints) -> None:
        """Let tuples go."""
        free_slots(self.pending, self._head, slots)
        self.used -= slots.size
        self._state[slots] = _FREE
        if self.deadline is not None:
            self.deadline[slots] = np.inf

    def waited(self, slots: Ints, now: float) -> Times:
        """How long tuples have been here."""
        phase = np.searchsorted(np.array(self._firsts), self.number[slots], side="right") - 1
        return now - np.array(self._times)[phase]

    @property
    def earliest(self) -> float:
        """The first deadline of a tuple in it."""
        return np.inf if self.deadline is None else float(self.deadline.min(initial=np.inf))

    def late(self, slots: Ints, now: float) -> int:
        """How many of these tuples have passed their deadline."""
        return 0 if self.deadline is None else int((self.deadline[slots] < now).sum())

    def slots(self) -> Ints:
        """Of all tuples in it."""
        return np.flatnonzero(self._state).astype(np.int32)

    def waits(self, slots: Ints) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether tuples are in II, and their keys known."""
        waiting: np.ndarray[Any, np.dtype[np.bool_]] = self._state[slots] == _WAITS
        return waiting

    def done(self, few: int) -> Iterator[Ints]:
        """Slots of the tuples that waited and have met all their pages, a few at a time."""
        for a in range(0, self.capacity, few):
            b = a + few
            here = (self._state[a:b] == _WAITS) & (self.pending[a:b] == 0)
            if here.any():
                yield (np.flatnonzero(here) + a).astype(np.int32)

    def oldest(self, count: int) -> Ints:
        """Slots of the tuples that came first, in order."""
        slots = self.slots()
        return slots[np.argsort(self.number[slots])[:count]]

    def add_keys(self, slots: Ints, keys: list[Keys]) -> None:
        """Remember the keys of tuples that will wait: one a tuple, or both ends of a range."""
        self._state[slots] = _WAITS
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

    def forget(self) -> None:
        """Drop what is known of tuples that left, beyond their slots: when they came, and keys that are text."""
        alive = self.slots()
        gone = bisect_right(self._firsts, self.number[alive].min()) - 1 if alive.size else len(self._firsts)
        del self._firsts[:gone], self._times[:gone]
        if self._codec.integer:
            return
        alive = alive[self.waits(alive)]
        kept = [keys.take(self._key[alive]) for keys in self.keys()]
        self._count = 0
        for parts in self._keys:
            parts.clear()
        self.add_keys(alive, kept)

    @property
    def key_bytes(self) -> int:
        """Of keys that are text, and of bringing them together."""
        return 2 * sum(keys.nbytes for parts in self._keys for keys in parts)


def _new_memory(nbytes: int) -> mmap.mmap:
    """The system's until it is written to, and again when it is dropped."""
    return mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


class InvertedIndex:
    """II: pairs of a page and a tuple in SB that waits for it, brought in the order of pages when asked for.

    KeyPages are sorted where they are, and their lists take their place. Memory is the system's until it is written to.

    Parameters
    ----------
    places
        Of all pages of the relation, sorted: a pair is the rank of its page and a slot in one number.
    most
        KeyPages there is room for.
    """

    def __init__(self, places: Longs, most: int = 0) -> None:
        self._all, self._most = places, most
        self._pairs: Longs = np.frombuffer(_new_memory(max(1, most) * PAIR_BYTES), np.int64)
        self.pairs = 0
        self._distinct = 0
        self._sorted = 0  # pairs, of which the first so many are in order
        self._lists: tuple[Ints, Ints, Ints] | None = None

    @staticmethod
    def size(pairs: float, pages: int) -> int:
        """Bytes of so many pairs with a relation of so many pages."""
        return int(PAIR_BYTES * pairs + LIST_BYTES * min(pairs, pages))

    @property
    def nbytes(self) -> int:
        """Of it as it is, with the lists it will become."""
        return self.size(self.pairs, self._all.size)

    def room(self, nbytes: int) -> int:
        """KeyPages more that so many bytes more have room for."""
        alone = max(0, self._all.size - self.pairs)  # each with a list of its own
        few = max(0, nbytes) // (PAIR_BYTES + LIST_BYTES)
        fits = few if few < alone else alone + (nbytes - alone * (PAIR_BYTES + LIST_BYTES)) // PAIR_BYTES
        return min(fits, self._most - self.pairs)

    def add(self, places: Longs, slots: Ints) -> None:
        """Tuples that wait for pages."""
        assert self._lists is None, "lists are read and then cleared"
        self._pairs[self.pairs : self.pairs + places.size] = (np.searchsorted(self._all, places) << 32) | slots
        self.pairs += places.size

    @property
    def distinct(self) -> int:
        """Pages in it: |P_u|."""
        if self._sorted < self.pairs:
            pairs = self._pairs[: self.pairs]
            pairs.sort()
            self._distinct, self._sorted = int(count_pages(pairs)), self.pairs
        return self._distinct

    def lists(self) -> tuple[Ints, Ints, Ints]:
        """Ranks of P_u, rising; where the list of each starts, and the end; the slots in the lists.

        Until `clear`, no more is added.
        """
        if self._lists is None:
            n = self.distinct
            rank, start = np.empty(n, np.int32), np.empty(n + 1, np.int32)
            slots = self._pairs.view(np.int32)[: self.pairs]
            unpack(self._pairs[: self.pairs], rank, start, slots)
            start[n] = self.pairs
            self._lists = rank, start, slots
        return self._lists

    def clear(self) -> None:
        """All pages were read."""
        self.__init__(self._all, self._most)  # type: ignore[misc]
