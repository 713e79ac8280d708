"""Evictor: makes room for arriving tuples by flushing what the policy chooses, as segments on disk."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from headrace.arrays import Bools, Int32s, Int64s
from headrace.errors import MemoryRefused
from headrace.memory import MemoryBudget, trim_malloc
from headrace.progressive.memory.merge import Merger
from headrace.progressive.memory.side_memory import SideMemory
from headrace.progressive.memory.spill import ANYWHERE, STAGED, Spill
from headrace.progressive.policies.base import FlushPolicy
from headrace.progressive.policies.driver import lowest_partitions, tuple_scores
from headrace.progressive.policies.stats import PartitionStats, TupleStats
from headrace.progressive.stats import ProgressiveStats
from headrace.row_copies import copied_bytes, take
from headrace.units import format_size

_log = logging.getLogger(__name__)

_WRITE_BYTES = (
    64  # of a tuple while it is written, beside two copies of its row: stamps, cell, and its place in the order
)


class StoredTuples(Protocol):
    """The memory and the segments of the streams of a join: two sides, or several streams."""

    budget: MemoryBudget
    work: int
    present: list[SideMemory]

    @property
    def held(self) -> int:
        """The number of tuples in memory."""
        ...

    def name(self, number: int) -> str:
        """The name of a stream in messages."""
        ...

    def memory(self, number: int) -> SideMemory:
        """The memory of a stream that has seen a batch."""
        ...

    def spill(self, number: int) -> Spill:
        """The segments on disk of a stream that has seen a batch."""
        ...

    def merger(self, number: int) -> Merger:
        """What keeps the segments of a stream few."""
        ...

    def swept(self, number: int, partitions: Int32s, arrived: Int64s) -> Int32s:
        """What tuples in memory have met on disk, as it is written with them."""
        ...


class Evictor:
    """Flushes tuples when memory is full.

    Parameters
    ----------
    policy
        Chooses what leaves memory.
    sides
        The sides of the join.
    partition_stats
        What the policy decides by; flushes are counted there.
    stats
        Where flushes and flushed tuples are counted for the user.
    capacity
        The number of tuples in memory at most; None for as many as the budget allows.
    tick
        Gives the next stamp.
    """

    def __init__(
        self,
        policy: FlushPolicy,
        sides: StoredTuples,
        partition_stats: PartitionStats,
        stats: ProgressiveStats,
        *,
        capacity: int | None,
        tick: Callable[[], int],
    ) -> None:
        self._policy, self._sides, self._capacity, self._tick = policy, sides, capacity, tick
        self._partition_stats, self._stats = partition_stats, stats

    def make_room(self, number: int, batch: pa.RecordBatch, slots: int) -> None:
        """Flush until a batch of a side, with this many slots, fits memory."""
        sides, budget = self._sides, self._sides.budget
        spills = [sides.spill(side.number) for side in sides.present]
        while True:
            need = copied_bytes(batch) + sides.memory(number).more_bytes(slots) + sum(s.uncounted for s in spills)
            over = 0 if self._capacity is None else sides.held + slots - self._capacity
            short = need - budget.left
            if short <= 0 and (over <= 0 or not sides.held):
                break
            if not sides.held:
                raise MemoryRefused(
                    f"a tuple of {sides.name(number)} takes {format_size(need)}, and {format_size(budget.left)} of"
                    f" {format_size(budget.limit)} is left; give more memory"
                )
            each = max(1, budget.used // sides.held)
            self._flush(max(over, -(-short // each)))
        for spill in spills:
            spill.count()

    def _flush(self, least: int) -> None:
        """Move to disk what the policy chooses, at least `least` tuples. If it fails, what was not written is still in memory."""
        sides = self._sides
        wanted = min(sides.held, max(least, self._policy.wanted(sides.held)))
        self._remove(victims(self._policy, self._partition_stats, sides.present, wanted), self._tick())

    def flush_partitions(self, partitions: Bools) -> None:
        """Move all tuples of the marked partitions to disk, whatever the policy says of them."""
        held = self._partition_stats.held
        slots = [side.in_partitions(partitions, int(held[side.number].sum())) for side in self._sides.present]
        if any(some.size for some in slots):
            self._remove(slots, self._tick())

    def _remove(self, chosen: Sequence[Int32s], stamp: int) -> None:
        sides = self._sides
        for side, slots in zip(sides.present, chosen, strict=True):
            if slots.size:
                try:
                    self._write(side, slots, stamp)
                finally:
                    side.compact()
                sides.merger(side.number).after_flush()
        trim_malloc()  # malloc keeps the freed chunks, which are of many sizes, unless it is asked to return them
        self._partition_stats.flush_ended()
        self._stats.flushes += 1
        _log.debug("flush %d: %d tuples to disk", self._stats.flushes, sum(slots.size for slots in chosen))

    def _write(self, side: SideMemory, slots: Int32s, stamp: int) -> None:
        """Write slots to disk and remove them from memory, as many at a time as fit working memory."""
        sides, spill = self._sides, self._sides.spill(side.number)
        slots = slots[np.lexsort([side.cell[slots], side.partition[slots]])]
        step = max(1, sides.work // (2 * side.row_bytes + _WRITE_BYTES))
        at = start = spill.room_for(ANYWHERE)
        written = 0
        try:
            for first in range(0, slots.size, step):
                some = slots[first : first + step]
                order = side.by_chunk(some)
                rows = take(side.rows(some[order]), np.argsort(order))  # `rows` gives them by chunk
                partitions, arrived = side.partition[some], side.arrived[some]
                swept = sides.swept(side.number, partitions, arrived)
                at = spill.append(at, rows, arrived, swept, side.cell[some], stamp)
                written += some.size
                self._partition_stats.flushed_tuples(side.number, partitions)
                side.remove(some)
        finally:
            if written:
                spill.add(STAGED, written, stamp, start, at - start)
            self._stats.flushed += written


def victims(policy: FlushPolicy, stats: PartitionStats, sides: Sequence[SideMemory], wanted: int) -> list[Int32s]:
    """The slots that leave, of each side: `wanted` of them, or more where partitions leave as a whole."""
    if policy.per_tuple:
        return _worst_tuples(policy, stats, sides, wanted)
    chosen = lowest_partitions(policy, stats, wanted)
    out = []
    for side in sides:
        leave = chosen.leave[side.number]
        slots = side.in_partitions(leave, int(stats.held[side.number][leave].sum()))
        if chosen.spare and chosen.last[0] == side.number:
            # Only the oldest tuples of the last partition leave, as many as are still wanted.
            part = np.flatnonzero(side.partition[slots] == chosen.last[1])
            by_age = part[np.argsort(side.arrived[slots[part]], kind="stable")]
            slots = np.delete(slots, by_age[part.size - chosen.spare :])
        out.append(slots)
    return out


def _worst_tuples(policy: FlushPolicy, stats: PartitionStats, sides: Sequence[SideMemory], wanted: int) -> list[Int32s]:
    """The slots of the tuples with the lowest scores; of equal ones the oldest."""
    slots = [side.live() for side in sides]
    scores, arrived = [], []
    for side, mine in zip(sides, slots, strict=True):
        tuples = TupleStats(side.partition[mine], side.cell[mine], side.arrived[mine], side.results[mine])
        scores.append(tuple_scores(policy, stats, side.number, tuples))
        arrived.append(tuples.arrived)
    leave = np.zeros(sum(mine.size for mine in slots), np.bool_)
    leave[np.lexsort([np.concatenate(arrived), np.concatenate(scores)])[:wanted]] = True
    cuts = np.cumsum([mine.size for mine in slots])[:-1]
    return [mine[which] for mine, which in zip(slots, np.split(leave, cuts), strict=True)]
