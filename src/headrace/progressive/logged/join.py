"""LoggedJoin: a progressive join across micro-batches, with the run log as its disk. [PQP] ch. 3, Alg. 1; DESIGN D7"""

from __future__ import annotations

import heapq
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from headrace.arrays import Int32s
from headrace.clock import Clock, SystemClock
from headrace.errors import RunLogError
from headrace.memory import Reservation
from headrace.metrics import JoinStats
from headrace.progressive.grids.partitioning import Partitioning, stream_name
from headrace.progressive.logged.checkpoint import NEVER, Checkpoint
from headrace.progressive.logged.event_time import EventTime
from headrace.progressive.logged.flusher import Flush, Flusher
from headrace.progressive.logged.join_spec import TimeBound
from headrace.progressive.logged.outer import OuterJoin
from headrace.progressive.logged.outer_output import OuterOutput
from headrace.progressive.logged.rows import LoggedRows, RowDraft, SteppedRows
from headrace.progressive.logged.sharding import ShardedRows, Sharding
from headrace.progressive.logged.state_cache import StateCache
from headrace.progressive.memory.side_memory import SideMemory
from headrace.runlog import Decision, DecisionDraft, ReplayDriver, ShardLog, Snapshot
from headrace.runlog.files import understood

Batches = Iterator[pa.RecordBatch]
SideBatch = tuple[int, pa.RecordBatch]
_SHARE = 0.25  # of the time that the rows of a micro-batch take: catching up may add so much to it
_CHUNKS = 32  # a step, and results that leave together, take at most this part of memory
_LEAST_CHUNK = 1 << 12  # bytes of a step, however little memory there is


class MemoryMatcher(Protocol):
    """Joins rows that come with what is in memory."""

    def meet(
        self, number: int, rows: ShardedRows, sides: Sequence[SideMemory]
    ) -> Iterator[tuple[pa.RecordBatch, list[tuple[int, Int32s]]]]:
        """Give the results of a side's rows with the memory of all others, and the slots of each side that they are of."""
        ...


class CatchesUp(Protocol):
    """Makes results that were put off."""

    @property
    def units(self) -> Sequence[Sequence[int]]:
        """What was done, in this order; a replay repeats it."""
        ...

    def run(self, checkpoint: Checkpoint, top: int, over: Callable[[], bool]) -> Batches:
        """Make results that rows of steps before `top` owe, until time is over; note in the checkpoint how far it came."""
        ...

    def repeat(self, checkpoint: Checkpoint, units: Sequence[Sequence[int]]) -> Batches:
        """Make the results that another attempt made. The checkpoint is that of the micro-batch before."""
        ...

    def note_flushes(self, checkpoint: Checkpoint, flushes: Sequence[Flush]) -> None:
        """Note in the checkpoint what a later micro-batch must know of flushes."""
        ...


class LoggedSpec(Protocol):
    """A join of two streams (JoinSpec) or of several (MultiWaySpec)."""

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        """The columns of each side."""
        ...

    @property
    def partitioning(self) -> Partitioning:
        """How rows are divided into partitions."""
        ...

    @property
    def bound(self) -> TimeBound | None:
        """The bound on event times."""
        ...

    @property
    def capacity(self) -> int | None:
        """Tuples in memory at most; None: no such limit."""
        ...

    @property
    def static(self) -> tuple[bool, ...]:
        """Of each side, whether it is read once, and not a stream."""
        ...

    @property
    def results(self) -> OuterOutput | None:
        """Makes results where not all of them are of rows of all sides; None for an inner join."""
        ...

    def parts(
        self, sharding: Sharding, rows: Sequence[LoggedRows], stats: JoinStats, batch: int, chunk: int
    ) -> tuple[MemoryMatcher, CatchesUp]:
        """What joins rows with memory, and what catches up, in one micro-batch."""
        ...


class LoggedJoin:
    """Joins one micro-batch of one shard of streams: results at once, in limited memory, and all of them in the end.

        rows --+--> run log: rows by step and partition        (disk: immutable files)
               +--> probe the memory of the other sides --> results
               +--> memory -- full --> policy: partitions forget their oldest steps
        little to do: rows that came while others were on disk alone meet them, productive partitions first --> results

    A chunk of rows of one side is a step; steps are numbered. Of each side and partition memory holds a suffix of the steps,
    from `first` on. A row `sees` the step before which rows of the other side were on disk alone when it came. (Here are two
    sides; MultiWayCatchUp says what is different with more.)

    No pair twice, none missed. Take a left row of step i and a right row of step j that match; they share one partition, and
    i < j (or the same with the sides exchanged). When the right one came, memory held the left steps from `first` on, and the row
    noted sees = first. If i >= sees they were joined then. If i < sees they were not, and the right row owes this pair: catching
    up joins the rows of steps from `caught` to `target` with those of the other side before their `sees`, advancing `caught` to
    `target` when all are done; each step is passed once. So a pair is made when the later row comes or when that row is caught
    up, never both. The earlier row owes nothing here, since its `sees` is at most its own step. (Where rows expire, `first` may
    run ahead of `sees`: what lies between has expired, and matches nothing that is still to come.)

    Attempts. ReplayDriver (runlog/replay.py) calls the hooks. The first attempt at a micro-batch writes its rows with their steps
    and `sees`, and beside them its decision: what was flushed after which step, what was caught up, and the checkpoint. From then
    on every attempt takes the rows from the log and does as the decision says: the same steps meet the same memory, so it gives
    the same pairs, in whatever order the source gives the rows now.

    Parameters
    ----------
    spec
        The join.
    shard
        The shard of the run log, held.
    cache
        The shard's memory in this process, as the last attempt here left it, or empty.
    batch
        The micro-batch's number.
    idle
        Seconds that a micro-batch without rows may spend on catching up.
    clock
        Tells when they are over.

    Reference: [PQP] ch. 3, Alg. 1.

    Deviations: rows are written when they come, and not when they are flushed: a flush only forgets. The unit of a flush is a
    step of a partition, and not a tuple.
    """

    def __init__(
        self,
        spec: LoggedSpec,
        shard: ShardLog,
        cache: StateCache,
        batch: int,
        *,
        idle: float = 1.0,
        clock: Clock | None = None,
    ) -> None:
        self.spec, self.shard, self.cache, self.batch, self.idle = spec, shard, cache, batch, idle
        self.clock = clock or SystemClock()
        self.stats = JoinStats(memory_limit=cache.memory)
        self._chunk = max(_LEAST_CHUNK, cache.memory // _CHUNKS)
        times = spec.bound.times if spec.bound else None
        self._streams, parts = len(spec.schemas), spec.partitioning.partitions
        self.rows = [
            LoggedRows(shard, side, schema, times, partitions=parts, size=4 * self._chunk, streams=self._streams)
            for side, schema in enumerate(spec.schemas)
        ]
        self.matcher, self.catch_up = spec.parts(cache.sharding, self.rows, self.stats, batch, self._chunk)
        self.outer = OuterJoin(spec, shard, self.rows, batch, self.stats)
        self.event_time = EventTime(spec.bound, self.stats)
        self.flusher = Flusher(cache, spec.capacity)
        self._checkpoint = Checkpoint.empty(spec.partitioning.partitions, self._streams)
        self._drafts: list[RowDraft] = []
        self._came = [0] * self._streams  # rows of each side
        self._bits: Reservation | None = None  # the bytes that an outer join takes beside rows
        self._settled = False  # whether event time went on for rows that leave alone
        self._begun = 0.0  # when the attempt began, by the clock

    # -- the public steps ------------------------------------------------------------------------------------------------

    def join(self, rows: Iterable[SideBatch]) -> Batches:
        """Join the rows of the micro-batch, each batch with its side, and catch up. Every attempt gives the same results."""
        some = ((number, batch) for number, batch in rows if batch.num_rows)
        return ReplayDriver(self.shard, self.batch, self).run(some)

    def finish(self) -> Batches:
        """Give all pairs that are owed. See ReplayDriver.finish."""
        return ReplayDriver(self.shard, self.batch, self).finish()

    # -- hooks of the driver ---------------------------------------------------------------------------------------------

    @property
    def beside(self) -> tuple[str, ...]:
        """The kinds of files with the rows of each side, and with what an outer join knows of them."""
        return *(log.kind for log in self.rows), *self.outer.beside

    @property
    def decision_schema(self) -> pa.Schema:
        """The columns of a checkpoint."""
        return self._checkpoint.table().schema

    def restore(self, decision: Decision | None) -> None:
        """Take up the checkpoint of the last micro-batch."""
        self._checkpoint = Checkpoint.of(decision, self.spec.partitioning.partitions, self._streams)
        self.outer.restore(decision)
        self._begun = self.clock.now()

    def on_batch(self, rows: Iterator[SideBatch], draft: DecisionDraft) -> Batches:
        """Join rows that come, step by step, and catch up for a while."""
        self._drafts = [log.draft(draft) for log in self.rows]
        begun = self._begin()
        yield from self._settle()
        for number, batch in rows:
            self._came[number] += batch.num_rows
            yield from self._take(number, batch, draft)
        now = self.clock.now()
        yield from self._catch_up(begun, now + _SHARE * (now - self._begun))
        self._write(draft)

    def on_idle(self, draft: DecisionDraft) -> Batches:
        """Catch up for as long as `idle` says."""
        self._drafts = [log.draft(draft) for log in self.rows]
        begun = self._begin()
        if self.outer.alone:
            yield from self._settle()
        yield from self._catch_up(begun, self.clock.now() + self.idle)
        self._write(draft)

    def snapshot(self) -> Snapshot | None:
        """Note what a replay must repeat; None after a heartbeat that did nothing."""
        if not self._changed:
            return None
        facts = {
            "came": self._came,
            "written": [draft.written for draft in self._drafts],
            "events": self.flusher.flushes,
            "units": self.catch_up.units,
            "late": self.stats.late,
        }
        return Snapshot(
            facts=self._checkpoint.facts() | facts | self.outer.facts(),
            owed=int(self._checkpoint.owed.sum()) + self.outer.alone,
            beside={log.kind: draft.facts() for log, draft in zip(self.rows, self._drafts, strict=True)},
        )

    def on_replay(self, decision: Decision, rows: Iterator[SideBatch]) -> Batches:
        """Have the rows of the log meet the same memory as in the first attempt, and catch up as far."""
        facts = decision.facts
        with understood(decision.file.path):
            came, late = [int(rows) for rows in facts["came"]], int(facts["late"])
            if len(came) != self._streams:
                raise ValueError("came")
            yield from self._repeat(decision)
        for number, batch in rows:
            self._came[number] += batch.num_rows
        for number, (now, then) in enumerate(zip(self._came, came, strict=True)):
            if now != then and not self.spec.static[number]:
                raise RunLogError(
                    f"{decision.file.path} says that batch {self.batch} had {then} rows of"
                    f" {stream_name(number, self._streams)} in shard {self.shard.number}, and now it has {now}; does a source or"
                    " a column change from one attempt to the next?"
                )
        with understood(decision.file.path):
            self._checkpoint = Checkpoint.of(decision, self.spec.partitioning.partitions, self._streams)
        self.cache.drop(self._checkpoint.first)
        self.stats.tuples_in += sum(self._came)
        self.stats.late += late

    def _repeat(self, decision: Decision) -> Batches:
        """Give what the first attempt gave, from the log alone."""
        checkpoint, cache, facts = self._checkpoint, self.cache, decision.facts
        cache.bring_up(checkpoint, self.rows, self.batch)
        cache.dirty()
        flushes = deque(Flush(*event) for event in facts["events"])
        yield from self.outer.settle(checkpoint, facts.get("unmatched_before", NEVER))
        yield from self.outer.repeat()
        self.flusher.repeat(checkpoint, flushes, checkpoint.steps - 1)
        steps = (self._steps_of(number) for number in range(self._streams))
        for step, number, found in heapq.merge(*steps, key=lambda one: one[0]):
            placed = cache.sharding.reassign(number, found.rows, found.partition)
            yield from self._meet_memory(number, placed)
            self.flusher.repeat(checkpoint, flushes, step)
            cache.insert(number, placed, step)
        for out in self.catch_up.repeat(checkpoint, facts["units"]):
            yield from self.outer.pairs(out)

    def on_decided(self) -> None:
        """Keep the cache for the next micro-batch, and count."""
        self.cache.clean(self._checkpoint)
        self.stats.waiting = int(self._checkpoint.owed.sum()) + self.outer.pending(self._checkpoint)
        self.stats.memory = self.cache.budget.held()
        self.stats.memory_peak = self.cache.budget.peak
        if self._bits is not None:
            self._bits.release()

    def on_finish(self) -> Batches:
        """Make all pairs that are owed, and give the rows that have no partner then."""
        yield from self._catch_up(self._checkpoint.steps, None)
        yield from self.outer.finish()

    # -- the first attempt -----------------------------------------------------------------------------------------------

    def _begin(self) -> int:
        """Have memory hold what the checkpoint says and has not expired. Returns the first step of this micro-batch."""
        checkpoint, cache = self._checkpoint, self.cache
        expired = self.event_time.expired(checkpoint)
        if self.outer.sides:
            # Rows that leave alone in this micro-batch are still to be read, again if it is replayed.
            expired = min(expired, checkpoint.unmatched_before)
            self.outer.tidy(checkpoint)
        for log in self.rows:
            log.tidy(self.batch, expired)
        cache.bring_up(checkpoint, self.rows, self.batch)
        cache.dirty()
        self._bits = cache.budget.reserve("matched rows", self.outer.nbytes)
        begun = checkpoint.steps
        self.event_time.begin(checkpoint, cache)
        self.flusher.recount(checkpoint)
        self.flusher.make_room(checkpoint)
        return begun

    def _settle(self) -> Batches:
        """Give rows of an outer join for which no partner can come any more, nor is owed."""
        if self.outer.sides:
            final = self.event_time.expired(self._checkpoint)
            self._settled = final > self._checkpoint.unmatched_before
            yield from self.outer.settle(self._checkpoint, final)

    def _catch_up(self, top: int, end: float | None) -> Batches:
        """Make pairs that rows of steps before `top` owe, until a time of the clock, or all of them."""
        over = (lambda: False) if end is None else (lambda: self.clock.now() >= end)
        for out in self.catch_up.run(self._checkpoint, top, over):
            yield from self.outer.pairs(out)

    @property
    def _changed(self) -> bool:
        return bool(sum(self._came) or self.catch_up.units or self.flusher.flushes or self._settled)

    def _write(self, draft: DecisionDraft) -> None:
        """Write the checkpoint to the decision, if there is one to make."""
        if self._changed:
            checkpoint = self._checkpoint
            checkpoint.batch, checkpoint.memory = self.batch, self.cache.memory
            checkpoint.origin = checkpoint.origin or uuid.uuid4().hex
            self.catch_up.note_flushes(checkpoint, self.flusher.flushes)
            self.outer.write(draft, checkpoint)
            draft.add(checkpoint.table())

    def _take(self, number: int, batch: pa.RecordBatch, draft: DecisionDraft) -> Batches:
        """Join rows of one side, step by step."""
        # Fields of a batch may be "not null" where those of the side are not.
        schema = pa.schema(list(self.rows[number].schema)[: batch.num_columns])
        batch = pa.RecordBatch.from_arrays(batch.columns, schema=schema)
        self.stats.tuples_in += batch.num_rows
        batch = self.event_time.in_time(number, batch, timeless=number in self.outer.sides)
        batch, alone = self.outer.take(number, batch, draft)
        assert self._bits is not None
        self._bits.resize(self.outer.nbytes)
        yield from alone
        each = batch.nbytes // max(1, batch.num_rows) + 1
        step = max(1, self._chunk // each)
        if self.spec.capacity is not None:
            step = min(step, max(1, self.cache.policy.wanted(self.spec.capacity)))
        for at in range(0, batch.num_rows, step):
            yield from self._step(number, batch.slice(at, step))

    def _step(self, number: int, batch: pa.RecordBatch) -> Batches:
        """Write rows to the log, join them with the memory of the other sides, and insert them into their own."""
        checkpoint, ledger, cache = self._checkpoint, self._checkpoint.ledger, self.cache
        placed = cache.sharding.assign(number, batch)
        if not placed.rows.num_rows:
            return
        step = checkpoint.steps
        sees = np.delete(checkpoint.flushed, number, axis=0).max(axis=0)[placed.partition]
        latest = self.event_time.latest(number, placed.rows)
        checkpoint.latest[number] = max(checkpoint.latest[number], latest)
        self._drafts[number].add(placed, step, sees, latest)
        yield from self._meet_memory(number, placed)
        at = placed.at
        cache.policy.arrive(number, placed.entries.cell, at)
        self.flusher.make_room(checkpoint, number, placed)
        cache.insert(number, placed, step)
        came = np.bincount(at, minlength=checkpoint.partitions)
        for counts in (ledger.held, ledger.arrived, ledger.fresh):
            counts[number] += came
        checkpoint.owe(step, placed.partition[sees > 0])
        self.stats.deferred += int((sees > 0).sum())
        checkpoint.steps += 1

    def _meet_memory(self, number: int, placed: ShardedRows) -> Batches:
        """Join rows of a side with the memory of the others, and count results by partition."""
        sides, ledger = self.cache.sides, self._checkpoint.ledger
        for out, probed in self.matcher.meet(number, placed, sides):
            for other, slots in probed:
                ledger.made_results(other, sides[other].partition[slots])
            yield from self.outer.pairs(out)

    def _steps_of(self, number: int) -> Iterator[tuple[int, int, SteppedRows]]:
        return ((int(found.step[0]), number, found) for found in self.rows[number].of_batch(self.batch))
