"""Symmetric block nested loop: no index; a full block of one side meets every stored page of the other. [PQP] §A.1.5"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import pyarrow as pa

from headrace.kernels.nested_loop import FOUND, PAIRS, PLACE, READS, TESTS, nested_loop
from headrace.progressive.rtree.base import Found, SideName, opposite
from headrace.progressive.rtree.blocks import BlockJoin
from headrace.progressive.rtree.disk import Disk2008, Ints


class SymmetricBlockNestedLoop(BlockJoin):
    """Stores boxes in order of arrival, and compares each block of n pages with all that the other side stored before.

        left  --> [block: n frames] --oldest page first--> disk
                        |
                  [1 frame] <-- every stored page of right       and the other way round; n = (B - 1) / 2

    Choose it where boxes come in no spatial order: it writes each page once and reads few, where an R-tree on disk reads and
    writes pages for single boxes.

    Parameters
    ----------
    memory, disk, rows
        See SpatialJoin.
    block
        Pages of a block; as many as fit if not given.

    Example
    -------
    >>> from headrace.progressive.rtree import SymmetricBlockNestedLoop
    >>> join = SymmetricBlockNestedLoop()
    >>> list(join.insert("left", [[0, 0, 2, 2], [5, 5, 6, 6]])) + list(join.insert("right", [[2, 2, 3, 3]]))
    []
    >>> [batch.to_pydict() for batch in join.finish()]
    [{'left': [0], 'right': [0]}]

    References
    ----------
    [PQP] §A.1.5, Alg. 17.

    Deviations: none. What the text leaves open: a page that still is in a frame of its block is not read, as it is there; and
    blocks that are not full when the input ends are joined then.
    """

    least_frames: ClassVar[int] = 3
    taken_frames: ClassVar[int] = 1  # that are no part of a block

    def __init__(
        self, memory: int | str = "512KiB", *, disk: Disk2008 | None = None, rows: int = 8192, block: int | None = None
    ) -> None:
        super().__init__(memory, disk=disk, rows=rows, block=block)
        self._found = Found.room(max(rows, self.disk.page_rows))
        self._written = {"left": 0, "right": 0}

    def _most_block(self) -> int:
        return (self.frames - self.taken_frames) // 2

    def _pages(self, rows: int) -> int:
        return -(-rows // self.disk.page_rows)

    def _arrived(self, side: SideName) -> None:
        # A new page takes the frame of the oldest, which is written then, and only then.
        stored = max(0, self._pages(self.sides[side].rows) - self.block)
        self._spend(build=(0, stored - self._written[side]))
        self._written[side] = stored

    def _join_block(self, side: SideName, low: int, high: int) -> Iterator[pa.RecordBatch]:
        pages = np.arange(self._pages(self.sides[opposite(side)].joined))
        yield from self._compare(side, pages, np.full(pages.size, low), np.full(pages.size, high))

    def _compare(self, side: SideName, pages: Ints, low: Ints, high: Ints) -> Iterator[pa.RecordBatch]:
        """Join rows low[k] to high[k] of a side with page pages[k] of the other; a page's turns follow each other."""
        mine, theirs = self.sides[side], self.sides[opposite(side)]
        # Pages that are not written yet are in memory.
        reads = (pages < self._written[opposite(side)]) & (np.diff(pages, prepend=-1) != 0)
        place = np.zeros(PLACE, np.int64)
        found, done = self._found, False
        while not done:
            done = nested_loop(
                mine.columns,
                theirs.columns,
                theirs.joined,
                pages,
                low,
                high,
                reads.astype(np.int64),
                self.disk.page_rows,
                place,
                found.own,
                found.other,
            )
            self._spend(join=(int(place[READS]), 0), tests=int(place[TESTS]))
            self.stats.pages_compared += int(place[PAIRS])
            yield self._pairs(side, found, int(place[FOUND]))
            place[FOUND] = place[READS] = place[TESTS] = place[PAIRS] = 0
