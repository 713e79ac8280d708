"""How an index is held in memory: as a whole, or in part. The operators' plans and their cost models both ask this."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.relation.manifest import Manifest
from headrace.relation.writer import index_layout

_LEAST_KEYS, _MOST_KEYS = 64, 4096  # keys that are looked up together
_KEY_BYTES = 160  # bytes of a key while it is looked up: pages, rows, numbers and where they come from
_FRAME_BYTES = (
    8 + 3 * 4 + 8 + 4 * 4
)  # bytes of a page in a pool besides the page: place, links, scratch, part of the table
_LEAST_PAGES = 2  # pages of each pool, and of the read buffer
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
        (20921, 44, 1)
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
