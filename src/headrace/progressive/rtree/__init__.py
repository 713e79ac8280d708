"""Joins of two streams of boxes by R-trees and by blocks, on a simulated disk: the study of [PQP] appendix A.

They are for comparing algorithms, and for reading beside the thesis: every page that would be read or written is counted and
charged to a virtual clock, and nothing is stored. All of them give every pair of boxes that intersect once, in whatever order the
two sides arrive; they differ in cost and in how soon a pair is found.
"""

from __future__ import annotations

from headrace.progressive.rtree.base import SpatialJoin
from headrace.progressive.rtree.block_dynamic import BlockDynamicJoin
from headrace.progressive.rtree.block_nested_loop import SymmetricBlockNestedLoop
from headrace.progressive.rtree.disk import Buffer, Disk2008, SpatialStats
from headrace.progressive.rtree.dynamic import FullyDynamicJoin
from headrace.progressive.rtree.indexed_block_nested_loop import SymmetricIndexedBlockNestedLoop
from headrace.progressive.rtree.static import StaticJoin
from headrace.progressive.rtree.tree import RTree

#: The joins by the names that the reproduced figures have for them.
ALGORITHMS: dict[str, type[SpatialJoin]] = {
    "static": StaticJoin,
    "dynamic": FullyDynamicJoin,
    "block": BlockDynamicJoin,
    "sbnl": SymmetricBlockNestedLoop,
    "sibnl": SymmetricIndexedBlockNestedLoop,
}

__all__ = [
    "ALGORITHMS",
    "BlockDynamicJoin",
    "Buffer",
    "Disk2008",
    "FullyDynamicJoin",
    "RTree",
    "SpatialJoin",
    "SpatialStats",
    "StaticJoin",
    "SymmetricBlockNestedLoop",
    "SymmetricIndexedBlockNestedLoop",
]
