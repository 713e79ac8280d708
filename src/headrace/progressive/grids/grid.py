"""Grid: a regular grid over a bounded space, for boxes and vectors. [PQP] §5.1, §6.1"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headrace.arrays import Float64s, Int64s
from headrace.errors import BadInput

_FAR = (
    0.25  # times the width between the 1st and the 99th percentile: tuples farther out do not widen an observed space
)
_MOST_TILES = 2.0**62  # the code of a tile is a 64-bit number


@dataclass(frozen=True)
class Grid:
    """A grid with `cells` cells in each dimension between the corners low and high; a cell has 2 ** shift tiles in each."""

    low: Float64s
    high: Float64s
    cells: Int64s
    shift: Int64s

    @property
    def bits(self) -> int:
        """The number of low bits of a tile's code that say where the tile lies in its cell."""
        return int(self.shift.sum())

    @property
    def widths(self) -> Float64s:
        """The width of a cell in each dimension."""
        return (self.high - self.low) / self.cells

    def numbers(self) -> Float64s:
        """The grid as one array, in the layout of kernels.grids."""
        with np.errstate(divide="ignore", over="ignore"):
            a_unit = self.cells / (self.high - self.low) * 2.0**self.shift
        return np.concatenate([self.low, a_unit, self.cells, self.shift]).astype(np.float64)


def parse_space(space: object, dimensions: int) -> tuple[Float64s, Float64s]:
    """Return the low and the high corner of a space that a user gave as one sequence of numbers."""
    numbers = list(space) if isinstance(space, Sequence) and not isinstance(space, str) else []
    if len(numbers) != 2 * dimensions or not all(_is_number(x) for x in numbers):
        raise BadInput(
            f"space={space!r} is not a space of {dimensions} dimensions; give {2 * dimensions} numbers, the low corner and then"
            " the high corner"
        )
    low, high = np.array(numbers[:dimensions], np.float64), np.array(numbers[dimensions:], np.float64)
    for j in np.flatnonzero(~(low < high)):
        raise BadInput(
            f"space={space!r} goes from {low[j]} to {high[j]} in dimension {j}; give a high corner above the low one"
        )
    return low, high


def observed_space(low: Float64s, high: Float64s) -> tuple[Float64s, Float64s]:
    """The space that boxes lie in, given their corners as [row, dimension]. A few boxes that lie far off do not widen it."""
    corners = []
    for j in range(low.shape[1]):
        xs = np.concatenate([low[:, j], high[:, j]])
        xs = xs[np.isfinite(xs)]
        if not xs.size:
            corners.append((0.0, 1.0))
            continue
        first, last = np.quantile(xs, [0.01, 0.99], method="nearest")
        with np.errstate(over="ignore"):
            far = _FAR * (last - first)
        a, b = max(float(xs.min()), first - far), min(float(xs.max()), last + far)
        corners.append((a, b) if a < b else (a, a + 1.0 if a + 1.0 > a else np.nextafter(a, np.inf)))
    return np.array([a for a, _ in corners]), np.array([b for _, b in corners])


def parse_cells(cells: int | Sequence[int], dimensions: int) -> Int64s:
    """Return the cells of each dimension, which a user gave as one number or as one for each."""
    each = [cells] * dimensions if isinstance(cells, int) else list(cells)
    if len(each) != dimensions or not all(isinstance(n, int) and not isinstance(n, bool) and n >= 1 for n in each):
        raise BadInput(
            f"cells={cells!r} is not a number of cells in each of {dimensions} dimensions; give one whole number of 1 or more, or"
            f" {dimensions}"
        )
    if math.prod(each) >= 2**31:
        raise BadInput(f"cells={cells!r} is {math.prod(each)} cells; give at most {2**31 - 1} in all")
    return np.array(each, np.int64)


def check_tiles(grid: Grid) -> Grid:
    """Return the grid, or refuse one with more tiles than there are codes."""
    if float(np.prod(grid.cells.astype(np.float64))) * 2.0**grid.bits >= _MOST_TILES:
        raise BadInput(
            f"{grid.cells.tolist()} cells of {(2**grid.shift).tolist()} tiles are more than 2 ** 62 tiles in all; give fewer"
        )
    return grid


def _is_number(x: object) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x)
