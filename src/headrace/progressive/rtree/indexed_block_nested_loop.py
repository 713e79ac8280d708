"""Symmetric indexed block nested loop: an R-tree of pages tells which of them a block may intersect. [PQP] §A.1.6"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import pyarrow as pa

from headrace.progressive.rtree.base import SideName, opposite
from headrace.progressive.rtree.block_nested_loop import SymmetricBlockNestedLoop
from headrace.progressive.rtree.boxes import Columns
from headrace.progressive.rtree.disk import Buffer, Disk2008
from headrace.progressive.rtree.tree import RTree

_TREE_FRAMES = 3  # frames of each summary R-tree: [PQP] §A.1.6


class SymmetricIndexedBlockNestedLoop(SymmetricBlockNestedLoop):
    r"""Joins as the symmetric block nested loop does, with a summary R-tree of each side: one box around each page of boxes.

        left  --> [block: n frames] --oldest page first--> disk
                   |   \--boxes of its pages--> [summary R-tree of left: 3 frames]
                   |    \---search------------> [summary R-tree of right: 3 frames]
                  [1 frame] <-- the pages of right that were found                    n = (B - 7) / 2

    Choose it where boxes come in spatial clusters: pages that lie elsewhere are not read. Where they come in no order every page
    covers the whole space, and the trees are of no use.

    Parameters
    ----------
    memory, disk, rows, block
        See SymmetricBlockNestedLoop.

    Example
    -------
    >>> from headrace.progressive.rtree import SymmetricIndexedBlockNestedLoop
    >>> join = SymmetricIndexedBlockNestedLoop()
    >>> list(join.insert("left", [[0, 0, 2, 2], [5, 5, 6, 6]])) + list(join.insert("right", [[2, 2, 3, 3]]))
    []
    >>> [batch.to_pydict() for batch in join.finish()]
    [{'left': [0], 'right': [0]}]

    References
    ----------
    [PQP] §A.1.6, Alg. 18.

    Deviations: none. The text leaves one thing open: a page that was found is compared with those pages of the block whose boxes
    found it, and not with the others.
    """

    least_frames: ClassVar[int] = 9
    other_frames: ClassVar[int] = 7

    def __init__(
        self, memory: int | str = "512KiB", *, disk: Disk2008 | None = None, rows: int = 8192, block: int | None = None
    ) -> None:
        super().__init__(memory, disk=disk, rows=rows, block=block)
        most = self.disk.page_rows
        self.trees: dict[SideName, RTree] = {s: RTree(Buffer(_TREE_FRAMES), most) for s in self.blocks.sides}

    def _join_block(self, side: SideName, low: int, high: int) -> Iterator[pa.RecordBatch]:
        """Insert the pages of a block into the side's tree, and join it with the pages that it finds in the other tree."""
        page_rows = self.disk.page_rows
        around = _boxes_around(self.blocks.sides[side].part(low, high), page_rows)
        mine, theirs = self.trees[side], self.trees[opposite(side)]
        mine.insert(around, low // page_rows)
        self._spend(build=mine.buffer.counts(), tests=mine.tests())
        own, pages = theirs.search(around)
        self._spend(join=theirs.buffer.counts(), tests=theirs.tests())
        order = np.lexsort((own, pages))
        first = low + own[order] * page_rows
        yield from self._compare(side, pages[order], first, np.minimum(first + page_rows, high))


def _boxes_around(columns: Columns, page_rows: int) -> Columns:
    """The box around each page of boxes."""
    starts = np.arange(0, columns.shape[1], page_rows)
    least, most = np.minimum.reduceat(columns[:2], starts, axis=1), np.maximum.reduceat(columns[2:], starts, axis=1)
    return np.concatenate([least, most])
