"""Cleanup: the blocking and the clean-up phase. Memory is joined with disk, then disk with disk, in bounded steps. [PQP] §3.2"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headrace.arrays import Float64s, Int32s, Int64s, UInt64s
from headrace.kernels import cells
from headrace.kernels.segments import keep_unjoined
from headrace.progressive.grids.partitioning import LEFT, NO_DOUBLES, RIGHT, CellEntries
from headrace.progressive.memory.sides import Sides
from headrace.progressive.memory.spill import Spill, SpilledRows
from headrace.progressive.output import BatchRows, MemoryRows, all_rows, left_and_right
from headrace.progressive.policies.stats import PartitionStats
from headrace.progressive.stats import ProgressiveStats


@dataclass(frozen=True, slots=True)
class LeftBlock:
    """A block of left segments in memory, with a hash table of its cells. Row i is in slot i."""

    segments: Int64s
    rows: SpilledRows
    heads: Int32s
    codes: UInt64s
    after: Int32s
    values: Float64s
    """what rows compare by"""


@dataclass
class DiskJoin:
    """A join of some left partitions with the right ones that may match, on disk. It may stop between two pairs of blocks."""

    pairs: list[tuple[Int64s, Int64s]]
    """blocks of segments, left and right, that are still to be joined; the last pair is next"""
    partitions: Int32s
    """the left partitions that are joined"""
    stamp: int
    """segments that departed up to this stamp are joined by it"""
    done: int
    """segments that departed up to this stamp were joined with each other before"""
    meetings: tuple[Int64s, Int64s, Int64s, Int64s] = field(repr=False)
    """`Spill.meetings` of the left and of the right side"""


class Cleanup:
    """Joins what memory could not join, when both sources are silent or have ended.

    A step joins one block of segments with memory, or with another block. Its results are sent as they are made. If the caller
    does not take them all, the rest comes before the next tuples are taken in, so that memory is as it was when the step began.
    Disk joins go by left partition: `_joined_until` says for each up to which stamp its segments were joined with all right ones
    that may match.

    Parameters
    ----------
    sides
        Both sides of the join.
    partition_stats
        Says which partitions have been productive; these are joined first.
    stats
        Where results are counted.
    tick
        Gives the next stamp.
    """

    def __init__(
        self, sides: Sides, partition_stats: PartitionStats, stats: ProgressiveStats, tick: Callable[[], int]
    ) -> None:
        self._sides, self._partition_stats, self._stats, self._tick = sides, partition_stats, stats, tick
        self._partitioning = sides.partitioning
        self._joined_until = np.full(sides.partitioning.partitions, -1, np.int64)
        self._disk_join: DiskJoin | None = None
        self._left: LeftBlock | None = None
        self._step: Iterator[pa.RecordBatch] | None = None

    def run(self, *, last: bool = False) -> Iterator[pa.RecordBatch]:
        """Give all results that can be made now, and an empty batch after each step.

        `last` says that no more tuples will come, so memory is freed as soon as it has met disk.
        """
        yield from self.finish_step()
        if not self._sides.both_present:
            return
        for step in self._steps(last):
            self._step = step
            yield from self.finish_step()
            yield self._sides.output.empty()
        self._left = None

    def finish_step(self) -> Iterator[pa.RecordBatch]:
        """Give the rest of the results of a step that the caller left."""
        if self._step is not None:
            # `yield from` would close the step when the caller closes this generator.
            for out in self._step:  # noqa: UP028
                yield out
            self._step = None

    def free_block(self) -> None:
        """Free the block that is kept between steps, since arriving tuples need the working memory."""
        self._left = None

    def _steps(self, last: bool) -> Iterator[Iterator[pa.RecordBatch]]:
        sides = self._sides
        for number in (LEFT, RIGHT):
            spill, other = sides.spill(number), sides.memory(1 - number)
            old = np.flatnonzero(spill.met < other.latest) if other.used else np.empty(0, np.int64)
            old = old[self._productive_first(number, spill.partition[old])]
            for some in spill.blocks(old, sides.block_bytes):
                yield self._join_with_memory(number, spill, some)
        if last:
            sides.clear()
        while self._disk_join is not None or self._begin_disk_join():
            yield self._join_blocks()

    # -- memory with disk ------------------------------------------------------------------------------------------------

    def _join_with_memory(self, number: int, spill: Spill, segments: Int64s) -> Iterator[pa.RecordBatch]:
        """Join segments with tuples of the other side's memory that arrived since the segments last met it, or departed."""
        other = self._sides.memory(1 - number)
        block = spill.read(segments)
        stamp = self._tick()
        most = self._sides.pairs_at_once(block.row_bytes, other.row_bytes)
        for entries, values in self._probes(number, block):
            met = spill.met[block.segment[entries.row]]
            for entry, slots in other.match(entries.cell, entries.row, values, most):
                fresh = np.flatnonzero(other.arrived[slots] > met[entry])
                order = fresh[other.by_chunk(slots[fresh])]
                mine, theirs = BatchRows(block.rows, entries.row[entry[order]]), MemoryRows(other, slots[order])
                out, _ = self._sides.output.make(*left_and_right(number, mine, theirs))
                self._stats.memory_disk += out.num_rows
                yield out
        spill.meet(segments, stamp)

    # -- disk with disk --------------------------------------------------------------------------------------------------

    def _begin_disk_join(self) -> bool:
        """Choose the left partitions that are joined next, as many as fit a block. Returns False if nothing is left to join."""
        left, right = self._sides.spill(LEFT), self._sides.spill(RIGHT)
        if not len(left) or not len(right):
            return False
        until = self._joined_until
        newest, theirs = _newest(left, until.size), _newest(right, until.size)
        if not self._partitioning.identity:
            theirs[:] = right.departed[-1]
        wanted = np.flatnonzero((newest >= 0) & (theirs >= 0) & (np.maximum(newest, theirs) > until))
        if not wanted.size:
            return False
        wanted = wanted[self._productive_first(LEFT, wanted)]
        wanted = wanted[until[wanted] == until[wanted[0]]]
        size = np.bincount(left.partition, weights=left.length, minlength=until.size)[wanted]
        fit = max(1, int(np.searchsorted(np.cumsum(size), self._sides.block_bytes, side="right")))
        self._disk_join = self._plan_disk_join(left, right, wanted[:fit].astype(np.int32))
        return True

    def _plan_disk_join(self, left: Spill, right: Spill, partitions: Int32s) -> DiskJoin:
        most, done = self._sides.block_bytes, int(self._joined_until[partitions[0]])
        mine = np.flatnonzero(np.isin(left.partition, partitions))
        theirs = np.flatnonzero(np.isin(right.partition, self._partitioning.neighbours(partitions)))
        new_mine, new_theirs = left.departed[mine] > done, right.departed[theirs] > done
        pairs = [
            (a, b)
            for ours, others in ((mine[new_mine], theirs), (mine[~new_mine], theirs[new_theirs]))
            for a in left.blocks(ours, most)
            for b in right.blocks(others, most)
        ]
        stamp = int(max(left.departed[-1], right.departed[-1]))
        return DiskJoin(pairs[::-1], partitions, stamp, done, (*left.meetings(), *right.meetings()))

    def _join_blocks(self) -> Iterator[pa.RecordBatch]:
        """Join the next left block with the next right block of the disk join."""
        join, left, right = self._disk_join, self._sides.spill(LEFT), self._sides.spill(RIGHT)
        assert join is not None
        if join.pairs:
            ours, others = join.pairs[-1]
            if self._left is None or self._left.segments is not ours:
                self._left = None  # freed before the next block is read, so that one left block is in memory at a time
                self._left = self._hashed(ours, left.read(ours))
            mine, theirs = self._left.rows, right.read(others)
            for rows, other_rows in self._matches(self._left, theirs):
                keep = np.ones(rows.size, np.uint8)
                keep_unjoined(
                    rows,
                    other_rows,
                    mine.segment,
                    theirs.segment,
                    mine.arrived,
                    theirs.arrived,
                    left.departed,
                    right.departed,
                    *join.meetings,
                    join.done,
                    keep,
                )
                which = np.flatnonzero(keep)
                out, _ = self._sides.output.make(
                    BatchRows(mine.rows, rows[which]), BatchRows(theirs.rows, other_rows[which])
                )
                self._stats.disk_disk += out.num_rows
                yield out
            join.pairs.pop()
        if not join.pairs:
            self._joined_until[join.partitions] = join.stamp
            self._disk_join = None

    def _hashed(self, segments: Int64s, block: SpilledRows) -> LeftBlock:
        """Make the hash table of a left block."""
        n = block.cell.size
        heads, ends = np.full(max(1, n), -1, np.int32), np.array([-1, 0, 0], np.int64)
        codes = np.empty(n, np.uint64)
        before, after, slots = (np.empty(n, np.int32) for _ in range(3))
        cells.insert(heads, codes, before, after, ends, block.cell, slots)
        partitioning = self._partitioning
        values = partitioning.read(LEFT, block.rows).values if partitioning.width else NO_DOUBLES
        return LeftBlock(segments, block, heads, codes, after, values)

    def _matches(self, block: LeftBlock, theirs: SpilledRows) -> Iterator[tuple[Int32s, Int32s]]:
        """Pairs of a row of a left block and a row of a right block that match."""
        partitioning = self._partitioning
        most = self._sides.pairs_at_once(block.rows.row_bytes, theirs.row_bytes)
        index = block.heads, block.codes, block.after, block.values
        for entries, values in self._probes(RIGHT, theirs):
            stop = np.array([0, -1], np.int64)
            while stop[0] < entries.cell.size:
                number, rows = np.empty(most, np.int32), np.empty(most, np.int32)
                n = partitioning.match(
                    *index, entries.cell, entries.row, values, partitioning.limits, stop, number, rows
                )
                if n:
                    yield rows[:n], entries.row[number[:n]]

    # -- for both kinds of join ------------------------------------------------------------------------------------------

    def _productive_first(self, number: int, partitions: Int32s | Int64s) -> Int64s:
        """The order of partitions by results a tuple; segments of one partition stay together, the oldest first."""
        stats = self._partition_stats
        rate = stats.results[number] / np.maximum(1, stats.arrived[number])
        return np.lexsort([partitions, -rate[partitions]])

    def _probes(self, number: int, block: SpilledRows) -> Iterator[tuple[CellEntries, Float64s]]:
        """The cells of the other side that rows of a block probe, for as many rows at a time as fit working memory."""
        partitioning = self._partitioning
        if partitioning.identity:
            values = partitioning.read(number, block.rows).values if partitioning.width else NO_DOUBLES
            yield CellEntries(all_rows(block.cell.size), block.cell), values
            return
        keys = partitioning.read(number, block.rows)
        for some in partitioning.reach_in_steps(number, keys, self._sides.cells_at_once):
            yield some, keys.values


def _newest(spill: Spill, partitions: int) -> Int64s:
    """The stamp at which the latest segment of each partition departed; -1 if none did."""
    newest = np.full(partitions, -1, np.int64)
    np.maximum.at(newest, spill.partition, spill.departed)
    return newest
