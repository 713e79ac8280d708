"""The progressive join: two streams, results at once, all of them in the end, in limited memory. [PQP] ch. 3, Alg. 1"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from headrace.clock import Clock, SystemClock
from headrace.conditions import Condition, check_condition
from headrace.errors import BadInput, MemoryRefused, choice
from headrace.memory import MemoryBudget, trim_malloc
from headrace.progressive.cleanup import Phases
from headrace.progressive.grids.partitioning import SIDES, Doubles, Entries, Partitioning
from headrace.progressive.memory.evict import victims, write
from headrace.progressive.memory.side_memory import Side, copied
from headrace.progressive.memory.sides import Both
from headrace.progressive.output import Held, Picked, in_order
from headrace.progressive.policies.by_name import policy_of
from headrace.progressive.policies.flush import FlushPolicy, Ledger
from headrace.progressive.stats import ProgressiveStats
from headrace.relation.disk import Disk
from headrace.relation.keys import Ints
from headrace.units import format_size

_LEAST = 1 << 18  # bytes of memory


class ProgressiveJoin:
    """Joins two streams whose tuples come in any order, and sends each result as soon as memory allows.

        left batch --> probe right memory --> results        idle, finish: memory with disk, disk with disk --> results
                   +-> insert into left memory -- full --> policy: the least productive --> disk

    Choose it when neither stream can be kept in memory and results are wanted before both have ended. With memory enough it is
    the symmetric hash join. `insert`, `idle` and `finish` are iterators of record batches; that of `insert` and `finish` must be
    read to its end, that of `idle` may be left at any time.

    No pair twice, none missed. A counter gives stamps: every insert, flush and meeting has its own. A tuple has its arrival A;
    tuples of a partition that are flushed together are a segment with one departure D (in memory: infinite). An arriving tuple is
    joined with what is in memory. A segment may meet the other side's memory at a stamp t: its tuples are joined with those that
    arrived there since it departed, or since it met memory last. Segments of both sides are joined on disk, each two once,
    without the pairs that the following says were joined before. Take two tuples that match, with D(1) < D(2):

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
        equal, intersects, within, or all_of with one of them and others.
    memory
        The budget in bytes, as a number or "64MiB", of both sides together.
    flush
        The policy, by name or as an object.
    partitioning
        How tuples are divided; by the condition if not given.
    capacity
        Tuples in memory at most, beside the bytes; no such limit by default.
    suffix
        Added to the name of a right column that the left side has too; None refuses it.
    disk
        Says what reads and writes cost if it is simulated.
    spill
        The directory of the file that tuples are flushed to; the system's for temporary files by default.

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
        if self.budget.limit < _LEAST:
            raise MemoryRefused(f"memory={memory!r} is too small for two streams; give at least {format_size(_LEAST)}")
        if capacity is not None and capacity < 1:
            raise BadInput(f"capacity={capacity!r} is not a number of tuples; give 1 or more, or None")
        self.policy = policy_of(flush)
        self.capacity = capacity
        self.suffix = suffix
        self.disk = disk or Disk()
        self.clock: Clock = clock or (self.disk.clock if self.disk.kind == "simulated" else SystemClock())
        self.stats = ProgressiveStats(memory_limit=self.budget.limit)
        self._both = Both(
            condition,
            partitioning,
            suffix,
            self.budget,
            counted=self.policy.per_tuple,
            disk=self.disk,
            directory=spill,
            stats=self.stats,
        )
        self.partitioning = self._both.partitioning
        self.ledger = Ledger.empty(self.partitioning.partitions)
        self._stamp = 0
        self._open: str | None = None
        self._finished = False
        self._phases = Phases(self._both, self.ledger, self.stats, self._tick)

    # -- the public steps ------------------------------------------------------------------------------------------------

    def insert(self, side: Literal["left", "right"], batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take in tuples of one side: probe the other, send results, keep them."""
        number = SIDES.index(choice("side", side, SIDES))
        self._may_begin()
        batch = self._both.accept(number, batch)
        self._open = "insert"
        return self._whole(self._insert(number, batch))

    def idle(self, budget: float | None = None) -> Iterator[pa.RecordBatch]:
        """Both sources are silent: join memory with disk, then disk with disk, the most productive partitions first.

        Parameters
        ----------
        budget
            Seconds; None goes on until there is nothing to do, or the iterator is left.
        """
        self._may_begin()
        end = None if budget is None else self.clock.now() + budget
        for out in self._phases.run():
            if out.num_rows:
                yield self._sent(out)
            if end is not None and self.clock.now() >= end:
                return

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Both streams have ended: everything that is left."""
        self._may_begin()
        self._open, self._finished = "finish", True
        return self._whole(self._phases.run(last=True))

    # -- the in-memory phase ---------------------------------------------------------------------------------------------

    def _insert(self, number: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        step = self._both.rows_at_once(batch)
        if self.capacity is not None:
            step = min(step, max(1, self.policy.wanted(self.capacity)))
        yield from self._phases.complete()
        self._phases.forget()
        for at in range(0, batch.num_rows, step):
            yield from self._take_in(number, batch.slice(at, step))
        self.stats.tuples_in[number] += batch.num_rows

    def _take_in(self, number: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        both, partitioning = self._both, self.partitioning
        reading = partitioning.read(number, batch)
        home = partitioning.home(number, reading)
        if home.row.size * both.side(number).slot_bytes > both.work and batch.num_rows > 1:  # large boxes
            half = batch.num_rows // 2
            yield from self._take_in(number, batch.slice(0, half))
            yield from self._take_in(number, batch.slice(half))
            return
        stamp = self._tick()
        self.stats.skipped[number] += int(batch.num_rows - reading.valid.sum())
        self.stats.outside[number] += reading.outside
        if both.there:
            reach = (
                [home] if partitioning.identity else partitioning.reach_in_steps(number, reading, both.cells_at_once)
            )
            for some in reach:
                yield from self._probe(both.side(1 - number), batch, some, reading.values)
        if home.row.size:
            partitions = partitioning.partition_of(home.cell)
            self.policy.arrive(number, home.cell, partitions)
            self._make_room(number, batch, home.row.size)
            both.side(number).insert(batch, home, reading.values, partitions, stamp)
            came = np.bincount(partitions, minlength=partitioning.partitions)
            for counts in (self.ledger.held, self.ledger.arrived, self.ledger.fresh):
                counts[number] += came

    def _probe(self, other: Side, batch: pa.RecordBatch, reach: Entries, values: Doubles) -> Iterator[pa.RecordBatch]:
        """Results of arriving tuples with what is in memory of the other side."""
        most = self._both.pairs_at_once(batch.nbytes // max(1, batch.num_rows), other.row_bytes)
        for entries, slots in other.match(reach.cell, reach.row, values, most):
            order = other.by_chunk(slots)
            slots = slots[order]
            mine = Picked(batch, reach.row[entries[order]])
            out, which = self._both.output.make(*in_order(1 - other.number, mine, Held(other, slots)))
            self._credit(other, slots if which is None else slots[which])
            self.stats.in_memory += out.num_rows
            yield out

    def _credit(self, side: Side, slots: Ints) -> None:
        """Results go to the account of the partition that was probed."""
        came = np.bincount(side.partition[slots], minlength=self.partitioning.partitions)
        self.ledger.results[side.number] += came
        self.ledger.recent[side.number] += came
        if side.results.size:
            np.add.at(side.results, slots, np.int32(1))

    # -- flushing --------------------------------------------------------------------------------------------------------

    def _make_room(self, number: int, batch: pa.RecordBatch, slots: int) -> None:
        """Flush until a batch fits."""
        both, budget = self._both, self.budget
        spills = [both.spill(side.number) for side in both.sides]
        while True:
            need = copied(batch) + both.side(number).more_bytes(slots) + sum(spill.uncounted for spill in spills)
            over = 0 if self.capacity is None else both.held + slots - self.capacity
            short = need - budget.left
            if short <= 0 and (over <= 0 or not both.held):
                break
            if not both.held:
                raise MemoryRefused(
                    f"a tuple of the {SIDES[number]} side takes {format_size(need)}, and {format_size(budget.left)} of"
                    f" {format_size(budget.limit)} is left; give more memory"
                )
            each = max(1, budget.used // both.held)
            self._flush(max(over, -(-short // each)))
        for spill in spills:
            spill.count()

    def _flush(self, least: int) -> None:
        """Move to disk what the policy chooses, at least so many tuples."""
        both, stamp = self._both, self._tick()
        wanted = min(both.held, max(least, self.policy.wanted(both.held)))
        for side, slots in zip(both.sides, victims(self.policy, self.ledger, both.sides, wanted), strict=True):
            if slots.size:
                spill = both.spill(side.number)
                since, partitions = spill.nbytes, side.partition[slots]
                write(side, spill, slots, stamp, both.work)
                side.remove(slots)
                side.compact()
                spill.wrote(since)
                self.ledger.held[side.number] -= np.bincount(partitions, minlength=self.partitioning.partitions)
                self.stats.flushed += slots.size
        trim_malloc()  # chunks of many sizes came and went
        self.ledger.fresh[:], self.ledger.recent[:] = 0, 0
        self.ledger.flushes += 1
        self.stats.flushes += 1

    # -- bookkeeping -----------------------------------------------------------------------------------------------------

    def _tick(self) -> int:
        self._stamp += 1
        return self._stamp

    def _may_begin(self) -> None:
        if self._open is not None:
            raise BadInput(
                f"the results of the last {self._open} were not read to the end; iterate over what it returns"
            )
        if self._finished:
            raise BadInput("this join has been finished; make another")

    def _whole(self, results: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for out in results:
            if out.num_rows:
                yield self._sent(out)
        self._open = None
        self.stats.memory, self.stats.memory_peak = self.budget.held(), self.budget.peak

    def _sent(self, out: pa.RecordBatch) -> pa.RecordBatch:
        self.stats.results += out.num_rows
        return out
