"""How tuples of two streams are divided so that only corresponding parts meet. [PQP] §3.1.1, Table 3.1

A tuple belongs to cells; cells belong to partitions. A partition is what is flushed, counted and joined on disk; a cell, which
may be much smaller, is where matches are looked for in memory.

    tuple --home--> cells it is kept in           key: 1, its hash    box: every tile it touches    vector: 1, the tile it lies in
          --reach-> cells its matches are in           the same            the same                      all tiles within eps
    cell  --partition_of--> partition --neighbours (kappa)--> partitions of the other side that may hold its matches
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from headrace.relation.keys import Hashes, Ints

Doubles = np.ndarray[Any, np.dtype[np.float64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]

LEFT, RIGHT = 0, 1
SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")
NO_DOUBLES: Doubles = np.empty(0, np.float64)


@dataclass(frozen=True, slots=True)
class Reading:
    """What is read of a batch's rows to divide and to match them."""

    codes: Hashes
    """a cell each, where a row has just one that needs no grid: the hash of its key"""
    values: Doubles
    """what rows compare by, `width` numbers each"""
    valid: Mask
    """rows that can match anything: without nulls and NaN in what is compared"""
    outside: int = 0
    """of those, rows that lie outside the space of the grid, and in the cells at its edge"""


@dataclass(frozen=True, slots=True)
class Entries:
    """Cells of rows: entry k is row[k] in cell[k]. Rows ascend; one that can match nothing has no entry."""

    row: Ints
    cell: Hashes


class Partitioning(ABC):
    """A division of two streams. Left and right are sides 0 and 1.

    Parameters
    ----------
    partitions
        How many there are, of each side.
    """

    width: int = 0
    """numbers that a row compares by"""
    identity: ClassVar[bool] = True
    """whether matches are in the same cell, so that a partition meets the partition of the same number alone"""
    exact: bool = True
    """whether `match` finds nothing but matches; otherwise the condition itself is asked again"""
    match: Callable[..., int]
    """the kernel that finds pairs, of the form kernels.cells.MATCH"""
    limits: Doubles = NO_DOUBLES
    """what it is told beside the tuples"""
    fan: float = 1.0
    """cells that a row is looked for in, about: room for so many is needed"""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions

    @abstractmethod
    def bind(self, side: int, schema: pa.Schema) -> None:
        """A side's schema is known: refuse what cannot be joined, by name."""

    @abstractmethod
    def read(self, side: int, batch: pa.RecordBatch) -> Reading:
        """What rows are divided and matched by; refuses values that are wrong, by name."""

    @abstractmethod
    def home(self, side: int, reading: Reading) -> Entries:
        """The cells that rows are kept in."""

    def reach(self, side: int, reading: Reading) -> Entries:
        """The cells of the other side that hold all matches of rows. For identity: the same."""
        return self.home(side, reading)

    def reach_in_steps(self, side: int, reading: Reading, room: int) -> Iterator[Entries]:
        """The same, for as many rows at a time as make about `room` cells."""
        step = max(1, int(room / self.fan))
        for at in range(0, reading.valid.size, step):
            values = reading.values[at * self.width : (at + step) * self.width]
            some = self.reach(side, Reading(reading.codes[at : at + step], values, reading.valid[at : at + step]))
            yield Entries(some.row + np.int32(at), some.cell)

    @abstractmethod
    def partition_of(self, cells: Hashes) -> Ints:
        """The partitions of cells."""

    def neighbours(self, partitions: Ints) -> Ints:
        """kappa: the partitions of the other side that may hold matches of tuples in these; in order, each once."""
        return np.unique(partitions)
