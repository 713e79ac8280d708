"""The driver of every join of the study: what goes in, what comes out, and what it costs. [PQP] §A.1"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from headrace.clock import ManualClock
from headrace.errors import BadInput, MemoryRefused, choice
from headrace.progressive.rtree.boxes import Columns, columns_of
from headrace.progressive.rtree.disk import Disk2008, Ints, SpatialStats
from headrace.units import format_size, parse_size

SideName = Literal["left", "right"]
SIDES = ("left", "right")
SCHEMA = pa.schema([("left", pa.int64()), ("right", pa.int64())])


@dataclass
class Found:
    """Room for the pairs that a kernel finds: rows of the side that is at work, and of the other."""

    own: Ints
    other: Ints

    @classmethod
    def room(cls, pairs: int) -> Found:
        """Room for so many."""
        return cls(np.empty(pairs, np.int64), np.empty(pairs, np.int64))


class SpatialJoin(ABC):
    """Gives every pair of boxes that meet, as row numbers of the two sides; boxes that touch meet.

    Parameters
    ----------
    memory
        Bytes of the buffer, as a number or "512KiB": whole pages of the disk.
    disk
        The simulated disk, with its clock.
    rows
        Pairs of a result batch, about.
    """

    least_frames: ClassVar[int]  # that it can work with

    def __init__(self, memory: int | str = "512KiB", *, disk: Disk2008 | None = None, rows: int = 8192) -> None:
        self.memory = parse_size(memory, name="memory")
        self.disk = disk or Disk2008()
        if rows < 1:
            raise BadInput(f"rows={rows} is not a size of result batches; give 1 or more")
        self.rows = rows
        self.frames = self.memory // self.disk.page_size
        if self.frames < self.least_frames:
            raise MemoryRefused(
                f"memory={self.memory} bytes are {self.frames} pages of {self.disk.page_size} bytes, and"
                f" {type(self).__name__} needs {self.least_frames}: give"
                f" {format_size(self.least_frames * self.disk.page_size)} or more"
            )
        self.stats = SpatialStats()
        self._count = {"left": 0, "right": 0}
        self._busy = self._finished = False

    @property
    def clock(self) -> ManualClock:
        """The virtual clock that reads, writes and comparisons are charged to."""
        return self.disk.clock

    def insert(self, side: SideName, boxes: Any) -> Iterator[pa.RecordBatch]:
        """Take boxes in; gives the pairs found meanwhile, with columns `left` and `right`.

        Boxes are checked at once; the join goes on as results are taken, and must come to its end before the next call.
        """
        choice("side", side, SIDES)
        columns = columns_of(boxes, side)
        self._begin()
        self.stats.tuples_in += columns.shape[1]
        first = self._count[side]
        self._count[side] += columns.shape[1]
        return self._run(self._insert(side, columns, first))

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Both sides are at their end: the pairs that are left."""
        self._begin()
        self._finished = True
        return self._run(self._finish())

    @abstractmethod
    def _insert(self, side: SideName, columns: Columns, first: int) -> Iterator[pa.RecordBatch]:
        """What comes of boxes that are rows `first` and on of a side. The caller keeps the books of tuples and results."""

    @abstractmethod
    def _finish(self) -> Iterator[pa.RecordBatch]:
        """What is left at the end."""

    def _begin(self) -> None:
        if self._busy:
            raise BadInput(
                "the results of the last insert are not all taken; take them to the end before the next call"
            )
        if self._finished:
            raise BadInput(f"this {type(self).__name__} is finished; make a new one")
        self._busy = True

    def _run(self, parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in parts:
            if batch.num_rows:
                self.stats.results += batch.num_rows
                yield batch
        self._busy = False

    def _pairs(self, side: SideName, found: Found, count: int) -> pa.RecordBatch:
        """A result batch; the rows are copied, so that the room can be used again."""
        own, other = pa.array(found.own[:count].copy()), pa.array(found.other[:count].copy())
        return pa.RecordBatch.from_arrays([own, other] if side == "left" else [other, own], schema=SCHEMA)

    def _spend(self, *, build: tuple[int, int] = (0, 0), join: tuple[int, int] = (0, 0), tests: int = 0) -> None:
        """Pages read and written, and boxes compared: into the books, and onto the clock."""
        self.stats.build_reads += build[0]
        self.stats.build_writes += build[1]
        self.stats.join_reads += join[0]
        self.stats.join_writes += join[1]
        self.stats.tests += tests
        self.disk.charge(sum(build) + sum(join), tests)


def opposite(side: SideName) -> SideName:
    """The other side."""
    return "right" if side == "left" else "left"
