"""Partitions of vectors: an n-dimensional grid, whose cells meet all cells within eps. [PQP] ch. 6"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.conditions import METRICS, Within
from headrace.errors import BadInput
from headrace.kernels.grids import home_tiles
from headrace.kernels.vectors import match_vectors, neighbour_cells, reach_tiles
from headrace.predicates.distances import Vector
from headrace.progressive.grids.grid import Grid, observed_space, parse_cells, parse_space
from headrace.progressive.grids.partitioning import SIDES, Doubles, Entries, Partitioning, Reading
from headrace.relation.columns import Longs
from headrace.relation.keys import Hashes, Ints

_MOST_PARTITIONS = 256  # more would be flushed in pieces too small to be written and read with profit
_MOST_LOOKS = 256
_TILE_BITS = 24  # of a tile's place in its cell, at most
_TILE_DIMENSIONS = 8
# To tell as many vectors apart as memory holds; more dimensions would cost more looks than they save
_TILES_ENOUGH = 1 << 15
_SLACK = 64 * np.finfo(np.float64).eps  # of a coordinate: what is rounded must not part two cells


class VectorGrid(Partitioning):
    """A vector is kept in the tile that it lies in, and its matches are in the tiles within eps of it.

        cells, 4 tiles each     . . . .     x lies in the tile 'x', and looks into that and into 'o': what the ball of radius eps
                                . o o .     around it touches. kappa of its cell are all cells that any vector of the cell
                                o x o .     looks into.
                                . o . .

    Choose it for `within`. A partition is a cell. With many dimensions a grid has more cells than there are vectors, and a vector
    more neighbours: cells are laid in the few dimensions in which the space is widest, tiles in some more, as long as a vector
    has not too many to look into; the others count in distances alone.

    Parameters
    ----------
    condition
        The vectors, eps and the metric. Nulls, NaN and infinities are near nothing.
    space
        What the grid covers: the low corner, then the high one, in all dimensions. If not given, the space of the first vectors
        that are read. Vectors outside are in the cells at its edge: they join as any other, more slowly the more there are, and
        `stats.outside` counts them.
    cells
        A dimension; 4 in [PQP] Table 6.1.
    dimensions
        That have cells, at most: as many as make at most 256 of them, by default.
    looks
        Tiles that a vector looks into on average, at most; tiles are laid in no more dimensions.

    Example
    -------
    >>> import pyarrow as pa, headrace as hr
    >>> from headrace.progressive import ProgressiveJoin, VectorGrid
    >>> near = hr.within("v", eps=0.5)
    >>> op = ProgressiveJoin(near, memory="8MiB", partitioning=VectorGrid(near, space=(0, 0, 10, 10)))
    >>> points = pa.array([[1.0, 1.0], [7.5, 2.0]], pa.list_(pa.float64(), 2))
    >>> list(op.insert("left", pa.record_batch({"a": ["x", "y"], "v": points})))
    []
    >>> others = pa.array([[7.2, 2.4], [1.0, 1.6]], pa.list_(pa.float64(), 2))
    >>> results = op.insert("right", pa.record_batch({"b": [1, 2], "v": others}))
    >>> [(row["a"], row["b"]) for out in results for row in out.to_pylist()]
    [('y', 1)]

    Reference: [PQP] §3.1.1 (kappa), §6.1, Table 6.1.

    Deviations: a probe looks into the tiles within eps of the vector, not of its cell, and tiles are about eps wide, finer than
    the cells that are flushed; also Manhattan and Chebyshev distances; grids of fewer dimensions than the vectors.
    """

    identity = False
    match = staticmethod(match_vectors)

    def __init__(
        self,
        condition: Within,
        space: Sequence[float] | None = None,
        cells: int = 4,
        dimensions: int | None = None,
        looks: int = _MOST_LOOKS,
    ) -> None:
        parse_cells(cells, 1)
        for name, value in (("dimensions", dimensions), ("looks", looks)):
            if value is not None and (not isinstance(value, int) or value < 1):
                raise BadInput(f"{name}={value!r} is not a number above 0")
        self.condition, self.space, self.cells = condition, space, cells
        self.dimensions, self.looks = dimensions, looks
        # Known for sure when types are: a vector may be one column.
        known = max(len(condition.left), len(condition.right))
        size = known if known > 1 else _MOST_PARTITIONS if space is None else len(space) // 2
        usual = 1
        while cells > 1 and cells ** (usual + 1) <= _MOST_PARTITIONS:
            usual += 1
        self._cell_dimensions = min(size, dimensions or usual)
        super().__init__(cells**self._cell_dimensions)
        parse_cells(cells, self._cell_dimensions)
        self.grid: Grid | None = None
        """known when there is something to divide"""
        self.axes: Longs = np.empty(0, np.int64)
        """the dimensions of the grid"""
        self._vectors: list[Vector | None] = [None, None]
        self._eps, self._metric = float(condition.eps), METRICS.index(condition.metric)

    def bind(self, side: int, schema: pa.Schema) -> None:
        """Both sides must have vectors of one size."""
        names = self.condition.left if side == 0 else self.condition.right
        for name in names:
            if schema.names.count(name) != 1:
                many = "no" if name not in schema.names else "more than one"
                raise BadInput(
                    f"the {SIDES[side]} side has {many} column {name!r}; its columns are {', '.join(schema.names)}"
                )
        vector = Vector(SIDES[side], names, {field.name: field.type for field in schema})
        other = self._vectors[1 - side]
        if other is not None:
            vector.check_size(other)
        self._vectors[side] = vector
        self.width = vector.size
        self.limits = np.array([self._eps, self._metric, vector.size], np.float64)
        if self.space is not None and self.grid is None:
            self._lay(*parse_space(self.space, vector.size))

    def read(self, side: int, batch: pa.RecordBatch) -> Reading:
        """Coordinates."""
        vector = self._vectors[side]
        names = self.condition.left if side == 0 else self.condition.right
        assert vector is not None
        values, valid = vector.read([batch.column(name) for name in names])
        valid = valid & np.isfinite(values).reshape(-1, self.width).all(axis=1)
        if self.grid is None and valid.any():
            some = values.reshape(-1, self.width)[valid]
            self._lay(*observed_space(some, some))
        out = 0
        if self.grid is not None:
            inner = values.reshape(-1, self.width)[:, self.axes]
            beyond = ((inner < self.grid.low) | (inner > self.grid.high)).any(axis=1)
            out = int((beyond & valid).sum())
        return Reading(np.empty(0, np.uint64), values, valid, out)

    def home(self, side: int, reading: Reading) -> Entries:
        """The tile that a vector lies in."""
        if self.grid is None:
            return Entries(np.empty(0, np.int32), np.empty(0, np.uint64))
        valid = reading.valid.view(np.uint8)
        rows, codes = np.empty(valid.size, np.int32), np.empty(valid.size, np.uint64)
        n = home_tiles(reading.values, valid, self.width, self.axes, self._numbers, rows, codes)
        return Entries(rows[:n], codes[:n])

    def reach(self, side: int, reading: Reading) -> Entries:
        """The tiles within eps of a vector."""
        if self.grid is None:
            return Entries(np.empty(0, np.int32), np.empty(0, np.uint64))
        n = reading.valid.size
        room = int(1.2 * self.fan * n) + 64
        while True:
            rows, codes = np.empty(room, np.int32), np.empty(room, np.uint64)
            found = reach_tiles(
                reading.values,
                reading.valid.view(np.uint8),
                self.width,
                self.axes,
                self._numbers,
                self._eps,
                self._metric,
                rows,
                codes,
            )
            if found <= room:
                self.fan = max(1.0, found / max(1, n))  # at the edge of the space there is less to look into
                return Entries(rows[:found], codes[:found])
            room = found

    def partition_of(self, cells: Hashes) -> Ints:
        """The cell of a tile."""
        return (cells >> np.uint64(self.grid.bits if self.grid else 0)).astype(np.int32)

    def neighbours(self, partitions: Ints) -> Ints:
        """kappa: the cells within eps of these."""
        if self.grid is None:
            return np.unique(partitions)
        found = np.zeros(self.partitions, np.uint8)
        grid = self.grid
        slack = _SLACK * (np.abs(grid.low) + np.abs(grid.high) + self._eps)
        numbers = np.ascontiguousarray(partitions, np.int32)
        neighbour_cells(numbers, grid.cells, grid.widths, slack, self._eps, self._metric, found)
        return np.flatnonzero(found).astype(np.int32)

    def _lay(self, low: Doubles, high: Doubles) -> None:
        """Lay the grid over the widest dimensions, as many as keep probes in bounds.

        The first of them have cells, the others tiles alone. A tile is at least eps wide, or the whole cell.
        """
        widest = np.argsort(low - high, kind="stable")[:_TILE_DIMENSIONS].tolist()
        finest = _TILE_BITS // len(widest)
        axes: dict[int, tuple[int, int]] = {}
        looks, tiles = Looks(self.condition.metric), 1
        for j in widest:
            cells = self.cells if len(axes) < self._cell_dimensions else 1
            width = (high[j] - low[j]) / cells
            shift = math.floor(np.clip(np.log2(width / self._eps), 0, finest)) if width < math.inf else 0
            more = looks.beside(self._eps * 2.0**shift / width)
            if axes and (more.average > self.looks or tiles >= _TILES_ENOUGH or cells << shift == 1):
                break
            axes[j], looks, tiles = (cells, shift), more, tiles * (cells << shift)
        self.axes = np.array(sorted(axes), np.int64)
        cut = np.array([axes[j] for j in sorted(axes)], np.int64)
        self.grid = Grid(low[self.axes], high[self.axes], cut[:, 0].copy(), cut[:, 1].copy())
        self._numbers = self.grid.numbers()
        self.fan = looks.average


class Looks:
    """How many tiles a ball of radius eps touches, on average over where it lies.

    It is Steiner's formula: volumes of balls of 0, 1, 2, ... dimensions, times the sums of products of as many ratios of eps to a
    tile's width.
    """

    def __init__(self, metric: str, products: tuple[float, ...] = (1.0,)) -> None:
        self.metric, self.products = metric, products

    @property
    def average(self) -> float:
        """Tiles."""
        return sum(product * self._ball(k) for k, product in enumerate(self.products))

    def beside(self, ratio: float) -> Looks:
        """With another dimension."""
        old = (*self.products, 0.0)
        return Looks(self.metric, tuple(p + ratio * (old[k - 1] if k else 0.0) for k, p in enumerate(old)))

    def _ball(self, k: int) -> float:
        """The volume of a ball of radius 1 in k dimensions."""
        if self.metric == "euclidean":
            return float(math.pi ** (k / 2) / math.gamma(k / 2 + 1))
        return float(2.0**k / (math.factorial(k) if self.metric == "manhattan" else 1))
