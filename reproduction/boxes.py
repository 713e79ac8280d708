"""Boxes for the spatial study of [PQP] appendix A: clusters with a given overlap, shuffled or not, and real places."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

Boxes = npt.NDArray[np.float64]  # (rows, 4): xmin, ymin, xmax, ymax

CLUSTER = 0.2  # side of a cluster
SIDE = 0.002  # of a box at most, for 100,000 boxes


@cache
def clustered(rows: int, clusters: int, selectivity: float = 0.25, shuffled: bool = False) -> tuple[Boxes, Boxes]:
    """R and S: boxes in clusters that come one after the other; a cluster of S has a part of its area in common with one of R.

    The text gives the clusters (squares of side 0.2 around random centres of the unit square) and not the boxes. Ours have sides
    drawn evenly up to 0.002 for 100,000 boxes, and larger ones where there are fewer, so that a box has as many partners at
    every size.
    """
    rng = np.random.default_rng([14, clusters])
    corners = rng.random((clusters, 2)) - CLUSTER / 2
    away = (1 - selectivity) * CLUSTER * rng.choice([-1, 1], clusters)
    along = np.eye(2)[rng.integers(0, 2, clusters)]
    side = SIDE * np.sqrt(100_000 / rows)
    sets = []
    for start in (corners, corners + along * away[:, None]):
        extra = rng.integers(0, clusters, rows % clusters)
        which = np.sort(np.concatenate([np.repeat(np.arange(clusters), rows // clusters), extra]))
        size = rng.random((rows, 2)) * side
        low = start[which] + rng.random((rows, 2)) * (CLUSTER - size)
        boxes = np.hstack([low, low + size])
        sets.append(rng.permutation(boxes) if shuffled else boxes)
    return sets[0], sets[1]
