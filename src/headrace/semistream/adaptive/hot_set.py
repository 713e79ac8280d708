"""The hot set: tuples by key in memory, chosen by frequency, as a few immutable segments. (DESIGN D5)

    sketch    how often was a key seen lately (one byte a counter, halved now and then)
    young     tuples fetched lately, appended; serves at once; where a batch's own misses are put
    segments  immutable; each generation replaces at most one of them

When `young` is full its entries compete with those of the weakest segment, and the winners become a new segment: a
generation. It is published only when the hits it should bring cost more to miss than writing it costs. The budget has
room for one segment more than are held, so a change of generation does not need twice the memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.kernels.sketch import sketch_add, sketch_age, sketch_estimate
from headrace.kernels.store import table_insert
from headrace.relation.columns import Buffers, Bytes, Column, Longs
from headrace.relation.keys import ByteKeys, Hashes, IntKeys, Ints, Keys
from headrace.relation.store import ArrayAllocator, StoreFull, TupleSources, TupleStore

SEGMENTS = 8
LOAD = 0.75  # of a segment's hash table
_SLOT = 8
ENTRY_BYTES = 8 + int(_SLOT / LOAD)  # of an entry besides its key and tuples
_LINE = 64  # sketch bytes that hold one key's counters
_STRANGERS = np.random.default_rng(20110401).integers(0, 1 << 64, 1024, np.uint64)  # hashes


class Sketch:
    """Ageing counts of keys. `window` is how many stream tuples the counts stand for."""

    def __init__(self, memory: int, horizon: int, cells: Bytes | None = None, window: Longs | None = None) -> None:
        self._cells = np.zeros(self.size(memory), np.uint8) if cells is None else cells
        self._window = np.zeros(1, np.int64) if window is None else window
        self.horizon = horizon

    @staticmethod
    def size(memory: int) -> int:
        """Bytes of counters within so much memory: a power of two."""
        return _LINE << max(0, (max(memory, _LINE) // _LINE).bit_length() - 1)

    @property
    def window(self) -> int:
        return int(self._window[0])

    @window.setter
    def window(self, tuples: int) -> None:
        self._window[0] = tuples

    @property
    def nbytes(self) -> int:
        return self._cells.nbytes

    def add(self, hashes: Hashes, counts: Ints) -> None:
        sketch_add(self._cells, hashes, counts)
        self.window += int(counts.sum())
        if self.window >= self.horizon:
            sketch_age(self._cells)
            self.window //= 2

    def dump(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Counters and window as one array."""
        return np.concatenate([self._cells, np.array([self.window], np.int64).view(np.uint8)])

    def load(self, dumped: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
        self._cells[:] = dumped[:-8]
        self.window = int(dumped[-8:].copy().view(np.int64)[0])

    def estimate(self, hashes: Hashes) -> Ints:
        out = np.empty(hashes.size, np.int32)
        sketch_estimate(self._cells, hashes, out)
        return out

    def strangers(self) -> Ints:
        """What some keys count that were never seen: their cells are others'."""
        return self.estimate(_STRANGERS)


class KeyedStore:
    """Entries (a key and its tuples, or none: known absent) found by a hash table.

    Parameters
    ----------
    columns
        What is kept of a tuple.
    entries, rows
        Room for keys and for tuples.
    data
        Bytes for each variable column by name, and for the keys under "".
    integer
        Whether keys are 64-bit integers.
    room
        Where its arrays lie.
    fresh
        Whether to start empty; if not, the room holds a store already, and `attach` says how full it is.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        entries: int,
        rows: int,
        data: dict[str, int],
        integer: bool,
        room: ArrayAllocator | None = None,
        *,
        fresh: bool = True,
    ) -> None:
        room = room or ArrayAllocator()
        self.tuples = TupleStore(columns, rows, data, room)
        self.entries = entries
        self.integer = integer
        self.used = 0
        self._key_bytes = 0
        self._keys = room.take(8 * entries if integer else data[""], np.uint8)
        self._key_offsets = room.take(0 if integer else entries + 1, np.uint32)
        self._key_offsets[:1] = 0
        self._first = room.take(entries, np.int32)
        self._many = room.take(entries, np.int32)
        self._table = room.take(_slots(entries), np.int64)
        if fresh:
            self._table.fill(-1)

    @staticmethod
    def size(columns: Sequence[Column], entries: int, rows: int, data: dict[str, int], integer: bool) -> int:
        keys = 8 * entries if integer else data[""] + 4 * entries
        return TupleStore.size(columns, rows, data) + keys + 8 * entries + _SLOT * _slots(entries)

    @staticmethod
    def arrays(columns: Sequence[Column]) -> int:
        """How many arrays a store has: each may lose a little in a given piece of memory."""
        return 3 * len(columns) + 5

    @property
    def nbytes(self) -> int:
        arrays = (self._keys, self._key_offsets, self._first, self._many, self._table)
        return self.tuples.nbytes + sum(array.nbytes for array in arrays)

    def state(self) -> Longs:
        """Its sizes and how far it is filled: with its memory, all that `attach` needs."""
        tuples = self.tuples
        pairs = zip(tuples.room_for_data(), tuples.mark()[1], strict=True)
        head = [self.entries, tuples.rows, self._keys.size, self.used, self._key_bytes, tuples.used]
        return np.array([*head, *(n for pair in pairs for n in pair)], np.int64)

    @classmethod
    def attach(cls, columns: Sequence[Column], integer: bool, memory: Bytes, state: Longs) -> KeyedStore:
        """The store that was made in this memory, by whichever process."""
        entries, rows, key_room, used, key_bytes, tuples = (int(n) for n in state[:6])
        data = {c.name: int(state[6 + 2 * i]) for i, c in enumerate(columns) if c.width == 0} | {"": key_room}
        store = cls(columns, entries, rows, data, integer, ArrayAllocator(memory), fresh=False)
        store.tuples.rewind((tuples, [int(n) for n in state[7 : 7 + 2 * len(columns) : 2]]))
        store.used, store._key_bytes = used, key_bytes
        return store

    def clear(self) -> None:
        self.used = 0
        self._key_bytes = 0
        self.tuples.clear()
        self._table.fill(-1)

    def insert(self, keys: Keys, hashes: Hashes, first: Ints, many: Ints) -> None:
        """Add entries: keys, and where their tuples are."""
        n = hashes.size
        if self.used + n > self.entries:
            raise StoreFull
        buffers = keys.buffers()
        if self.integer:
            self._keys.view(np.int64)[self.used : self.used + n] = buffers.values.view(np.int64)
        else:
            start, stop = int(buffers.offsets[0]), int(buffers.offsets[-1])
            if self._key_bytes + stop - start > self._keys.size:
                raise StoreFull
            self._keys[self._key_bytes : self._key_bytes + stop - start] = buffers.values[start:stop]
            self._key_offsets[self.used : self.used + n + 1] = buffers.offsets - start + self._key_bytes
            self._key_bytes += stop - start
        self._first[self.used : self.used + n] = first
        self._many[self.used : self.used + n] = many
        table_insert(self._table, hashes, self.used)
        self.used += n

    def probe(self, keys: Keys, hashes: Hashes, source: int, src: Ints, pos: Ints, count: Ints) -> int:
        """Look up the keys that have no source yet."""
        if self.used == 0:
            return 0
        entries = Buffers(self._keys, self._key_offsets, self._keys[:0])
        return keys.probe(self._table, entries, self._first, self._many, hashes, source, src, pos, count)

    def keys(self) -> Keys:
        if self.integer:
            return IntKeys(self._keys.view(np.int64)[: self.used])
        return ByteKeys(self._keys, self._key_offsets[: self.used + 1].astype(np.int64))

    def places(self) -> tuple[Ints, Ints]:
        """First tuple and number of tuples of every entry."""
        return self._first[: self.used], self._many[: self.used]

    def entry_bytes(self) -> Longs:
        """Memory that each entry takes, with its share of the table."""
        tuples = np.concatenate([[0], np.cumsum(self.tuples.sizes())])
        first, many = self.places()
        own = ENTRY_BYTES + (8 if self.integer else 4)
        out: Longs = tuples[first + many] - tuples[first] + own
        if not self.integer:
            out += np.diff(self._key_offsets[: self.used + 1])
        return out


@dataclass
class Choice:
    """Entries that would make a segment, and what they are worth."""

    store: Longs  # 0: young, 1: the segment replaced
    entry: Longs
    gain: float
    bytes: int


class HotSet:
    """Sketch, young and segments within a number of bytes.

    Parameters
    ----------
    columns, integer
        What is kept of a tuple; whether keys are integers.
    memory
        Bytes for segments, the spare one included.
    young, sketch
        The store that takes in what is fetched, and the counts.
    """

    def __init__(
        self, columns: Sequence[Column], integer: bool, memory: int, young: KeyedStore, sketch: Sketch
    ) -> None:
        self.columns = tuple(columns)
        self.integer = integer
        self.memory = memory
        self.young = young
        self.sketch = sketch
        self.segments: list[KeyedStore] = []
        self.generations = 0
        self._sources: TupleSources | None = None

    @property
    def segment_bytes(self) -> int:
        return self.memory // (SEGMENTS + 1)

    @property
    def nbytes(self) -> int:
        return sum(segment.nbytes for segment in self.segments)

    @property
    def entries(self) -> int:
        return sum(segment.used for segment in self.segments)

    def begin(self) -> None:
        """A slice starts: the segments stay as they are until it ends. Only sharing needs this."""

    def end(self) -> None:
        """The slice is joined and its results are out."""

    def sources(self) -> TupleSources:
        """Stores by their source numbers: the segments, then young."""
        if self._sources is None:
            self._sources = TupleSources([*(s.tuples for s in self.segments), self.young.tuples])
        return self._sources

    def probe(self, keys: Keys, hashes: Hashes, src: Ints, pos: Ints, count: Ints) -> int:
        found = 0
        for number, segment in enumerate(self.segments):
            found += segment.probe(keys, hashes, number, src, pos, count)
        return found + self.young.probe(keys, hashes, len(self.segments), src, pos, count)

    def publish(self, worth: float, effort: float) -> bool:
        """Make room in young: let its entries compete for a segment, if that should pay.

        Parameters
        ----------
        worth
            Seconds that a hit in the sketch's window is expected to save.
        effort
            Seconds that writing one byte of a segment takes.
        """
        published = False
        if self.young.used and self.segment_bytes > 0:
            number = self._replaced()
            choice = self._compete(number)
            if choice.entry.size and choice.gain * worth > choice.bytes * effort:
                published = self._replace(number, choice)
        self.young.clear()
        return published

    def _replaced(self) -> int:
        """The segment to rewrite: the emptiest with room left, else a new one, else the least used."""
        if self.segments:
            sizes = [segment.nbytes for segment in self.segments]
            smallest = int(np.argmin(sizes))
            if sizes[smallest] < self.segment_bytes * 0.6:
                return smallest
        # After a change of size old segments may be larger than new ones: count bytes, not only segments.
        if len(self.segments) < SEGMENTS and self.nbytes + 2 * self.segment_bytes <= self.memory:
            return len(self.segments)
        return int(np.argmin([self._mean_use(segment) for segment in self.segments]))

    def _mean_use(self, segment: KeyedStore) -> float:
        return float(self._sample(segment, 1024).mean())

    def _sample(self, segment: KeyedStore, most: int) -> Ints:
        """Counts of some entries, at even steps."""
        step = max(1, -(-segment.used // most))
        return self.sketch.estimate(segment.keys().take(np.arange(0, segment.used, step)).hashes())

    def _compete(self, number: int) -> Choice:
        stores = [self.young, *self.segments[number : number + 1]]
        use = [self.sketch.estimate(store.keys().hashes()).astype(np.float64) for store in stores]
        size = [store.entry_bytes() for store in stores]
        store = np.repeat(np.arange(len(stores)), [store.used for store in stores])
        entry = np.concatenate([np.arange(s.used) for s in stores])
        all_use, all_size = np.concatenate(use), np.concatenate(size)
        # By use a byte; on a tie the fetched ones, which come first, are the fresher.
        order = np.argsort(-all_use / all_size, kind="stable")
        fits = np.cumsum(all_size[order]) <= self.segment_bytes
        chosen = order[fits]
        gain = float(all_use[chosen].sum()) - (float(use[1].sum()) if len(stores) > 1 else 0.0)
        # Entries in the order they lie in memory: the copy reads forward.
        chosen = np.sort(chosen)
        return Choice(store[chosen], entry[chosen], gain, int(all_size[chosen].sum()))

    def _replace(self, number: int, choice: Choice) -> bool:
        stores = [self.young, *self.segments[number : number + 1]]
        keys, first_of, counts = [], [], []
        for i, store in enumerate(stores):
            mine = choice.entry[choice.store == i]
            first, many = store.places()
            keys.append(store.keys().take(mine))
            first_of.append(first[mine])
            counts.append(many[mine])
        first, count = np.concatenate(first_of), np.concatenate(counts)
        rows = int(count.sum())
        src = np.repeat(choice.store.astype(np.int32), count)
        within = np.arange(rows) - np.repeat(np.cumsum(count) - count, count)
        pos = (np.repeat(first, count) + within).astype(np.int32)
        sources = TupleSources([store.tuples for store in stores])
        data = {
            column.name: sources.sizes(i, src, pos)[1] for i, column in enumerate(self.columns) if column.width == 0
        }
        if not self.integer:
            data[""] = sum(int(k.offsets[-1]) for k in keys if isinstance(k, ByteKeys))
        try:
            segment = self._new_segment(count.size, rows, data)
        except StoreFull:
            return False
        segment.tuples.append_from(sources, src, pos)
        at = 0
        for some, many in zip(keys, counts, strict=True):
            segment.insert(some, some.hashes(), at + np.cumsum(many) - many, many)
            at += int(many.sum())
        self._put(number, segment)
        self.generations += 1
        return True

    def _new_segment(self, entries: int, rows: int, data: dict[str, int]) -> KeyedStore:
        return KeyedStore(self.columns, entries, rows, data, self.integer)

    def _put(self, number: int, *segments: KeyedStore) -> None:
        """Put a segment in the place of another, or after the last; or take one out."""
        self.segments[number : number + 1] = segments
        self._sources = None

    def resize(self, memory: int) -> None:
        """Another number of bytes: the least used segments go until the rest fits."""
        self.memory = memory
        while self.segments and self.nbytes > memory - self.segment_bytes:
            self._put(int(np.argmin([self._mean_use(s) for s in self.segments])))
        self._sources = None

    def replace_segments(self, segments: Sequence[KeyedStore]) -> None:
        """Take over segments; the least used go until the rest fits."""
        self.segments = list(segments)
        self.resize(self.memory)

    def replace_young(self, young: KeyedStore) -> None:
        self.young = young
        self._sources = None


def _slots(entries: int) -> int:
    return int(entries / LOAD) + 2
