"""VectorCells: cells of vectors in many dimensions, by the site with the highest score. What exact and approximate ones share."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headrace.arrays import AnyArray, Bools, Float64s, Int32s, UInt64s
from headrace.conditions import Within
from headrace.errors import BadInput
from headrace.kernels.vector_cells import FAR, SKETCH, match_sketches, nearest_sites, own_cells, prepare_vectors
from headrace.predicates.distances import Vector
from headrace.progressive.grids.partitioning import LEFT, SIDES, CellEntries, JoinKeys, Partitioning

_GROUPS = 16  # of cells: a right vector in reach of many cells is kept in their groups instead
_MOST_COPIES = 64  # cells that a right vector is kept in, at most, before it is kept in groups
_SCRATCH = 1 << 20  # bytes that vectors and their scores take while they are assigned to cells, some rows at a time
_LEAST_SITES = 4
_LARGEST = 1e300  # radius: everything that has scores is nearer
_ERROR = 1.01 * 2.0**-24  # of a product in single precision, times its dimensions and the lengths of its factors
_TINY = 2.0**-126  # the least number of single precision with all digits: a product below it may be lost
_SKETCH_ERROR = 1e-18  # of any sketch, so that squares of single precision that vanish decide nothing
_DOUBLE = 2.0**-50  # the relative error of what is computed in doubles


@dataclass(frozen=True, slots=True)
class VectorKeys(JoinKeys):
    """Sketches of vectors, with the cells that they are kept in."""

    cells: CellEntries | None = None


@dataclass(frozen=True, slots=True)
class Sites:
    """What vectors are divided by. Sites and sketches are in single precision, exactly.

    Attributes
    ----------
    centre
        The origin of everything else.
    matrix
        A site a row, and then a direction of the sketches a row.
    bias
        Added to the scores of each site.
    sketch_limit
        How far the sketches of two vectors within the radius may be apart.
    """

    centre: Float64s
    matrix: AnyArray
    bias: Float64s
    sketch_limit: float
    longest: tuple[float, float] = field(init=False)
    """the lengths of the longest site, and of the longest direction of a sketch"""

    def __post_init__(self) -> None:
        lengths = np.sqrt((self.matrix.astype(np.float64) ** 2).sum(axis=1))
        at = self.bias.size
        object.__setattr__(self, "longest", (float(lengths[:at].max()), float(lengths[at:].max())))

    @property
    def vectors(self) -> AnyArray:
        """The sites alone, as one array."""
        return self.matrix[: self.bias.size].reshape(-1)


@dataclass(frozen=True, slots=True)
class Scored:
    """Vectors with their scores, and their best site."""

    scores: AnyArray
    """of each site, and then the coordinates of the sketch: [row, number]"""
    exact: Float64s
    norms: Float64s
    error: float
    """times a vector's length: the largest error of a score"""
    site: Int32s
    best: Float64s


class VectorCells(Partitioning):
    """Keeps a left vector in the cell of its site and a right one in all cells that may hold its matches.

        sites     .   a   .       left x: the cell of its best site, a, and a's group
                    x             right y: the cells of all sites in reach, a and b; or their groups, if there are many
                  . y b   .       so a pair is found in one cell: that of x, or its group

    Partitions of one number are joined. A slot has a sketch of its vector, 31 coordinates in other directions, and pairs whose
    sketches are near are tested by the condition. A subclass says what sites are, and which are in reach.

    Parameters
    ----------
    condition
        The vectors, eps and the metric.
    sites
        The number of sites; fewer in little memory.
    partitions
        The number of partitions.
    """

    width = SKETCH // 2
    exact = False
    match = staticmethod(match_sketches)

    def __init__(self, condition: Within, sites: int, partitions: int = 64) -> None:
        for name, value in (("partitions", partitions), ("sites", sites)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise BadInput(f"{name}={value!r} is not a number above 0")
        super().__init__(partitions)
        self.condition = condition
        self.sites = sites
        """the number of sites at most; of a join with little memory, and until rows are read, there may be fewer"""
        self.size = condition.dims or max(len(condition.left), len(condition.right))
        """coordinates of a vector; of a fixed-size list they are known once `bind` has seen its type"""
        self._copies, self._groups = _MOST_COPIES, _GROUPS
        self._memory: int | None = None
        self._scratch = _SCRATCH
        self._vectors: list[Vector | None] = [None, None]
        self._sites: Sites | None = None

    # -- what a subclass gives -------------------------------------------------------------------------------------------

    @abstractmethod
    def _make_sites(self, rows: Float64s) -> Sites:
        """Make the sites, given the first vectors that were read: [row, coordinate]."""

    @abstractmethod
    def _reach(self, scored: Scored, room: int) -> tuple[CellEntries, int]:
        """The cells in reach of vectors, as many as there is room for, and how many there are."""

    # -- the columns -----------------------------------------------------------------------------------------------------

    def coarsen(self, cells: int, partitions: int, memory: int) -> None:
        """Keep a vector in fewer cells, divide by fewer sites, and work on fewer rows at a time."""
        self.partitions = min(self.partitions, partitions)
        self._copies, self._groups = max(1, min(self._copies, cells)), max(1, min(self._groups, cells))
        self._memory, self._scratch = memory, min(self._scratch, memory // 4)

    @property
    def nbytes(self) -> int:
        """The bytes of the sites and of working space, once the size of vectors is known."""
        rows = self.sites + SKETCH
        return 4 * rows * self.size + 16 * rows + 8 * self.size + self._extra_bytes(self.sites) + self._scratch

    def _extra_bytes(self, sites: int) -> int:
        """Bytes that a subclass keeps for so many sites."""
        return 0

    def bind(self, side: int, schema: pa.Schema) -> None:
        """Learn the vector columns of a side. Both sides must have vectors of one size."""
        names = self._names(side)
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
        self.size = vector.size
        while self._memory is not None and self.nbytes > self._memory and self.sites > _LEAST_SITES:
            self.sites //= 2

    @property
    def radius(self) -> float:
        """The Euclidean distance that vectors, as they are divided, are apart at most if they match."""
        eps, metric = float(self.condition.eps), self.condition.metric
        if metric == "cosine":
            return math.sqrt(2.0 * (min(eps, 2.0) + (self.size + 8) * _DOUBLE)) * (1.0 + 1e-12)
        # Products with distances, which may be 0, must be numbers.
        return min(_LARGEST, eps * (math.sqrt(self.size) if metric == "chebyshev" else 1.0) * (1.0 + 1e-12))

    def check(self, side: int, batch: pa.RecordBatch) -> None:
        """Refuse lists of another size than was declared."""
        vector = self._vectors[side]
        assert vector is not None
        vector.check([batch.column(name) for name in self._names(side)])

    def read(self, side: int, batch: pa.RecordBatch) -> VectorKeys:
        """Read vectors, some at a time, and find their cells. Sites may be made from the first ones."""
        vector, names = self._vectors[side], self._names(side)
        assert vector is not None
        sketches = np.zeros((batch.num_rows, SKETCH), np.float32)
        valid = np.zeros(batch.num_rows, np.bool_)
        parts: list[CellEntries] = []
        step = max(1, self._scratch // (4 * (6 * self.size + self.sites + 2 * SKETCH)))
        if self._sites is None:
            step = max(step, min(batch.num_rows, self._wanted_rows))
        for at in range(0, batch.num_rows, step):
            some = batch.slice(at, step)
            values, there = vector.read([some.column(name) for name in names])
            there = there & np.isfinite(values).reshape(-1, self.size).all(axis=1)
            scored = self._score(values, there)
            if scored is None:
                continue
            valid[at : at + step] = there
            sketches[at : at + step] = self._sketch(scored)
            found = self._own(scored) if side == LEFT else self._in_reach(scored)
            parts.append(CellEntries(found.row + np.int32(at), found.cell))
        cells = _joined(parts)
        if side != LEFT:
            self.cells_per_row = max(1.0, cells.row.size / max(1, batch.num_rows))
        return VectorKeys(np.empty(0, np.uint64), sketches.reshape(-1).view(np.float64), valid, 0, cells)

    def home(self, side: int, keys: JoinKeys) -> CellEntries:
        """The cells that `read` has found."""
        assert isinstance(keys, VectorKeys) and keys.cells is not None
        return keys.cells

    def partition_of(self, cells: UInt64s) -> Int32s:
        """Cells are assigned to partitions in turn."""
        return ((cells >> np.uint64(32)) % np.uint64(self.partitions)).astype(np.int32)

    # -- scores ----------------------------------------------------------------------------------------------------------

    @property
    def _wanted_rows(self) -> int:
        """The first rows that sites are made from, at most; no more than a quarter of what the partitioning may hold."""
        return min(8 * self.sites, max(1, (self._memory or (1 << 24)) // 4 // (16 * self.size)))

    def _names(self, side: int) -> tuple[str, ...]:
        return self.condition.left if side == LEFT else self.condition.right

    def _score(self, values: Float64s, valid: Bools) -> Scored | None:
        """The scores of vectors; valid[i] becomes False where a vector has no direction. None while there are no sites."""
        n, unit = valid.size, self.condition.metric == "cosine"
        there = valid.view(np.uint8)
        exact, rounded, norms = np.empty(n * self.size), np.empty(n * self.size, np.float32), np.empty(n)
        if self._sites is None:
            origin = np.zeros(self.size)
            prepare_vectors(values, origin, unit, there, exact, rounded, norms)
            if not valid.any():
                return None
            fit = valid & (norms <= FAR)
            self._sites = self._make_sites(exact.reshape(n, self.size)[fit] if fit.any() else origin[None, :])
            self.limits = np.array([self._sites.sketch_limit * (1.0 + 1e-5)])
        sites = self._sites
        prepare_vectors(values, sites.centre, unit, there, exact, rounded, norms)
        scores = rounded.reshape(n, self.size) @ sites.matrix.T
        site, best = np.empty(n, np.int32), np.empty(n)
        # The centre is subtracted in doubles, which moves a vector by a little more where the centre is far away.
        moved = _DOUBLE * float(np.sqrt((sites.centre**2).sum()))
        error = _ERROR * (self.size + 8)
        far = error * sites.longest[0]
        lengths = norms + moved / error + (self.size + 8) * _TINY / far if far > 0 else norms
        nearest_sites(
            scores.reshape(-1), scores.shape[1], exact, sites.vectors, sites.bias, lengths, far, there, site, best
        )
        return Scored(scores, exact, lengths, far, site, best)

    def _sketch(self, scored: Scored) -> AnyArray:
        """The coordinates of sketches, and last a bound on their error."""
        assert self._sites is not None
        out = np.empty((scored.norms.size, SKETCH), np.float32)
        out[:, :-1] = scored.scores[:, self._sites.bias.size :]
        each = _ERROR * (self.size + 8) * self._sites.longest[1] * math.sqrt(SKETCH)
        with np.errstate(over="ignore"):
            out[:, -1] = 1.001 * each * scored.norms + _SKETCH_ERROR
        out[scored.norms > FAR, -1] = np.inf
        return out

    def _own(self, scored: Scored) -> CellEntries:
        """The cell of each vector's site, and its group."""
        assert self._sites is not None
        rows, codes = np.empty(2 * scored.site.size, np.int32), np.empty(2 * scored.site.size, np.uint64)
        n = own_cells(scored.site, self._sites.bias.size, self._groups, rows, codes)
        return CellEntries(rows[:n], codes[:n])

    def _in_reach(self, scored: Scored) -> CellEntries:
        """The cells that may hold matches of each vector."""
        entries, n = self._reach(scored, int(1.2 * self.cells_per_row * scored.site.size) + 64)
        return entries if n == entries.row.size else self._reach(scored, n)[0]


def _joined(parts: list[CellEntries]) -> CellEntries:
    """Entries one after the other."""
    if len(parts) == 1:
        return parts[0]
    rows = [part.row for part in parts] or [np.empty(0, np.int32)]
    return CellEntries(np.concatenate(rows), np.concatenate([part.cell for part in parts] or [np.empty(0, np.uint64)]))
