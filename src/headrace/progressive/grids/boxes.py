"""Partitions of boxes: a grid of tiles, each with all boxes that touch it. [PQP] ch. 5"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa

from headrace.conditions import Intersects
from headrace.errors import BadInput, choice
from headrace.kernels.boxes import cover_tiles, match_boxes
from headrace.kernels.hashing import hash_ints, shards_of
from headrace.predicates.numbers import Scale
from headrace.progressive.grids.grid import Grid, check_tiles, observed_space, parse_cells, parse_space
from headrace.progressive.grids.partitioning import SIDES, Doubles, Entries, Partitioning, Reading
from headrace.relation.columns import Longs
from headrace.relation.keys import Hashes, Ints

_CELLS = 100  # in all, if not given: the grid of [PQP] Table 5.1 in two dimensions
_GRID_DIMENSIONS = 6  # that have tiles, and cells if not given; the others do not tell boxes apart
_COPIES = 2.5  # of a box, on average, that smaller tiles may cost if their number is not given
_MOST_TILES = 1 << 14  # if their number is not given: what a box that covers all of the space would be copied into


class BoxGrid(Partitioning):
    """A box is kept in every tile that it touches, and two boxes that intersect are found in one of those that both touch.

        cells, 4 tiles each     a a b b     box 1 touches tiles of cells a, b, c, d and box 2 of b and d. Their intersection
                                a 1 1 2     begins in a tile of b: the pair is found there, and in no other.
                                c 1 1 2
                                c c d d

    Choose it for `intersects`. The pair's tile is that of its reference point, the low corner of the intersection: (max of the
    low x, max of the low y). A partition is a cell, or, if there are fewer partitions than cells, the cells that are dealt to it.

    Parameters
    ----------
    condition
        The boxes: numbers, dates or timestamps. Low above high is refused, nulls and NaN match nothing, infinities are as far as
        it goes.
    space
        What the grid covers: the low corner, then the high one. If not given, the space of the first boxes that are read. Boxes
        outside are in the cells at its edge: they join as any other, more slowly the more there are; `stats.outside` counts them.
    cells
        A dimension, as one number or one for each; about 100 in all by default, 10 by 10 in two dimensions.
    tiles
        That a cell is cut into, a dimension: 1, 2, 4, ... More make probes cheaper and copies of boxes more. If not given, as
        many as keep copies few, judging by the first boxes that are read.
    partitions
        As many as cells by default; or fewer, so that dense regions are spread over all.
    mapping
        How cells are dealt to fewer partitions: "round-robin", or by "hash", which has no pattern.

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
    corner that both boxes have will do. Tiles are finer than the thesis's cells, which are partitions here: a tile is where a
    probe looks, a cell is what is flushed, and one grid cannot be right for both. Timestamps, decimals and int64 may not fit a
    double: such boxes are rounded outwards, and pairs asked again (`exact` is False).
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
        """known when there is something to divide"""
        self._scales: list[list[Scale]] = [[], []]
        if space is not None:
            self._corners = parse_space(space, d)
            if tiles is not None:
                self._lay(*self._corners, tiles.bit_length() - 1)

    def bind(self, side: int, schema: pa.Schema) -> None:
        """All coordinates of a dimension must be of one kind."""
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

    def read(self, side: int, batch: pa.RecordBatch) -> Reading:
        """Corners, rounded outwards where they are rounded."""
        names = self.condition.left if side == 0 else self.condition.right
        d, n = self.width // 2, batch.num_rows
        values, valid = np.empty((n, 2 * d)), np.ones(n, np.bool_)
        plain: list[Longs | Doubles] = []
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
        if self.grid is None and valid.any():
            self._lay_by(values[valid])
        out = 0
        if self.grid is not None:
            beyond = (values[:, :d] < self.grid.low).any(axis=1) | (values[:, d:] > self.grid.high).any(axis=1)
            out = int((beyond & valid).sum())
        return Reading(np.empty(0, np.uint64), values.reshape(-1), valid, out)

    def home(self, side: int, reading: Reading) -> Entries:
        """Every tile that a box touches."""
        if self.grid is None:
            return Entries(np.empty(0, np.int32), np.empty(0, np.uint64))
        valid = reading.valid.view(np.uint8)
        room = int(1.2 * self.fan * valid.size) + 64
        rows, codes = np.empty(room, np.int32), np.empty(room, np.uint64)
        n = cover_tiles(reading.values, valid, self.limits, rows, codes)
        if n > room:
            rows, codes = np.empty(n, np.int32), np.empty(n, np.uint64)
            cover_tiles(reading.values, valid, self.limits, rows, codes)
        self.fan = max(1.0, n / max(1, valid.size))
        return Entries(rows[:n], codes[:n])

    def partition_of(self, cells: Hashes) -> Ints:
        """The partition that a tile's cell is dealt to."""
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

    def _lay_by(self, boxes: Doubles) -> None:
        """Lay the grid, judging by these boxes."""
        d = self.width // 2
        low, high = self._corners if self.space is not None else observed_space(boxes[:, :d], boxes[:, d:])
        if self.tiles is not None:
            self._lay(low, high, self.tiles.bit_length() - 1)
            return
        shift = 0
        count, tiled = math.prod(self._cells.tolist()), np.arange(d) < _GRID_DIMENSIONS
        while count * 2.0 ** ((shift + 1) * int(tiled.sum())) <= _MOST_TILES:
            # A box touches, on average, a tile more than its extent is wide, in each dimension.
            with np.errstate(over="ignore", invalid="ignore"):
                widths = (high - low) / self._cells / 2.0 ** (shift + 1)
                inside = np.clip(boxes[:, d:], low, high) - np.clip(boxes[:, :d], low, high)
                copies = np.where(tiled, 1.0 + inside / widths, 1.0).prod(axis=1)
            if not copies.mean() <= _COPIES:
                break
            shift += 1
        self._lay(low, high, shift)

    def _lay(self, low: Doubles, high: Doubles, shift: int) -> None:
        shifts = np.where(np.arange(low.size) < _GRID_DIMENSIONS, shift, 0).astype(np.int64)
        self.grid = check_tiles(Grid(low, high, self._cells, shifts))
        self.limits = self.grid.numbers()

    def _refuse(self, side: int, batch: pa.RecordBatch, row: int, names: Sequence[str], j: int) -> None:
        box = ", ".join(f"{name}={batch.column(name)[row].as_py()!r}" for name in names)
        low, high = names[j], names[len(names) // 2 + j]
        raise BadInput(
            f"a box of the {SIDES[side]} side is inverted: {low} is above {high} in ({box}); name the low corner first, swap the"
            " two where they are wrong, or leave such rows out"
        )


def _usual_cells(d: int) -> Longs:
    each = max(2, round(_CELLS ** (1 / min(d, _GRID_DIMENSIONS))))
    return np.array([each if j < _GRID_DIMENSIONS else 1 for j in range(d)], np.int64)


def _fits_double(type_: pa.DataType) -> bool:
    """Whether every value of a type is a double."""
    t = pa.types
    return bool(t.is_floating(type_) or t.is_date32(type_) or (t.is_integer(type_) and type_.bit_width <= 32))


def _outwards(column: Longs | Doubles, scale: Scale, to: float) -> Doubles:
    """Numbers as doubles that are in the same order, or equal; a number that is rounded twice is moved towards `to`.

    Rounding alone keeps the order of low and high corners: equal numbers stay equal. Rounded to a double and again by a division,
    1294639275203533000 ns and 1294639275203533 us become two doubles.
    """
    if scale.unit is None or scale.unit >= 1:
        return np.asarray(column, np.float64) * float(scale.unit or 1)
    return np.nextafter(np.nextafter(column / float(1 / scale.unit), to), to)
