"""KeyLookup: finds the keys of stream rows in the hot set, in the filter, and in pages that a plan reads. [SSIJ] §III, §IV.D"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from headrace.arrays import Int32s, Int64s, UInt8s, UInt64s
from headrace.kernels.filter import filter_test
from headrace.relation.keys import Keys
from headrace.relation.reader import KeyPages
from headrace.relation.store import StoreFull
from headrace.semistream.adaptive.memory import JoinMemory
from headrace.semistream.adaptive.workload import HitCurve
from headrace.semistream.results import Matches

_SAMPLE = 4096  # keys of a slice that the hit curve is estimated from


@dataclass(frozen=True)
class DistinctKeys:
    """The distinct keys of some rows, how many rows have each, and where the matches of each are, as far as is known."""

    keys: Keys
    hashes: UInt64s
    counts: Int32s
    matches: Matches


@dataclass(frozen=True)
class RowPages:
    """The pages that the keys of rows may be in: those of row i are place[starts[i] : starts[i + 1]]."""

    starts: Int64s
    place: Int64s

    @classmethod
    def of(cls, row: Int32s, place: Int64s, rows: int) -> RowPages:
        """Of pairs of a row, of so many, and a place."""
        order = np.argsort(row, kind="stable")
        return cls(np.searchsorted(row[order], np.arange(rows + 1)), place[order])

    @cached_property
    def first(self) -> Int64s:
        """The first page of each row; 0 where there is none."""
        some = self.starts[1:] > self.starts[:-1]
        out = np.zeros(some.size, np.int64)
        out[some] = self.place[self.starts[:-1][some]]
        return out

    def take(self, rows: Int64s) -> KeyPages:
        """The pages of some rows, which are numbered anew."""
        many = self.starts[rows + 1] - self.starts[rows]
        within = np.arange(int(many.sum())) - np.repeat(np.cumsum(many) - many, many)
        key = np.repeat(np.arange(rows.size, dtype=np.int32), many)
        return KeyPages(key, self.place[np.repeat(self.starts[rows], many) + within])


class KeyLookup:
    """The steps from the rows of a batch to where their matches are. An execution says which steps it takes when.

        rows -> distinct keys -> hot set -> filter -> index -> planned reads -> young store
                                 hit        absent

    Parameters
    ----------
    memory
        The hot set, the filters, the index and the read buffer.
    stream_key
        The stream's columns that must equal the relation's key.
    """

    def __init__(self, memory: JoinMemory, stream_key: tuple[str, ...]) -> None:
        self._memory = memory
        self._stream_key = stream_key

    # -- in memory ---------------------------------------------------------------------------------------------------------

    def find_in_memory(self, batch: pa.RecordBatch) -> tuple[DistinctKeys, Int64s]:
        """The distinct keys of a batch, found in the hot set where they are; and which of them must be read for."""
        memory = self._memory
        part = self.distinct(batch)
        matches, stats = part.matches, memory.stats
        stats.unique_keys += part.hashes.size
        nulls = batch.num_rows - int(part.counts.sum())
        stats.nulls += nulls
        memory.hot.probe(part.keys, part.hashes, matches.src, matches.pos, matches.count)
        rest = np.flatnonzero(matches.src < 0)
        missed_rows = int(part.counts[rest].sum())
        stats.hits += batch.num_rows - nulls - missed_rows
        rest = self._not_absent(part.hashes, rest)
        wanted_rows = int(part.counts[rest].sum())
        stats.absent += missed_rows - wanted_rows
        stats.misses += wanted_rows
        memory.relation.disk.spend({"c_S": batch.num_rows, "c_X": part.hashes.size + rest.size})
        return part, rest

    def distinct(self, batch: pa.RecordBatch) -> DistinctKeys:
        """The distinct keys of a batch, none of them looked up."""
        n = batch.num_rows
        keys, valid = self._encode(batch)
        hashes = keys.hashes()
        table = np.full(1 << max(4, int(1.5 * n).bit_length()), -1, np.int32)
        uid, first_row, counts = (np.empty(n, np.int32) for _ in range(3))
        found = keys.unique(valid, hashes, (table, uid, first_row, counts))
        first_row = first_row[:found]
        matches = Matches(uid, np.full(found, -1, np.int32), np.zeros(found, np.int32), np.zeros(found, np.int32), None)
        return DistinctKeys(keys.take(first_row), hashes[first_row], counts[:found].copy(), matches)

    def _encode(self, batch: pa.RecordBatch) -> tuple[Keys, UInt8s]:
        return self._memory.version.codec.encode([batch.column(name) for name in self._stream_key])

    def _not_absent(self, hashes: UInt64s, rest: Int64s) -> Int64s:
        """Those of the keys numbered `rest` that the filter does not turn away."""
        filters = self._memory.hot.filters
        if not filters or rest.size == 0:
            return rest
        maybe = np.ones(rest.size, np.uint8)
        if len(filters) == 1:
            filter_test(filters[0], hashes, rest, maybe)
        else:
            shards = self._memory.version.shards_of(hashes[rest])
            for number, words in enumerate(filters):
                mine = np.flatnonzero(shards == number)
                answer: UInt8s = np.empty(mine.size, np.uint8)
                filter_test(words, hashes, rest[mine], answer)
                maybe[mine] = answer
        kept: Int64s = rest[maybe == 1]
        return kept

    # -- in pages ----------------------------------------------------------------------------------------------------------

    def fetch(self, part: DistinctKeys, rest: Int64s) -> None:
        """Read the tuples of the missing keys into the young store, and say where they are."""
        memory = self._memory
        young, matches = memory.hot.young, part.matches
        mark, begun = young.tuples.mark(), memory.clock.now()
        keys = part.keys.take(rest)
        pairs = memory.version.pairs(keys, part.hashes, rest)
        try:
            where, count = memory.reader.fetch(keys, pairs, young.tuples, memory.stats)
            first, total = self.by_key(pairs, where, count, rest.size)
        except StoreFull:
            young.tuples.rewind(mark)
            raise
        matches.src[rest] = len(memory.hot.segments)
        matches.pos[rest] = first
        matches.count[rest] = total
        hashes = part.hashes[rest]
        kept = self.worth_keeping(hashes, part.counts[rest])
        with suppress(StoreFull):  # keys longer than expected: this slice has its tuples all the same
            young.insert(keys.take(kept), hashes[kept], first[kept], total[kept])
        memory.read_for(rest.size, memory.clock.now() - begun)

    def worth_keeping(self, hashes: UInt64s, counts: Int32s) -> Int64s:
        """Which fetched keys get an entry in the young store: all, or the most frequent ones that there is room for."""
        hot = self._memory.hot
        room = hot.young.entries - hot.young.used
        if counts.size <= room:
            return np.arange(counts.size)
        use = hot.sketch.estimate(hashes) + counts
        return np.sort(np.argpartition(-use, room)[:room]) if room > 0 else np.empty(0, np.int64)

    def by_key(self, pairs: KeyPages, where: Int32s, count: Int32s, keys: int) -> tuple[Int32s, Int32s]:
        """First tuple and number of tuples of each key.

        A key whose rows span pages has its tuples in pieces when updates moved a page or a round ended between two of
        them; then the tuples of this fetch are copied once more, in order.
        """
        total = np.bincount(pairs.key, weights=count, minlength=keys).astype(np.int32)
        some = count > 0
        key, start, size = pairs.key[some], where[some], count[some]
        again = np.flatnonzero(np.diff(key) == 0)
        if bool((start[again] + size[again] != start[again + 1]).any()):
            start = self._copy_in_order(start, size)
        first = np.zeros(keys, np.int32)
        first[key[::-1]] = start[::-1]  # the first of several pieces is written last
        return first, total

    def _copy_in_order(self, start: Int32s, size: Int32s) -> Int32s:
        """Copy pieces of tuples in the young store to its end, one after the other; returns where each is now."""
        hot = self._memory.hot
        within = np.arange(int(size.sum())) - np.repeat(np.cumsum(size) - size, size)
        pos = (np.repeat(start, size) + within).astype(np.int32)
        new = hot.young.tuples.append_from(hot.sources(), np.full(pos.size, len(hot.segments), np.int32), pos)
        return (new + np.cumsum(size) - size).astype(np.int32)

    def by_page(self, batch: pa.RecordBatch, *, nearly_sorted: bool = False) -> Int32s:
        """The rows of a batch in an order in which those of a page are neighbours; with a hint that most are in order already."""
        keys, _ = self._encode(batch)
        if self._memory.relation.order == "key":
            return keys.argsort(nearly_sorted=nearly_sorted).astype(np.int32)
        return np.argsort(self._first_places(keys), kind="stable").astype(np.int32)

    def pages_of(self, batch: pa.RecordBatch, rows: Int32s) -> RowPages:
        """The pages of some rows of a batch, looked up together: so they share the index pages that are read."""
        keys, _ = self._encode(batch.take(pa.array(rows)))
        pairs = self._memory.version.pairs(keys, keys.hashes(), np.arange(len(keys)))
        return RowPages.of(rows[pairs.key], pairs.place, batch.num_rows)

    def pages(self, part: DistinctKeys) -> KeyPages:
        """The pages that distinct keys may be in."""
        return self._memory.version.pairs(part.keys, part.hashes, np.arange(part.hashes.size))

    def first_places(self, batch: pa.RecordBatch, rows: pa.Array) -> Int64s:
        """The first page that the key of each of these rows may be in; 0 where there is none."""
        keys, _ = self._memory.version.codec.encode([batch.column(name).take(rows) for name in self._stream_key])
        return self._first_places(keys)

    def _first_places(self, keys: Keys) -> Int64s:
        pairs = self._memory.version.pairs(keys, keys.hashes(), np.arange(len(keys)))
        place = np.zeros(len(keys), np.int64)
        place[pairs.key[::-1]] = pairs.place[::-1]  # the first of several is written last
        return place

    # -- what was seen -----------------------------------------------------------------------------------------------------

    def learn(self, part: DistinctKeys, rows: int, missed: int, absent: int) -> None:
        """Count the keys of a slice of so many rows, of which so many keys were read for and so many rows had no match.

        It is called last, so that a slice which has to be taken again is not counted twice.
        """
        memory = self._memory
        sketch, n = memory.hot.sketch, part.hashes.size
        some = slice(None, None, max(1, n // _SAMPLE))
        before = sketch.estimate(np.ascontiguousarray(part.hashes[some]))
        memory.workload.hit_curve = HitCurve.of(before, part.counts[some], sketch.window, sketch.strangers())
        sketch.add(part.hashes, part.counts)
        memory.workload.observe(rows, n, missed, absent)


def first_rows(part: DistinctKeys) -> Int64s:
    """The first row that has each of the distinct keys; no row is without a key."""
    uid = part.matches.uid
    first = np.empty(part.hashes.size, np.int64)
    first[uid[::-1]] = np.arange(uid.size)[::-1]
    return first
