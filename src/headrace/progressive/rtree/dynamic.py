"""The fully dynamic join: every box is inserted into the R-tree of its side and searches that of the other. [PQP] §A.1.2"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import pyarrow as pa

from headrace.kernels.rtree_join import BUILD_READS, BUILD_WRITES, FOUND, PLACE, insert_and_probe
from headrace.progressive.rtree.base import PairBuffer, SideName, SpatialJoin, opposite
from headrace.progressive.rtree.boxes import Columns
from headrace.progressive.rtree.disk import Disk2008
from headrace.progressive.rtree.tree import two_trees


class FullyDynamicJoin(SpatialJoin):
    r"""Finds the pairs of a box as soon as it arrives, at the cost of a search of a tree on disk for every box.

        box of left --insert--> [R-tree of left ]
              \----search----> [R-tree of right]      and the other way round; one LRU buffer

    Choose it where boxes come slowly and the results of each are wanted at once.

    Parameters
    ----------
    memory, disk, rows
        See SpatialJoin. All frames are one buffer, which both trees share.

    Example
    -------
    >>> from headrace.progressive.rtree import FullyDynamicJoin
    >>> join = FullyDynamicJoin()
    >>> list(join.insert("left", [[0, 0, 2, 2], [5, 5, 6, 6]]))
    []
    >>> [batch.to_pydict() for batch in join.insert("right", [[2, 2, 3, 3]])]
    [{'left': [0], 'right': [0]}]

    References
    ----------
    [PQP] §A.1.2, Alg. 15.

    Deviations: none.
    """

    least_frames: ClassVar[int] = 2

    def __init__(self, memory: int | str = "512KiB", *, disk: Disk2008 | None = None, rows: int = 8192) -> None:
        super().__init__(memory, disk=disk, rows=rows)
        self.buffer, self.trees = two_trees(self.frames, self.disk.page_rows)
        self._found = PairBuffer.of_size(max(rows, self.disk.page_rows))

    def _insert(self, side: SideName, columns: Columns, first: int) -> Iterator[pa.RecordBatch]:
        mine, theirs = self.trees[side], self.trees[opposite(side)]
        mine.prepare(columns.shape[1])
        place = np.zeros(PLACE, np.int64)
        stack = np.empty(theirs.height * self.disk.page_rows + 1, np.int64)
        found = self._found
        self.buffer.visits()
        done = False
        while not done:
            lru, where = self.buffer.lru, self.buffer.where
            done = insert_and_probe(
                *mine.arrays, *theirs.arrays, columns, first, lru, where, place, stack, found.own, found.other
            )
            build = int(place[BUILD_READS]), int(place[BUILD_WRITES])
            reads, writes = self.buffer.counts()
            self._spend(build=build, join=(reads - build[0], writes - build[1]), tests=mine.tests() + theirs.tests())
            self.stats.pages_compared += self.buffer.visits()
            yield self._pairs(side, found, int(place[FOUND]))
            place[FOUND] = place[BUILD_READS] = place[BUILD_WRITES] = 0

    def _finish(self) -> Iterator[pa.RecordBatch]:
        return iter(())
