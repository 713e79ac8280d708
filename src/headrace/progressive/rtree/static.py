"""The static join: an R-tree of each side, and one synchronised traversal of both at the end. [PQP] §A.1.1"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import pyarrow as pa

from headrace.kernels.rtree_join import DEPTH, FOUND, PAIRS, PLACE, traverse
from headrace.progressive.rtree.base import PairBuffer, SideName, SpatialJoin
from headrace.progressive.rtree.boxes import Columns
from headrace.progressive.rtree.disk import Disk2008
from headrace.progressive.rtree.tree import two_trees


class StaticJoin(SpatialJoin):
    r"""Waits until both sides have ended, and then joins them in one synchronised traversal. It is the baseline of the study.

        left  --insert--> [R-tree of left ]    \
                            one LRU buffer       > finish(): pairs of nodes that intersect, depth first
        right --insert--> [R-tree of right]    /

    Choose it where early results are not needed.

    Parameters
    ----------
    memory, disk, rows
        See SpatialJoin. All frames are one buffer, which both trees share.

    Example
    -------
    >>> from headrace.progressive.rtree import StaticJoin
    >>> join = StaticJoin()
    >>> list(join.insert("left", [[0, 0, 2, 2], [5, 5, 6, 6]])) + list(join.insert("right", [[2, 2, 3, 3]]))
    []
    >>> [batch.to_pydict() for batch in join.finish()]
    [{'left': [0], 'right': [0]}]

    References
    ----------
    [PQP] §A.1.1, Alg. 14; the traversal is that of Brinkhoff, Kriegel, Seeger, "Efficient processing of spatial joins using
    R-trees", SIGMOD 1993.

    Deviations: boxes are inserted as they come, of either side, where Alg. 14 reads one side first. Of the refinements of
    the traversal only the restriction to the common area of two nodes is used.
    """

    least_frames: ClassVar[int] = 2

    def __init__(self, memory: int | str = "512KiB", *, disk: Disk2008 | None = None, rows: int = 8192) -> None:
        super().__init__(memory, disk=disk, rows=rows)
        self.buffer, self.trees = two_trees(self.frames, self.disk.page_rows)

    def _insert(self, side: SideName, columns: Columns, first: int) -> Iterator[pa.RecordBatch]:
        tree = self.trees[side]
        tree.insert(columns, first)
        self._spend(build=self.buffer.counts(), tests=tree.tests())
        return iter(())

    def _finish(self) -> Iterator[pa.RecordBatch]:
        left, right = self.trees["left"], self.trees["right"]
        if not left.entries or not right.entries:
            return
        place = np.zeros(PLACE, np.int64)
        most = self.disk.page_rows
        stack = np.empty(((left.height + right.height) * most * most, 2), np.int64)
        stack[0] = left.root, right.root
        place[DEPTH] = 1
        found = PairBuffer.of_size(max(self.rows, most * most))
        done = False
        while not done:
            lru, where = self.buffer.lru, self.buffer.where
            done = traverse(*left.arrays, *right.arrays, lru, where, place, stack, self.rows, found.own, found.other)
            self._spend(join=self.buffer.counts(), tests=left.tests() + right.tests())
            self.stats.pages_compared += int(place[PAIRS])
            place[PAIRS] = 0
            yield self._pairs("left", found, int(place[FOUND]))
            place[FOUND] = 0
