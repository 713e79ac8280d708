"""VectorPivots: cells of vectors by the nearest of some pivots, for joins in many dimensions that miss no pair, or few."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np

from headrace.arrays import AnyArray, Float64s, Int64s
from headrace.conditions import Within
from headrace.errors import BadInput
from headrace.kernels.vector_cells import FAR, SKETCH, cells_within
from headrace.progressive.grids.directions import chi_bound, directions
from headrace.progressive.grids.partitioning import CellEntries
from headrace.progressive.grids.vector_cells import Scored, Sites, VectorCells
from headrace.splitmix import draw, uniform_ints

_CHOICE, _SKETCHES, _RANDOM = 2, 3, 4  # streams of random numbers
_SAMPLE = 512  # vectors whose main directions sketches have, and that a number of pivots is tried with
_CELL_WORK = (
    0.002  # to keep a vector in one more cell is as much work as to compare it with this part of the other side
)


class VectorPivots(VectorCells):
    """Divides vectors by the nearest pivot; a right one reaches the cells that are not too far behind a border.

        p | q      every left vector in the cell of p is on its side of the border, the plane between p and another pivot q.
          |   y    So if y is more than eps behind the border, none of them matches: y does not reach p.

    Choose it for `within` in many dimensions, where vectors lie in clusters. Every pair is found, and every pair that is found is
    within eps: distances on any metric are bounded by Euclidean ones, and tested in the end. With a recall below 1 sketches are
    random, and a pair is found with at least that probability over the seed, whatever the pair: few pairs of one cluster are left
    to be tested then. Vectors without structure are near all borders: VectorLsh divides those better.

    Parameters
    ----------
    condition
        The vectors, eps and the metric. With cosine, vectors and pivots are scaled to length 1.
    pivots
        The pivots, one a row; or their number, at most, which are chosen from the first vectors: far apart, from one that the
        condition's seed says.
        Processes that share a join must agree on them: they need vectors here, a sample of a thousand rows say.
    partitions
        The number of partitions.

    Example
    -------
    >>> import headrace as hr, numpy as np, pyarrow as pa
    >>> from headrace.progressive import ProgressiveJoin, VectorPivots
    >>> near = hr.within("v", eps=0.1, metric="cosine")
    >>> op = ProgressiveJoin(near, memory="8MiB", partitioning=VectorPivots(near, 32))
    >>> vectors = np.random.default_rng(1).normal(size=(100, 64))
    >>> rows = pa.record_batch({"v": pa.FixedSizeListArray.from_arrays(vectors.ravel(), 64)})
    >>> sum(out.num_rows for side in ("left", "right") for out in op.insert(side, rows))
    100

    Reference: Zezula, Amato, Dohnal, Batko, "Similarity search: the metric space approach", Springer 2006 (pivots, generalised
    hyperplanes); Connor, Cardillo, Vadicamo, Rabitti, "Hilbert exclusion", TOIS 2016 (distance to the border in Euclidean space).
    """

    def __init__(self, condition: Within, pivots: Any = 1024, partitions: int = 64) -> None:
        given = None if isinstance(pivots, int) else parse_pivots(condition, pivots)
        super().__init__(condition, pivots if given is None else given.shape[0], partitions)
        self._given = given
        digest = "of the first rows" if given is None else hashlib.sha256(given.tobytes()).hexdigest()[:16]
        self.division = f"{self.sites} pivots ({digest}) for {condition!r}"
        self._gaps: AnyArray = np.empty(0, np.float32)

    def _extra_bytes(self, sites: int) -> int:
        return 4 * sites * sites

    def _make_sites(self, rows: Float64s) -> Sites:
        """Choose the pivots and the directions of sketches: those in which pivots or first vectors differ most."""
        pool = rows if self._given is None else self._given
        if pool.shape[1] != self.size:
            raise BadInput(f"pivots have {pool.shape[1]} coordinates, and the vectors {self.size}; give as many")
        if self._given is None:
            pool = np.unique(pool, axis=0)
        centre = pool.mean(axis=0)
        moved = pool - centre
        if self._given is None:
            pivots = chosen_pivots(moved, self.sites, self.radius, self._copies, self.condition.seed)
        else:
            pivots = moved[: self.sites]
        pivots = pivots.astype(np.float32)
        exact = pivots.astype(np.float64)
        sketch, limit = main_directions(moved, self.condition.seed), self.radius
        if self.condition.recall < 1:
            # No pair within eps is lost by its cells. By random sketches few are, and they tell far more pairs apart than those
            # that must lose none.
            sketch = directions(self.condition.seed, _SKETCHES, SKETCH - 1, self.size)
            limit *= chi_bound(SKETCH - 1, 1.0 - self.condition.recall)
        matrix = np.ascontiguousarray(np.concatenate([pivots, sketch]), np.float32)
        self._gaps = np.ascontiguousarray(distances(exact), np.float32).reshape(-1)
        return Sites(centre, matrix, -0.5 * (exact**2).sum(axis=1), limit)

    def _reach(self, scored: Scored, room: int) -> tuple[CellEntries, int]:
        assert self._sites is not None
        rows, codes = np.empty(room, np.int32), np.empty(room, np.uint64)
        n = cells_within(
            scored.scores.reshape(-1),
            scored.scores.shape[1],
            self._sites.bias,
            scored.norms,
            scored.error,
            scored.site,
            self._gaps,
            self.radius,
            self._groups,
            self._copies,
            rows,
            codes,
        )
        return CellEntries(rows[:n], codes[:n]), n


def chosen_pivots(rows: Float64s, count: int, radius: float, copies: int, seed: int) -> Float64s:
    """Choose some of the rows as pivots: far apart, and as many as divide the rows best.

    More pivots make cells smaller. But a cluster that has many is divided by none of them: all their cells are in reach of its
    vectors. So the number with the least work is taken, which is estimated for a sample.
    """
    pivots = rows[farthest_first(rows, count, seed)]
    some = rows[:: max(1, len(rows) // _SAMPLE)]
    scores = some @ pivots.T - 0.5 * (pivots**2).sum(axis=1)
    apart = distances(pivots)
    best, least = 1, math.inf
    for number in sorted({min(len(pivots), 1 << k) for k in range(len(pivots).bit_length() + 1)}):
        own = scores[:, :number].argmax(axis=1)
        top = scores[np.arange(len(some)), own]
        reached = scores[:, :number] >= top[:, None] - radius * apart[own, :number]
        met = reached @ (np.bincount(own, minlength=number) / len(some))
        cells = reached.sum(axis=1)
        met[cells > copies] = 1.0
        work = float((met + _CELL_WORK * np.minimum(cells, copies)).mean())
        if work < least:
            best, least = number, work
    return pivots[:best]


def farthest_first(rows: Float64s, count: int, seed: int) -> Int64s:
    """The numbers of some rows, the first by the seed, then always the farthest from all before: each cluster has one early."""
    some = rows.astype(np.float32)
    square = (some**2).sum(axis=1)
    at = int(uniform_ints(draw(seed, _CHOICE, np.arange(1)), len(rows))[0])
    apart = np.full(len(rows), np.inf, np.float32)
    chosen = [at]
    while len(chosen) < min(count, len(rows)):
        np.minimum(apart, square + square[at] - 2.0 * (some @ some[at]), out=apart)
        at = int(np.argmax(apart))
        if not apart[at] > 1e-6 * (square[at] + square.max()):  # the rest lie on pivots
            break
        chosen.append(at)
    return np.array(chosen, np.int64)


def distances(pivots: Float64s) -> Float64s:
    """The distances of pivots from each other, rounded up: a larger one keeps more cells in reach."""
    square = (pivots**2).sum(axis=1)
    apart = np.sqrt(np.maximum(square[:, None] + square[None, :] - 2.0 * pivots @ pivots.T, 0.0))
    up: Float64s = (apart + 1e-6 * (np.sqrt(square)[:, None] + np.sqrt(square)[None, :])) * (1.0 + 1e-6)
    return up


def main_directions(rows: Float64s, seed: int) -> Float64s:
    """Orthonormal directions of sketches in which rows are long, the longest first; random ones where rows have too few."""
    size, wanted = rows.shape[1], SKETCH - 1
    if size <= wanted:  # a sketch has all coordinates
        return np.eye(wanted, size)
    some = rows[:_SAMPLE]
    _, vectors = np.linalg.eigh(some @ some.T)
    lead = vectors[:, ::-1][:, :wanted].T @ some
    fill = directions(seed, _SKETCHES, wanted, size)
    # Gram and Schmidt keep the order: what is left of random directions fills up where rows span fewer.
    scale = np.sqrt((lead**2).sum(axis=1).max(initial=0.0)) or 1.0
    lead = lead[np.sqrt((lead**2).sum(axis=1)) > 1e-6 * scale]
    basis, _ = np.linalg.qr(np.concatenate([lead, fill]).T)
    made: Float64s = basis.T[:wanted]
    return made


def parse_pivots(condition: Within, pivots: Any) -> Float64s:
    """Return pivots that a user gave as [row, coordinate], of length 1 if the metric is cosine. What is no vector is refused."""
    try:
        rows = np.array(pivots, np.float64)
    except (TypeError, ValueError) as error:
        raise BadInput(f"pivots={pivots!r} are no vectors; give a number, or an array with one vector a row") from error
    if rows.ndim != 2 or not rows.size or not np.isfinite(rows).all() or (np.abs(rows) > FAR).any():
        raise BadInput(
            f"pivots are an array of shape {rows.shape}; give one vector a row, of finite numbers up to {FAR:g}"
        )
    if condition.metric == "cosine":
        lengths = np.sqrt((rows**2).sum(axis=1))
        if not (lengths > 0).all():
            raise BadInput(
                f"pivot {int(np.argmin(lengths))} is a vector of zeros, which has no direction; leave it out"
            )
        rows /= lengths[:, None]
    return rows


def random_pivots(condition: Within, count: int, dims: int) -> Float64s:
    """Pivots of length 1 by the condition's seed, for processes that have seen no vectors."""
    return parse_pivots(condition, directions(condition.seed, _RANDOM, count, dims))
