"""Blocks: the boxes of both sides gather in blocks of pages, and a full block is ready to be joined."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headrace.errors import BadInput
from headrace.progressive.rtree.base import SideName
from headrace.progressive.rtree.boxes import Columns


class ArrivedBoxes:
    """The boxes of one side in order of arrival: those of complete blocks, and those of the block that is being filled."""

    def __init__(self) -> None:
        self.columns: Columns = np.empty((4, 1024))
        self.rows = 0
        self.joined = 0  # the number of rows in complete blocks

    def append(self, columns: Columns) -> None:
        """Add boxes at the end."""
        more = columns.shape[1]
        if self.rows + more > self.columns.shape[1]:
            grown = np.empty((4, max(self.rows + more, 2 * self.columns.shape[1])))
            grown[:, : self.rows] = self.columns[:, : self.rows]
            self.columns = grown
        self.columns[:, self.rows : self.rows + more] = columns
        self.rows += more

    def part(self, low: int, high: int) -> Columns:
        """A copy of rows from `low` up to `high`."""
        return np.ascontiguousarray(self.columns[:, low:high])


class Blocks:
    """Divides the boxes of each side into blocks.

    A join that joins each block, when it is complete, with all complete blocks of the other side finds every pair once: of two
    boxes of different sides the one whose block is complete later finds the other.

    Parameters
    ----------
    pages
        The number of pages of a block; `most` if None.
    most
        The number of pages that fit memory.
    frames
        The frames of memory, for the message if `pages` do not fit.
    page_rows
        The number of boxes of a page.
    """

    def __init__(self, pages: int | None, *, most: int, frames: int, page_rows: int) -> None:
        if pages is not None and not 1 <= pages <= most:
            raise BadInput(f"block={pages} pages do not fit: {frames} frames of memory allow 1 to {most}")
        self.pages = pages or most
        self.rows = self.pages * page_rows
        self.sides: dict[SideName, ArrivedBoxes] = {"left": ArrivedBoxes(), "right": ArrivedBoxes()}

    def fill(self, side: SideName, columns: Columns) -> Iterator[tuple[int, int] | None]:
        """Add boxes to a side, up to the end of a block at a time.

        After each addition it gives the first row and the end of the block that is complete now, or None if none is.
        """
        boxes, taken = self.sides[side], 0
        while taken < columns.shape[1]:
            room = self.rows - (boxes.rows - boxes.joined)
            boxes.append(columns[:, taken : taken + room])
            taken += room
            yield self._complete(side) if boxes.rows - boxes.joined == self.rows else None

    def rest(self) -> Iterator[tuple[SideName, int, int]]:
        """Complete the blocks that are not full, at the end of the input; gives side, first row and end of each."""
        for side, boxes in self.sides.items():
            if boxes.rows > boxes.joined:
                yield side, *self._complete(side)

    def _complete(self, side: SideName) -> tuple[int, int]:
        boxes = self.sides[side]
        low, boxes.joined = boxes.joined, boxes.rows
        return low, boxes.joined
