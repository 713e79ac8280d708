"""LoggedJoin: a progressive join across micro-batches, with the run log as its disk. [PQP] ch. 3, Alg. 1; DESIGN D7"""

from __future__ import annotations

import heapq
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa

from headrace.clock import Clock, SystemClock
from headrace.errors import RunLogError
from headrace.metrics import JoinStats
from headrace.progressive.grids.partitioning import SIDES
from headrace.progressive.logged.catch_up import CatchUp, Unit
from headrace.progressive.logged.checkpoint import Checkpoint
from headrace.progressive.logged.event_time import EventTime
from headrace.progressive.logged.flusher import Flush, Flusher
from headrace.progressive.logged.join_spec import JoinSpec
from headrace.progressive.logged.matcher import Matcher
from headrace.progressive.logged.rows import LoggedRows, RowDraft, SteppedRows
from headrace.progressive.logged.sharding import ShardedRows
from headrace.progressive.logged.state_cache import StateCache
from headrace.runlog import Decision, DecisionDraft, ReplayDriver, ShardLog, Snapshot

Batches = Iterator[pa.RecordBatch]
SideBatch = tuple[int, pa.RecordBatch]
_SHARE = 0.25  # of the time that the rows of a micro-batch take: catching up may add so much to it
_CHUNKS = 32  # a step, and results that leave together, take at most this part of memory
_LEAST_CHUNK = 1 << 12  # bytes of a step, however little memory there is


class LoggedJoin:
    """Joins one micro-batch of one shard of two streams: results at once, in limited memory, and all of them in the end.

        rows --+--> run log: rows by step and partition        (disk: immutable files)
               +--> probe the other side's memory --> results
               +--> memory -- full --> policy: partitions forget their oldest steps
        little to do: rows that came while others were on disk alone meet them, productive partitions first --> results

    A chunk of rows of one side is a step; steps are numbered. Of each side and partition memory holds a suffix of the steps,
    from `first` on. A row `sees` the step before which rows of the other side were on disk alone when it came.

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

    beside = SIDES

    def __init__(
        self,
        spec: JoinSpec,
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
        self.rows = [
            LoggedRows(shard, side, schema, times, size=4 * self._chunk) for side, schema in enumerate(spec.schemas)
        ]
        self.matcher = Matcher(spec, self.stats, self._chunk)
        self.catch_up = CatchUp(self.matcher, cache.sharding, self.rows, batch, self._chunk)
        self.event_time = EventTime(spec.bound, self.stats)
        self.flusher = Flusher(cache, spec.capacity)
        self._checkpoint = Checkpoint.empty(spec.partitioning.partitions)
        self._drafts: list[RowDraft] = []
        self._came = [0, 0]  # rows of each side
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
    def decision_schema(self) -> pa.Schema:
        """The columns of a checkpoint."""
        return self._checkpoint.table().schema

    def restore(self, decision: Decision | None) -> None:
        """Take up the checkpoint of the last micro-batch."""
        self._checkpoint = Checkpoint.of(decision, self.spec.partitioning.partitions)
        self._begun = self.clock.now()

    def on_batch(self, rows: Iterator[SideBatch], draft: DecisionDraft) -> Batches:
        """Join rows that come, step by step, and catch up for a while."""
        self._drafts = [log.draft(draft) for log in self.rows]
        begun = self._begin()
        for number, batch in rows:
            self._came[number] += batch.num_rows
            yield from self._take(number, batch)
        now = self.clock.now()
        yield from self.catch_up.run(self._checkpoint, begun, self._after(now + _SHARE * (now - self._begun)))
        self._write(draft)

    def on_idle(self, draft: DecisionDraft) -> Batches:
        """Catch up for as long as `idle` says."""
        self._drafts = [log.draft(draft) for log in self.rows]
        begun = self._begin()
        yield from self.catch_up.run(self._checkpoint, begun, self._after(self.clock.now() + self.idle))
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
            facts=self._checkpoint.facts() | facts,
            owed=int(self._checkpoint.owed.sum()),
            beside={log.kind: draft.facts() for log, draft in zip(self.rows, self._drafts, strict=True)},
        )

    def on_replay(self, decision: Decision, rows: Iterator[SideBatch]) -> Batches:
        """Have the rows of the log meet the same memory as in the first attempt, and catch up as far."""
        checkpoint, cache, facts = self._checkpoint, self.cache, decision.facts
        cache.bring_up(checkpoint, self.rows, self.batch)
        cache.dirty()
        flushes = deque(Flush(*event) for event in facts["events"])
        self.flusher.repeat(checkpoint, flushes, checkpoint.steps - 1)
        for step, number, found in heapq.merge(self._steps_of(0), self._steps_of(1), key=lambda one: one[0]):
            placed = cache.sharding.reassign(number, found.rows, found.partition)
            yield from self._meet_memory(number, placed)
            self.flusher.repeat(checkpoint, flushes, step)
            cache.insert(number, placed, step)
        yield from self.catch_up.repeat([Unit(*unit) for unit in facts["units"]])
        for number, batch in rows:
            self._came[number] += batch.num_rows
        for number, (now, then) in enumerate(zip(self._came, facts["came"], strict=True)):
            if now != then and not self.spec.static[number]:
                raise RunLogError(
                    f"{decision.file.path} says that batch {self.batch} had {then} rows of the {SIDES[number]} side in shard"
                    f" {self.shard.number}, and now it has {now}; does a source or a column change from one attempt to the next?"
                )
        self._checkpoint = Checkpoint.of(decision, self.spec.partitioning.partitions)
        cache.drop(self._checkpoint.first)
        self.stats.tuples_in += sum(self._came)
        self.stats.late += facts["late"]

    def on_decided(self) -> None:
        """Keep the cache for the next micro-batch, and count."""
        self.cache.clean(self._checkpoint)
        self.stats.waiting = int(self._checkpoint.owed.sum())
        self.stats.memory = self.cache.budget.held()
        self.stats.memory_peak = self.cache.budget.peak

    def on_finish(self) -> Batches:
        """Make all pairs that are owed."""
        yield from self.catch_up.run(self._checkpoint, self._checkpoint.steps, lambda: False)

    # -- the first attempt -----------------------------------------------------------------------------------------------

    def _begin(self) -> int:
        """Have memory hold what the checkpoint says and has not expired. Returns the first step of this micro-batch."""
        checkpoint, cache = self._checkpoint, self.cache
        expired = self.event_time.expired(checkpoint)
        for log in self.rows:
            log.tidy(self.batch, expired)
        cache.bring_up(checkpoint, self.rows, self.batch)
        cache.dirty()
        begun = checkpoint.steps
        self.event_time.begin(checkpoint, cache)
        self.flusher.recount(checkpoint)
        self.flusher.make_room(checkpoint)
        return begun

    def _after(self, end: float) -> Callable[[], bool]:
        return lambda: self.clock.now() >= end

    @property
    def _changed(self) -> bool:
        return bool(sum(self._came) or self.catch_up.units or self.flusher.flushes)

    def _write(self, draft: DecisionDraft) -> None:
        """Write the checkpoint to the decision, if there is one to make."""
        if self._changed:
            checkpoint = self._checkpoint
            checkpoint.batch, checkpoint.memory = self.batch, self.cache.memory
            checkpoint.origin = checkpoint.origin or uuid.uuid4().hex
            draft.add(checkpoint.table())

    def _take(self, number: int, batch: pa.RecordBatch) -> Batches:
        """Join rows of one side, step by step."""
        # Fields of a batch may be "not null" where those of the side are not.
        batch = pa.RecordBatch.from_arrays(batch.columns, schema=self.rows[number].schema)
        self.stats.tuples_in += batch.num_rows
        batch = self.event_time.in_time(number, batch)
        each = batch.nbytes // max(1, batch.num_rows) + 1
        step = max(1, self._chunk // each)
        if self.spec.capacity is not None:
            step = min(step, max(1, self.cache.policy.wanted(self.spec.capacity)))
        for at in range(0, batch.num_rows, step):
            yield from self._step(number, batch.slice(at, step))

    def _step(self, number: int, batch: pa.RecordBatch) -> Batches:
        """Write rows to the log, join them with the other side's memory, and insert them into their own."""
        checkpoint, ledger, cache = self._checkpoint, self._checkpoint.ledger, self.cache
        placed = cache.sharding.assign(number, batch)
        if not placed.rows.num_rows:
            return
        step = checkpoint.steps
        sees = checkpoint.flushed[1 - number][placed.partition]
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
        """Join rows of a side with the other side's memory, and count results by partition."""
        other, ledger = self.cache.sides[1 - number], self._checkpoint.ledger
        for out, slots in self.matcher.matches(number, placed, other):
            came = np.bincount(other.partition[slots], minlength=self._checkpoint.partitions)
            ledger.results[1 - number] += came
            ledger.recent[1 - number] += came
            yield out

    def _steps_of(self, number: int) -> Iterator[tuple[int, int, SteppedRows]]:
        return ((int(found.step[0]), number, found) for found in self.rows[number].of_batch(self.batch))
