"""Grids without bounds: partitions of boxes and vectors that are the same in every process that knows the width of a cell.

The grids of [PQP] cover a space that is declared, or observed in the first tuples. Tasks of a cluster see different tuples first,
and a stream may move away from where it began. Here a cell is floor(x / width), and its code is a hash of that. Two cells may
have one code by chance. A pair is found by code, and kept where the code is that of the pair's own cell (of the left vector, or
of the low corner of the intersection); a tuple has each code once, so a pair is kept once, whichever cells share codes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.arrays import Float64s, Int32s, UInt64s
from headrace.conditions import Intersects, Within
from headrace.errors import BadInput
from headrace.kernels.hashing import shards_of
from headrace.kernels.unbounded_grids import cover_cells, match_unbounded_boxes
from headrace.progressive.grids.boxes import BoxGrid
from headrace.progressive.grids.partitioning import SIDES, CellEntries, JoinKeys
from headrace.progressive.grids.vectors import VectorGrid

_BOX_DIMENSIONS = 6  # of a grid over boxes, at most; in more a box would be in too many cells
_VECTOR_DIMENSIONS = 3  # of a grid over vectors, at most; a right vector is in up to 2 ** 3 cells
_WIDTH = 4.0  # times eps: the width of a cell, by default
_MOST_CELLS = 1 << 16  # of one box; a larger box is refused
_SLACK = 2.0**-48  # times a coordinate: rounding must not separate two vectors that are eps apart


class UnboundedBoxes(BoxGrid):
    """Keeps a box in every cell that it touches. Choose it for `intersects` where not all processes know the space.

    Parameters
    ----------
    condition
        The boxes: see BoxGrid. Infinite ones are refused, since they would touch infinitely many cells.
    cell
        The width of a cell, in all dimensions or one for each; it should be about that of the larger boxes.
    partitions
        The number of partitions.
    """

    match = staticmethod(match_unbounded_boxes)

    def __init__(self, condition: Intersects, cell: float | Sequence[float], partitions: int = 64) -> None:
        super().__init__(condition, cells=1)
        d = len(condition.left) // 2
        self.cell, self.partitions = cell, partitions
        self._most_cells = _MOST_CELLS
        self._widths = widths(cell, d)[:_BOX_DIMENSIONS]
        self.limits = np.concatenate([[float(d)], self._widths])

    def coarsen(self, cells: int, partitions: int, memory: int) -> None:
        """Refuse boxes that touch more cells than this: cells have the width that the user gave."""
        self._most_cells, self.partitions = min(cells, _MOST_CELLS), min(self.partitions, partitions)

    def check(self, side: int, batch: pa.RecordBatch) -> None:
        """Refuse inverted boxes, and boxes that touch too many cells."""
        self.home(side, self.read(side, batch))

    def _make_grid_for(self, boxes: Float64s) -> None:
        """Do nothing: cells are found without a grid."""

    def home(self, side: int, keys: JoinKeys) -> CellEntries:
        """Every cell that each box touches."""
        boxes, d = keys.values.reshape(-1, self.width), self.width // 2
        low, high = np.ascontiguousarray(boxes[:, :d]).reshape(-1), np.ascontiguousarray(boxes[:, d:]).reshape(-1)
        entries, bad = _cells_between(low, high, keys, d, self._widths, self.cells_per_row, self._most_cells)
        if bad is not None:
            raise BadInput(
                f"a box of the {SIDES[side]} side from {boxes[bad, :d].tolist()} to {boxes[bad, d:].tolist()} touches more than"
                f" {self._most_cells} cells of width {self.cell}; give a larger cell=, or leave such rows out"
            )
        self.cells_per_row = max(1.0, entries.row.size / max(1, boxes.shape[0]))
        return entries

    def partition_of(self, cells: UInt64s) -> Int32s:
        """The range that each code is in; cells that lie together have codes that lie together."""
        return _range_of(cells, self.partitions)


class UnboundedVectors(VectorGrid):
    """Keeps a left vector in the cell that it lies in, and a right one in all cells within eps.

    So a pair is found in the left vector's cell.

    Choose it for `within` where not all processes know the space.

    Parameters
    ----------
    condition
        The vectors, eps and the metric: see VectorGrid.
    cell
        The width of a cell, in all dimensions or one for each; at least twice eps, and 4 times eps by default.
    partitions
        The number of partitions.
    """

    def __init__(self, condition: Within, cell: float | Sequence[float] | None = None, partitions: int = 64) -> None:
        super().__init__(condition, cells=1)
        self.cell, self.partitions = cell, partitions

    def bind(self, side: int, schema: pa.Schema) -> None:
        """Learn the vector columns of a side. Both sides must have vectors of one size."""
        super().bind(side, schema)
        self._widths = widths(_WIDTH * self._eps if self.cell is None else self.cell, self.width)[:_VECTOR_DIMENSIONS]
        if (self._widths < 2 * self._eps).any():
            raise BadInput(f"cell={self.cell!r} is less than twice eps={self._eps:g}; give at least {2 * self._eps:g}")

    def _make_grid(self, low: Float64s, high: Float64s) -> None:
        """Do nothing: cells are found without a grid."""

    def home(self, side: int, keys: JoinKeys) -> CellEntries:
        """The cell that each vector lies in."""
        return _cells_between(keys.values, keys.values, keys, self.width, self._widths, 1.0)[0]

    def reach(self, side: int, keys: JoinKeys) -> CellEntries:
        """The cells within eps of each vector."""
        around = self._eps + _SLACK * (np.abs(keys.values) + self._eps)
        low, high = keys.values - around, keys.values + around
        entries, _ = _cells_between(low, high, keys, self.width, self._widths, self.cells_per_row)
        self.cells_per_row = max(1.0, entries.row.size / max(1, keys.valid.size))
        return entries

    def partition_of(self, cells: UInt64s) -> Int32s:
        """The range that each code is in; cells that lie together have codes that lie together."""
        return _range_of(cells, self.partitions)


def widths(cell: float | Sequence[float], dimensions: int) -> Float64s:
    """Return the width of a cell in each dimension. Anything but positive numbers is refused."""
    each = list(cell) if isinstance(cell, list | tuple) else [cell] * dimensions
    fits = all(isinstance(w, int | float) and not isinstance(w, bool) and math.isfinite(w) and w > 0 for w in each)
    if not fits or len(each) != dimensions:
        raise BadInput(f"cell={cell!r} is not a width above 0, or {dimensions} of them, one for each dimension")
    return np.array(each, np.float64)


def _cells_between(
    low: Float64s,
    high: Float64s,
    keys: JoinKeys,
    size: int,
    width: Float64s,
    cells_per_row: float,
    most: int = _MOST_CELLS,
) -> tuple[CellEntries, int | None]:
    """The cells between two corners of each row, each code of a row once; or the first row that has more than `most`."""
    valid = keys.valid.view(np.uint8)
    room = int(1.2 * cells_per_row * valid.size) + 64
    while True:
        rows, codes = np.empty(room, np.int32), np.empty(room, np.uint64)
        n = int(cover_cells(low, high, valid, size, width, most, rows, codes))
        if n < 0:
            return CellEntries(rows[:0], codes[:0]), -1 - n
        if n <= room:
            break
        room = n
    rows, codes = rows[:n], codes[:n]
    if n > keys.valid.sum():
        order = np.lexsort((codes, rows))
        rows, codes = rows[order], codes[order]
        again = np.zeros(n, np.bool_)
        again[1:] = (rows[1:] == rows[:-1]) & (codes[1:] == codes[:-1])
        if again.any():
            rows, codes = rows[~again], codes[~again]
    return CellEntries(rows, codes), None


def _range_of(cells: UInt64s, partitions: int) -> Int32s:
    """Divide codes into ranges of equal width."""
    out = np.empty(cells.size, np.int32)
    shards_of(cells, partitions, out)
    return out
