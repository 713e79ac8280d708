"""What the joins by blocks share: boxes gather until a block of a side is full, and a full block is joined."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from headrace.errors import BadInput
from headrace.progressive.rtree.base import SideName, SpatialJoin
from headrace.progressive.rtree.boxes import Columns
from headrace.progressive.rtree.disk import Disk2008


class Gathered:
    """The boxes of one side in order of arrival: those of full blocks, and those that wait for theirs to fill."""

    def __init__(self) -> None:
        self.columns: Columns = np.empty((4, 1024))
        self.rows = 0
        self.joined = 0  # rows of blocks that are complete

    def append(self, columns: Columns) -> None:
        """Take boxes in."""
        more = columns.shape[1]
        if self.rows + more > self.columns.shape[1]:
            grown = np.empty((4, max(self.rows + more, 2 * self.columns.shape[1])))
            grown[:, : self.rows] = self.columns[:, : self.rows]
            self.columns = grown
        self.columns[:, self.rows : self.rows + more] = columns
        self.rows += more

    def part(self, low: int, high: int) -> Columns:
        """Rows from `low` up to `high`."""
        return np.ascontiguousarray(self.columns[:, low:high])


class BlockJoin(SpatialJoin):
    """Joins a block of a side, when it is full, with all complete blocks of the other.

    Of two boxes of different sides the one whose block is complete later finds the other: every pair once.

    Parameters
    ----------
    memory, disk, rows
        See SpatialJoin.
    block
        Pages of a block.
    """

    def __init__(self, memory: int | str, *, disk: Disk2008 | None, rows: int, block: int | None) -> None:
        super().__init__(memory, disk=disk, rows=rows)
        most = self._most_block()
        if block is not None and not 1 <= block <= most:
            raise BadInput(f"block={block} pages do not fit: {self.frames} frames of memory allow 1 to {most}")
        self.block = block or most
        self._block_rows = self.block * self.disk.page_rows
        self.sides: dict[SideName, Gathered] = {"left": Gathered(), "right": Gathered()}

    @abstractmethod
    def _most_block(self) -> int:
        """Pages of a block at most, in this memory."""

    @abstractmethod
    def _join_block(self, side: SideName, low: int, high: int) -> Iterator[pa.RecordBatch]:
        """Rows from `low` up to `high` of a side are a complete block: join them with those of the other side."""

    def _arrived(self, side: SideName) -> None:
        """Boxes of a side were put where its block is. A hook for what that costs."""

    def _insert(self, side: SideName, columns: Columns, first: int) -> Iterator[pa.RecordBatch]:
        gathered, taken = self.sides[side], 0
        while taken < columns.shape[1]:
            room = self._block_rows - (gathered.rows - gathered.joined)
            gathered.append(columns[:, taken : taken + room])
            taken += room
            self._arrived(side)
            if gathered.rows - gathered.joined == self._block_rows:
                yield from self._complete(side)

    def _finish(self) -> Iterator[pa.RecordBatch]:
        for side, gathered in self.sides.items():
            if gathered.rows > gathered.joined:
                yield from self._complete(side)

    def _complete(self, side: SideName) -> Iterator[pa.RecordBatch]:
        gathered = self.sides[side]
        low, gathered.joined = gathered.joined, gathered.rows
        yield from self._join_block(side, low, gathered.joined)
