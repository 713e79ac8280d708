"""VectorGrid: partitions of vectors by an n-dimensional grid. A cell is joined with all cells within eps. [PQP] ch. 6"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.arrays import Float64s, Int32s, Int64s, UInt64s
from headrace.conditions import METRICS, Within
from headrace.errors import BadInput
from headrace.kernels.grids import home_tiles
from headrace.kernels.vectors import match_vectors, neighbour_cells, reach_tiles
from headrace.predicates.distances import Vector
from headrace.progressive.grids.grid import Grid, observed_space, parse_cells, parse_space
from headrace.progressive.grids.partitioning import SIDES, CellEntries, JoinKeys, Partitioning

_MOST_PARTITIONS = 256  # more would be flushed in pieces too small to be written and read with profit
_MAX_TILES = 256  # that a vector probes by default
_TILE_BITS = 24  # of a tile's code, at most, for its place in its cell
_TILE_DIMENSIONS = 8  # of the grid, at most
# Tiles of a grid, about as many as memory holds vectors; more dimensions would cost more probes than they save
_TILES_ENOUGH = 1 << 15
_SLACK = (
    64 * np.finfo(np.float64).eps
)  # times a coordinate: rounding must not make neighbouring cells seem farther apart


class VectorGrid(Partitioning):
    """Keeps a vector in the tile that it lies in; a vector's matches are in the tiles within eps of it.

        cells, 4 tiles each     . . . .     x lies in the tile 'x', and probes that and the tiles 'o': all that the ball of
                                . o o .     radius eps around it touches. kappa of its cell are all cells that any vector of
                                o x o .     the cell probes.
                                . o . .

    Choose it for `within`. A partition is a cell. With many dimensions a full grid would have more cells than there are vectors,
    and a vector would probe too many of them. So the grid has cells in the few dimensions in which the space is widest, and tiles
    in some more, as long as a vector does not probe too many; the other dimensions only count in distances.

    Parameters
    ----------
    condition
        The vectors, eps and the metric. Nulls, NaN and infinities are near nothing.
    space
        The space that the grid covers: the low corner, then the high one, in all dimensions. By default it is the space of the
        first vectors that are read. Vectors outside are put into the cells at its edge: they join as any other, but many of them
        make a join slow, and `stats.outside` counts them.
    cells
        The number of cells in each dimension; 4 in [PQP] Table 6.1.
    dimensions
        The number of dimensions that have cells, at most; by default as many as make at most 256 cells.
    max_tiles
        The number of tiles that a vector probes on average, at most; it limits the dimensions that have tiles.

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

    Deviations: a vector probes the tiles within eps of itself, not of its cell, and tiles are about eps wide, finer than the
    cells that are flushed; Manhattan and Chebyshev distances are possible; a grid may have fewer dimensions than the vectors.
    """

    identity = False
    match = staticmethod(match_vectors)

    def __init__(
        self,
        condition: Within,
        space: Sequence[float] | None = None,
        cells: int = 4,
        dimensions: int | None = None,
        max_tiles: int = _MAX_TILES,
    ) -> None:
        if condition.metric == "cosine":
            raise BadInput(f"{condition!r} is of angles, and a grid of places; use VectorPivots or VectorLsh")
        parse_cells(cells, 1)
        for name, value in (("dimensions", dimensions), ("max_tiles", max_tiles)):
            if value is not None and (not isinstance(value, int) or value < 1):
                raise BadInput(f"{name}={value!r} is not a number above 0")
        self.condition, self.space, self.cells = condition, space, cells
        self.dimensions, self.max_tiles = dimensions, max_tiles
        # A vector may be one column, whose size is known when its type is; until then the largest possible is taken.
        known = condition.dims or max(len(condition.left), len(condition.right))
        size = known if known > 1 else _MOST_PARTITIONS if space is None else len(space) // 2
        usual = 1
        while cells > 1 and cells ** (usual + 1) <= _MOST_PARTITIONS:
            usual += 1
        self._cell_dimensions = min(size, dimensions or usual)
        super().__init__(cells**self._cell_dimensions)
        parse_cells(cells, self._cell_dimensions)
        self.grid: Grid | None = None
        """the grid, once the space is known"""
        self.axes: Int64s = np.empty(0, np.int64)
        """the dimensions of the vectors that the grid has"""
        self._vectors: list[Vector | None] = [None, None]
        self._eps, self._metric = float(condition.eps), METRICS.index(condition.metric)

    def bind(self, side: int, schema: pa.Schema) -> None:
        """Learn the vector columns of a side. Both sides must have vectors of one size."""
        names = self.condition.left if side == 0 else self.condition.right
        for name in names:
            if schema.names.count(name) != 1:
                many = "no" if name not in schema.names else "more than one"
                raise BadInput(
                    f"the {SIDES[side]} side has {many} column {name!r}; its columns are {', '.join(schema.names)}"
                )
        vector = Vector(SIDES[side], names, {field.name: field.type for field in schema}, self.condition.dims)
        other = self._vectors[1 - side]
        if other is not None:
            vector.check_size(other)
        self._vectors[side] = vector
        self.width = vector.size
        self.limits = np.array([self._eps, self._metric, vector.size], np.float64)
        if self.space is not None and self.grid is None:
            self._make_grid(*parse_space(self.space, vector.size))

    def check(self, side: int, batch: pa.RecordBatch) -> None:
        """Refuse lists of another size than was declared; vectors that are near nothing are left out."""
        vector, names = self._vectors[side], self.condition.left if side == 0 else self.condition.right
        assert vector is not None
        vector.check([batch.column(name) for name in names])

    def read(self, side: int, batch: pa.RecordBatch) -> JoinKeys:
        """Read the coordinates. The first vectors give the grid its space, if the user gave none."""
        vector = self._vectors[side]
        names = self.condition.left if side == 0 else self.condition.right
        assert vector is not None
        values, valid = vector.read([batch.column(name) for name in names])
        valid = valid & np.isfinite(values).reshape(-1, self.width).all(axis=1)
        if self.grid is None and valid.any():
            some = values.reshape(-1, self.width)[valid]
            self._make_grid(*observed_space(some, some))
        out = 0
        if self.grid is not None:
            inner = values.reshape(-1, self.width)[:, self.axes]
            beyond = ((inner < self.grid.low) | (inner > self.grid.high)).any(axis=1)
            out = int((beyond & valid).sum())
        return JoinKeys(np.empty(0, np.uint64), values, valid, out)

    def home(self, side: int, keys: JoinKeys) -> CellEntries:
        """The tile that each vector lies in."""
        if self.grid is None:
            return CellEntries(np.empty(0, np.int32), np.empty(0, np.uint64))
        valid = keys.valid.view(np.uint8)
        rows, codes = np.empty(valid.size, np.int32), np.empty(valid.size, np.uint64)
        n = home_tiles(keys.values, valid, self.width, self.axes, self._numbers, rows, codes)
        return CellEntries(rows[:n], codes[:n])

    def reach(self, side: int, keys: JoinKeys) -> CellEntries:
        """The tiles within eps of each vector."""
        if self.grid is None:
            return CellEntries(np.empty(0, np.int32), np.empty(0, np.uint64))
        n = keys.valid.size
        room = int(1.2 * self.cells_per_row * n) + 64
        while True:
            rows, codes = np.empty(room, np.int32), np.empty(room, np.uint64)
            found = reach_tiles(
                keys.values,
                keys.valid.view(np.uint8),
                self.width,
                self.axes,
                self._numbers,
                self._eps,
                self._metric,
                rows,
                codes,
            )
            if found <= room:
                self.cells_per_row = max(1.0, found / max(1, n))  # fewer than expected at the edge of the space
                return CellEntries(rows[:found], codes[:found])
            room = found

    def partition_of(self, cells: UInt64s) -> Int32s:
        """The cell of each tile."""
        return (cells >> np.uint64(self.grid.bits if self.grid else 0)).astype(np.int32)

    def neighbours(self, partitions: Int32s) -> Int32s:
        """kappa: the cells within eps of these."""
        if self.grid is None:
            return np.unique(partitions)
        found = np.zeros(self.partitions, np.uint8)
        grid = self.grid
        slack = _SLACK * (np.abs(grid.low) + np.abs(grid.high) + self._eps)
        numbers = np.ascontiguousarray(partitions, np.int32)
        neighbour_cells(numbers, grid.cells, grid.widths, slack, self._eps, self._metric, found)
        return np.flatnonzero(found).astype(np.int32)

    def _make_grid(self, low: Float64s, high: Float64s) -> None:
        """Make the grid over the widest dimensions, as many as keep a probe within `max_tiles`.

        The first of them have cells and tiles, the others one cell with tiles. A tile is at least eps wide, or the whole cell.
        """
        widest = np.argsort(low - high, kind="stable")[:_TILE_DIMENSIONS].tolist()
        finest = _TILE_BITS // len(widest)
        axes: dict[int, tuple[int, int]] = {}
        expected, tiles = ExpectedTiles(self.condition.metric), 1
        for j in widest:
            cells = self.cells if len(axes) < self._cell_dimensions else 1
            width = (high[j] - low[j]) / cells
            shift = math.floor(np.clip(np.log2(width / self._eps), 0, finest)) if width < math.inf else 0
            more = expected.with_dimension(self._eps * 2.0**shift / width)
            if axes and (more.average > self.max_tiles or tiles >= _TILES_ENOUGH or cells << shift == 1):
                break
            axes[j], expected, tiles = (cells, shift), more, tiles * (cells << shift)
        self.axes = np.array(sorted(axes), np.int64)
        cut = np.array([axes[j] for j in sorted(axes)], np.int64)
        self.grid = Grid(low[self.axes], high[self.axes], cut[:, 0].copy(), cut[:, 1].copy())
        self._numbers = self.grid.numbers()
        self.cells_per_row = expected.average


class ExpectedTiles:
    """The number of tiles that a ball of radius eps touches, on average over all places of its centre.

    By Steiner's formula it is the sum over k of the volume of the unit ball in k dimensions, times the sum of products of k of
    the ratios of eps to a tile's width.

    Parameters
    ----------
    metric
        The metric of the ball.
    products
        The sum of products of 0, 1, 2, ... of the ratios so far.
    """

    def __init__(self, metric: str, products: tuple[float, ...] = (1.0,)) -> None:
        self.metric, self.products = metric, products

    @property
    def average(self) -> float:
        """The expected number of tiles."""
        return sum(product * self._ball(k) for k, product in enumerate(self.products))

    def with_dimension(self, ratio: float) -> ExpectedTiles:
        """Return the estimate with one more dimension, in which eps is `ratio` times the width of a tile."""
        old = (*self.products, 0.0)
        return ExpectedTiles(self.metric, tuple(p + ratio * (old[k - 1] if k else 0.0) for k, p in enumerate(old)))

    def _ball(self, k: int) -> float:
        """The volume of the ball of radius 1 in k dimensions."""
        if self.metric == "euclidean":
            return float(math.pi ** (k / 2) / math.gamma(k / 2 + 1))
        return float(2.0**k / (math.factorial(k) if self.metric == "manhattan" else 1))
