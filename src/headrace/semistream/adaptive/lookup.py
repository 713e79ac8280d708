"""How AdaptiveJoin looks keys up: in the hot set, in the filter, and in pages that a plan reads. [SSIJ] §III, §IV.D"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.kernels.filter import filter_test
from headrace.relation.columns import Bytes, Longs
from headrace.relation.keys import Hashes, Ints, Keys
from headrace.relation.reader import KeyPages
from headrace.relation.store import StoreFull
from headrace.semistream.adaptive.memory import AdaptiveMemory
from headrace.semistream.adaptive.memory_plan import Popularity
from headrace.semistream.base import Matches

_SAMPLE = 4096  # keys of a slice whose popularity is looked at
_EMA = 0.2  # weight of the newest slice in running means


@dataclass
class Slice:
    """A part of a batch, being joined: its distinct keys and what is known of them."""

    keys: Keys
    hashes: Hashes
    counts: np.ndarray[tuple[int], np.dtype[np.int32]]
    matches: Matches


class AdaptiveLookup(AdaptiveMemory):
    """From the rows of a batch to where their matches are."""

    def _look_up(self, batch: pa.RecordBatch) -> tuple[Slice, Longs]:
        """The distinct keys of a batch, found in memory where they are; and which of them must be read."""
        part = self._distinct(batch)
        matches, stats, hot = part.matches, self.stats, self._hot
        stats.unique_keys += part.hashes.size
        nulls = batch.num_rows - int(part.counts.sum())
        stats.nulls += nulls
        hot.probe(part.keys, part.hashes, matches.src, matches.pos, matches.count)
        rest = np.flatnonzero(matches.src < 0)
        missed_rows = int(part.counts[rest].sum())
        stats.hits += batch.num_rows - nulls - missed_rows
        rest = self._not_absent(part.hashes, rest)
        wanted_rows = int(part.counts[rest].sum())
        stats.absent += missed_rows - wanted_rows
        stats.misses += wanted_rows
        self.relation.disk.spend({"c_S": batch.num_rows, "c_X": part.hashes.size + rest.size})
        return part, rest

    def _learn(self, part: Slice, rows: int, missed: int, nothing: int | None = None) -> None:
        """Count the keys of a slice. Last: a slice that has to be taken again is not counted twice."""
        hot, n = self._hot, part.hashes.size
        some = slice(None, None, max(1, n // _SAMPLE))
        self._workload.popularity = Popularity.of(
            hot.sketch.estimate(np.ascontiguousarray(part.hashes[some])),
            part.counts[some],
            hot.sketch.window,
            hot.sketch.strangers(),
        )
        hot.sketch.add(part.hashes, part.counts)
        if nothing is None:
            nothing = int(part.counts[part.matches.count == 0].sum())
        self._workload.observe(_EMA, rows, n, missed, nothing)

    def _distinct(self, batch: pa.RecordBatch) -> Slice:
        n = batch.num_rows
        keys, valid = self._version.codec.encode([batch.column(name) for name in self.stream_key])
        hashes = keys.hashes()
        table = np.full(1 << max(4, int(1.5 * n).bit_length()), -1, np.int32)
        uid, first_row, counts = (np.empty(n, np.int32) for _ in range(3))
        found = keys.unique(valid, hashes, (table, uid, first_row, counts))
        first_row = first_row[:found]
        matches = Matches(uid, np.full(found, -1, np.int32), np.zeros(found, np.int32), np.zeros(found, np.int32), None)
        return Slice(keys.take(first_row), hashes[first_row], counts[:found].copy(), matches)

    def _not_absent(self, hashes: Hashes, rest: Longs) -> Longs:
        if not self._filters or rest.size == 0:
            return rest
        maybe = np.ones(rest.size, np.uint8)
        if len(self._filters) == 1:
            filter_test(self._filters[0], hashes, rest, maybe)
        else:
            shards = self._version.shards_of(hashes[rest])
            for number, words in enumerate(self._filters):
                mine = np.flatnonzero(shards == number)
                answer: Bytes = np.empty(mine.size, np.uint8)
                filter_test(words, hashes, rest[mine], answer)
                maybe[mine] = answer
        kept: Longs = rest[maybe == 1]
        return kept

    def _fetch(self, part: Slice, rest: Longs) -> None:
        """Bring the tuples of the missing keys to young, and say where they are."""
        young, matches = self._hot.young, part.matches
        mark, begun = young.tuples.mark(), self.clock.now()
        keys = part.keys.take(rest)
        pairs = self._version.pairs(keys, part.hashes, rest)
        try:
            where, count = self._reader.fetch(keys, pairs, young.tuples, self.stats)
            first, total = self._by_key(pairs, where, count, rest.size)
        except StoreFull:
            young.tuples.rewind(mark)
            raise
        matches.src[rest] = len(self._hot.segments)
        matches.pos[rest] = first
        matches.count[rest] = total
        hashes = part.hashes[rest]
        kept = self._worth_keeping(hashes, part.counts[rest], young.entries - young.used)
        with suppress(StoreFull):  # keys longer than expected: this slice has its tuples all the same
            young.insert(keys.take(kept), hashes[kept], first[kept], total[kept])
        elapsed = self.clock.now() - begun
        self.stats.io_seconds += elapsed
        self._miss_seconds += _EMA * (elapsed / rest.size - self._miss_seconds)

    def _worth_keeping(self, hashes: Hashes, counts: Ints, room: int) -> Longs:
        """Which fetched keys get an entry: all, or the most frequent ones that there is room for."""
        if counts.size <= room:
            return np.arange(counts.size)
        use = self._hot.sketch.estimate(hashes) + counts
        return np.sort(np.argpartition(-use, room)[:room]) if room > 0 else np.empty(0, np.int64)

    def _by_key(self, pairs: KeyPages, where: Ints, count: Ints, keys: int) -> tuple[Ints, Ints]:
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

    def _copy_in_order(self, start: Ints, size: Ints) -> Ints:
        young = self._hot.young.tuples
        within = np.arange(int(size.sum())) - np.repeat(np.cumsum(size) - size, size)
        pos = (np.repeat(start, size) + within).astype(np.int32)
        new = young.append_from(self._hot.sources(), np.full(pos.size, len(self._hot.segments), np.int32), pos)
        return (new + np.cumsum(size) - size).astype(np.int32)
