"""SpatialJoin: the driver of every join of the study. It checks input, makes result batches and counts costs. [PQP] §A.1"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from headrace.arrays import Int64s
from headrace.clock import ManualClock
from headrace.errors import BadInput, MemoryRefused, choice
from headrace.progressive.rtree.boxes import Columns, columns_of
from headrace.progressive.rtree.disk import Disk2008, SpatialStats
from headrace.units import format_size, parse_size

SideName = Literal["left", "right"]
SIDES = ("left", "right")
SCHEMA = pa.schema([("left", pa.int64()), ("right", pa.int64())])


@dataclass
class PairBuffer:
    """The output of a kernel: pairs of a row of the side that is being joined and a row of the other side."""

    own: Int64s
    other: Int64s

    @classmethod
    def of_size(cls, pairs: int) -> PairBuffer:
        """A buffer for this many pairs."""
        return cls(np.empty(pairs, np.int64), np.empty(pairs, np.int64))


class SpatialJoin(ABC):
    """Finds every pair of boxes that intersect, as row numbers of the two sides. Boxes that touch intersect.

    The public methods count tuples and results; an algorithm writes the hooks `_insert` and `_finish`.

    Parameters
    ----------
    memory
        The bytes of the buffer, as a number or "512KiB"; it is divided into frames of one page of the disk.
    disk
        The simulated disk, with its clock.
    rows
        The number of pairs of a result batch, about.
    """

    least_frames: ClassVar[int]  # the number of frames that the algorithm needs

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
        """Take in boxes of a side; returns an iterator of the pairs found meanwhile, with columns `left` and `right`.

        Boxes are checked at once. The join proceeds as results are read; they must be read to the end before the next call.
        """
        choice("side", side, SIDES)
        columns = columns_of(boxes, side)
        self._begin()
        self.stats.tuples_in += columns.shape[1]
        first = self._count[side]
        self._count[side] += columns.shape[1]
        return self._run(self._insert(side, columns, first))

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Join what is left, after both sides have ended."""
        self._begin()
        self._finished = True
        return self._run(self._finish())

    @abstractmethod
    def _insert(self, side: SideName, columns: Columns, first: int) -> Iterator[pa.RecordBatch]:
        """Join boxes that are the rows of a side from `first` on. The caller counts tuples and results."""

    @abstractmethod
    def _finish(self) -> Iterator[pa.RecordBatch]:
        """Join what is left at the end."""

    def _begin(self) -> None:
        """Refuse a call while results of the last one are unread, and after `finish`."""
        if self._busy:
            raise BadInput(
                "the results of the last insert are not all taken; take them to the end before the next call"
            )
        if self._finished:
            raise BadInput(f"this {type(self).__name__} is finished; make a new one")
        self._busy = True

    def _run(self, parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Count and send results; the next call is refused until they are read to the end."""
        for batch in parts:
            if batch.num_rows:
                self.stats.results += batch.num_rows
                yield batch
        self._busy = False

    def _pairs(self, side: SideName, found: PairBuffer, count: int) -> pa.RecordBatch:
        """Make a result batch of the first pairs of a buffer. They are copied, so that the buffer can be used again."""
        own, other = pa.array(found.own[:count].copy()), pa.array(found.other[:count].copy())
        return pa.RecordBatch.from_arrays([own, other] if side == "left" else [other, own], schema=SCHEMA)

    def _spend(self, *, build: tuple[int, int] = (0, 0), join: tuple[int, int] = (0, 0), tests: int = 0) -> None:
        """Count pages read and written, as (reads, writes), and boxes compared; charge their time to the clock."""
        self.stats.build_reads += build[0]
        self.stats.build_writes += build[1]
        self.stats.join_reads += join[0]
        self.stats.join_writes += join[1]
        self.stats.tests += tests
        self.disk.charge(sum(build) + sum(join), tests)


def opposite(side: SideName) -> SideName:
    """The other side."""
    return "right" if side == "left" else "left"
