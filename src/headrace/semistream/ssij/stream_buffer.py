"""SB and II: stream tuples that wait for pages, and for each page the tuples that wait for it. [SSIJ] §IV.A"""

from __future__ import annotations

import mmap
from bisect import bisect_right
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from headrace.arrays import Bools, Float64s, Int32s, Int64s, UInt8s
from headrace.errors import BadInput
from headrace.kernels.pairs import count_pages, free_slots, take_slots, unpack
from headrace.relation import Relation
from headrace.relation.keys import IntKeys, KeyCodec, Keys, concat_keys
from headrace.semistream.page_ranges import PageRanks
from headrace.semistream.stream_window import StreamWindow

SLOT_BYTES = (
    8 + 4 + 1 + 1 + 8
)  # bytes of a tuple in SB besides its columns: number, pages to meet, state, match, integer key
PAIR_BYTES = 8  # bytes of a tuple in the list of a page
LIST_BYTES = (
    4 + 4 + 4 + 7
)  # bytes of a page in II during a join phase: its rank, its list, its worth, and whether to keep it
NUMBER_BYTES = 8  # bytes of a tuple among the columns: its number
_TEXT_KEY_BYTES = 16.0  # bytes of a key that is text, beside the text itself

_PARTS = 64  # pieces of keys before they are put together
_FREE, _LOOKED_UP, _WAITS = 0, 1, 2  # what a slot is: nobody's, of a tuple in an online phase, of one that is in II


def tuples_that_fit(room: float, each: float, pages_each: float, pages: int) -> float:
    """Tuples that wait in so many bytes: `each` of a tuple itself, and pairs of it with `pages_each` of the relation's pages."""
    few = room / (each + pages_each * (PAIR_BYTES + LIST_BYTES))
    if few * pages_each <= pages:
        return few
    return (room - LIST_BYTES * pages) / (each + pages_each * PAIR_BYTES)  # every page has its list


class StreamBuffer:
    """SB: the tuples that wait, with their columns in batches, and what is known of each in slots. It is SSIJ's WaitingStore.

    Parameters
    ----------
    codec
        Of the keys of its tuples.
    ranges
        The stream's two columns that name a range of keys, if tuples have two keys.
    """

    condition_row_bytes = condition_pair_bytes = 0.0  # a range of keys is looked up in the index, and takes nothing

    def __init__(self, codec: KeyCodec, ranges: tuple[str, str] | None = None) -> None:
        self._codec = codec
        self._ranges = ranges
        self.column_extra_bytes = 0.0 if codec.integer else _TEXT_KEY_BYTES
        self._columns = StreamWindow()
        self.resize(0)

    def resize(self, capacity: int) -> None:
        """Have room for so many tuples. Nothing is in it."""
        self.capacity = capacity
        self.number: Int64s = np.empty(capacity, np.int64)  # in the order of arrival
        self.pending: Int32s = np.arange(1, capacity + 1, dtype=np.int32)  # pages to meet; of a free slot, the next one
        self._head: Int64s = np.zeros(1, np.int64)  # the first free slot
        self._state: UInt8s = np.zeros(capacity, np.uint8)
        self.matched: UInt8s = np.zeros(capacity, np.uint8)
        # Where a key that is text is among `keys`
        self._key: Int32s = np.empty(0 if self._codec.integer else capacity, np.int32)
        self.deadline: Float64s | None = None  # inf in free slots too; there from the first tuple on that has one
        self.used = 0
        # Numbers rise with time, so that the first of each online phase tells when a tuple came.
        self._firsts: list[int] = []
        self._times: list[float] = []
        ends = 2 if self._ranges else 1
        # Integer keys, by slot
        self._values = [np.empty(capacity if self._codec.integer else 0, np.int64) for _ in range(ends)]
        self._keys: list[list[Keys]] = [[] for _ in range(ends)]  # others
        self._count = 0

    def condition_slot_bytes(self, stream_bytes: float) -> float:
        """Memory that a condition takes for a waiting tuple: nothing."""
        return 0.0

    # -- the stream's columns --------------------------------------------------------------------------------------------

    def follow(self, relation: Relation) -> None:
        """Keys of another version of the relation are of the same types."""

    def begin_stream(self, schema: pa.Schema) -> None:
        """Hold tuples of this schema from now on. Nothing waits."""
        # In batches: slots for columns would be memory that CR cannot have while they are free.
        self._columns = StreamWindow()

    def check_stream(self, schema: pa.Schema) -> None:
        """Refuse a stream without the columns of the range, or with types that are not the key's."""
        for name in self._ranges or ():
            if schema.names.count(name) != 1:
                raise BadInput(
                    f"the stream has {'no' if name not in schema.names else 'more than one'} column {name!r}; its columns are"
                    f" {', '.join(schema.names)}"
                )
            self._codec.check([schema.field(name)])

    def columns(self, slots: Int32s) -> pa.RecordBatch:
        """The columns of the tuples in these slots; of tuples that were removed too, until they are dropped."""
        return self._columns.take(self.number[slots], slots)

    def drop(self, numbers: Int64s) -> None:
        """Drop the columns of removed tuples with these numbers."""
        self._columns.leave(numbers)

    def drop_removed(self) -> None:
        """Drop the columns of all removed tuples."""
        self._columns.keep(self.number[self.oldest(self.used)])

    @property
    def held_rows(self) -> int:
        """Tuples whose columns are held, with those that left and were not dropped yet."""
        return self._columns.rows

    # -- slots -----------------------------------------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """Tuples there is room for."""
        return self.capacity - self.used

    def enter(self, batch: pa.RecordBatch, numbers: Int64s, now: float, deadlines: Float64s) -> Int32s:
        """Take tuples in, which came later than all that are in it; returns their slots."""
        slots = np.empty(numbers.size, np.int32)
        if numbers.size:
            self._take_slots(slots, numbers, now, deadlines)
        self._columns.enter(batch, numbers, slots)
        return slots

    def _take_slots(self, slots: Int32s, numbers: Int64s, now: float, deadlines: Float64s) -> None:
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

    def remove(self, slots: Int32s) -> None:
        """Free slots. The columns of their tuples stay until `drop`."""
        free_slots(self.pending, self._head, slots)
        self.used -= slots.size
        self._state[slots] = _FREE
        if self.deadline is not None:
            self.deadline[slots] = np.inf

    def waited(self, slots: Int32s, now: float) -> Float64s:
        """Seconds that these tuples have been here."""
        phase = np.searchsorted(np.array(self._firsts), self.number[slots], side="right") - 1
        return now - np.array(self._times)[phase]

    @property
    def earliest(self) -> float:
        """The first deadline of a tuple in it."""
        return np.inf if self.deadline is None else float(self.deadline.min(initial=np.inf))

    def late(self, slots: Int32s, now: float) -> int:
        """How many of these tuples have passed their deadline."""
        return 0 if self.deadline is None else int((self.deadline[slots] < now).sum())

    def slots(self) -> Int32s:
        """Slots of all tuples in it."""
        return np.flatnonzero(self._state).astype(np.int32)

    def waits(self, slots: Int32s) -> Bools:
        """Whether tuples are in II, and their keys known."""
        waiting: Bools = self._state[slots] == _WAITS
        return waiting

    def done(self, few: int) -> Iterator[Int32s]:
        """Slots of the tuples that waited and have met all their pages, a few at a time."""
        for a in range(0, self.capacity, few):
            b = a + few
            here = (self._state[a:b] == _WAITS) & (self.pending[a:b] == 0)
            if here.any():
                yield (np.flatnonzero(here) + a).astype(np.int32)

    def oldest(self, count: int) -> Int32s:
        """Slots of the tuples that came first, in order."""
        slots = self.slots()
        return slots[np.argsort(self.number[slots])[:count]]

    def add_keys(self, slots: Int32s, keys: list[Keys]) -> None:
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

    def which(self, slots: Int32s) -> Int32s:
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
        """Bytes of keys that are text, and of bringing them together."""
        return 2 * sum(keys.nbytes for parts in self._keys for keys in parts)


def _new_memory(nbytes: int) -> mmap.mmap:
    """Memory that is the system's until it is written to, and again when it is dropped."""
    return mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # files: memory without a file


class InvertedIndex:
    """II: pairs of a page and a tuple in SB that waits for it, brought in the order of pages when asked for.

    KeyPages are sorted where they are, and their lists take their place. Memory is the system's until it is written to.

    Parameters
    ----------
    pages
        Of the relation: a pair is the rank of its page and a slot in one number.
    most
        KeyPages there is room for.
    """

    def __init__(self, pages: PageRanks, most: int = 0) -> None:
        self._all, self._most = pages, most
        self._pairs: Int64s = np.frombuffer(_new_memory(max(1, most) * PAIR_BYTES), np.int64)
        self.pairs = 0
        self._distinct = 0
        self._sorted = 0  # pairs, of which the first so many are in order
        self._lists: tuple[Int32s, Int32s, Int32s] | None = None

    @staticmethod
    def size(pairs: float, pages: int) -> int:
        """Bytes of so many pairs with a relation of so many pages."""
        return int(PAIR_BYTES * pairs + LIST_BYTES * min(pairs, pages))

    @property
    def nbytes(self) -> int:
        """Bytes of it as it is, with the lists that it will become."""
        return self.size(self.pairs, self._all.size)

    def room(self, nbytes: int) -> int:
        """KeyPages more that so many bytes more have room for."""
        alone = max(0, self._all.size - self.pairs)  # each with a list of its own
        few = max(0, nbytes) // (PAIR_BYTES + LIST_BYTES)
        fits = few if few < alone else alone + (nbytes - alone * (PAIR_BYTES + LIST_BYTES)) // PAIR_BYTES
        return min(fits, self._most - self.pairs)

    def add(self, places: Int64s, slots: Int32s) -> None:
        """Add tuples that wait for pages."""
        assert self._lists is None, "lists are read and then cleared"
        self._pairs[self.pairs : self.pairs + places.size] = (self._all.rank(places) << 32) | slots
        self.pairs += places.size

    @property
    def distinct(self) -> int:
        """Pages in it: |P_u|."""
        if self._sorted < self.pairs:
            pairs = self._pairs[: self.pairs]
            pairs.sort()
            self._distinct, self._sorted = int(count_pages(pairs)), self.pairs
        return self._distinct

    def lists(self) -> tuple[Int32s, Int32s, Int32s]:
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
        """Forget all pairs: their pages were read."""
        self.__init__(self._all, self._most)  # type: ignore[misc]
