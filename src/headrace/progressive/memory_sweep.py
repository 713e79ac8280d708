"""MemorySweep: joins partitions on disk with the other side's memory, each with the tuples that it has not met yet. [PQP] §3.2"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.arrays import Int64s
from headrace.progressive.memory.sides import Sides
from headrace.progressive.memory.spill import SpilledRows
from headrace.progressive.output import BatchRows, MemoryRows, left_and_right
from headrace.progressive.policies.stats import PartitionStats
from headrace.progressive.stats import ProgressiveStats


@dataclass(slots=True)
class Sweep:
    """Partitions of a side on disk that are to meet the other side's memory."""

    stamp: int
    """tuples that arrived before this stamp take part"""
    partitions: list[int]
    """those that are still to come; the last is next"""


class MemorySweep:
    """Joins disk with memory, some partitions of a side's disk at a time.

    A sweep lets all partitions of one side meet the tuples that are in the other side's memory when it begins; see Meetings for
    the order. Only partitions are read that have tuples on disk and tuples in memory that they may match and have not met. A
    sweep may stop between two partitions, and goes on after more tuples have come: these take part in the next one.

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
        self._sweeps: list[Sweep | None] = [None, None]

    def steps(self, number: int) -> Iterator[Iterator[pa.RecordBatch]]:
        """Give steps until a side's disk has nothing more to meet in memory; each must be read to its end."""
        while (sweep := self._sweeps[number] or self._begin(number)) is not None:
            self._sweeps[number] = sweep
            while sweep.partitions:
                yield self._meet(number, sweep)
            self._sides.meetings.note_all(number, sweep.stamp)
            self._sweeps[number] = None

    def _begin(self, number: int) -> Sweep | None:
        """Begin a sweep of a side's disk; returns None if there is nothing to join."""
        sides, other = self._sides, self._sides.memory(1 - number)
        sides.merger(number).distribute()  # what is staged would be taken for met, and not be read
        if not len(sides.spill(number)) or not other.used:
            return None
        latest = other.latest_by_partition(sides.cells_at_once)
        fresh = np.flatnonzero(latest > sides.meetings.met(number)).astype(np.int32)
        near = sides.partitioning.neighbours(fresh) if fresh.size else fresh
        wanted: Int64s = near[sides.spill(number).newest[near] >= 0].astype(np.int64)
        if not wanted.size:
            return None
        if sides.partitioning.identity:
            wanted = wanted[self._partition_stats.productive_first(number, wanted)]
        return Sweep(self._tick(), wanted[::-1].tolist())

    def _meet(self, number: int, sweep: Sweep) -> Iterator[pa.RecordBatch]:
        """Join the next partitions of a sweep, as many as fit a block, with memory; an empty batch follows each block."""
        sides, spill = self._sides, self._sides.spill(number)
        sizes = np.cumsum(spill.bytes_by_partition()[sweep.partitions[::-1]])
        some = sweep.partitions[-max(1, int(np.searchsorted(sizes, sides.block_bytes, side="right"))) :]
        parts, size = list[pa.RecordBatch](), 0
        segments = spill.among(np.array(some, np.int32)).tolist()
        for segment in segments:
            at, end = spill.begin(segment), spill.end(segment)
            while at < end:
                found, after = spill.read(segment, at, sides.block_bytes - size)
                parts += found
                size, at = size + after - at, after
                if size >= sides.block_bytes or (at == end and segment == segments[-1]):
                    yield from self._probe(number, spill.rows(parts), sweep.stamp)
                    yield sides.output.empty()
                    parts, size = [], 0
        del sweep.partitions[-len(some) :]
        for partition in reversed(some):
            sides.meetings.note(number, partition, sweep.stamp)

    def _probe(self, number: int, block: SpilledRows, stamp: int) -> Iterator[pa.RecordBatch]:
        """Join rows on disk with tuples in memory that came after the rows had left it, and have not met them."""
        sides, other = self._sides, self._sides.memory(1 - number)
        since = np.maximum(block.departed, sides.meetings.met(number)[sides.partitioning.partition_of(block.cell)])
        most = sides.pairs_at_once(block.row_bytes, other.row_bytes)
        for entries, values in sides.probes(number, block):
            for entry, slots in other.match(entries.cell, entries.row, values, most):
                rows, arrived = entries.row[entry], other.arrived[slots]
                fresh = np.flatnonzero((arrived > since[rows]) & (arrived < stamp))
                order = fresh[other.by_chunk(slots[fresh])]
                rows, slots = rows[order], slots[order]
                for some in other.pairs_that_fit(block.rows, rows, slots, sides.work):
                    mine, theirs = BatchRows(block.rows, rows[some]), MemoryRows(other, slots[some])
                    out, _ = sides.output.make(*left_and_right(number, mine, theirs))
                    self._stats.memory_disk += out.num_rows
                    yield out
