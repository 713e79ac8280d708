"""HotSet: tuples by key in memory, chosen by how often their keys come, as a few immutable segments. (DESIGN D5)

    sketch    how often was a key seen lately (one byte a counter, halved now and then)
    young     tuples fetched lately, appended; they serve at once; the misses of a slice are put here
    segments  immutable; each generation replaces at most one of them

When `young` is full its entries compete with those of the weakest segment, and the winners become a new segment: a generation. It
is published only when the hits it should bring cost more to miss than writing it costs. There is room for one segment more than
are held, so a change of generation does not need twice the memory.

There are two forms, and a join does not ask which one it has: LocalHotSet is of one process, SharedHotSet of a group.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headrace.arrays import Int32s, Int64s, UInt32s, UInt64s
from headrace.relation.columns import Column
from headrace.relation.keys import ByteKeys, Keys
from headrace.relation.sketch import Sketch
from headrace.relation.store import StoreFull, TupleSources
from headrace.semistream.adaptive.keyed_store import KeyedStore
from headrace.semistream.adaptive.structure_sizes import YoungSize

#: Segments of a full hot set. There is room for one more, so that a new one is written before an old one goes.
SEGMENTS = 8

_SAMPLE = 1024  # keys of a segment whose counts are looked at to see how much it is used
_EMPTY = 0.6  # share of a segment's bytes below which it is filled up before another is begun


@dataclass(frozen=True)
class _Winners:
    """Entries that would make a new segment, and what they are worth."""

    store: Int64s  # 0: young, 1: the segment that would be replaced
    entry: Int64s
    gain: float  # hits in the sketch's window more than the segment that would be replaced had
    bytes: int


class HotSet(ABC):
    """Everything that a join asks of its hot set; segments and how they are chosen. The two forms say where they lie.

    Parameters
    ----------
    columns, integer
        The columns of a tuple that are kept; whether keys are 64-bit integers.
    memory
        Bytes for segments, the spare one included.
    young, sketch
        The store that takes in fetched tuples, and the counts of keys.
    """

    #: The filters for absent keys that may be asked now, one a shard; none while their memory is given up.
    filters: list[UInt32s]

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
        self.filters = []
        self._places: tuple[TupleSources, Int64s] | None = None  # of the stores' columns and hash tables

    # -- what differs between one process and a group ----------------------------------------------------------------------

    @abstractmethod
    def begin(self) -> None:
        """A slice begins: segments and filters stay as they are until `end`."""

    @abstractmethod
    def end(self) -> None:
        """The slice is joined and its results have left."""

    @property
    @abstractmethod
    def filtered(self) -> bool:
        """Whether the filter is in memory."""

    @abstractmethod
    def keep_filter(self, wanted: bool) -> bool:
        """Load the filter, or give its memory up; returns whether that was done. Not between `begin` and `end`."""

    @abstractmethod
    def make_room(self, nbytes: int) -> None:
        """Give up segments where a filter of so many bytes has no memory of its own."""

    @property
    @abstractmethod
    def agreed_bytes(self) -> int | None:
        """The size of the hot set that several processes agreed on; None where this one decides alone."""

    @property
    @abstractmethod
    def agreement(self) -> int:
        """A number that changes when the processes agree on another size."""

    @abstractmethod
    def agree(self, memory: int) -> bool:
        """Ask for another size. True: it may be adopted at once; False: `agreement` changes when others have to follow."""

    @abstractmethod
    def save(self) -> None:
        """Keep the hot set beyond this process, where it has a place for that."""

    @abstractmethod
    def renew_young(self, size: YoungSize) -> None:
        """Replace the young store by an empty one of another size."""

    @abstractmethod
    def _new_segment(self, entries: int, rows: int, data: dict[str, int]) -> KeyedStore:
        """An empty segment, or StoreFull if there is no memory for one now."""

    # -- what a slice asks -------------------------------------------------------------------------------------------------

    def sources(self) -> TupleSources:
        """The stores by the source numbers that `probe` gives: the segments, then young."""
        return self._where()[0]

    def probe(self, keys: Keys, hashes: UInt64s, src: Int32s, pos: Int32s, count: Int32s) -> int:
        """Look up the keys that have no source yet; returns how many were found."""
        return keys.probe(self._where()[1], hashes, src, pos, count)

    def _where(self) -> tuple[TupleSources, Int64s]:
        """The addresses of the columns and of the hash tables of all stores."""
        if self._places is None:
            stores = [*self.segments, self.young]
            described = np.array([store.description for store in stores], np.int64)
            self._places = TupleSources([store.tuples for store in stores]), described
        return self._places

    # -- generations -------------------------------------------------------------------------------------------------------

    @property
    def segment_bytes(self) -> int:
        """Bytes of a segment at most."""
        return self.memory // (SEGMENTS + 1)

    @property
    def nbytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.nbytes for segment in self.segments)

    @property
    def entries(self) -> int:
        """Keys in all segments."""
        return sum(segment.used for segment in self.segments)

    def publish(self, worth: float, effort: float) -> bool:
        """Empty the young store: its entries become part of a new generation if that should pay; returns whether they did.

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
            winners = self._compete(number)
            if winners.entry.size and winners.gain * worth > winners.bytes * effort:
                published = self._replace(number, winners)
        self.young.clear()
        return published

    def resize(self, memory: int) -> None:
        """Use another number of bytes: the least used segments go until the rest fits."""
        self.memory = memory
        while self.segments and self.nbytes > memory - self.segment_bytes:
            self._put(int(np.argmin([self._mean_use(s) for s in self.segments])))
        self._places = None

    def replace_segments(self, segments: Sequence[KeyedStore]) -> None:
        """Use the segments of a snapshot; the least used go until the rest fits."""
        self.segments = list(segments)
        self.resize(self.memory)

    def _replaced(self) -> int:
        """The segment to rewrite: the emptiest with room left, else a new one, else the least used."""
        if self.segments:
            sizes = [segment.nbytes for segment in self.segments]
            smallest = int(np.argmin(sizes))
            if sizes[smallest] < self.segment_bytes * _EMPTY:
                return smallest
        # After a change of size old segments may be larger than new ones: count bytes, not only segments.
        if len(self.segments) < SEGMENTS and self.nbytes + 2 * self.segment_bytes <= self.memory:
            return len(self.segments)
        return int(np.argmin([self._mean_use(segment) for segment in self.segments]))

    def _mean_use(self, segment: KeyedStore) -> float:
        """The mean count of a segment's keys, from some of them at even steps."""
        step = max(1, -(-segment.used // _SAMPLE))
        keys = segment.keys().take(np.arange(0, segment.used, step))
        return float(self.sketch.estimate(keys.hashes()).mean())

    def _compete(self, number: int) -> _Winners:
        """The entries of young and of a segment that are used most a byte, as many as a segment holds."""
        # No array outlives its use: there are as many entries as the young store has room for, and memory is full.
        stores = [self.young, *self.segments[number : number + 1]]
        use = np.concatenate([self.sketch.estimate(store.keys().hashes()) for store in stores])
        size = np.concatenate([store.entry_bytes() for store in stores])
        # On a tie the fetched ones, which come first, are the fresher.
        order = np.argsort(-use / size, kind="stable")
        fitting = int(np.searchsorted(np.cumsum(size[order]), self.segment_bytes, side="right"))
        # Entries in the order they lie in memory: the copy reads forward.
        chosen = np.sort(order[:fitting])
        fetched = self.young.used
        gain = float(use[chosen].sum(dtype=np.float64) - use[fetched:].sum(dtype=np.float64))
        old = chosen >= fetched
        return _Winners(old.astype(np.int64), chosen - fetched * old, gain, int(size[chosen].sum()))

    def _replace(self, number: int, winners: _Winners) -> bool:
        """Write the winners to a new segment and put it in the place of another; False if there is no memory for it now."""
        stores = [self.young, *self.segments[number : number + 1]]
        keys, first_of, counts = [], [], []
        for i, store in enumerate(stores):
            mine = winners.entry[winners.store == i]
            first, many = store.places()
            keys.append(store.keys().take(mine))
            first_of.append(first[mine])
            counts.append(many[mine])
        first, count = np.concatenate(first_of), np.concatenate(counts)
        rows = int(count.sum())
        src = np.repeat(winners.store.astype(np.int32), count)
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

    def _put(self, number: int, *segments: KeyedStore) -> None:
        """Put a segment in the place of another, or after the last; or take one out."""
        self.segments[number : number + 1] = segments
        self._places = None
