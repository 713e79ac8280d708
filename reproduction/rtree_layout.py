"""The layout of R-trees and summary R-trees: the boxes of each level, and the clusters that they show. [PQP] Fig. A.1, A.2"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import PatchCollection
from matplotlib.patches import Rectangle

from headrace.kernels.rtree import COUNT, LEVEL
from headrace.progressive.rtree import RTree, StaticJoin, SymmetricIndexedBlockNestedLoop
from reproduction.spatial_sets import CLUSTER, Boxes

DIGITS = 3  # of a corner that is kept: a hundredth of a cluster's side is drawn


def full_tree(boxes: Boxes, frames: int) -> RTree:
    """The R-tree that the static join builds of one side."""
    join = StaticJoin(frames * 4096)
    list(join.insert("left", boxes))
    return join.trees["left"]


def summary_tree(boxes: Boxes, frames: int) -> RTree:
    """The summary R-tree that the symmetric indexed block nested loop builds of one side."""
    join = SymmetricIndexedBlockNestedLoop(frames * 4096)
    list(join.insert("left", boxes))
    list(join.finish())
    return join.trees["left"]


def boxes_by_level(tree: RTree, summary: bool) -> list[Boxes]:
    """The boxes around data pages, around the pages above these, and so on to the root.

    A data page is a leaf of the R-tree, and an entry of a leaf of the summary R-tree.
    """
    _, boxes, _, node = tree.arrays
    of_level = [np.flatnonzero(node[: tree.nodes, LEVEL] == level) for level in range(tree.height)]
    around = [np.array([_around(boxes[n][:, : node[n, COUNT]]) for n in nodes]) for nodes in of_level]
    pages = np.concatenate([boxes[n][:, : node[n, COUNT]].T for n in of_level[0]])
    return [pages, *around] if summary else around


def _around(boxes: Any) -> Any:
    return np.concatenate([boxes[:2].min(axis=1), boxes[2:].max(axis=1)])


def clusters(boxes: Boxes) -> int:
    """The number of groups of boxes that touch each other, without those that are larger than a cluster."""
    small = boxes[((boxes[:, 2:] - boxes[:, :2]) <= CLUSTER).all(axis=1)]
    low, high = small[:, None, :2], small[:, None, 2:]
    touch = ((low <= high.transpose(1, 0, 2)) & (low.transpose(1, 0, 2) <= high)).all(axis=2)
    group, found = np.arange(len(small)), True
    while found:
        least = np.where(touch, group, len(small)).min(axis=1, initial=len(small))
        found, group = bool((least < group).any()), least
    return int(np.unique(group).size)


def layout(tree: RTree, summary: bool) -> list[dict[str, Any]]:
    """What is kept of each level: its boxes, how many they are, the clusters that they show, and the levels of the tree."""
    return [
        {
            "boxes": len(boxes),
            "clusters": clusters(boxes),
            "levels": tree.height,
            "corners": np.round(boxes, DIGITS).tolist(),
        }
        for boxes in boxes_by_level(tree, summary)
    ]


def draw_boxes(raw: dict[str, Any], series: str, path: Path) -> None:
    """Draw the boxes of all levels of a tree, the higher the darker."""
    fig, axes = plt.subplots(figsize=(5.4, 4.2))
    cells = [cell for cell in raw["cells"] if cell["series"] == series]
    for number, cell in enumerate(cells, 1):
        patches = [Rectangle((x0, y0), x1 - x0, y1 - y0) for x0, y0, x1, y1 in cell["corners"]]
        shade = str(0.8 - 0.7 * number / len(cells))
        axes.add_collection(PatchCollection(patches, facecolor="none", edgecolor=shade, linewidth=0.3 + 0.5 * number))
    axes.autoscale_view()
    axes.set_aspect("equal")
    fig.tight_layout()
    fig.savefig(path, dpi=90, metadata={"Software": None})
    plt.close(fig)
