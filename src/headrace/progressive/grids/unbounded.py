"""Grids without ends, the same for everybody who knows the width of a cell: partitions of boxes and vectors across processes.

The grids of [PQP] cover a space that is known, or seen in the first tuples. Tasks of a cluster see different tuples first, and a
stream may move away from where it began. Here a cell is floor(x / width), and its code a hash of that. Two cells may have one
code by chance. A pair is found by code, and kept where the code is that of the pair's own cell (of the left vector, or of the low
corner of the intersection); a tuple has each code once, so a pair is kept once, whichever cells share codes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.conditions import Intersects, Within
from headrace.errors import BadInput
from headrace.kernels.hashing import shards_of
from headrace.kernels.unbounded_grids import cover_cells, match_endless_boxes
from headrace.progressive.grids.boxes import BoxGrid
from headrace.progressive.grids.partitioning import SIDES, Doubles, Entries, Reading
from headrace.progressive.grids.vectors import VectorGrid
from headrace.relation.keys import Hashes, Ints

_BOX_DIMENSIONS = 6  # of the grid at most; boxes are not told apart by the others
_VECTOR_DIMENSIONS = 3  # a right vector is in up to 2 ** 3 cells
_WIDTH = 4.0  # times eps: the width of a cell
_MOST = 1 << 16  # cells of a box
_SLACK = 2.0**-48  # of a coordinate: what is rounded must not part two vectors


class EndlessBoxes(BoxGrid):
    """A box is kept in every cell that it touches. Choose it for `intersects` where the space is not known, or not to all.

    Parameters
    ----------
    condition
        The boxes: see BoxGrid. Infinite ones are refused, since they have no end either.
    cell
        The width of a cell, in all dimensions or one for each; about that of the larger boxes.
    partitions
        How many there are.
    """

    match = staticmethod(match_endless_boxes)

    def __init__(self, condition: Intersects, cell: float | Sequence[float], partitions: int = 64) -> None:
        super().__init__(condition, cells=1)
        d = len(condition.left) // 2
        self.cell, self.partitions = cell, partitions
        self._widths = widths(cell, d)[:_BOX_DIMENSIONS]
        self.limits = np.concatenate([[float(d)], self._widths])

    def _lay_by(self, boxes: Doubles) -> None:
        """There is nothing to lay."""

    def home(self, side: int, reading: Reading) -> Entries:
        """Every cell that a box touches."""
        boxes, d = reading.values.reshape(-1, self.width), self.width // 2
        low, high = np.ascontiguousarray(boxes[:, :d]).reshape(-1), np.ascontiguousarray(boxes[:, d:]).reshape(-1)
        entries, bad = _covered(low, high, reading, d, self._widths, self.fan)
        if bad is not None:
            raise BadInput(
                f"a box of the {SIDES[side]} side from {boxes[bad, :d].tolist()} to {boxes[bad, d:].tolist()} touches more than"
                f" {_MOST} cells of width {self.cell}; give a larger cell=, or leave such rows out"
            )
        self.fan = max(1.0, entries.row.size / max(1, boxes.shape[0]))
        return entries

    def partition_of(self, cells: Hashes) -> Ints:
        """A range of hashes of blocks each."""
        return _dealt(cells, self.partitions)


class EndlessVectors(VectorGrid):
    """A left vector is kept in the cell that it lies in, a right one in all cells within eps: they meet in the left one's cell.

    Choose it for `within` where the space is not known, or not to all.

    Parameters
    ----------
    condition
        The vectors, eps and the metric: see VectorGrid.
    cell
        The width of a cell, in all dimensions or one for each; at least twice eps, and 4 times eps by default.
    partitions
        How many there are.
    """

    def __init__(self, condition: Within, cell: float | Sequence[float] | None = None, partitions: int = 64) -> None:
        super().__init__(condition, cells=1)
        self.cell, self.partitions = cell, partitions

    def bind(self, side: int, schema: pa.Schema) -> None:
        """Both sides must have vectors of one size."""
        super().bind(side, schema)
        self._widths = widths(_WIDTH * self._eps if self.cell is None else self.cell, self.width)[:_VECTOR_DIMENSIONS]
        if (self._widths < 2 * self._eps).any():
            raise BadInput(f"cell={self.cell!r} is less than twice eps={self._eps:g}; give at least {2 * self._eps:g}")

    def _lay(self, low: Doubles, high: Doubles) -> None:
        """There is nothing to lay."""

    def home(self, side: int, reading: Reading) -> Entries:
        """The cell that a vector lies in."""
        return _covered(reading.values, reading.values, reading, self.width, self._widths, 1.0)[0]

    def reach(self, side: int, reading: Reading) -> Entries:
        """The cells within eps of a vector."""
        around = self._eps + _SLACK * (np.abs(reading.values) + self._eps)
        low, high = reading.values - around, reading.values + around
        entries, _ = _covered(low, high, reading, self.width, self._widths, self.fan)
        self.fan = max(1.0, entries.row.size / max(1, reading.valid.size))
        return entries

    def partition_of(self, cells: Hashes) -> Ints:
        """A range of hashes of blocks each."""
        return _dealt(cells, self.partitions)


def widths(cell: float | Sequence[float], dimensions: int) -> Doubles:
    """Widths of a cell, one for each dimension; refuses what is none."""
    each = list(cell) if isinstance(cell, list | tuple) else [cell] * dimensions
    fits = all(isinstance(w, int | float) and not isinstance(w, bool) and math.isfinite(w) and w > 0 for w in each)
    if not fits or len(each) != dimensions:
        raise BadInput(f"cell={cell!r} is not a width above 0, or {dimensions} of them, one for each dimension")
    return np.array(each, np.float64)


def _covered(
    low: Doubles, high: Doubles, reading: Reading, size: int, width: Doubles, fan: float
) -> tuple[Entries, int | None]:
    """Each code of a row once; or the row that has too many."""
    valid = reading.valid.view(np.uint8)
    room = int(1.2 * fan * valid.size) + 64
    while True:
        rows, codes = np.empty(room, np.int32), np.empty(room, np.uint64)
        n = int(cover_cells(low, high, valid, size, width, _MOST, rows, codes))
        if n < 0:
            return Entries(rows[:0], codes[:0]), -1 - n
        if n <= room:
            break
        room = n
    rows, codes = rows[:n], codes[:n]
    if n > reading.valid.sum():
        order = np.lexsort((codes, rows))
        rows, codes = rows[order], codes[order]
        again = np.zeros(n, np.bool_)
        again[1:] = (rows[1:] == rows[:-1]) & (codes[1:] == codes[:-1])
        if again.any():
            rows, codes = rows[~again], codes[~again]
    return Entries(rows, codes), None


def _dealt(cells: Hashes, partitions: int) -> Ints:
    out = np.empty(cells.size, np.int32)
    shards_of(cells, partitions, out)
    return out
