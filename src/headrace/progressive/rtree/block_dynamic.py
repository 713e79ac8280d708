"""The block dynamic join: R-trees of both sides, filled and searched by a block of boxes at a time. [PQP] §A.1.3"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pyarrow as pa

from headrace.kernels.rtree_join import FOUND, probe_list
from headrace.progressive.rtree.base import PairBuffer, SideName, SpatialJoin, opposite
from headrace.progressive.rtree.blocks import Blocks
from headrace.progressive.rtree.boxes import Columns
from headrace.progressive.rtree.disk import Disk2008
from headrace.progressive.rtree.tree import two_trees


class BlockDynamicJoin(SpatialJoin):
    r"""Gathers a block of boxes, inserts it into the R-tree of its side, and searches the other tree once for the whole block.

        left  --> [block] --insert--> [R-tree of left ]   half of the frames are blocks,
                     \---search----> [R-tree of right]   half are one LRU buffer of both trees

    Choose it between the static and the fully dynamic join: a small block gives results earlier, a large one costs less.

    Parameters
    ----------
    memory, disk, rows
        See SpatialJoin.
    block
        The number of pages of a block; a quarter of the frames by default.

    Example
    -------
    >>> from headrace.progressive.rtree import BlockDynamicJoin
    >>> join = BlockDynamicJoin()
    >>> list(join.insert("left", [[0, 0, 2, 2], [5, 5, 6, 6]])) + list(join.insert("right", [[2, 2, 3, 3]]))
    []
    >>> [batch.to_pydict() for batch in join.finish()]  # both blocks were still open
    [{'left': [0], 'right': [0]}]

    References
    ----------
    [PQP] §A.1.3, Alg. 16.

    Deviations: the text calls blocks of half of the buffer best, which leaves none for the trees if each side has one; here the
    two blocks together take half. The list of boxes goes down the tree once, and each node is compared with those of the list
    that meet it.
    """

    least_frames: ClassVar[int] = 4

    def __init__(
        self, memory: int | str = "512KiB", *, disk: Disk2008 | None = None, rows: int = 8192, block: int | None = None
    ) -> None:
        super().__init__(memory, disk=disk, rows=rows)
        page_rows = self.disk.page_rows
        self.blocks = Blocks(block, most=self.frames // 4, frames=self.frames, page_rows=page_rows)
        self.buffer, self.trees = two_trees(self.frames - 2 * self.blocks.pages, page_rows)
        self._found = PairBuffer.of_size(max(rows, self.blocks.rows))

    def _insert(self, side: SideName, columns: Columns, first: int) -> Iterator[pa.RecordBatch]:
        for block in self.blocks.fill(side, columns):
            if block is not None:
                yield from self._join_block(side, *block)

    def _finish(self) -> Iterator[pa.RecordBatch]:
        for side, low, high in self.blocks.rest():
            yield from self._join_block(side, low, high)

    def _join_block(self, side: SideName, low: int, high: int) -> Iterator[pa.RecordBatch]:
        """Insert the rows of a block into the side's tree, and search the other side's tree for all of them."""
        columns = self.blocks.sides[side].part(low, high)
        mine, theirs = self.trees[side], self.trees[opposite(side)]
        mine.insert(columns, low)
        self._spend(build=self.buffer.counts(), tests=mine.tests())
        place, stack, queue = theirs.list_scratch(high - low)
        self.buffer.visits()
        found, done = self._found, False
        while not done:
            lru, where = self.buffer.lru, self.buffer.where
            done = probe_list(*theirs.arrays, columns, low, lru, where, place, stack, queue, found.own, found.other)
            self._spend(join=self.buffer.counts(), tests=theirs.tests())
            self.stats.pages_compared += self.buffer.visits()
            yield self._pairs(side, found, int(place[FOUND]))
            place[FOUND] = 0
