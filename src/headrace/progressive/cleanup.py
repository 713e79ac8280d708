"""The blocking and the clean-up phase: memory with disk, then disk with disk, in bounded steps. [PQP] §3.2"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headrace.kernels import cells
from headrace.kernels.segments import owed
from headrace.progressive.grids.partitioning import LEFT, NO_DOUBLES, RIGHT, Doubles, Entries
from headrace.progressive.memory.sides import Both
from headrace.progressive.memory.spill import Block, Spill
from headrace.progressive.output import Held, Picked, all_rows, in_order
from headrace.progressive.policies.flush import Ledger
from headrace.progressive.stats import ProgressiveStats
from headrace.relation.columns import Longs
from headrace.relation.keys import Hashes, Ints


@dataclass
class Sweep:
    """Some left segments with some right segments; it may be left and taken up again between two pairs of blocks."""

    pairs: list[tuple[Longs, Longs]]
    """blocks of segments, left and right, that are still to be joined"""
    partitions: Ints
    """left partitions that are done when it is"""
    stamp: int
    """until when"""
    done: int
    """until when they were done before"""
    meetings: tuple[Longs, Longs, Longs, Longs] = field(repr=False)


class Phases:
    """What is to be done when both sources are silent.

    A step joins one block of segments with memory, or with another block. Its results are sent as they are made; if nobody takes
    them all, the rest comes before the next tuples are taken in, so that memory is as it was when the step began. Disk joins are
    kept by left partition: `done` says for each until which stamp its segments were joined with all right ones that may match.
    """

    def __init__(self, both: Both, ledger: Ledger, stats: ProgressiveStats, tick: Callable[[], int]) -> None:
        self._both, self._ledger, self._stats, self._tick = both, ledger, stats, tick
        self._partitioning = both.partitioning
        self._done = np.full(both.partitioning.partitions, -1, np.int64)
        self._sweep: Sweep | None = None
        self._left: tuple[Longs, Block, tuple[Ints, Hashes, Ints, Doubles]] | None = None
        self._step: Iterator[pa.RecordBatch] | None = None

    def run(self, *, last: bool = False) -> Iterator[pa.RecordBatch]:
        """All results that can be made now. `last`: no more tuples will come, so memory that met disk is done with."""
        yield from self.complete()
        if not self._both.there:
            return
        for step in self._steps(last):
            self._step = step
            yield from self.complete()
            yield self._both.output.empty()
        self._left = None

    def complete(self) -> Iterator[pa.RecordBatch]:
        """The rest of a step that was left."""
        if self._step is not None:
            # Not `yield from`, which would close the step with a caller that stops here.
            for out in self._step:  # noqa: UP028
                yield out
            self._step = None

    def forget(self) -> None:
        """Tuples come again: the memory for work is theirs."""
        self._left = None

    def _steps(self, last: bool) -> Iterator[Iterator[pa.RecordBatch]]:
        for number in (LEFT, RIGHT):
            spill, other = self._both.spill(number), self._both.side(1 - number)
            old = np.flatnonzero(spill.met < other.latest) if other.used else np.empty(0, np.int64)
            old = old[self._productive_first(number, spill.partition[old])]
            for some in spill.blocks(old, self._both.block):
                yield self._meet(number, spill, some)
        if last:
            self._both.clear()
        while self._sweep is not None or self._next_sweep():
            yield self._join_blocks()

    # -- memory with disk ------------------------------------------------------------------------------------------------

    def _meet(self, number: int, spill: Spill, segments: Longs) -> Iterator[pa.RecordBatch]:
        """Segments meet what came to the other side since they left, or since they met it last."""
        other = self._both.side(1 - number)
        block = spill.read(segments)
        stamp = self._tick()
        most = self._both.pairs_at_once(block.row_bytes, other.row_bytes)
        for entries, values in self._entries(number, block):
            met = spill.met[block.segment[entries.row]]
            for entry, slots in other.match(entries.cell, entries.row, values, most):
                fresh = np.flatnonzero(other.arrived[slots] > met[entry])
                order = fresh[other.by_chunk(slots[fresh])]
                mine, theirs = Picked(block.rows, entries.row[entry[order]]), Held(other, slots[order])
                out, _ = self._both.output.make(*in_order(number, mine, theirs))
                self._stats.memory_disk += out.num_rows
                yield out
        spill.meet(segments, stamp)

    # -- disk with disk --------------------------------------------------------------------------------------------------

    def _next_sweep(self) -> bool:
        """Choose the left partitions that are joined next, as many as fit a block; False if nothing is left."""
        left, right = self._both.spill(LEFT), self._both.spill(RIGHT)
        if not len(left) or not len(right):
            return False
        newest = _newest(left, self._done.size)
        theirs = _newest(right, self._done.size)
        if not self._partitioning.identity:
            theirs[:] = right.departed[-1]
        there = np.flatnonzero((newest >= 0) & (theirs >= 0) & (np.maximum(newest, theirs) > self._done))
        if not there.size:
            return False
        there = there[self._productive_first(LEFT, there)]
        there = there[self._done[there] == self._done[there[0]]]
        size = np.bincount(left.partition, weights=left.length, minlength=self._done.size)[there]
        fit = max(1, int(np.searchsorted(np.cumsum(size), self._both.block, side="right")))
        self._sweep = self._make_sweep(left, right, there[:fit].astype(np.int32))
        return True

    def _make_sweep(self, left: Spill, right: Spill, partitions: Ints) -> Sweep:
        most, done = self._both.block, int(self._done[partitions[0]])
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
        return Sweep(pairs[::-1], partitions, stamp, done, (*left.meetings(), *right.meetings()))

    def _join_blocks(self) -> Iterator[pa.RecordBatch]:
        """One left block with one right block of the sweep."""
        sweep, left, right = self._sweep, self._both.spill(LEFT), self._both.spill(RIGHT)
        assert sweep is not None
        if sweep.pairs:
            ours, others = sweep.pairs[-1]
            if self._left is None or self._left[0] is not ours:
                self._left = None  # one left block at a time
                block = left.read(ours)
                self._left = ours, block, self._index(block)
            mine, index = self._left[1:]
            theirs = right.read(others)
            for pairs in self._matches(index, mine, theirs):
                rows = pairs[0]
                keep = np.ones(rows.size, np.uint8)
                owed(
                    *pairs,
                    mine.segment,
                    theirs.segment,
                    mine.arrived,
                    theirs.arrived,
                    left.departed,
                    right.departed,
                    *sweep.meetings,
                    sweep.done,
                    keep,
                )
                which = np.flatnonzero(keep)
                out, _ = self._both.output.make(
                    Picked(mine.rows, pairs[0][which]), Picked(theirs.rows, pairs[1][which])
                )
                self._stats.disk_disk += out.num_rows
                yield out
            sweep.pairs.pop()
        if not sweep.pairs:
            self._done[sweep.partitions] = sweep.stamp
            self._sweep = None

    # -- what both need --------------------------------------------------------------------------------------------------

    def _productive_first(self, number: int, partitions: Ints | Longs) -> Longs:
        """The order of partitions by results a tuple; segments of one stay together, oldest first."""
        rate = self._ledger.results[number] / np.maximum(1, self._ledger.arrived[number])
        return np.lexsort([partitions, -rate[partitions]])

    def _entries(self, number: int, block: Block) -> Iterator[tuple[Entries, Doubles]]:
        """Where to look for the matches of a block, as many rows at a time as there is room for their cells."""
        partitioning = self._partitioning
        if partitioning.identity:
            values = partitioning.read(number, block.rows).values if partitioning.width else NO_DOUBLES
            yield Entries(all_rows(block.cell.size), block.cell), values
            return
        reading = partitioning.read(number, block.rows)
        for some in partitioning.reach_in_steps(number, reading, self._both.cells_at_once):
            yield some, reading.values

    def _index(self, block: Block) -> tuple[Ints, Hashes, Ints, Doubles]:
        """An index of a left block: heads, cells, links, what rows compare by. Row i is in slot i."""
        n = block.cell.size
        heads, ends = np.full(max(1, n), -1, np.int32), np.array([-1, 0, 0], np.int64)
        codes = np.empty(n, np.uint64)
        before, after, slots = (np.empty(n, np.int32) for _ in range(3))
        cells.insert(heads, codes, before, after, ends, block.cell, slots)
        partitioning = self._partitioning
        values = partitioning.read(LEFT, block.rows).values if partitioning.width else NO_DOUBLES
        return heads, codes, after, values

    def _matches(
        self, index: tuple[Ints, Hashes, Ints, Doubles], mine: Block, theirs: Block
    ) -> Iterator[tuple[Ints, Ints]]:
        """Pairs of a row of a left block, whose index this is, and one of a right block."""
        partitioning = self._partitioning
        most = self._both.pairs_at_once(mine.row_bytes, theirs.row_bytes)
        for entries, values in self._entries(RIGHT, theirs):
            stop = np.array([0, -1], np.int64)
            while stop[0] < entries.cell.size:
                number, rows = np.empty(most, np.int32), np.empty(most, np.int32)
                n = partitioning.match(
                    *index, entries.cell, entries.row, values, partitioning.limits, stop, number, rows
                )
                if n:
                    yield rows[:n], entries.row[number[:n]]


def _newest(spill: Spill, partitions: int) -> Longs:
    """When a segment of each partition departed last; -1 if none did."""
    newest = np.full(partitions, -1, np.int64)
    np.maximum.at(newest, spill.partition, spill.departed)
    return newest
