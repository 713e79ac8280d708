"""Two R-trees, one a side, in one buffer."""

from __future__ import annotations

from headrace.progressive.rtree.base import SideName
from headrace.progressive.rtree.disk import Buffer
from headrace.progressive.rtree.tree import RTree


def two_trees(frames: int, most: int) -> tuple[Buffer, dict[SideName, RTree]]:
    """A buffer, and a tree of each side in it."""
    buffer = Buffer(frames)
    return buffer, {"left": RTree(buffer, most, offset=0, stride=2), "right": RTree(buffer, most, offset=1, stride=2)}
