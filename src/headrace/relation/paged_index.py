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

import mmap
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from headrace.arrays import Bools, Int32s, Int64s, UInt8s
from headrace.errors import DamagedRelation
from headrace.kernels.cache import copy_pages, frames_of, lru
from headrace.kernels.pages import gather_fixed, last_not_above, page_facts
from headrace.metrics import JoinStats
from headrace.relation.columns import address
from headrace.relation.keys import Keys, concat_keys
from headrace.relation.manifest import IndexFileFacts, Manifest
from headrace.relation.reader import (
    FILE_SHIFT,
    PAGE_MASK,
    SHARD_SHIFT,
    PageReader,
    Version,
    key_column,
    stored_keys,
)
from headrace.relation.writer import GOES_ON, GONE_ON, TAG_SHIFT, Layout, index_layout

_NUMBER, _FLAGS = 1, 2  # columns of an index page beside the key
_LEAST_KEYS, _MOST_KEYS = 64, 4096  # keys that are looked up together
_KEY_BYTES = 160  # bytes of a key while it is looked up: pages, frames, rows and numbers of both ends
_FRAME_BYTES = (
    8 + 3 * 4 + 8 + 4 * 4
)  # bytes of a page in the pool besides the page: place, links, scratch, part of the table
_LEAST_PAGES = 2  # pages of the pool, and of the read buffer
_MOST_READ = 64  # pages of the read buffer: enough to keep a disk busy
_SHARE = 4  # one part in so many of the memory that an operator can spare, for an index that does not fit
# Keys in memory take more than in a page: 8 bytes for an offset and 8 for a number, where a page has 4, 8 and a flag.
_IN_MEMORY = 1.25
# The file of an index that would fit a page is not larger than so many: it has 8 bytes more an entry, and a header.
_SMALL = 2


@dataclass(frozen=True)
class IndexLevels:
    """The pages of an index on disk.

    Parameters
    ----------
    pages
        The number of pages of each level, of all shards together; the leaves first.
    page_size
        Bytes of a page.
    live_bytes
        Bytes of a bitmap of the pages in use, for joins that load neighbouring pages; 0 where no page was replaced by an update.
    small_bytes
        Bytes of the indexes of shards that have no index pages since they would fit a page: these are in memory as a whole.
    """

    pages: tuple[int, ...]
    page_size: int
    live_bytes: int = 0
    small_bytes: int = 0

    @classmethod
    def of(cls, manifest: Manifest) -> IndexLevels | None:
        """Return the levels of a version; None if its index is small, is of an earlier format, or has keys too long for pages."""
        files = [shard.fences for shard in manifest.shards if shard.fences is not None]
        others = [shard.index.bytes for shard in manifest.shards if shard.fences is None]
        if not files or max(others, default=0) > _SMALL * manifest.page_size:
            return None
        height = max(len(file.levels) for file in files)
        pages = tuple(sum(file.levels[i] for file in files if i < len(file.levels)) for i in range(height))
        data = sum(file.pages for shard in manifest.shards for file in shard.files)
        used = sum(shard.pages for shard in manifest.shards)
        return cls(pages, manifest.page_size, (data + 7) // 8 if used < data else 0, sum(others))

    @classmethod
    def of_entries(cls, entries: int, page_size: int, text_bytes: float | None = None) -> IndexLevels:
        """Estimate the levels of an index with so many entries: one a page or, by frequency, one a key.

        Keys are integers, or byte strings of `text_bytes` in the mean.

        Example
        -------
        >>> IndexLevels.of_entries(10_000_000, 8192).pages
        (21098, 45, 1)
        """
        layout = index_layout(page_size, integer=text_bytes is None)
        each = int((page_size - layout.overhead) / (layout.fixed + (text_bytes or 0.0)))
        levels = [max(1, -(-entries // each))]
        while levels[-1] > 1:
            levels.append(-(-levels[-1] // each))
        return cls(tuple(levels), page_size)

    def top_bytes(self, level: int) -> int:
        """Return the bytes in memory of the first keys of a level's pages, at most; the one page of the top level needs none."""
        return int(_IN_MEMORY * self.page_size * self.pages[level + 1]) if level + 1 < len(self.pages) else 0

    def random_reads(self, level: int, frames: int, upper_frames: int) -> float:
        """Return the pages read for a key at random, from a level down, with so many leaves and other pages in memory."""
        upper = sum(self.pages[1 : level + 1])
        return 1 - min(1.0, frames / self.pages[0]) + level * (1 - min(1.0, upper_frames / max(1, upper)))


@dataclass(frozen=True, kw_only=True)
class IndexMemory:
    """How an index is held in memory: as a whole, or | first keys of a level's pages | pools: frames | read buffer | work |.

    Parameters
    ----------
    nbytes
        Bytes of it all.
    level
        The level whose pages are found from memory; None: the index is in memory as a whole.
    frames, upper_frames
        Pages of the pool of leaves, and of the pool of the levels between these and the one found from memory.
    read_pages, keys
        Pages of the read buffer, and keys that are looked up together.
    reads
        Index pages read to look up a key at random, on its own.
    """

    nbytes: int
    level: int | None = None
    frames: int = 0
    upper_frames: int = 0
    read_pages: int = 0
    keys: int = 0
    reads: float = 0.0

    @classmethod
    def of(cls, whole: int, levels: IndexLevels | None, room: int, *, bitmap: bool = False) -> IndexMemory:
        """Divide memory for an operator that has so much room beside the least of its other parts.

        The index is in memory as a whole if its `whole` bytes fit, or if there are no index pages. Otherwise it gets a quarter
        of the room, or the least that it needs. With `bitmap`, a bitmap of the pages in use is part of it.
        """
        if levels is None or whole <= room:
            return cls(nbytes=whole)
        size, frame = levels.page_size, levels.page_size + _FRAME_BYTES
        extra = levels.small_bytes + (levels.live_bytes if bitmap else 0)
        least = extra + _LEAST_PAGES * (size + 2 * frame) + _LEAST_KEYS * _KEY_BYTES
        if whole <= least:
            return cls(nbytes=whole)
        share = max(least, room // _SHARE) - extra
        level = next(i for i in range(len(levels.pages)) if levels.top_bytes(i) <= share // 2)
        left = share - levels.top_bytes(level)
        keys = int(np.clip(left // 8 // _KEY_BYTES, _LEAST_KEYS, _MOST_KEYS))
        read = int(np.clip(left // 8 // size, _LEAST_PAGES, _MOST_READ))
        left -= keys * _KEY_BYTES + read * size
        # Every key needs a page of each level above the leaves, so these come first.
        upper = int(np.clip(left // 2 // frame, _LEAST_PAGES, sum(levels.pages[1 : level + 1]))) if level else 0
        frames = int(np.clip(left // frame - upper, _LEAST_PAGES, max(_LEAST_PAGES, levels.pages[0])))
        return cls(
            nbytes=extra + levels.top_bytes(level) + keys * _KEY_BYTES + read * size + (frames + upper) * frame,
            level=level,
            frames=frames,
            upper_frames=upper,
            read_pages=read,
            keys=keys,
            reads=levels.random_reads(level, frames, upper),
        )

    @property
    def paged(self) -> bool:
        """Whether index pages are read when they are needed."""
        return self.level is not None


class IndexFiles:
    """The index pages of a version, as a source of pages for a PageReader: one file for each shard that has them."""

    def __init__(self, version: Version) -> None:
        self._version = version
        self.disk = version.disk
        self.page_size = version.page_size
        self.layout: Layout = index_layout(version.page_size, integer=version.codec.integer)
        self._files = {i: shard.fences for i, shard in enumerate(version.manifest.shards) if shard.fences is not None}
        self._number = np.cumsum([shard.fences is not None for shard in version.manifest.shards]) - 1
        self._tags = np.array([file.tag for file in self._files.values()], np.int64)

    def check_open(self) -> None:
        """Refuse to go on if the version was closed."""
        self._version.check_open()

    def files_of(self, places: Int64s) -> Int64s:
        """Return the numbers of the files that places are in."""
        numbers: Int64s = self._number[places >> SHARD_SHIFT]
        return numbers

    def facts(self, shard: int) -> IndexFileFacts:
        """Return the facts of a shard's file."""
        return self._files[shard]

    def fd_of(self, files: Int64s) -> Int32s:
        """Return the descriptors of files."""
        return self._version.index_fds[files]

    def numbers(self, places: Int64s, files: Int64s) -> Int64s:
        """Return the page numbers that the headers of pages at these places must have."""
        return (self._tags[files] << TAG_SHIFT) + (places & PAGE_MASK)

    def damaged(self, place: int, reason: str) -> DamagedRelation:
        """Make the error that names file, shard and page of a damaged index page."""
        shard = place >> SHARD_SHIFT
        path = self._version.root / self._files[shard].name
        return DamagedRelation(path, reason, shard=shard, page=place & PAGE_MASK)


class IndexPool:
    """A pool of index pages that all shards share.

    Of the pages that are asked for together, those that are in the pool stay, and others take the place of pages that are not
    asked for, the one used longest ago first. What does not fit is used where it was read, and so drives out nothing.

    Parameters
    ----------
    files
        The index pages.
    frames
        Pages that it has room for.
    reader
        The read buffer.
    stats
        Returns the counters of the join.
    """

    def __init__(self, files: IndexFiles, frames: int, reader: PageReader, stats: Callable[[], JoinStats]) -> None:
        self.files = files
        self.reader = reader
        self._stats = stats
        self._frames = frames
        self._memory: UInt8s = np.frombuffer(mmap.mmap(-1, max(1, frames) * files.page_size), np.uint8)
        self._clear()

    def _clear(self) -> None:
        n = self._frames
        self._table: Int32s = np.full(1 << max(1, 2 * n - 1).bit_length(), -1, np.int32)
        self._place_of: Int64s = np.full(n, -1, np.int64)
        self._older, self._younger = np.full(n, -1, np.int32), np.full(n, -1, np.int32)
        self._ends: Int64s = np.array([-1, -1, 0])
        self._scratch: Int64s = np.empty(n, np.int64)

    def pages(self, places: Int64s) -> Generator[tuple[Int64s, Int64s]]:
        """Yield (which, addresses) for sorted distinct places: places[which] are in memory until the next item.

        Close the generator when leaving early.
        """
        frame = np.empty(places.size, np.int32)
        frames_of(places, self._table, self._place_of, frame)
        here, absent = np.flatnonzero(frame >= 0), np.flatnonzero(frame < 0)
        if here.size:
            self._use(places[here])
            yield here, self._addresses(frame[here])
        if absent.size == 0:
            return
        # Evenly from all that are absent, so that a page that is asked for often comes in soon, wherever it lies.
        taken = min(absent.size, self._frames - here.size)
        enters = np.zeros(absent.size, np.bool_)
        enters[np.arange(taken) * absent.size // max(1, taken)] = True
        targets = np.zeros(absent.size, np.int64)
        try:
            targets[enters] = self._addresses(self._use(places[absent[enters]]))
            for a, b, addresses in self._read(places[absent]):
                new = enters[a:b]
                copy_pages(addresses[new], targets[a:b][new], self.files.page_size)
                yield absent[a:b], addresses
        except BaseException:
            self._clear()  # frames have names whose pages were not read
            raise

    def _use(self, places: Int64s) -> Int32s:
        """Count an access to pages, as many as there are frames at most, and let those come in that are absent."""
        frame, miss = np.empty(places.size, np.int32), np.empty(places.size, np.uint8)
        lru(places, self._table, self._place_of, self._older, self._younger, self._ends, self._scratch, frame, miss)
        return frame

    def _addresses(self, frames: Int32s) -> Int64s:
        return address(self._memory) + frames.astype(np.int64) * self.files.page_size

    def _read(self, places: Int64s) -> Iterator[tuple[int, int, Int64s]]:
        """Read pages in runs, and check that they have rows."""
        counts = JoinStats()
        with closing(self.reader.read(places, counts)) as rounds:
            for a, b, addresses in rounds:
                rows, used = np.empty(b - a, np.int32), np.empty(b - a, np.int64)
                page_facts(addresses, rows, used)
                empty = np.flatnonzero(rows == 0)
                if empty.size:
                    raise self.files.damaged(int(places[a + empty[0]]), "it has no rows")
                yield a, b, addresses
        stats = self._stats()
        stats.index_pages_read += counts.pages_read
        stats.index_reads += counts.reads


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
