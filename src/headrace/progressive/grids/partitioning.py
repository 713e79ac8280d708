"""Partitioning: how tuples of two streams are divided, so that only corresponding partitions are joined. [PQP] §3.1.1, Table 3.1

A tuple belongs to cells, and a cell to a partition. Partitions are flushed, counted and joined on disk. Cells, which may be much
smaller, are what memory is searched by: an arriving tuple probes the cells of the other side that may hold its matches.

    tuple --home--> cells it is kept in           key: 1, its hash    box: every tile it touches    vector: 1, the tile it lies in
          --reach-> cells its matches are in           the same            the same                      all tiles within eps
    cell  --partition_of--> partition --neighbours (kappa)--> partitions of the other side that may hold its matches
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from headrace.arrays import Bools, Float64s, Int32s, UInt64s

LEFT, RIGHT = 0, 1
SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")
NO_DOUBLES: Float64s = np.empty(0, np.float64)


def stream_name(number: int, streams: int) -> str:
    """The name of one of so many streams in messages: two are the left and the right side."""
    return f"the {SIDES[number]} side" if streams == 2 else f"stream {number}"


def stream_kind(number: int, streams: int) -> str:
    """The name of one of so many streams in files and columns: left and right, or stream0, stream1 and so on."""
    return SIDES[number] if streams == 2 else f"stream{number}"


@dataclass(frozen=True, slots=True)
class JoinKeys:
    """The columns of a batch that rows are divided and matched by, in the form that kernels take."""

    codes: UInt64s
    """the hash of each row's key; empty where rows are divided by a grid"""
    values: Float64s
    """the coordinates of each row, `width` numbers a row; empty where rows are divided by a hash"""
    valid: Bools
    """whether each row can match anything: a row with a null or NaN in these columns cannot"""
    outside: int = 0
    """the number of valid rows that lie outside the space of the grid, and so in the cells at its edge"""


@dataclass(frozen=True, slots=True)
class CellEntries:
    """Rows with their cells: entry k puts row[k] into cell[k]. Rows are in ascending order; an invalid row has no entry."""

    row: Int32s
    cell: UInt64s


class Partitioning(ABC):
    """Divides the tuples of two streams. Left is side 0 and right is side 1.

    Parameters
    ----------
    partitions
        The number of partitions of each side.
    """

    width: int = 0
    """the number of coordinates of a row in JoinKeys.values"""
    identity: ClassVar[bool] = True
    """whether kappa is the identity: matches are in the same cell, so partitions of the same number are joined, and no others"""
    exact: bool = True
    """whether every pair that `match` finds satisfies the condition; otherwise the pairs are tested again"""
    match: Callable[..., int]
    """the kernel that finds pairs; its signature is kernels.cells.MATCH"""
    limits: Float64s = NO_DOUBLES
    """the parameters of that kernel, such as eps or the grid"""
    division: str | None = None
    """what cells depend on beside the columns, in a few words, where rows that are kept must not meet others; None for nothing"""
    cells_per_row: float = 1.0
    """the number of cells that a row probes, on average so far; buffers are allocated for so many"""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions

    @abstractmethod
    def bind(self, side: int, schema: pa.Schema) -> None:
        """Learn the schema of a side, before its first batch. Columns that cannot be joined are refused by name."""

    @abstractmethod
    def read(self, side: int, batch: pa.RecordBatch) -> JoinKeys:
        """Read the columns that rows are divided and matched by. Wrong values, such as inverted boxes, are refused by name."""

    def check(self, side: int, batch: pa.RecordBatch) -> None:
        """Refuse rows that `read` or `home` would refuse, and change nothing."""
        self.read(side, batch)

    @abstractmethod
    def home(self, side: int, keys: JoinKeys) -> CellEntries:
        """The cells that rows are kept in."""

    def reach(self, side: int, keys: JoinKeys) -> CellEntries:
        """The cells of the other side that hold all matches of rows: those of `home` if kappa is the identity."""
        return self.home(side, keys)

    def reach_in_steps(self, side: int, keys: JoinKeys, room: int) -> Iterator[CellEntries]:
        """The cells of `reach`, for as many rows at a time as have about `room` cells."""
        step = max(1, int(room / self.cells_per_row))
        for at in range(0, keys.valid.size, step):
            values = keys.values[at * self.width : (at + step) * self.width]
            some = self.reach(side, JoinKeys(keys.codes[at : at + step], values, keys.valid[at : at + step]))
            yield CellEntries(some.row + np.int32(at), some.cell)

    @property
    def nbytes(self) -> int:
        """The bytes that the partitioning itself holds, once it is bound to a side."""
        return 0

    def coarsen(self, cells: int, partitions: int, memory: int) -> None:  # noqa: B027
        """Divide more coarsely, so that no row is kept in more cells than this, and there are no more partitions than this.

        `memory` is what the partitioning itself may hold. A join calls it once, before any row is read.
        """

    @abstractmethod
    def partition_of(self, cells: UInt64s) -> Int32s:
        """The partition of each cell."""

    def neighbours(self, partitions: Int32s) -> Int32s:
        """kappa: the partitions of the other side that may hold matches of tuples in these, in ascending order, each once."""
        return np.unique(partitions)
