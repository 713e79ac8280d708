"""The index partly in memory: its entries in pages of their own, of which a join caches the upper part and reads the rest.

    memory     first keys of the pages of a level       [ k0 | k9600 | k19200 | ... ]      and pools of lower pages
                                                            |
    .fences    level 1   [k0 k480 k960 ...][k9600 ...]      |  read while the level below is not found from memory
               leaves    [k0 k1 ...][k480 k481 ...] ...  <--+  a fence key a page of the shard, with the page's place

An index that fits a join's budget is in memory as a whole (FenceIndex, SecondaryIndex). One that does not is used like this: a
batch of sorted keys is led down level by level; the pages of a level that it needs, each once, are read in runs. [SSIJ] §III

Index pages have the format of data pages, so they are written, planned, read and checked by the same code. Each level's pages
lie one after the other in the file, the leaves first and the one page of the top level last.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from headrace.arrays import Bools, Int32s, Int64s
from headrace.errors import DamagedRelation
from headrace.kernels.pages import gather_fixed, last_not_above, page_facts
from headrace.metrics import JoinStats
from headrace.relation.columns import address
from headrace.relation.index_memory import IndexMemory
from headrace.relation.index_pool import IndexFiles, IndexPool
from headrace.relation.keys import Keys, concat_keys
from headrace.relation.reader import FILE_SHIFT, PAGE_MASK, SHARD_SHIFT, PageReader, Version, key_column, stored_keys
from headrace.relation.writer import GOES_ON, GONE_ON

_NUMBER, _FLAGS = 1, 2  # columns of an index page beside the key


@dataclass(frozen=True)
class _Found:
    """Where keys are in index pages, one page a key."""

    row: Int32s  # the first entry that is not below the key
    end: Int32s  # the first entry that is above it
    before: Int64s  # the number in the entry before `row`; in the first one where there is none
    last: Int64s  # the number in the entry before `end`; likewise
    goes_on: Bools  # whether the key goes on in the page of `row` from the page before, if it is its first


class PagedIndex:
    """The index of a shard of which only the upper part is in memory. It answers what FenceIndex and SecondaryIndex answer.

    Parameters
    ----------
    version, shard
        Whose index it is.
    leaves, upper, memory
        The pools of leaves and of the levels above them, and the sizes.
    """

    def __init__(self, version: Version, shard: int, leaves: IndexPool, upper: IndexPool, memory: IndexMemory) -> None:
        facts = version.manifest.shards[shard]
        self._version, self._shard = version, shard
        self._leaves, self._upper = leaves, upper
        self._file = leaves.files.facts(shard)
        self._base = shard << SHARD_SHIFT
        self._chunk = memory.keys
        self._by_frequency = version.manifest.order == "frequency"
        self._file_pages = np.array([file.pages for file in facts.files], np.int64)
        self.pages = facts.pages
        self._level_at = np.append(0, np.cumsum(self._file.levels)).astype(
            np.int64
        )  # first page of each level in the file
        self._top = min(memory.level or 0, len(self._file.levels) - 1)
        self._known: tuple[Int64s, Int64s] = (np.empty(0, np.int64), np.empty(0, np.int64))
        self._keys, self._numbers = self._read_top()

    def _read_top(self) -> tuple[Keys, Int64s]:
        """Return the first keys and the numbers of the pages of the level that is found from memory; no key for a single page."""
        layout = self._leaves.files.layout
        codec = layout.codec
        if self._top + 1 >= len(self._file.levels):
            return concat_keys([], codec), np.zeros(1, np.int64)
        first, stop = (int(at) for at in self._level_at[self._top + 1 : self._top + 3])
        columns = (key_column(codec), layout.payload[0].with_nullable(False))
        keys, numbers = [], []
        for _, store in self._leaves.reader.scan(self._base + np.arange(first, stop), columns, JoinStats()):
            keys.append(stored_keys(store, codec.integer))
            numbers.append(store.buffers(1).values.view(np.int64).copy())
        together = np.concatenate(numbers)
        rising = bool((np.diff(together) > 0).all()) and int(together[0]) == 0
        if together.size != self._file.levels[self._top] or not rising:
            raise self._damaged("its pages do not lead to those below")
        return concat_keys(keys, codec), together

    @property
    def nbytes(self) -> int:
        """Bytes of the upper part."""
        return self._keys.nbytes + self._numbers.nbytes

    # -- by key ------------------------------------------------------------------------------------------------------------

    def locate(self, keys: Keys) -> tuple[Int32s, Int32s]:
        """Return the first and the last page that can hold each of some sorted keys; -1 where none can."""
        n = len(keys)
        low, high = np.full(n, -1, np.int32), np.full(n, -1, np.int32)
        places = np.full(n, -1, np.int64) if self._file.moved else np.empty(0, np.int64)
        for a in range(0, n, self._chunk):
            some = slice(a, min(n, a + self._chunk))
            low[some], high[some], last = self._locate(keys.slice(some.start, some.stop))
            if places.size:
                places[some] = last
        if places.size:
            # `place` is asked next, and mostly for these pages.
            ranks, first = np.unique(high, return_index=True)
            self._known = ranks.astype(np.int64), places[first]
        return low, high

    def _locate(self, keys: Keys) -> tuple[Int64s, Int64s, Int64s]:
        """Return first and last page of a few keys, and the number in the last one's entry."""
        every = np.arange(len(keys), dtype=np.int32)
        leaf, start = self._descend(keys, every, below=False)
        found = self._search(keys, every, 0, leaf)
        first, stop = start + found.row, start + found.end
        equal = stop > first
        if self._by_frequency:
            low, high = np.where(equal, found.last & PAGE_MASK, -1), np.where(equal, found.last >> FILE_SHIFT, -1)
            self._check(bool(((low <= high) & (high < self.pages)).all()))
            return low, high, low
        # A key that equals a fence lies in the page before, too, if that page's last key goes on.
        low = np.where(equal & ~found.goes_on, first, first - 1)
        # Where that page's entry is in the leaf before, there may be more that equal the key.
        far = np.flatnonzero(equal & found.goes_on & (found.row == 0)).astype(np.int32)
        if far.size:
            leaf, start = self._descend(keys, far, below=True)
            begin = self._search(keys, far, 0, leaf)
            low[far] = start + begin.row - begin.goes_on
        self._check(int(stop.max()) <= self.pages)
        return low, stop - 1, np.where(stop > 0, found.last, -1)

    def _descend(self, keys: Keys, which: Int32s, *, below: bool) -> tuple[Int64s, Int64s]:
        """Return the last leaf whose first key is not above each of the keys numbered `which`, or is below it; else the first
        leaf. And the number of its first entry.
        """
        pages = self._first_pages(keys)[0 if below else 1][which]
        start = self._numbers[pages] & PAGE_MASK
        for level in range(self._top, 0, -1):
            found = self._search(keys, which, level, pages)
            pages = np.maximum(start + (found.row if below else found.end) - 1, 0)
            start = (found.before if below else found.last) & PAGE_MASK
            if int(pages.max()) >= self._file.levels[level - 1]:
                raise self._damaged("its pages lead to pages below that are not there")
        return pages, start

    def _first_pages(self, keys: Keys) -> tuple[Int64s, Int64s]:
        """Return the last page, on the level found from memory, whose first key is below a key, and not above it; else 0."""
        n, known = len(keys), len(self._keys)
        if known == 0:
            return np.zeros(n, np.int64), np.zeros(n, np.int64)
        low, high = np.empty(n, np.int32), np.empty(n, np.int32)
        keys.locate(self._keys, np.ones(known, np.uint8), low, high)  # type: ignore[arg-type]
        return np.maximum(low, 0).astype(np.int64), np.maximum(high, 0).astype(np.int64)

    def _search(self, keys: Keys, which: Int32s, level: int, pages: Int64s) -> _Found:
        """Search for the keys numbered `which`, each in one page of a level; pages do not fall."""
        n = which.size
        found = _Found(
            np.empty(n, np.int32),
            np.empty(n, np.int32),
            np.empty(n, np.int64),
            np.empty(n, np.int64),
            np.empty(n, np.bool_),
        )
        with closing(self._in_memory(level, pages)) as rounds:
            for some, at in rounds:
                row, end = np.empty(some.size, np.int32), np.empty(some.size, np.int32)
                keys.find(at, which[some], row, end)
                before, last = np.maximum(row - 1, 0), np.maximum(end - 1, 0)
                found.row[some], found.end[some] = row, end
                found.before[some], found.last[some] = _numbers(at, before), _numbers(at, last)
                flags = np.empty(some.size, np.uint8)
                gather_fixed(at, before, _FLAGS, 1, address(flags))  # of `row` itself where it is the first
                found.goes_on[some] = flags & np.where(row == 0, GONE_ON, GOES_ON) > 0
        return found

    def _in_memory(self, level: int, pages: Int64s) -> Generator[tuple[Int64s, Int64s]]:
        """Yield (which, addresses): pages[which] of a level, which do not fall, are in memory until the next item."""
        fresh = np.ones(pages.size, np.bool_)
        np.not_equal(pages[1:], pages[:-1], out=fresh[1:])
        starts = np.append(np.flatnonzero(fresh), pages.size)
        many = np.diff(starts)
        pool = self._upper if level else self._leaves
        with closing(pool.pages(self._base + self._level_at[level] + pages[starts[:-1]])) as rounds:
            for distinct, addresses in rounds:
                each = many[distinct]
                within = np.arange(int(each.sum())) - np.repeat(np.cumsum(each) - each, each)
                yield np.repeat(starts[distinct], each) + within, np.repeat(addresses, each)

    # -- by number ---------------------------------------------------------------------------------------------------------

    def place(self, pages: Int32s | Int64s) -> Int64s:
        """Return the places of pages, which are numbered in key order."""
        pages = pages.astype(np.int64)
        if not self._file.moved:
            return pages + self._base
        ranks, places = self._known
        at = np.minimum(np.searchsorted(ranks, pages), max(0, ranks.size - 1))
        out, here = (places[at], ranks[at] == pages) if ranks.size else (pages.copy(), np.zeros(pages.size, np.bool_))
        wanted, inverse = np.unique(pages[~here], return_inverse=True)
        out[~here] = np.concatenate([np.empty(0, np.int64), *self._places(wanted)])[inverse]
        files = out >> FILE_SHIFT
        known = bool(((files >= 0) & (files < self._file_pages.size)).all())
        self._check(known and bool((out & PAGE_MASK < self._file_pages[files]).all()))
        return out + self._base

    def _places(self, pages: Int64s) -> Iterator[Int64s]:
        """Yield the places, without the shard, of pages of the shard, whose numbers rise."""
        for a in range(0, pages.size, self._chunk):
            ranks = pages[a : a + self._chunk]
            at = np.searchsorted(self._numbers >> 32, ranks, side="right") - 1
            number = self._numbers[at]
            for level in range(self._top, 0, -1):
                row, new = np.empty(ranks.size, np.int32), np.empty(ranks.size, np.int64)
                for some, addresses in self._in_memory(level, at):
                    found = np.empty(some.size, np.int32)
                    last_not_above(addresses, _NUMBER, (ranks[some] << 32) | PAGE_MASK, found)
                    row[some] = np.maximum(found, 0)
                    new[some] = _numbers(addresses, row[some])
                at, number = (number & PAGE_MASK) + row, new
                self._check(int(at.max()) < self._file.levels[level - 1])
            out, within = np.empty(ranks.size, np.int64), (ranks - (number >> 32)).astype(np.int32)
            for some, addresses in self._in_memory(0, at):
                rows, used = np.empty(some.size, np.int32), np.empty(some.size, np.int64)
                page_facts(addresses, rows, used)
                self._check(bool(((within[some] >= 0) & (within[some] < rows)).all()))
                out[some] = _numbers(addresses, within[some])
            yield out

    # -- damage ------------------------------------------------------------------------------------------------------------

    def _check(self, inside: bool) -> None:
        if not inside:
            raise self._damaged("it leads to pages that are not there")

    def _damaged(self, reason: str) -> DamagedRelation:
        return DamagedRelation(self._version.root / self._file.name, reason, shard=self._shard)


def _numbers(pages: Int64s, rows: Int32s) -> Int64s:
    """Return the numbers in these rows of the pages at these addresses."""
    out = np.empty(pages.size, np.int64)
    gather_fixed(pages, rows, _NUMBER, 8, address(out))
    return out


def open_index(version: Version, memory: IndexMemory, stats: Callable[[], JoinStats]) -> Version:
    """Return the version with its index as a plan holds it: as it is if that is as a whole, or a copy that reads index pages.

    Parameters
    ----------
    version, memory
        The open version, and the plan.
    stats
        Returns the counters of the join that reads.
    """
    if not memory.paged:
        return version
    files = IndexFiles(version)
    reader = PageReader(files, memory.read_pages * version.page_size)
    leaves, upper = (IndexPool(files, frames, reader, stats) for frames in (memory.frames, memory.upper_frames))
    return version.holding(
        [
            version.read_index(shard) if facts.fences is None else PagedIndex(version, shard, leaves, upper, memory)
            for shard, facts in enumerate(version.manifest.shards)
        ]
    )
