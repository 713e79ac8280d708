"""LoggedJoin: a progressive join across micro-batches, with the run log as its disk. [PQP] ch. 3, Alg. 1; DESIGN D7"""

from __future__ import annotations

import heapq
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack

import numpy as np
import pyarrow as pa

from headrace.errors import MemoryRefused, RunLogError
from headrace.progressive.grids.partitioning import SIDES
from headrace.progressive.logged.base import DECISION, FINISHING
from headrace.progressive.logged.catch_up import CatchUp
from headrace.progressive.logged.checkpoint import NEVER
from headrace.progressive.logged.rows import RowDraft, Rows
from headrace.progressive.logged.sharding import Part
from headrace.runlog import LogFile
from headrace.units import format_size

Batches = Iterator[pa.RecordBatch]
_SHARE = 0.25  # of the time that the rows of a micro-batch take, catching up may take beside it


class LoggedJoin(CatchUp):
    """One micro-batch of one shard of a progressive join: results at once, in limited memory, and all of them in the end.

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

    Attempts. The first attempt at a micro-batch writes its rows with their steps and `sees`, and then, in one file that appears
    as a whole, its decision: what was flushed after which step, what was caught up, and where everything stands. Before that
    file has its name nothing has happened: what an attempt left that died is discarded. From then on every attempt takes
    rows from the log and does as the decision says: the same steps meet the same memory, so it gives the same pairs, in whatever
    order the source gives the rows now. Only files of earlier micro-batches and of this one are read, and they never change.

    Parameters
    ----------
    pairing
        The join.
    shard
        The shard of the run log, held.
    warm
        The shard's memory in this process, as it was left, or empty.
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

    # -- the public steps ------------------------------------------------------------------------------------------------

    def join(self, rows: Iterable[tuple[int, pa.RecordBatch]]) -> Batches:
        """Join the rows of the micro-batch, each batch with its side, and catch up. Every attempt gives the same results."""
        self._standing = self._before()
        decided = self.shard.find(DECISION, self.batch)
        if decided is None:
            yield from self._decide(rows)
        else:
            yield from self._follow(decided, rows)

    def finish(self) -> Batches:
        """All that is owed. Until `close` it can be done again."""
        self._standing = standing = self._before(finishing=True)
        if not standing.owed.any():
            return
        self.shard.write(FINISHING, standing.batch, pa.schema([]), [])
        yield from self._catch_up(standing.steps, lambda: False)

    # -- the first attempt -----------------------------------------------------------------------------------------------

    def _decide(self, rows: Iterable[tuple[int, pa.RecordBatch]]) -> Batches:
        standing, warm, begun = self._standing, self.warm, self.clock.now()
        self._tidy()
        warm.bring_up(standing, self.rows, self.batch)
        warm.dirty()
        self._begun = standing.steps
        self._watch()
        self._recount()
        self._make_room(0, None)
        came = [0, 0]
        with ExitStack() as stack:
            self._drafts = [stack.enter_context(log.draft(self.batch)) for log in self.rows]
            for number, batch in rows:
                came[number] += batch.num_rows
                yield from self._take(number, batch)
            yield from self._catch_up(self._begun, self._until(begun, sum(came)))
            if sum(came) or self._units or self._events:  # otherwise it was a heartbeat, and nothing to do
                self._commit(self._drafts, came)
        warm.clean(standing)
        self._count()

    def _until(self, begun: float, rows: int) -> Callable[[], bool]:
        now = self.clock.now()
        end = now + (_SHARE * (now - begun) if rows else self.idle)
        return lambda: self.clock.now() >= end

    def _take(self, number: int, batch: pa.RecordBatch) -> Batches:
        """Rows of one side, step by step."""
        batch = pa.RecordBatch.from_arrays(batch.columns, schema=self.rows[number].schema)  # without "not null"
        self.stats.tuples_in += batch.num_rows
        batch = self._in_time(number, batch)
        each = batch.nbytes // max(1, batch.num_rows) + 1
        step = max(1, self._chunk // each)
        if self.pairing.capacity is not None:
            step = min(step, max(1, self.warm.policy.wanted(self.pairing.capacity)))
        for at in range(0, batch.num_rows, step):
            yield from self._step(number, batch.slice(at, step))

    def _step(self, number: int, batch: pa.RecordBatch) -> Batches:
        standing, ledger, warm = self._standing, self._standing.ledger, self.warm
        part = self.division.part(number, batch)
        if not part.rows.num_rows:
            return
        step = standing.steps
        sees = standing.flushed[1 - number][part.partition]
        latest = NEVER
        if self.pairing.bound is not None:
            latest = int(self.pairing.bound.times(number, part.rows).max())
            standing.latest[number] = max(standing.latest[number], latest)
        self._drafts[number].add(part, step, sees, latest)
        yield from self._meet_memory(number, part)
        at = part.at
        warm.policy.arrive(number, part.entries.cell, at)
        self._make_room(number, part)
        warm.insert(number, part, step)
        came = np.bincount(at, minlength=standing.partitions)
        for counts in (ledger.held, ledger.arrived, ledger.fresh):
            counts[number] += came
        standing.owe(step, part.partition[sees > 0])
        self.stats.deferred += int((sees > 0).sum())
        standing.steps += 1

    def _meet_memory(self, number: int, part: Part) -> Batches:
        other, ledger = self.warm.sides[1 - number], self._standing.ledger
        for out, slots in self._matches(number, part, other):
            came = np.bincount(other.partition[slots], minlength=self._standing.partitions)
            ledger.results[1 - number] += came
            ledger.recent[1 - number] += came
            yield out

    def _make_room(self, number: int, part: Part | None) -> None:
        """Flush until rows fit."""
        standing, warm = self._standing, self.warm
        while True:
            need = 0 if part is None else warm.need(number, part)
            slots = 0 if part is None else part.entries.row.size
            held = int(standing.ledger.held.sum())
            over = 0 if self.pairing.capacity is None else held + slots - self.pairing.capacity
            short = warm.budget.used + need - warm.memory
            if (over <= 0 and short <= 0) or (not held and short <= 0):
                return
            if not held:
                raise MemoryRefused(
                    f"rows of the {SIDES[number]} side take {format_size(need)}, and a shard has {format_size(warm.memory)}; give"
                    " more memory, or fewer shards"
                )
            each = max(1, warm.budget.used // held)
            # What is flushed before the first step is not there when its rows look for matches; later they have looked already.
            after = standing.steps - (part is None)
            self._flush(min(held, max(over, -(-short // each), warm.policy.wanted(held))), after)

    def _flush(self, wanted: int, after: int) -> None:
        """Memory forgets what the policy chooses; it is in the log. `after`: the step whose rows have looked for matches."""
        standing = self._standing
        first = self.warm.victims(standing, wanted)
        for number, partition in np.argwhere(first > standing.first).tolist():
            self._events.append([after, number, partition, int(first[number, partition])])
            standing.flushed[number, partition] = first[number, partition]
            standing.until[number, partition] = standing.latest[number]
        standing.first = first
        self.warm.drop(first)
        self._recount()
        standing.ledger.fresh[:], standing.ledger.recent[:] = 0, 0
        standing.ledger.flushes += 1

    def _commit(self, drafts: list[RowDraft], came: list[int]) -> None:
        """From here on every attempt does the same."""
        standing = self._standing
        written = [draft.commit() for draft in drafts]
        standing.batch, standing.memory = self.batch, self.warm.memory
        standing.origin = standing.origin or uuid.uuid4().hex
        table = standing.table()
        facts = {
            "came": came,
            "written": written,
            "events": self._events,
            "units": self._units,
            "late": self.stats.late,
        }
        facts |= {"waiting": int(standing.owed.sum()), "retrying": 0}  # what there is to finish
        self.shard.write(DECISION, self.batch, table.schema, [table], standing.facts() | facts)

    # -- a later attempt -------------------------------------------------------------------------------------------------

    def _follow(self, decided: LogFile, rows: Iterable[tuple[int, pa.RecordBatch]]) -> Batches:
        """Do what the first attempt decided, with its rows."""
        standing, warm, facts = self._standing, self.warm, decided.facts
        warm.bring_up(standing, self.rows, self.batch)
        warm.dirty()
        self._begun = standing.steps
        events = iter([*facts["events"], [1 << 62, 0, 0, 0]])
        event = self._apply(next(events), events, self._begun - 1)
        for step, number, found in heapq.merge(self._steps_of(0), self._steps_of(1), key=lambda one: one[0]):
            part = self.division.again(number, found.rows, found.partition)
            yield from self._meet_memory(number, part)
            event = self._apply(event, events, step)
            warm.insert(number, part, step)
        for partition, number, since, until, first, last in facts["units"]:
            yield from self._unit(partition, number, since, until, first, last, lambda: False)
        came = [0, 0]
        for number, batch in rows:
            came[number] += batch.num_rows
        for number, (now, then) in enumerate(zip(came, facts["came"], strict=True)):
            if now != then and not self.pairing.static[number]:
                raise RunLogError(
                    f"{decided.path} says that batch {self.batch} had {then} rows of the {SIDES[number]} side in shard"
                    f" {self.shard.number}, and now it has {now}; does a source or a column change from one attempt to the next?"
                )
        self._standing = self._decided(decided)
        warm.drop(self._standing.first)
        warm.clean(self._standing)
        self.stats.tuples_in += sum(came)
        self.stats.late += facts["late"]
        self._count()

    def _steps_of(self, number: int) -> Iterator[tuple[int, int, Rows]]:
        return ((int(found.step[0]), number, found) for found in self.rows[number].of_batch(self.batch))

    def _apply(self, event: list[int], events: Iterator[list[int]], step: int) -> list[int]:
        """The flushes up to a step; gives the next one."""
        first = self._standing.first
        changed = False
        while event[0] <= step:
            _, number, partition, begin = event
            first[number, partition] = begin
            event, changed = next(events), True
        if changed:
            self.warm.drop(first)
        return event
