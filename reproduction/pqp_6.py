"""[PQP] chapter 6: the similarity join, in the figures of its evaluation."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa

import headrace as hr
from headrace.progressive import RPJ, RRPJ, FlushPolicy, Foresight, Random, VectorGrid
from reproduction.checks import Check, Faster, Tracks
from reproduction.figure import Cell, Figure, Paper
from reproduction.pqp import Setting, Streams, against_arrivals, course, runs, zipf

POINTS, MEMORY = 500_000, 85_000  # Table 6.1: 1000 pages of 85 points
CELLS = 4  # a dimension
SKEW = 1.0
ROUNDS = 50  # in which cells take turns, where arrivals are not in random order
IMAGES, KEPT = 68_040, 9  # of COREL; dimensions
JITTER = 0.02

Arrival = Literal["harmony", "reverse"]
POLICIES: dict[str, Callable[[], FlushPolicy]] = {"random": Random, "rpj": RPJ, "rrpj": RRPJ, "foresight": Foresight}
SERIES = tuple(POLICIES)


# -- data --------------------------------------------------------------------------------------------------------------------


def _vectors(side: Any, points: Any) -> Streams:
    flat = pa.array(np.ascontiguousarray(points).reshape(-1))
    return Streams(side, pa.record_batch({"v": pa.FixedSizeListArray.from_arrays(flat, points.shape[1])}))


def _inside(rng: Any, cell: Any, d: int, within: Any = None) -> Any:
    """Points in cells by their numbers; `within`: where in the cell, from 0 to 1."""
    at = np.stack(np.unravel_index(cell, (CELLS,) * d), axis=1)
    return (at + (rng.random((cell.size, d)) if within is None else within)) / CELLS


def uniform(d: int, scale: float) -> Streams:
    """Anywhere in the unit cube."""
    n = round(POINTS * scale)
    rng = np.random.default_rng([61, d])
    return _vectors(rng.integers(0, 2, n), rng.random((n, d)))


def skewed(arrival: Arrival, d: int, scale: float, *, shuffled: bool) -> Streams:
    """Cells by Zipf, in one order for both sides or in reverse. Not shuffled: cells take turns, each with a part of its points."""
    n, cells = round(POINTS * scale), CELLS**d
    rng = np.random.default_rng([62, d, arrival == "reverse", shuffled])
    side, rank = rng.integers(0, 2, n), rng.choice(cells, n, p=zipf(cells, SKEW))
    cell = np.where(side == 1, cells - 1 - rank, rank) if arrival == "reverse" else rank
    if not shuffled:
        order = np.lexsort([cell, np.arange(n) * ROUNDS // n])
        side, cell = side[order], cell[order]
    return _vectors(side, _inside(rng, cell, d))


def checkered(d: int, scale: float) -> Streams:
    """One side has the white cells of a chessboard, the other the black ones."""
    n = round(POINTS * scale)
    rng = np.random.default_rng([65, d])
    side, cell = rng.integers(0, 2, n), rng.integers(0, CELLS**d, n)
    odd = np.sum(np.unravel_index(cell, (CELLS,) * d), axis=0) % 2
    return _vectors(side, _inside(rng, np.where(odd == side, cell, cell ^ 1), d))


def parted(d: int, scale: float) -> Streams:
    """In every other cell by number the sides keep apart in half of the dimensions: the lower half of the cell, and above 0.6."""
    n = round(POINTS * scale)
    rng = np.random.default_rng([66, d])
    side, cell = rng.integers(0, 2, n), rng.integers(0, CELLS**d, n)
    within = rng.random((n, d))
    apart = np.where(side[:, None] == 0, 0.5 * within, 0.6 + 0.4 * within)
    some = (rng.permutation(CELLS**d) % 2 == 0)[cell][:, None] & (np.arange(d) < d // 2)
    return _vectors(side, _inside(rng, cell, d, np.where(some, apart, within)))
