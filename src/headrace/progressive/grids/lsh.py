"""VectorLsh: cells of vectors by random directions, for joins that may miss a stated part of the pairs."""

from __future__ import annotations

import numpy as np

from headrace.arrays import Float64s
from headrace.conditions import Within
from headrace.errors import BadInput
from headrace.kernels.vector_cells import SKETCH, cells_below_best
from headrace.progressive.grids.directions import chi_bound, directions, score_margins
from headrace.progressive.grids.partitioning import CellEntries
from headrace.progressive.grids.vector_cells import Scored, Sites, VectorCells

_SKETCH_SHARE = 0.25  # of the probability to miss a pair: for sketches that are too far apart, the rest for cells
_SITES, _SKETCHES = 0, 1  # streams of random numbers


class VectorLsh(VectorCells):
    """Divides vectors by the random direction on which they are longest; a right one reaches all that come near the best.

        left x:   argmax aᵢ·x                        right y:  all i with aᵢ·y >= max aⱼ·y - T

    Choose it for `within` with a recall below 1, in many dimensions: a pair within eps is found with a probability of at least
    `recall` over the seed, whatever the pair, and every pair that is found is within eps. A left vector is in one cell, and a
    right one in the cells in reach: T grows with eps / |y|, and so do they. It is locality-sensitive hashing with one table of
    cross-polytopes that is probed several times, where T is computed for the stated recall.

    The part of y that is orthogonal to x, a vector at most eps away, has length |y| sin θ <= eps: its products with directions
    are independent of those of x. So the gap between the best score of y and the score at the direction of x has a known
    distribution, and T is its quantile. So is the distance of sketches: eps times a chi variable.

    Parameters
    ----------
    condition
        The vectors, eps, the metric, the recall and the seed.
    directions
        The number of directions; more make cells smaller, and take longer to compute.
    partitions
        The number of partitions.
    centred
        Whether the mean of the first vectors is the origin, which helps where all vectors point in one direction. Processes that
        share a join must agree on it: there it is False.

    Example
    -------
    >>> import headrace as hr, numpy as np, pyarrow as pa
    >>> from headrace.progressive import ProgressiveJoin, VectorLsh
    >>> near = hr.within("v", eps=0.1, metric="cosine", recall=0.95)
    >>> op = ProgressiveJoin(near, memory="8MiB", partitioning=VectorLsh(near, directions=64))
    >>> vectors = np.random.default_rng(1).normal(size=(100, 64))
    >>> rows = pa.record_batch({"v": pa.FixedSizeListArray.from_arrays(vectors.ravel(), 64)})
    >>> sum(out.num_rows for side in ("left", "right") for out in op.insert(side, rows)) > 85
    True

    Reference: Andoni, Indyk, Laarhoven, Razenshteyn, Schmidt, "Practical and optimal LSH for angular distance", NIPS 2015.

    Deviations: directions are independent, so that the recall of a pair can be computed; one table is probed often, where several
    would keep each vector several times.
    """

    def __init__(self, condition: Within, directions: int = 128, partitions: int = 64, *, centred: bool = True) -> None:
        if condition.recall >= 1:
            raise BadInput(
                f"{condition!r} asks for all pairs, and random directions miss some; give recall=0.99, or use VectorPivots"
            )
        super().__init__(condition, directions, partitions)
        self.centred = centred
        self.division = f"{directions} directions for {condition!r}"

    def _make_sites(self, rows: Float64s) -> Sites:
        """Draw the directions."""
        seed, miss = self.condition.seed, _SKETCH_SHARE * (1.0 - self.condition.recall)
        sites = directions(seed, _SITES, self.sites, self.size)
        sketch = directions(seed, _SKETCHES, SKETCH - 1, self.size)
        matrix = np.ascontiguousarray(np.concatenate([sites, sketch]), np.float32)
        centre = rows.mean(axis=0) if self.centred else np.zeros(self.size)
        return Sites(centre, matrix, np.zeros(self.sites), self.radius * chi_bound(SKETCH - 1, miss))

    def _reach(self, scored: Scored, room: int) -> tuple[CellEntries, int]:
        assert self._sites is not None
        rows, codes = np.empty(room, np.int32), np.empty(room, np.uint64)
        n = cells_below_best(
            scored.scores.reshape(-1),
            scored.scores.shape[1],
            scored.exact,
            self._sites.vectors,
            self._sites.bias,
            scored.norms,
            scored.error,
            scored.site,
            scored.best,
            self._margins(scored.norms),
            self.radius,
            self._groups,
            self._copies,
            rows,
            codes,
        )
        return CellEntries(rows[:n], codes[:n]), n

    def _margins(self, norms: Float64s) -> Float64s:
        """T for vectors of these lengths: at an angle whose sine is radius / length, the largest of two vectors that match."""
        slopes, margins = score_margins(self.sites, (1.0 - _SKETCH_SHARE) * (1.0 - self.condition.recall))
        ratio = norms / self.radius
        slope = np.sqrt(np.maximum(ratio * ratio - 1.0, 0.0))
        at = np.searchsorted(slopes, slope, side="right") - 1
        # A vector within eps of the origin may match one in any direction.
        return np.where(ratio > 1.0, self.radius * margins[at], np.inf)
