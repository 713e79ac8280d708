"""The progressive join: two streams, results at once, all of them in the end, in limited memory. [PQP] ch. 3, Alg. 1"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from headrace.arrays import Float64s
from headrace.clock import Clock, SystemClock
from headrace.conditions import Condition, check_condition
from headrace.errors import BadInput, MemoryRefused, choice
from headrace.memory import MemoryBudget
from headrace.progressive.cleanup import Cleanup
from headrace.progressive.grids.partitioning import SIDES, CellEntries, Partitioning
from headrace.progressive.memory.evict import Evictor
from headrace.progressive.memory.side_memory import SideMemory
from headrace.progressive.memory.sides import Sides
from headrace.progressive.output import BatchRows, MemoryRows, left_and_right
from headrace.progressive.policies import FlushPolicy, PartitionStats, policy_of
from headrace.progressive.stats import ProgressiveStats
from headrace.relation.disk import Disk
from headrace.units import format_size

_LEAST_MEMORY = 1 << 18  # bytes: working memory is 1/8 of it, and a part of that must hold a batch of a few rows


class ProgressiveJoin:
    """Joins two streams whose tuples come in any order, and sends each result as soon as memory allows.

        left batch --> probe right memory --> results        idle, finish: memory with disk, disk with disk --> results
                   +-> insert into left memory -- full --> policy: the least productive --> disk

    Choose it when neither stream can be kept in memory and results are wanted before both have ended. With memory enough it is
    the symmetric hash join. `insert`, `idle` and `finish` are iterators of record batches; that of `insert` and `finish` must be
    read to its end, that of `idle` may be left at any time.

    No pair twice, none missed. A counter gives stamps: every insert, flush and meeting has its own. A tuple has its arrival A;
    tuples of a partition that are flushed together are a segment with one departure D (in memory: infinite). An arriving tuple is
    joined with the tuples in memory. A segment may meet the other side's memory at a stamp t: its tuples are joined with those
    that arrived there since it departed, or since it last met memory. Segments of both sides are joined on disk, each two once,
    without the pairs that were joined before by the following rules. Take two tuples that match, with D(1) < D(2):

    - A(2) < D(1): both were in memory when the later of them came, and were joined then. No meeting of segment 1 takes tuple 2,
      which came before D(1).
    - otherwise tuple 2 came when tuple 1 was on disk, so they did not meet in memory. Segment 1 meets tuple 2 at the first t with
      A(2) < t < D(2), if there is one, and at no later one.
    - if there is none and D(2) is finite, they are joined on disk. If it is not, segment 1 is yet to meet tuple 2, in `idle` or,
      at the latest, in `finish`.

    If D(1) = D(2), both were in memory until then, and were joined when the later came. So each is joined in one way.

    Parameters
    ----------
    condition
        What pairs must satisfy: equal, intersects, within, or all_of with one of them and others.
    memory
        The budget of both sides together, in bytes or as "64MiB".
    flush
        The flush policy, by name or as an object.
    partitioning
        How tuples are divided into partitions; the condition decides if it is None.
    capacity
        The number of tuples in memory at most, in addition to the budget; no such limit if None.
    suffix
        Added to the name of a right column that the left side has too; None refuses it.
    disk
        A simulated disk charges reads and writes to its clock.
    spill
        The directory of the files that tuples are flushed to; the system's for temporary files if None.
    clock
        Tells `idle` when its time is over; that of a simulated disk, or the system's, if None.

    Example
    -------
    >>> import headrace as hr
    >>> import pyarrow as pa
    >>> from headrace.progressive import ProgressiveJoin
    >>> op = ProgressiveJoin(hr.equal("k"), memory="8MiB")
    >>> list(op.insert("left", pa.record_batch({"k": [1, 2], "a": ["x", "y"]})))
    []
    >>> [out.to_pylist() for out in op.insert("right", pa.record_batch({"k": [2, 3], "b": [10, 20]}))]
    [[{'k': 2, 'a': 'y', 'b': 10}]]
    >>> list(op.finish())
    []

    Reference: [PQP] ch. 3, Alg. 1; Urhan and Franklin, XJoin (stamps).

    Deviations: tuples are taken in by batch, so the tuples of a batch do not make room for each other one by one; departures and
    meetings are kept by segment, where XJoin keeps two stamps with each tuple and a history with each partition.
    """

    def __init__(
        self,
        condition: Condition,
        memory: int | str = "64MiB",
        flush: str | FlushPolicy = "rrpj",
        *,
        partitioning: Partitioning | None = None,
        capacity: int | None = None,
        suffix: str | None = "_right",
        disk: Disk | None = None,
        spill: Path | None = None,
        clock: Clock | None = None,
    ) -> None:
        check_condition(condition)
        self.condition = condition
        self.budget = MemoryBudget(memory)
        if self.budget.limit < _LEAST_MEMORY:
            raise MemoryRefused(
                f"memory={memory!r} is too small for two streams; give at least {format_size(_LEAST_MEMORY)}"
            )
        if capacity is not None and capacity < 1:
            raise BadInput(f"capacity={capacity!r} is not a number of tuples; give 1 or more, or None")
        self.policy = policy_of(flush)
        self.capacity = capacity
        self.suffix = suffix
        self.disk = disk or Disk()
        self.clock: Clock = clock or (self.disk.clock if self.disk.kind == "simulated" else SystemClock())
        self.stats = ProgressiveStats(memory_limit=self.budget.limit)
        self._sides = Sides(
            condition,
            partitioning,
            suffix,
            self.budget,
            counted=self.policy.per_tuple,
            disk=self.disk,
            directory=spill,
            stats=self.stats,
        )
        self.partitioning = self._sides.partitioning
        self.partition_stats = PartitionStats.empty(self.partitioning.partitions)
        self._stamp = 0
        self._open: str | None = None  # "insert" or "finish" while its results are not read to the end
        self._finished = False
        self._evictor = Evictor(
            self.policy, self._sides, self.partition_stats, self.stats, capacity=capacity, tick=self._tick
        )
        self._cleanup = Cleanup(self._sides, self.partition_stats, self.stats, self._tick)

    # -- the public steps ------------------------------------------------------------------------------------------------

    def insert(self, side: Literal["left", "right"], batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take in tuples of one side: join them with the other side's memory, send the results, and keep the tuples."""
        number = SIDES.index(choice("side", side, SIDES))
        self._may_begin()
        batch = self._sides.accept(number, batch)
        self._open = "insert"
        return self._until_read(self._insert(number, batch))

    def idle(self, budget: float | None = None) -> Iterator[pa.RecordBatch]:
        """Use the time while both sources are silent: join memory with disk, then disk with disk, productive partitions first.

        Parameters
        ----------
        budget
            Seconds that it may take, to the end of a step; None goes on until nothing is left to join, or the iterator is left.
        """
        self._may_begin()
        end = None if budget is None else self.clock.now() + budget
        for out in self._cleanup.run():
            if out.num_rows:
                yield self._sent(out)
            if end is not None and self.clock.now() >= end:
                return

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Join everything that is left, after both streams have ended."""
        self._may_begin()
        self._open, self._finished = "finish", True
        return self._until_read(self._cleanup.run(last=True))

    # -- the in-memory phase ---------------------------------------------------------------------------------------------

    def _insert(self, number: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        step = self._sides.rows_at_once(batch)
        if self.capacity is not None:
            step = min(step, max(1, self.policy.wanted(self.capacity)))
        yield from self._cleanup.finish_step()
        self._cleanup.free_block()
        for at in range(0, batch.num_rows, step):
            yield from self._take_in(number, batch.slice(at, step))
        self.stats.tuples_in[number] += batch.num_rows

    def _take_in(self, number: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take in rows that fit working memory: probe the other side, make room, insert."""
        sides, partitioning = self._sides, self.partitioning
        mine = sides.memory(number)
        keys = partitioning.read(number, batch)
        home = partitioning.home(number, keys)
        # Large boxes are in many cells each, so that fewer rows fit than were expected.
        if home.row.size * mine.slot_bytes > sides.work and batch.num_rows > 1:
            half = batch.num_rows // 2
            yield from self._take_in(number, batch.slice(0, half))
            yield from self._take_in(number, batch.slice(half))
            return
        stamp = self._tick()
        self.stats.skipped[number] += int(batch.num_rows - keys.valid.sum())
        self.stats.outside[number] += keys.outside
        if sides.both_present:
            reach = [home] if partitioning.identity else partitioning.reach_in_steps(number, keys, sides.cells_at_once)
            for some in reach:
                yield from self._probe(sides.memory(1 - number), batch, some, keys.values)
        if home.row.size:
            partitions = partitioning.partition_of(home.cell)
            self.policy.arrive(number, home.cell, partitions)
            self._evictor.make_room(number, batch, home.row.size)
            mine.insert(batch, home, keys.values, partitions, stamp)
            self.partition_stats.arrived_tuples(number, partitions)

    def _probe(
        self, other: SideMemory, batch: pa.RecordBatch, reach: CellEntries, values: Float64s
    ) -> Iterator[pa.RecordBatch]:
        """Join arriving tuples with the other side's memory."""
        most = self._sides.pairs_at_once(batch.nbytes // max(1, batch.num_rows), other.row_bytes)
        for entries, slots in other.match(reach.cell, reach.row, values, most):
            order = other.by_chunk(slots)
            slots = slots[order]
            mine = BatchRows(batch, reach.row[entries[order]])
            out, which = self._sides.output.make(*left_and_right(1 - other.number, mine, MemoryRows(other, slots)))
            made = slots if which is None else slots[which]
            self.partition_stats.made_results(other.number, other.partition[made])
            if other.results.size:
                np.add.at(other.results, made, np.int32(1))
            self.stats.in_memory += out.num_rows
            yield out

    # -- stamps, and calls in order --------------------------------------------------------------------------------------

    def _tick(self) -> int:
        """Give the next stamp."""
        self._stamp += 1
        return self._stamp

    def _may_begin(self) -> None:
        """Refuse a call while results of the last one are unread, and after `finish`."""
        if self._open is not None:
            raise BadInput(
                f"the results of the last {self._open} were not read to the end; iterate over what it returns"
            )
        if self._finished:
            raise BadInput("this join has been finished; make another")

    def _until_read(self, results: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send results; the next call is refused until they are read to the end."""
        for out in results:
            if out.num_rows:
                yield self._sent(out)
        self._open = None
        self.stats.memory, self.stats.memory_peak = self.budget.held(), self.budget.peak

    def _sent(self, out: pa.RecordBatch) -> pa.RecordBatch:
        self.stats.results += out.num_rows
        return out
