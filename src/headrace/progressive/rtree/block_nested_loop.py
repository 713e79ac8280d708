"""Symmetric block nested loop: a full block of one side is compared with every stored page of the other. [PQP] §A.1.5"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import pyarrow as pa

from headrace.arrays import Int64s
from headrace.kernels.nested_loop import FOUND, PAIRS, PLACE, READS, TESTS, nested_loop
from headrace.progressive.rtree.base import PairBuffer, SideName, SpatialJoin, opposite
from headrace.progressive.rtree.blocks import Blocks
from headrace.progressive.rtree.boxes import Columns
from headrace.progressive.rtree.disk import Disk2008


class SymmetricBlockNestedLoop(SpatialJoin):
    """Stores boxes in order of arrival, and compares each block of n pages with all complete blocks of the other side.

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
        The number of pages of a block; as many as fit by default.

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

    Deviations: none. The text leaves two things open: a page that is still in a frame of its block is not read; and blocks that
    are not full when the input ends are joined then.
    """

    least_frames: ClassVar[int] = 3
    other_frames: ClassVar[int] = 1  # frames that are no part of a block

    def __init__(
        self, memory: int | str = "512KiB", *, disk: Disk2008 | None = None, rows: int = 8192, block: int | None = None
    ) -> None:
        super().__init__(memory, disk=disk, rows=rows)
        most, page_rows = (self.frames - self.other_frames) // 2, self.disk.page_rows
        self.blocks = Blocks(block, most=most, frames=self.frames, page_rows=page_rows)
        self._found = PairBuffer.of_size(max(rows, page_rows))
        self._written = {"left": 0, "right": 0}  # pages of each side that are on disk

    def _insert(self, side: SideName, columns: Columns, first: int) -> Iterator[pa.RecordBatch]:
        for block in self.blocks.fill(side, columns):
            self._write_oldest(side)
            if block is not None:
                yield from self._join_block(side, *block)

    def _finish(self) -> Iterator[pa.RecordBatch]:
        for side, low, high in self.blocks.rest():
            yield from self._join_block(side, low, high)

    def _pages(self, rows: int) -> int:
        return -(-rows // self.disk.page_rows)

    def _write_oldest(self, side: SideName) -> None:
        """Count the writes of pages whose frames were taken by new pages. The oldest page goes first; others are not written."""
        stored = max(0, self._pages(self.blocks.sides[side].rows) - self.blocks.pages)
        self._spend(build=(0, stored - self._written[side]))
        self._written[side] = stored

    def _join_block(self, side: SideName, low: int, high: int) -> Iterator[pa.RecordBatch]:
        """Join the rows of a block with all complete blocks of the other side. A hook for what narrows them down."""
        pages = np.arange(self._pages(self.blocks.sides[opposite(side)].joined))
        yield from self._compare(side, pages, np.full(pages.size, low), np.full(pages.size, high))

    def _compare(self, side: SideName, pages: Int64s, low: Int64s, high: Int64s) -> Iterator[pa.RecordBatch]:
        """Join rows low[k] to high[k] of a side with page pages[k] of the other. Equal pages must follow each other."""
        mine, theirs = self.blocks.sides[side], self.blocks.sides[opposite(side)]
        # Pages that are not written yet are in memory, and need not be read.
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
