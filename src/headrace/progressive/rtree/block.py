"""The block dynamic join: R-trees of both sides, filled and searched a block of boxes at a time. [PQP] §A.1.3"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pyarrow as pa

from headrace.kernels.rtree_join import FOUND, probe_list
from headrace.progressive.rtree.base import Found, SideName, opposite
from headrace.progressive.rtree.blocks import BlockJoin
from headrace.progressive.rtree.disk import Disk2008
from headrace.progressive.rtree.trees import two_trees


class BlockDynamicJoin(BlockJoin):
    r"""Between the static and the fully dynamic join: a search of the other tree is shared by a block of boxes.

        left  --> [block] --insert--> [R-tree of left ]   half of the frames are blocks,
                     \---search----> [R-tree of right]   half are one LRU buffer of both trees

    Parameters
    ----------
    memory, disk, rows
        See SpatialJoin.
    block
        Pages of boxes that a side gathers before they are inserted and searched for; a quarter of the frames if not given.
        A small block gives results earlier, a large one costs less.

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
        super().__init__(memory, disk=disk, rows=rows, block=block)
        self.buffer, self.trees = two_trees(self.frames - 2 * self.block, self.disk.page_rows)
        self._found = Found.room(max(rows, self._block_rows))

    def _most_block(self) -> int:
        return self.frames // 4

    def _join_block(self, side: SideName, low: int, high: int) -> Iterator[pa.RecordBatch]:
        columns = self.sides[side].part(low, high)
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
