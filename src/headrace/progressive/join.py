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
from headrace.memory import MemoryBudget, trim
from headrace.progressive.choose import divide
from headrace.progressive.evict import victims, write
from headrace.progressive.flush import FlushPolicy, Ledger
from headrace.progressive.output import Held, Output, Picked, in_order, plain
from headrace.progressive.partitioning import SIDES, Partitioning
from headrace.progressive.phases import Phases
from headrace.progressive.policies import policy_of
from headrace.progressive.side import Side, slot_bytes
from headrace.progressive.spill import Spill
from headrace.progressive.stats import ProgressiveStats
from headrace.relation.disk import Disk
from headrace.relation.keys import Ints
from headrace.units import format_size

_LEAST = 1 << 18  # bytes of memory
_WORK = 8  # such a part of memory is for the batch that comes in, results and what is read from disk
_PARTS = 8  # of it, for each of what is in work at one time
_ROW_WORK = 96  # bytes of an arriving row beside the row itself: its cells, partition, what it compares by
_PAIR_WORK = 48  # bytes of a pair beside its rows


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
        self, condition: Condition, memory: int | str = "64MiB", flush: str | FlushPolicy = "rrpj", *,
        partitioning: Partitioning | None = None, capacity: int | None = None, suffix: str | None = "_right",
        disk: Disk | None = None, spill: Path | None = None, clock: Clock | None = None,
    ) -> None:  # fmt: skip
        check_condition(condition)
        self.condition = condition
        self.budget = MemoryBudget(memory)
        if self.budget.limit < _LEAST:
            raise MemoryRefused(f"memory={memory!r} is too small for two streams; give at least {format_size(_LEAST)}")
        if capacity is not None and capacity < 1:
            raise BadInput(f"capacity={capacity!r} is not a number of tuples; give 1 or more, or None")
        self.policy = policy_of(flush)
        divided, ask = divide(condition)
        self.partitioning = partitioning or divided
        self._ask = ask
        self.capacity = capacity
        self.suffix = suffix
        self.disk = disk or Disk()
        self.spill = spill
        self.clock: Clock = clock or (self.disk.clock if self.disk.kind == "simulated" else SystemClock())
        self.stats = ProgressiveStats(memory_limit=self.budget.limit)
        self.ledger = Ledger.empty(self.partitioning.partitions)
        self._work = self.budget.limit // _WORK
        self.budget.reserve("work", self._work)
        self._sides: list[Side | None] = [None, None]
        self._spills: list[Spill | None] = [None, None]
        self._output: Output | None = None
        self._stamp = 0
        self._open: str | None = None
        self._finished = False
        self._phases = Phases(self)

    # -- the public steps ------------------------------------------------------------------------------------------------

    def insert(self, side: Literal["left", "right"], batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take in tuples of one side: probe the other, send results, keep them."""
        number = SIDES.index(choice("side", side, SIDES))
        batch = self._accept(number, batch)
        self._begin("insert")
        return self._whole(self._insert(number, batch))

    def idle(self, budget: float | None = None) -> Iterator[pa.RecordBatch]:
        """Both sources are silent: join memory with disk, then disk with disk, the most productive partitions first.

        Parameters
        ----------
        budget
            Seconds; None goes on until there is nothing to do, or the iterator is left.
        """
        self._begin(None)
        end = None if budget is None else self.clock.now() + budget
        for out in self._phases.run():
            if out.num_rows:
                yield self._sent(out)
            if end is not None and self.clock.now() >= end:
                return

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Both streams have ended: everything that is left."""
        self._begin("finish")
        self._finished = True
        return self._whole(self._phases.run())

    # -- the in-memory phase ---------------------------------------------------------------------------------------------

    def _insert(self, number: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        each = batch.nbytes // max(1, batch.num_rows) + 1
        step = max(1, self._work // _PARTS // (2 * each + _ROW_WORK + 8 * self.partitioning.width))
        if self.capacity is not None:
            step = min(step, max(1, self.policy.wanted(self.capacity)))
        yield from self._phases.complete()
        self._phases.forget()
        for at in range(0, batch.num_rows, step):
            yield from self._take_in(number, batch.slice(at, step))
        self.stats.tuples_in[number] += batch.num_rows

    def _take_in(self, number: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        partitioning, other, stamp = self.partitioning, self._sides[1 - number], self._tick()
        reading = partitioning.read(number, batch)
        home = partitioning.home(number, reading)
        self.stats.skipped[number] += int(batch.num_rows - reading.valid.sum())
        if other is not None and other.used:
            reach = home if partitioning.identity else partitioning.reach(number, reading)
            for entries, slots in other.match(reach.cell, reach.row, reading.values, self.pairs_at_once(batch, other)):
                order = other.by_chunk(slots)
                slots = slots[order]
                mine = Picked(batch, reach.row[entries[order]])
                out, which = self.output.make(*in_order(number, mine, Held(other, slots)))
                self._credit(other, slots if which is None else slots[which])
                self.stats.in_memory += out.num_rows
                if out.num_rows:
                    yield out
        if home.row.size:
            partitions = partitioning.partition_of(home.cell)
            self.policy.arrive(number, home.cell, partitions)
            self._make_room(number, batch, home.row.size)
            side = self._sides[number]
            assert side is not None
            side.insert(batch, home, reading.values, partitions, stamp)
            came = np.bincount(partitions, minlength=partitioning.partitions)
            for counts in (self.ledger.held, self.ledger.arrived, self.ledger.fresh):
                counts[number] += came

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
        side = self._sides[number]
        assert side is not None
        while True:
            need = (
                batch.nbytes
                + side.more_bytes(slots)
                + sum(spill.uncounted for spill in self._spills if spill is not None)
            )
            held = self.held
            over = 0 if self.capacity is None else held + slots - self.capacity
            short = need - self.budget.left
            if short <= 0 and (over <= 0 or not held):
                break
            if not held:
                raise MemoryRefused(
                    f"a tuple of the {SIDES[number]} side takes {format_size(need)}, and {format_size(self.budget.left)} of"
                    f" {format_size(self.budget.limit)} is left; give more memory"
                )
            each = max(1, (self.budget.used - self._work) // held)
            self._flush(max(over, -(-short // each)))
        for spill in self._spills:
            if spill is not None:
                spill.count()

    def _flush(self, least: int) -> None:
        """Move to disk what the policy chooses, at least so many tuples."""
        stamp, held = self._tick(), self.held
        wanted = min(held, max(least, self.policy.wanted(held)))
        gone = victims(self.policy, self.ledger, self.sides, wanted)
        for side, slots in zip(self.sides, gone, strict=True):
            if slots.size:
                spill = self._spills[side.number]
                assert spill is not None
                since = spill.nbytes
                write(side, spill, slots, stamp, self._work // _PARTS)
                self.ledger.held[side.number] -= np.bincount(
                    side.partition[slots], minlength=self.partitioning.partitions
                )
                side.remove(slots)
                side.compact()
                spill.wrote(since)
                self.stats.flushed += slots.size
        self.ledger.fresh[:], self.ledger.recent[:] = 0, 0
        trim()  # chunks of many sizes came and went
        self.ledger.flushes += 1
        self.stats.flushes += 1

    # -- bookkeeping -----------------------------------------------------------------------------------------------------

    @property
    def sides(self) -> list[Side]:
        """Those that have seen a batch."""
        return [side for side in self._sides if side is not None]

    @property
    def held(self) -> int:
        """Tuples in memory; one in several cells counts in each."""
        return sum(side.used for side in self.sides)

    @property
    def output(self) -> Output:
        """What makes results; there is none before both sides have seen a batch."""
        if self._output is None:
            left, right = self._sides
            assert left is not None and right is not None
            ask = self.condition if self._ask is None and not self.partitioning.exact else self._ask
            self._output = Output(self.condition, left.schema, right.schema, ask, self.suffix)
        return self._output

    def pairs_at_once(self, batch: pa.RecordBatch, other: Side) -> int:
        """Pairs whose rows fit the memory for work."""
        each: int = batch.nbytes // max(1, batch.num_rows) + other.row_bytes + _PAIR_WORK
        return max(64, self._work // _PARTS // each)

    def _accept(self, number: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch in the types that are kept; the first of a side makes the side."""
        side = self._sides[number]
        if side is None:
            side = self._sides[number] = self._make_side(number, batch)
        if batch.schema.names != side.schema.names:
            raise BadInput(
                f"a batch of the {SIDES[number]} side has columns {', '.join(batch.schema.names)}, where the first had"
                f" {', '.join(side.schema.names)}"
            )
        columns = []
        for column, field in zip(batch.columns, side.schema, strict=True):
            if pa.types.is_dictionary(column.type):
                column = column.dictionary_decode()
            if column.type != field.type:
                raise BadInput(
                    f"column {field.name!r} of the {SIDES[number]} side has type {column.type} in a batch, where the first had"
                    f" {field.type}"
                )
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=side.schema)

    def _make_side(self, number: int, batch: pa.RecordBatch) -> Side:
        schema = plain(batch.schema, number)
        self.partitioning.bind(number, schema)
        each = slot_bytes(self.partitioning, self.policy.per_tuple)
        room = self.budget.left
        rows = max(64, room // (each + batch.nbytes // max(1, batch.num_rows) + 8))
        most = room // each + 1
        if self.capacity is not None:
            most = min(most, self.capacity + max(1, self.capacity))
        side = Side(number, schema, self.partitioning, self.budget, most, rows // 2, self.policy.per_tuple)
        self._spills[number] = Spill(number, schema, self.disk, self.budget, self.stats, self.spill)
        return side

    def _tick(self) -> int:
        self._stamp += 1
        return self._stamp

    def _begin(self, what: str | None) -> None:
        if self._open is not None:
            raise BadInput(
                f"the results of the last {self._open} were not read to the end; iterate over what it returns"
            )
        if self._finished:
            raise BadInput("this join has been finished; make another")
        self._open = what

    def _whole(self, results: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for out in results:
            if out.num_rows:
                yield self._sent(out)
        self._open = None
        self.stats.memory, self.stats.memory_peak = self.budget.held(), self.budget.peak

    def _sent(self, out: pa.RecordBatch) -> pa.RecordBatch:
        self.stats.results += out.num_rows
        return out
