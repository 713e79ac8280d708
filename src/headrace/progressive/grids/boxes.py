"""BoxGrid: partitions of boxes by a grid of tiles, each with all boxes that touch it. [PQP] ch. 5"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa

from headrace.arrays import Bools, Float64s, Int32s, Int64s, UInt64s
from headrace.conditions import Intersects
from headrace.errors import BadInput, choice
from headrace.kernels.boxes import cover_tiles, match_boxes
from headrace.kernels.hashing import hash_ints, shards_of
from headrace.predicates.numbers import Scale
from headrace.progressive.grids.grid import Grid, check_tiles, observed_space, parse_cells, parse_space
from headrace.progressive.grids.partitioning import SIDES, CellEntries, JoinKeys, Partitioning

_CELLS = 100  # of a grid in all, by default: the grid of [PQP] Table 5.1 in two dimensions
_GRID_DIMENSIONS = 6  # that have tiles, and cells by default; more would have more tiles than boxes
_COPIES = 2.5  # of a box on average, by default: tiles are no smaller than that
_ALL_TILES = 1 << 62  # of a grid in all: more than a user's grid may have
_MOST_TILES = 1 << 14  # of a grid in all, by default: a box that covers the whole space has a copy in each


class BoxGrid(Partitioning):
    """Keeps a box in every tile that it touches; two boxes that intersect are found in one of the tiles that both touch.

        cells, 4 tiles each     a a b b     box 1 touches tiles of cells a, b, c, d and box 2 of b and d. Their intersection
                                a 1 1 2     begins in a tile of b: the pair is found there, and in no other.
                                c 1 1 2
                                c c d d

    Choose it for `intersects`. The pair's tile is that of its reference point, the low corner of the intersection: (max of the
    low x, max of the low y). A partition is a cell, or several cells if there are fewer partitions than cells.

    Parameters
    ----------
    condition
        The boxes: numbers, dates or timestamps. A low corner above the high one is refused, nulls and NaN match nothing, and
        infinite boxes reach the edge of the space.
    space
        The space that the grid covers: the low corner, then the high one. By default it is the space of the first boxes that are
        read. Boxes outside are put into the cells at its edge: they join as any other, but many of them make a join slow, and
        `stats.outside` counts them.
    cells
        The number of cells in each dimension, as one number or one for each; by default about 100 in all, 10 by 10 in two
        dimensions. A join makes the grid coarser if a box that covers it would take more than 1/4 of the join's memory.
    tiles
        The number of tiles of a cell in each dimension: 1, 2, 4, ... More tiles make probes cheaper, and copies of boxes more. By
        default as many as keep copies few, estimated from the first boxes that are read.
    partitions
        The number of partitions; as many as cells by default, or fewer, so that dense regions are spread over all of them.
    mapping
        How cells are assigned to fewer partitions: by "round-robin", or by "hash", which has no pattern.

    Example
    -------
    >>> import pyarrow as pa, headrace as hr
    >>> from headrace.progressive import BoxGrid, ProgressiveJoin
    >>> touch = hr.intersects(("x0", "y0", "x1", "y1"))
    >>> op = ProgressiveJoin(touch, memory="8MiB", partitioning=BoxGrid(touch, space=(0, 0, 100, 100), cells=10))
    >>> lakes = pa.record_batch({"lake": ["a", "b"], "x0": [0, 50], "y0": [0, 50], "x1": [35, 55], "y1": [25, 55]})
    >>> parks = pa.record_batch({"park": [1, 2], "x0": [20, 60], "y0": [15, 60], "x1": [90, 70], "y1": [50, 70]})
    >>> list(op.insert("left", lakes))
    []
    >>> [(row["lake"], row["park"]) for out in op.insert("right", parks) for row in out.to_pylist()]
    [('a', 1), ('b', 1)]

    Reference: [PQP] §5.1, §5.1.1, Fig. 5.1-5.3; tiling of Patel and DeWitt, reference points of Dittrich and Seeger.

    Deviations: the reference point is the low corner in all dimensions, where the thesis takes the low x and the high y: any
    corner that both boxes have will do. Tiles are finer than the thesis's cells, which are partitions here: memory is probed by
    tile and flushed by cell, and one size cannot be right for both. Timestamps, decimals and int64 may not fit a double: such
    boxes are rounded outwards, and the pairs that are found are tested again (`exact` is False).
    """

    match = staticmethod(match_boxes)

    def __init__(
        self,
        condition: Intersects,
        space: Sequence[float] | None = None,
        cells: int | Sequence[int] | None = None,
        tiles: int | None = None,
        partitions: int | None = None,
        mapping: Literal["round-robin", "hash"] = "round-robin",
    ) -> None:
        self.condition, self.space, self.cells, self.tiles = condition, space, cells, tiles
        d = len(condition.left) // 2
        self._cells = _usual_cells(d) if cells is None else parse_cells(cells, d)
        count = math.prod(self._cells.tolist())
        if partitions is not None and not 1 <= partitions <= count:
            raise BadInput(f"partitions={partitions!r} of {count} cells; give 1 to {count}, or more cells")
        if tiles is not None and (not isinstance(tiles, int) or tiles < 1 or tiles & (tiles - 1)):
            raise BadInput(f"tiles={tiles!r} does not halve a cell some number of times; give 1, 2, 4, 8, ...")
        super().__init__(count if partitions is None else partitions)
        self.mapping = choice("mapping", mapping, ("round-robin", "hash"))
        self.width = 2 * d
        self.exact = True
        self.grid: Grid | None = None
        """the grid, once the space is known"""
        self._scales: list[list[Scale]] = [[], []]
        self._most_tiles = _ALL_TILES
        if space is not None:
            self._corners = parse_space(space, d)
            if tiles is not None:
                self._make_grid(*self._corners, tiles.bit_length() - 1)

    def coarsen(self, cells: int, partitions: int, memory: int) -> None:
        """Make the grid coarser, if need be, so that it has no more tiles than `cells`: a box may touch them all."""
        self._most_tiles = min(cells, _ALL_TILES)
        before = count = math.prod(self._cells.tolist())
        while count > self._most_tiles:
            self._cells = -(-self._cells // 2)
            count = math.prod(self._cells.tolist())
        self.partitions = min(partitions, count if self.partitions == before else min(self.partitions, count))
        if self.grid is not None:
            self._make_grid(self.grid.low, self.grid.high, int(self.grid.shift.max()))

    def bind(self, side: int, schema: pa.Schema) -> None:
        """Learn the columns of a side. All coordinates of a dimension must be of one kind: numbers, dates or timestamps."""
        names = self.condition.left if side == 0 else self.condition.right
        for name in names:
            if schema.names.count(name) != 1:
                many = "no" if name not in schema.names else "more than one"
                raise BadInput(
                    f"the {SIDES[side]} side has {many} column {name!r}; its columns are {', '.join(schema.names)}"
                )
        scales = [Scale.of(SIDES[side], name, schema.field(name).type) for name in names]
        d = self.width // 2
        for j, (name, scale) in enumerate(zip(names, scales, strict=True)):
            other = self._scales[1 - side][j % d] if self._scales[1 - side] else scales[j % d]
            if scale.family != other.family:
                raise BadInput(
                    f"{SIDES[side]} column {name!r} of type {schema.field(name).type} is a {scale.family}, and the boxes have a"
                    f" {other.family} in dimension {j % d}; cast one to the other's type"
                )
        self._scales[side] = scales
        self.exact &= all(_fits_double(schema.field(name).type) for name in names)

    def check(self, side: int, batch: pa.RecordBatch) -> None:
        """Refuse inverted boxes. The grid is not made from them."""
        self._boxes(side, batch)

    def read(self, side: int, batch: pa.RecordBatch) -> JoinKeys:
        """Read the corners as doubles, rounded outwards where they do not fit. The grid may be made from the first boxes."""
        values, valid = self._boxes(side, batch)
        if self.grid is None and valid.any():
            self._make_grid_for(values[valid])
        d, out = self.width // 2, 0
        if self.grid is not None:
            beyond = (values[:, :d] < self.grid.low).any(axis=1) | (values[:, d:] > self.grid.high).any(axis=1)
            out = int((beyond & valid).sum())
        return JoinKeys(np.empty(0, np.uint64), values.reshape(-1), valid, out)

    def _boxes(self, side: int, batch: pa.RecordBatch) -> tuple[Float64s, Bools]:
        """The corners of boxes as [row, coordinate], and which boxes are without null and NaN; an inverted one is refused."""
        names = self.condition.left if side == 0 else self.condition.right
        d, n = self.width // 2, batch.num_rows
        values, valid = np.empty((n, 2 * d)), np.ones(n, np.bool_)
        plain: list[Int64s | Float64s] = []
        for j, (name, scale) in enumerate(zip(names, self._scales[side], strict=True)):
            column, there = scale.read(batch.column(name), as_doubles=False)
            plain.append(column)
            values[:, j] = _outwards(column, scale, -np.inf if j < d else np.inf)
            valid &= there
        for j in range(d):
            same = self._scales[side][j].unit == self._scales[side][d + j].unit
            low, high = (plain[j], plain[d + j]) if same else (values[:, j], values[:, d + j])
            inverted = np.flatnonzero((low > high) & valid)
            if inverted.size:
                self._refuse(side, batch, int(inverted[0]), names, j)
        return values, valid

    def home(self, side: int, keys: JoinKeys) -> CellEntries:
        """Every tile that each box touches."""
        if self.grid is None:
            return CellEntries(np.empty(0, np.int32), np.empty(0, np.uint64))
        valid = keys.valid.view(np.uint8)
        room = int(1.2 * self.cells_per_row * valid.size) + 64
        rows, codes = np.empty(room, np.int32), np.empty(room, np.uint64)
        n = cover_tiles(keys.values, valid, self.limits, rows, codes)
        if n > room:
            rows, codes = np.empty(n, np.int32), np.empty(n, np.uint64)
            cover_tiles(keys.values, valid, self.limits, rows, codes)
        self.cells_per_row = max(1.0, n / max(1, valid.size))
        return CellEntries(rows[:n], codes[:n])

    def partition_of(self, cells: UInt64s) -> Int32s:
        """The partition that each tile's cell is assigned to."""
        assert self.grid is not None or not cells.size
        number = (cells >> np.uint64(self.grid.bits if self.grid else 0)).astype(np.int64)
        if self.partitions == math.prod(self._cells.tolist()):
            return number.astype(np.int32)
        if self.mapping == "round-robin":
            return (number % self.partitions).astype(np.int32)
        hashes, out = np.empty(number.size, np.uint64), np.empty(number.size, np.int32)
        hash_ints(number, hashes)
        shards_of(hashes, self.partitions, out)
        return out

    def _make_grid_for(self, boxes: Float64s) -> None:
        """Make the grid from the first boxes: their space, and tiles as small as keeps copies few."""
        d = self.width // 2
        low, high = self._corners if self.space is not None else observed_space(boxes[:, :d], boxes[:, d:])
        if self.tiles is not None:
            self._make_grid(low, high, self.tiles.bit_length() - 1)
            return
        shift, tiled = 0, np.arange(d) < _GRID_DIMENSIONS
        while self._tiles(shift + 1) <= min(_MOST_TILES, self._most_tiles):
            # On average a box touches 1 + extent / width tiles in each dimension.
            with np.errstate(over="ignore", invalid="ignore"):
                widths = (high - low) / self._cells / 2.0 ** (shift + 1)
                inside = np.clip(boxes[:, d:], low, high) - np.clip(boxes[:, :d], low, high)
                copies = np.where(tiled, 1.0 + inside / widths, 1.0).prod(axis=1)
            if not copies.mean() <= _COPIES:
                break
            shift += 1
        self._make_grid(low, high, shift)

    def _tiles(self, shift: int) -> float:
        """The number of tiles in all, if a cell is halved so many times in each dimension that has tiles."""
        return float(math.prod(self._cells.tolist()) * 2.0 ** (shift * min(self.width // 2, _GRID_DIMENSIONS)))

    def _make_grid(self, low: Float64s, high: Float64s, shift: int) -> None:
        while shift and self._tiles(shift) > self._most_tiles:
            shift -= 1
        shifts = np.where(np.arange(low.size) < _GRID_DIMENSIONS, shift, 0).astype(np.int64)
        self.grid = check_tiles(Grid(low, high, self._cells, shifts))
        self.limits = self.grid.numbers()

    def _refuse(self, side: int, batch: pa.RecordBatch, row: int, names: Sequence[str], j: int) -> None:
        """Raise BadInput for a box whose low corner is above its high corner in dimension j."""
        box = ", ".join(f"{name}={batch.column(name)[row].as_py()!r}" for name in names)
        low, high = names[j], names[len(names) // 2 + j]
        raise BadInput(
            f"a box of the {SIDES[side]} side is inverted: {low} is above {high} in ({box}); name the low corner first, swap the"
            " two where they are wrong, or leave such rows out"
        )


def _usual_cells(d: int) -> Int64s:
    """The default number of cells in each of d dimensions."""
    each = max(2, round(_CELLS ** (1 / min(d, _GRID_DIMENSIONS))))
    return np.array([each if j < _GRID_DIMENSIONS else 1 for j in range(d)], np.int64)


def _fits_double(type_: pa.DataType) -> bool:
    """Whether every value of a type can be stored exactly as a double."""
    t = pa.types
    return bool(t.is_floating(type_) or t.is_date32(type_) or (t.is_integer(type_) and type_.bit_width <= 32))


def _outwards(column: Int64s | Float64s, scale: Scale, to: float) -> Float64s:
    """Convert numbers to doubles that keep their order, though some may become equal; move those rounded twice towards `to`.

    One rounding keeps the order of low and high corners, and equal numbers stay equal. Two roundings, to a double and by a
    division, do not: 1294639275203533000 ns and 1294639275203533 us would become different doubles.
    """
    if scale.unit is None or scale.unit >= 1:
        return np.asarray(column, np.float64) * float(scale.unit or 1)
    return np.nextafter(np.nextafter(column / float(1 / scale.unit), to), to)
