"""DiskJoiner: joins segments of both sides on disk, in bounded steps. [PQP] §3.2, the clean-up phase"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headrace.arrays import Float64s, Int32s, UInt64s
from headrace.kernels import cells
from headrace.kernels.segments import keep_unjoined
from headrace.progressive.grids.partitioning import LEFT, NO_DOUBLES, RIGHT, CellEntries
from headrace.progressive.memory.merge import TOGETHER, Position, SegmentReader, SequentialReader, SortedReader
from headrace.progressive.memory.sides import Sides
from headrace.progressive.memory.spill import SpilledRows, cells_of
from headrace.progressive.output import BatchRows
from headrace.progressive.policies.stats import PartitionStats
from headrace.progressive.stats import ProgressiveStats
from headrace.row_copies import cuts, largest_row, row_sizes

_START = (0, -1)  # the first right segment, from where it may match


@dataclass(frozen=True, slots=True)
class LeftBlock:
    """A block of left rows in memory, with a hash table of its cells. Row i is in slot i."""

    rows: SpilledRows
    heads: Int32s
    codes: UInt64s
    after: Int32s
    values: Float64s
    """what rows compare by"""
    partition: Int32s
    """the partition of each row"""
    low: int
    """the lowest cell"""
    high: int
    """the highest cell"""
    new: bool
    """whether a row departed since the last join on disk of its partition"""


@dataclass(slots=True)
class DiskJoin:
    """A join of some left partitions with the right ones that may match, on disk. It may stop between two pairs of blocks."""

    partitions: Int32s
    """the left partitions that are joined"""
    stamp: int
    """tuples that departed up to this stamp are joined by it"""
    done: int
    """tuples that departed up to this stamp were joined with each other before"""
    left: list[int]
    """the left segments"""
    right: list[int]
    """the right segments"""
    by_cell: bool
    """whether both sides are read in the order of cells: a block of the left side is joined with right rows of the same cells"""
    block_bytes: int
    """bytes of a block; it must not change while it runs, since a block that is read again must have the same rows"""
    left_at: list[Position]
    """where the block that is being joined begins"""
    right_from: list[int]
    """the offsets in the right segments before which no cell is in this block or a later one"""
    right_at: tuple[int, int] = _START
    """the right segment, by its place in the list, and the offset in it that the block is to be joined with next"""
    left_next: list[Position] = field(default_factory=list)
    """where the next block begins"""


class DiskJoiner:
    """Joins what is on disk on both sides, and was not joined before.

    Joins go by left partition: `_joined_until` says for each up to which stamp its tuples were joined with all right ones that
    may match. Left partitions are joined together if they fit one block. A larger one is joined in the order of cells, if
    matches are in the same cell: like a sort-merge join, it reads each side about once. Otherwise each of its blocks meets all
    right rows. The segments that a join reads are pinned, so that they stay as they are while more tuples are flushed.

    Parameters
    ----------
    sides
        Both sides of the join.
    partition_stats
        Says which partitions have been productive; these are joined first.
    stats
        Where results are counted.
    """

    def __init__(self, sides: Sides, partition_stats: PartitionStats, stats: ProgressiveStats) -> None:
        self._sides, self._partition_stats, self._stats = sides, partition_stats, stats
        self._joined_until = np.full(sides.partitioning.partitions, -1, np.int64)
        self._join: DiskJoin | None = None
        self._reader: SegmentReader | None = None
        self._block: LeftBlock | None = None

    def steps(self) -> Iterator[Iterator[pa.RecordBatch]]:
        """Give one step after the other until nothing is left to join; each must be read to its end."""
        while self._join is not None or self._begin():
            yield self._step()

    def free_block(self) -> None:
        """Free the rows that are kept between steps, since arriving tuples need the working memory. They are read again."""
        self._block = self._reader = None

    # -- what is joined --------------------------------------------------------------------------------------------------

    def _begin(self) -> bool:
        """Choose the left partitions that are joined next, as many as fit a block. Returns False if nothing is left to join."""
        left, right, until = self._sides.spill(LEFT), self._sides.spill(RIGHT), self._joined_until
        for number in (LEFT, RIGHT):
            self._sides.merger(number).distribute()
        theirs = right.newest if self._sides.partitioning.identity else np.full(until.size, right.newest.max())
        wanted = np.flatnonzero((left.newest >= 0) & (theirs >= 0) & (np.maximum(left.newest, theirs) > until))
        if not wanted.size:
            return False
        wanted = wanted[self._partition_stats.productive_first(LEFT, wanted)]
        wanted = wanted[until[wanted] == until[wanted[0]]]
        size = np.cumsum(left.bytes_by_partition()[wanted])
        fit = max(1, int(np.searchsorted(size, self._sides.block_bytes, side="right")))
        by_cell = bool(self._sides.partitioning.identity and size[0] > self._sides.block_bytes)
        self._join = self._plan(wanted[:fit].astype(np.int32), by_cell)
        return True

    def _plan(self, partitions: Int32s, by_cell: bool) -> DiskJoin:
        sides, left, right = self._sides, self._sides.spill(LEFT), self._sides.spill(RIGHT)
        if by_cell:
            for number in (LEFT, RIGHT):
                sides.merger(number).reduce(int(partitions[0]), TOGETHER)
        done = int(self._joined_until[partitions[0]])
        mine, theirs = left.among(partitions), right.among(sides.partitioning.neighbours(partitions))
        new_mine, new_theirs = left.fact("newest", mine) > done, right.fact("newest", theirs) > done
        if not new_theirs.any():
            mine = mine[new_mine]
        if not new_mine.any():
            theirs = theirs[new_theirs]
        left.pin(mine, True)
        right.pin(theirs, True)
        return DiskJoin(
            partitions,
            int(max(left.newest.max(), right.newest.max())),
            done,
            mine.tolist(),
            theirs.tolist(),
            by_cell,
            sides.block_bytes,
            [(left.begin(segment), 0) for segment in mine.tolist()],
            [right.begin(segment) for segment in theirs.tolist()],
        )

    def _end(self, join: DiskJoin) -> None:
        self._joined_until[join.partitions] = join.stamp
        self._sides.spill(LEFT).pin(np.array(join.left, np.int64), False)
        self._sides.spill(RIGHT).pin(np.array(join.right, np.int64), False)
        self._join = self._reader = None

    # -- a step ----------------------------------------------------------------------------------------------------------

    def _step(self) -> Iterator[pa.RecordBatch]:
        """Join the left block with the next right rows, or go on to the next left block."""
        join = self._join
        assert join is not None
        if self._block is None:
            self._block = self._next_block(join)
        if self._block is None:
            self._end(join)
            return
        theirs, reached = self._next_right(join, self._block)
        if theirs is None:
            join.left_at, join.right_at, self._block = join.left_next, _START, None
            return
        partitioning = self._sides.partitioning
        mine, at = self._block.rows, self._block.partition
        other_at = partitioning.partition_of(theirs.cell)
        for rows, other_rows in self._matches(self._block, theirs):
            keep = np.ones(rows.size, np.uint8)
            keep_unjoined(
                rows,
                other_rows,
                mine.arrived,
                theirs.arrived,
                mine.departed,
                theirs.departed,
                mine.swept,
                theirs.swept,
                at,
                other_at,
                join.done,
                keep,
            )
            which = np.flatnonzero(keep)
            rows, other_rows = rows[which], other_rows[which]
            for some in self._that_fit(mine.rows, rows, theirs.rows, other_rows):
                left, right = BatchRows(mine.rows, rows[some]), BatchRows(theirs.rows, other_rows[some])
                out, _ = self._sides.output.make(left, right)
                self._stats.disk_disk += out.num_rows
                yield out
        join.right_at = reached

    def _that_fit(self, left: pa.RecordBatch, rows: Int32s, right: pa.RecordBatch, others: Int32s) -> Iterator[slice]:
        """Divide pairs so that their rows fit working memory, or one pair does not."""
        if rows.size * (largest_row(left) + largest_row(right)) <= self._sides.work:
            return iter([slice(0, rows.size)])
        return cuts(row_sizes(left, rows) + row_sizes(right, others), self._sides.work)

    def _next_block(self, join: DiskJoin) -> LeftBlock | None:
        """Read the left block that begins at `left_at`, and make its hash table; None at the end."""
        spill, partitioning = self._sides.spill(LEFT), self._sides.partitioning
        if self._reader is None:
            self._reader = (
                SortedReader(spill, join.left, join.left_at)
                if join.by_cell
                else SequentialReader(spill, join.left, join.left_at, join.block_bytes)
            )
        parts, size = list[pa.RecordBatch](), 0
        for piece in self._reader.pieces():
            parts += piece
            size += sum(part.nbytes for part in piece)
            if size >= join.block_bytes:
                break
        if not parts:
            return None
        join.left_next = self._reader.positions
        rows = spill.rows(parts)
        n = rows.cell.size
        heads, ends = np.full(n, -1, np.int32), np.array([-1, 0, 0], np.int64)
        codes = np.empty(n, np.uint64)
        before, after, slots = (np.empty(n, np.int32) for _ in range(3))
        cells.insert(heads, codes, before, after, ends, rows.cell, slots)
        return LeftBlock(
            rows,
            heads,
            codes,
            after,
            partitioning.read(LEFT, rows.rows).values if partitioning.width else NO_DOUBLES,
            partitioning.partition_of(rows.cell),
            int(rows.cell.min()),
            int(rows.cell.max()),
            bool(rows.departed.max() > join.done),
        )

    def _next_right(self, join: DiskJoin, block: LeftBlock) -> tuple[SpilledRows | None, tuple[int, int]]:
        """Read the right rows from `right_at` on that may match a left block, about a block of them; None at the end.

        Returns the place of the next ones too.
        """
        spill, parts, size = self._sides.spill(RIGHT), list[pa.RecordBatch](), 0
        i, at = join.right_at
        while i < len(join.right) and size < join.block_bytes:
            segment = join.right[i]
            at = join.right_from[i] if at < 0 else at
            old = not block.new and spill.fact("newest", np.array([segment]))[0] <= join.done
            if old or at >= spill.end(segment):
                i, at = i + 1, -1
            elif join.by_cell:
                [record], after = spill.read(segment, at, 0)
                code = cells_of(record)
                if code[-1] < block.low:
                    join.right_from[i] = after
                first = int(np.searchsorted(code, np.uint64(block.low), side="left"))
                last = int(np.searchsorted(code, np.uint64(block.high), side="right"))
                if last > first:
                    parts.append(record.slice(first, last - first))
                    size += parts[-1].nbytes
                i, at = (i, after) if code[-1] <= block.high else (i + 1, -1)
            else:
                found, after = spill.read(segment, at, join.block_bytes - size)
                parts += found
                size, at = size + after - at, after
        return (spill.rows(parts) if parts else None), (i, at)

    def _matches(self, block: LeftBlock, theirs: SpilledRows) -> Iterator[tuple[Int32s, Int32s]]:
        """Pairs of a row of a left block and a row of a right block that match."""
        partitioning = self._sides.partitioning
        most = self._sides.pairs_at_once(block.rows.row_bytes, theirs.row_bytes)
        index = block.heads, block.codes, block.after, block.values
        for entries, values in self._sides.probes(RIGHT, theirs):
            if partitioning.width:  # probes of one cell follow each other, as in SideMemory.match
                order = np.argsort(entries.cell)
                entries = CellEntries(entries.row[order], entries.cell[order])
            stop = np.array([0, -1], np.int64)
            while stop[0] < entries.cell.size:
                number, rows = np.empty(most, np.int32), np.empty(most, np.int32)
                n = partitioning.match(
                    *index, entries.cell, entries.row, values, partitioning.limits, stop, number, rows
                )
                if n:
                    yield rows[:n], entries.row[number[:n]]
