"""RTree: Guttman's R-tree with the quadratic split, whose nodes are pages in a buffer."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.arrays import Int64s
from headrace.errors import HeadraceError
from headrace.kernels.rtree import (
    COUNT,
    HEADER,
    LEAST,
    LEVEL,
    MOST,
    NODES,
    OFFSET,
    ROOT,
    STRIDE,
    TALLEST,
    TESTS,
    insert_all,
)
from headrace.kernels.rtree_join import FOUND, PLACE, probe_list
from headrace.progressive.rtree.base import SideName
from headrace.progressive.rtree.boxes import Columns
from headrace.progressive.rtree.disk import Buffer

_FILL = 0.4  # the least share of its entries that a node has after a split; the usual choice


class RTree:
    """An index of boxes that grows box by box. Every use of a node is a use of its page in the buffer.

    Parameters
    ----------
    buffer
        The buffer of its pages, which several trees may share.
    most
        The number of entries of a node at most.
    offset, stride
        Node n is page n * stride + offset of the buffer, so that several trees can share it.

    Example
    -------
    >>> tree = RTree(Buffer(frames=8), most=4)
    >>> tree.insert(np.array([[0.0, 5.0], [0.0, 5.0], [1.0, 6.0], [1.0, 6.0]]), first=0)
    >>> tree.search(np.array([[1.0], [1.0], [2.0], [2.0]]))  # the first box of the query touches row 0
    (array([0]), array([0]))
    """

    def __init__(self, buffer: Buffer, most: int, *, offset: int = 0, stride: int = 1) -> None:
        self.buffer = buffer
        self.most, self.offset, self.stride = most, offset, stride
        self.entries = 0
        self._tree: Int64s = np.zeros(HEADER, np.int64)
        self._tree[MOST], self._tree[LEAST] = most, max(2, int(_FILL * most))
        self._tree[STRIDE], self._tree[OFFSET] = stride, offset
        self._boxes = np.empty((0, 4, most + 1))
        self._child = np.empty((0, most + 1), np.int64)
        self._node = np.zeros((0, 2), np.int64)
        self._make_room(0)
        self._tree[NODES] = 1
        buffer.touch(offset, dirty=True, fresh=True)  # files: a page in memory

    @property
    def arrays(self) -> tuple[Int64s, Any, Int64s, Int64s]:
        """The arrays that kernels take: header, boxes, children and nodes."""
        return self._tree, self._boxes, self._child, self._node

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return int(self._tree[NODES])

    @property
    def height(self) -> int:
        """The number of levels; 1 while the root is a leaf."""
        return int(self._node[self.root, LEVEL]) + 1

    @property
    def root(self) -> int:
        """The number of the root node."""
        return int(self._tree[ROOT])

    def prepare(self, rows: int) -> None:
        """Allocate nodes for `rows` more entries, before a kernel inserts them."""
        self.entries += rows
        self._make_room(self.entries)

    def insert(self, columns: Columns, first: int) -> None:
        """Insert boxes one after the other; they are the rows from `first` on."""
        self.prepare(columns.shape[1])
        insert_all(*self.arrays, columns, first, self.buffer.lru, self.buffer.where)

    def search(self, columns: Columns) -> tuple[Int64s, Int64s]:
        """Find pairs of a box, by its number, and a row that it intersects, in one traversal for all of the boxes."""
        place, stack, queue = self.list_scratch(columns.shape[1])
        own, other = (np.empty(max(4096, columns.shape[1]), np.int64) for _ in range(2))
        parts: list[tuple[Int64s, Int64s]] = []
        done = False
        while not done:
            lru, where = self.buffer.lru, self.buffer.where
            done = probe_list(*self.arrays, columns, 0, lru, where, place, stack, queue, own, other)
            parts.append((own[: place[FOUND]].copy(), other[: place[FOUND]].copy()))
            place[FOUND] = 0
        return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])

    def list_scratch(self, boxes: int) -> tuple[Int64s, Int64s, Int64s]:
        """The arrays `place`, `stack` and `queue` for a search by a list of boxes; see kernels.rtree_join.probe_list."""
        return (
            np.zeros(PLACE, np.int64),
            np.zeros((TALLEST, 4), np.int64),
            np.empty((self.height + 1) * boxes, np.int64),
        )

    def tests(self) -> int:
        """The number of boxes compared since the last call."""
        tests = int(self._tree[TESTS])
        self._tree[TESTS] = 0
        return tests

    def leaf_rows(self) -> Int64s:
        """The rows in the tree, leaf by leaf."""
        leaves = [n for n in range(self.nodes) if self._node[n, LEVEL] == 0]
        return np.concatenate([self._child[n, : self._node[n, COUNT]] for n in leaves])

    def check(self) -> None:
        """Raise HeadraceError unless fill, levels and bounding boxes are right and every node is reached once."""
        seen, below = 0, [(self.root, self.height - 1)]
        while below:
            n, level = below.pop()
            seen += 1
            count = int(self._node[n, COUNT])
            least = 0 if n == self.root and level == 0 else 2 if n == self.root else int(self._tree[LEAST])
            if not least <= count <= self.most:
                raise HeadraceError(f"node {n} has {count} entries; {least} to {self.most} are allowed")
            if self._node[n, LEVEL] != level:
                raise HeadraceError(f"node {n} is on level {self._node[n, LEVEL]}, and its parent on {level + 1}")
            for e in range(count if level else 0):
                child = int(self._child[n, e])
                inside = self._boxes[child, :, : self._node[child, COUNT]]
                around = np.concatenate([inside[:2].min(axis=1), inside[2:].max(axis=1)])
                if not np.array_equal(around, self._boxes[n, :, e]):
                    raise HeadraceError(f"entry {e} of node {n} has box {self._boxes[n, :, e]}; its node's is {around}")
                below.append((child, level - 1))
        if seen != self.nodes:
            raise HeadraceError(f"{seen} of {self.nodes} nodes can be reached")

    def _make_room(self, entries: int) -> None:
        """Allocate nodes for this many entries in all."""
        # All nodes but the root hold `least` entries or more, so leaves, their parents and so on are a geometric series.
        nodes = entries // (int(self._tree[LEAST]) - 1) + TALLEST
        if nodes > len(self._node):
            more = max(nodes, len(self._node) * 3 // 2) - len(self._node)
            self._boxes = np.concatenate([self._boxes, np.empty((more, 4, self.most + 1))])
            self._child = np.concatenate([self._child, np.zeros((more, self.most + 1), np.int64)])
            self._node = np.concatenate([self._node, np.zeros((more, 2), np.int64)])
            self.buffer.ensure(len(self._node) * self.stride + self.offset)


def two_trees(frames: int, most: int) -> tuple[Buffer, dict[SideName, RTree]]:
    """Make a buffer, and an R-tree of each side in it. The left tree has the even pages, the right one the odd pages."""
    buffer = Buffer(frames)
    return buffer, {"left": RTree(buffer, most, offset=0, stride=2), "right": RTree(buffer, most, offset=1, stride=2)}
