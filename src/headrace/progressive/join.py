"""The progressive join: two streams, results at once, all of them in the end, in limited memory. [PQP] ch. 3, Alg. 1"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from headrace.clock import Clock, SystemClock
from headrace.conditions import Condition, check_condition
from headrace.errors import BadInput, MemoryRefused, choice
from headrace.memory import MemoryBudget
from headrace.progressive.arrival import Arrival, Piece
from headrace.progressive.calls import Calls
from headrace.progressive.cleanup import Cleanup
from headrace.progressive.grids.partitioning import SIDES, CellEntries, JoinKeys, Partitioning
from headrace.progressive.memory.evict import Evictor
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

    No pair twice, none missed. A counter gives stamps: every insert and flush has its own, and so has every sweep, which lets
    partitions on disk meet the other side's memory. A tuple has its arrival A and its departure D, the stamp of the flush that
    wrote it (in memory: infinite). An arriving tuple is joined with the tuples in memory. When a partition on disk meets
    memory, each of its tuples is joined with those that came after it had departed, and have not met this partition before.
    When a tuple is flushed, the partitions that it has met are written with it (see Meetings). Tuples on disk are joined with
    each other, each two once, without the pairs that were joined before by the following rules. Take two tuples that match,
    with D(1) < D(2):

    - A(2) < D(1): both were in memory when the later of them came, and were joined then. Tuple 2 is not joined with tuple 1
      when it meets the partition of tuple 1 on disk, since it came before D(1).
    - otherwise tuple 2 came when tuple 1 was on disk, so they did not meet in memory. They are joined if the partition of tuple
      1 meets tuple 2 before D(2), the first time that it does.
    - if it does not and D(2) is finite, they are joined on disk. If it is not, they are yet to meet, in `idle` or, at the
      latest, in `finish`.

    If D(1) = D(2), both were in memory until then, and were joined when the later came. So each is joined in one way. Stamps
    are kept with tuples, so segments can be merged: their number, and so the memory for their list, is bounded however long the
    streams are.

    A batch that is refused (BadInput, UnsupportedType, MemoryRefused) leaves the join as it was. If a flush fails, as it does
    on a full disk, nothing is lost: the next call goes on where the last one stopped. So it does if the iterator of `insert` or
    `finish` was dropped before its end. After any other error in the middle of a step every call is refused.

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

    Deviations: tuples are taken in by batch, so the tuples of a batch do not make room for each other one by one; what a tuple
    has met on disk is one number that is kept with it, where XJoin keeps a history with each partition; segments are merged.
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
        self.policy = policy_of(flush)
        least = _LEAST_MEMORY + self.policy.nbytes
        if self.budget.limit < least:
            raise MemoryRefused(
                f"memory={memory!r} is too small for two streams with {type(self.policy).__name__}; give at least"
                f" {format_size(least)}"
            )
        self.budget.reserve("flush policy", self.policy.nbytes)
        if capacity is not None and capacity < 1:
            raise BadInput(f"capacity={capacity!r} is not a number of tuples; give 1 or more, or None")
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
        self._arrivals: list[Arrival] = []  # the batch that is being taken in, and one that came after an error, if any
        self._calls = Calls(self.stats, self.budget)
        self._evictor = Evictor(
            self.policy, self._sides, self.partition_stats, self.stats, capacity=capacity, tick=self._tick
        )
        self._cleanup = Cleanup(self._sides, self.partition_stats, self.stats, self._tick)

    # -- the public steps ------------------------------------------------------------------------------------------------

    def insert(self, side: Literal["left", "right"], batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take in tuples of one side: join them with the other side's memory, send the results, and keep the tuples."""
        number = SIDES.index(choice("side", side, SIDES))
        self._calls.may_begin("insert")
        batch = self._sides.accept(number, batch)
        self._arrivals.append(Arrival(number, batch, self._sides.rows_at_once(batch)))
        return self._calls.until_read("insert", self._take_in())

    def idle(self, budget: float | None = None) -> Iterator[pa.RecordBatch]:
        """Use the time while both sources are silent: join memory with disk, then disk with disk, productive partitions first.

        Parameters
        ----------
        budget
            Seconds that it may take, to the end of a block; None goes on until nothing is left to join, or the iterator is left.
        """
        self._calls.may_begin("idle")
        end = None if budget is None else self.clock.now() + budget
        for out in chain(self._take_in(), self._calls.steady(self._cleanup.run())):
            if out.num_rows:
                yield self._calls.sent(out)
            if end is not None and self.clock.now() >= end:
                return

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Join everything that is left, after both streams have ended."""
        self._calls.may_begin("finish")
        return self._calls.until_read(
            "finish", chain(self._take_in(), self._calls.steady(self._cleanup.run(last=True)))
        )

    # -- the in-memory phase ---------------------------------------------------------------------------------------------

    def _take_in(self) -> Iterator[pa.RecordBatch]:
        """Take in the batch that has arrived, or the rest of it: pieces that fit working memory probe, then are kept."""
        yield from self._calls.steady(self._cleanup.finish_step())
        self._cleanup.free_block()
        while self._arrivals:
            arrival = self._arrivals[0]
            while arrival.at < arrival.batch.num_rows:
                if arrival.piece is None:
                    arrival.piece = self._next_piece(arrival)
                yield from self._calls.steady(arrival.piece.results)
                self._keep(arrival.number, arrival.piece)
                arrival.at, arrival.piece = arrival.at + arrival.piece.batch.num_rows, None
            self.stats.tuples_in[arrival.number] += arrival.batch.num_rows
            self._arrivals.pop(0)

    def _next_piece(self, arrival: Arrival) -> Piece:
        """The next rows of a batch, as many as fit working memory, with the cells that they belong to."""
        sides, partitioning, number = self._sides, self.partitioning, arrival.number
        if self.capacity is not None:
            # No more than a flush removes; the largest partition has at least its share of the tuples in memory.
            of_partition = self.capacity // (2 * partitioning.partitions) if self.policy.whole else 0
            arrival.step = min(arrival.step, max(1, of_partition, self.policy.wanted(self.capacity)))
        while True:
            batch = arrival.batch.slice(arrival.at, arrival.step)
            keys = partitioning.read(number, batch)
            home = partitioning.home(number, keys)
            # Large boxes are in many cells each, and a few rows may be much longer than most, so that fewer fit than expected.
            taken = home.row.size * sides.memory(number).slot_bytes
            if batch.num_rows == 1 or (taken <= sides.work and taken + batch.nbytes <= sides.largest_row):
                break
            arrival.step = batch.num_rows // 2
        self.stats.skipped[number] += int(batch.num_rows - keys.valid.sum())
        self.stats.outside[number] += keys.outside
        results = self._probe(number, batch, keys, home) if sides.both_present else iter(())
        return Piece(batch, keys, home, self._tick(), results)

    def _probe(self, number: int, batch: pa.RecordBatch, keys: JoinKeys, home: CellEntries) -> Iterator[pa.RecordBatch]:
        """Join arriving tuples with the other side's memory."""
        other, partitioning = self._sides.memory(1 - number), self.partitioning
        most = self._sides.pairs_at_once(batch.nbytes // max(1, batch.num_rows), other.row_bytes)
        cells = self._sides.cells_at_once
        for reach in [home] if partitioning.identity else partitioning.reach_in_steps(number, keys, cells):
            for entries, slots in other.match(reach.cell, reach.row, keys.values, most):
                order = other.by_chunk(slots)
                rows, slots = reach.row[entries[order]], slots[order]
                for some in other.pairs_that_fit(batch, rows, slots, self._sides.work):
                    mine, theirs = BatchRows(batch, rows[some]), MemoryRows(other, slots[some])
                    out, which = self._sides.output.make(*left_and_right(number, mine, theirs))
                    made = theirs.slots if which is None else theirs.slots[which]
                    self.partition_stats.made_results(other.number, other.partition[made])
                    if other.results.size:
                        np.add.at(other.results, made, np.int32(1))
                    self.stats.in_memory += out.num_rows
                    yield out

    def _keep(self, number: int, piece: Piece) -> None:
        """Put rows that have probed into memory. If there is no room and none can be made, nothing has changed."""
        home = piece.home
        if home.row.size:
            partitions = self.partitioning.partition_of(home.cell)
            if not piece.announced:
                self.policy.arrive(number, home.cell, partitions)
                piece.announced = True
            self._evictor.make_room(number, piece.batch, home.row.size)
            self._sides.memory(number).insert(piece.batch, home, piece.keys.values, partitions, piece.stamp)
            self.partition_stats.arrived_tuples(number, partitions)

    # -- stamps -----------------------------------------------------------------------------------------------------------

    def _tick(self) -> int:
        """Give the next stamp."""
        self._stamp += 1
        return self._stamp
