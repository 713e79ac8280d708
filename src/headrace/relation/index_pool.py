"""Index pages as files that a PageReader reads, and a pool that keeps some of them in memory."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Generator, Iterator
from contextlib import closing

import numpy as np

from headrace.arrays import Int32s, Int64s, UInt8s
from headrace.errors import DamagedRelation
from headrace.kernels.cache import copy_pages, frames_of, lru
from headrace.kernels.pages import page_facts
from headrace.metrics import JoinStats
from headrace.relation.columns import NO_BYTES, address
from headrace.relation.manifest import IndexFileFacts
from headrace.relation.reader import PAGE_MASK, SHARD_SHIFT, PageReader, Version
from headrace.relation.writer import TAG_SHIFT, Layout, index_layout


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

    def checked(self, places: Int64s, files: Int64s) -> tuple[Int64s, UInt8s]:
        """Return no bits: an index page is checked at every read, as it stays in the pool after it."""
        return places, NO_BYTES

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
        memory = mmap.mmap(-1, max(1, frames) * files.page_size)  # files: memory without a file
        self._memory: UInt8s = np.frombuffer(memory, np.uint8)
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
