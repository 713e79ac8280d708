"""DeferredJoin: a semi-stream join across micro-batches. Misses wait for their deadline, unmatched rows for a new version.

[SSIJ] §IV.F (deadlines), §IV.E (a row sees one version of the relation).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np
import pyarrow as pa

from headrace.clock import Clock, WallClock
from headrace.errors import OtherLog, RunLogError
from headrace.runlog import DECISION, Decision, DecisionDraft, LogFile, ReplayDriver, RowMultiset, ShardLog, Snapshot
from headrace.semistream.deferred.dead_letters import DeadLetters
from headrace.semistream.deferred.deferral import Deferral
from headrace.semistream.deferred.gathered import GatheredRows
from headrace.semistream.deferred.matched import MatchedRows
from headrace.semistream.deferred.notes import Notes
from headrace.semistream.deferred.phase_timing import PhaseTiming
from headrace.semistream.deferred.remaining import (
    ARRIVED,
    BATCH,
    DEAD,
    EXTRA,
    FATE,
    RETRY,
    TRIED,
    WAITING,
    Remaining,
    decision_schema,
    of_fate,
    with_extra,
)
from headrace.semistream.protocols import DeferrableOperator

Batches = Iterator[pa.RecordBatch]


class DeferredJoin:
    """Joins one micro-batch of one shard: hits leave at once; rows that pages must be read for may stay behind, in the run log.

        rows --> AdaptiveJoin: hot set, filter --hit or absent--> results
                      | miss
                 run log <--- until the earliest deadline is nearer than the next micro-batch and a join phase
                      +----> join phase for all of them --> results

    It is made for AdaptiveJoin and not SSIJ: hits come from the hot set that the workers of an executor share, so they do not
    depend on which worker a shard meets; a row that waits is its own columns in a file, so nothing but the log has to survive.

    A join phase takes everything that waits, as in [SSIJ]: rows whose deadline is far share reads that are made anyway. They are
    gathered, the earliest first, and put in the order of the pages; this takes up to an eighth of the budget beside it. A phase
    comes when the earliest deadline would pass before a phase of the next micro-batch ends. When that will be is planned with
    the spread of the last micro-batches and phases, which the log keeps (`batch_times.py`): not with their mean, as one late
    micro-batch makes all rows late that wait. If a deadline cannot be kept even so, the notes warn of it.

    Attempts. ReplayDriver (runlog/replay.py) calls the hooks. The decision of a micro-batch holds rows that stay behind, with
    their fates: those of this micro-batch alone, while earlier decisions still hold the others; or all of them (`moved`), where
    those of earlier ones were looked at again. A replay joins all rows but these, which it finds by content.

    Parameters
    ----------
    operator
        The join, with order="any"; how="left" and mark=MARK where rows without a match are sorted out. No row waits in it
        between two calls.
    shard
        The shard of the run log, held.
    deferral
        Which rows may be put off.
    batch
        The micro-batch's number.
    run
        The run of the query; a restart is another. The time between two runs is not taken for an interval.
    clock
        A wall clock: arrival times in the log are read by other runs.

    Deviations from [SSIJ] §IV.F: rows meet no page between two join phases, so there is no inverted index to keep; a row's
    pages count as one each, or as the whole relation where there are fewer pages than rows.
    """

    def __init__(
        self,
        operator: DeferrableOperator,
        shard: ShardLog,
        deferral: Deferral,
        batch: int,
        *,
        run: str = "",
        clock: Clock | None = None,
    ) -> None:
        self.operator, self.shard, self.deferral, self.batch = operator, shard, deferral, batch
        self.timing = PhaseTiming(operator.relation, deferral, run, clock or WallClock())
        self.gathered = GatheredRows(operator)
        self.matched = MatchedRows(operator, deferral, self.timing)
        self.letters = DeadLetters(shard, operator)
        self._version = operator.relation.version
        self._stream = pa.schema([])
        self._last: Decision | None = None
        self._notes = Notes()  # of the last micro-batch
        self._next: Notes | None = None  # of this one
        self._moved = False  # whether rows of earlier micro-batches are in this one's decision, or have left
        self._retried = 0  # rows that were tried again
        self._has_letters = False  # whether the decision has dead letters

    # -- the public steps ------------------------------------------------------------------------------------------------

    def join(self, rows: Iterable[pa.RecordBatch], stream: pa.Schema) -> Batches:
        """Join the rows of the micro-batch, and those of earlier ones that are due. Every attempt gives the same results.

        Parameters
        ----------
        rows
            Of this shard.
        stream
            Their schema.
        """
        self._stream = self.matched.stream = stream
        # Fields of a batch may be "not null" where those of the stream are not.
        some = (pa.RecordBatch.from_arrays(batch.columns, schema=stream) for batch in rows if batch.num_rows)
        return ReplayDriver(self.shard, self.batch, self).run(some)

    def finish(self, stream: pa.Schema) -> Batches:
        """Join everything that the log holds; rows without a match become dead letters. See ReplayDriver.finish.

        The relation may be another than the one that rows were looked up in when they came: the caller has decided that.
        """
        self._stream = self.matched.stream = stream
        return ReplayDriver(self.shard, self.batch, self).finish()

    # -- hooks of the driver ---------------------------------------------------------------------------------------------

    beside: tuple[str, ...] = ()

    @property
    def decision_schema(self) -> pa.Schema:
        """The stream's columns, EXTRA ones, and the fate of a row."""
        return decision_schema(self._stream)

    def restore(self, decision: Decision | None) -> None:
        """Take up the notes of the last micro-batch."""
        self._last, self._notes = decision, Notes.of(decision)
        self.timing.restore(self._notes)

    def on_batch(self, rows: Iterator[pa.RecordBatch], draft: DecisionDraft) -> Batches:
        """Join rows that come, and decide which of them, and of those before, stay behind."""
        self._notes.check_relation(self.operator.relation, self.shard.directory)
        notes, operator = self._notes, self.operator
        remaining = self.matched.remaining = Remaining(draft)
        at_once = not notes.waiting and self.timing.is_due(0, notes.fresh)
        again = notes.retrying > 0 and (notes.tried != self._version or self.timing.retry_is_over(notes.oldest))
        for batch in rows:
            yield from self._take(with_extra(batch, self.batch, self.timing.now), remaining, wait=not at_once)
        if phase := self.timing.is_due(notes.waiting + remaining.waiting, 0):
            operator.stats.deferred -= remaining.waiting  # they leave after all
            held = draft.take_back()
            remaining = self.matched.remaining = Remaining(draft)
            yield from self._sort(chain(self._remembered(), held), remaining, phase=True)
        elif again:
            yield from self._sort(self._remembered(), remaining, phase=False)
        yield from self._drain()
        if phase or at_once:
            self.timing.learn()
        self._moved = phase or again or not notes.owed
        self._has_letters = remaining.dead > 0

    def on_idle(self, draft: DecisionDraft) -> Batches:
        """Join those of the rows before that are due."""
        if self._notes.owed:
            yield from self.on_batch(iter(()), draft)

    def snapshot(self) -> Snapshot | None:
        """Note how many rows stay behind, and since when; None after a heartbeat that found none."""
        remaining = self.matched.remaining
        if remaining is None:
            return None
        now, notes, since = self.timing.notes(self.operator.budget.limit), self._notes, self.batch
        if not self._moved:
            assert self._last is not None
            since = self._last.since
            now.waiting, now.earliest = notes.waiting, notes.earliest
            now.retrying, now.tried, now.oldest = notes.retrying, notes.tried, notes.oldest
        now.fresh, now.version, now.identity = self.timing.misses, self._version, self.operator.relation.identity
        now.add(remaining)
        self._next = now
        return Snapshot(facts=now.as_facts(), owed=now.owed, since=since)

    def on_replay(self, decision: Decision, rows: Iterator[pa.RecordBatch]) -> Batches:
        """Join the rows that the first attempt did not leave behind."""
        self._check(decision.file)
        Notes.of(decision).check_relation(self.operator.relation, self.shard.directory)
        table, moved = decision.file.table(), decision.since == self.batch
        own = np.asarray(table.column(BATCH)) == self.batch
        mine = RowMultiset(table.filter(pa.array(own)).select(self._stream.names))
        known = [*self._stream.names, BATCH, ARRIVED]
        old = RowMultiset(table.filter(pa.array(~own)).select(known))
        for batch in rows:
            rest = batch.filter(pa.array(~mine.take(batch)))
            yield from self._take(with_extra(rest, self.batch, self.timing.now), None, wait=False)
        for batch in self._remembered() if moved else ():
            batch = batch.filter(pa.array(np.asarray(batch.column(FATE)) != DEAD))
            batch = batch.filter(pa.array(~old.take(batch.select(known))))
            yield from self._feed(of_fate(batch, WAITING), WAITING)
            yield from self._feed(of_fate(batch, RETRY), RETRY)
        if mine.left or old.left:
            raise RunLogError(
                f"{decision.file.path} says that {mine.left + old.left} rows of batch {self.batch} stayed behind that are not"
                " among its rows now; does a column change from one attempt to the next, or do two operators share the log?"
            )
        yield from self._drain()
        fates = np.asarray(table.column(FATE))
        self.operator.stats.deferred += int((own & (fates == WAITING)).sum())
        self._next, self._has_letters = Notes.of(decision), bool((fates == DEAD).any())

    def on_decided(self) -> None:
        """Keep dead letters, and count."""
        if self._has_letters:
            self.letters.keep_decided(self._stream, self.batch)
        self.letters.keep_strays(self.matched.strays, self._stream, self.batch)
        if self._next is not None:
            self.operator.stats.waiting += self._next.owed
            if self._next.warning:
                self.operator.stats.warnings["deadline"] = self._next.warning
        self._count()

    def on_finish(self) -> Batches:
        """Join all rows that stayed behind."""
        assert self._last is not None
        for batch in self._remembered():
            yield from self._feed(of_fate(batch, WAITING), WAITING)
            yield from self._feed(of_fate(batch, RETRY), RETRY)
        yield from self._drain()
        self.letters.keep_finished(self.matched.strays, self._stream, self._last.batch)
        self._count()

    # -- rows in ---------------------------------------------------------------------------------------------------------

    def _remembered(self) -> Batches:
        """Read the rows that stayed behind before this micro-batch, with their fates."""
        if self._last is not None and self._notes.owed:
            for file in self.shard.read(DECISION, before=self.batch, since=self._last.since):
                self._check(file)
                yield from file.batches()

    def _check(self, file: LogFile) -> None:
        if not file.schema.equals(self.decision_schema):
            raise OtherLog(
                f"{file.path} holds rows with columns {', '.join(file.schema.names[: -len(EXTRA) - 1])}, and the stream now has"
                f" {', '.join(self._stream.names)}; let the query finish with the columns it had, or begin anew with another"
                " state directory and checkpoint"
            )

    def _take(self, rows: pa.RecordBatch, remaining: Remaining | None, *, wait: bool) -> Batches:
        """Join rows of this micro-batch. If they may wait, those that pages must be read for stay behind."""
        operator, before = self.operator, self.operator.stats.misses
        wait = wait and self.deferral.deadline is not None
        # If none may wait, the operator takes as many rows as it can at once and reads for all of them at the end.
        step = max(1, operator.wanted) if wait else max(1, rows.num_rows)
        held_rows = 0
        for at in range(0, rows.num_rows, step):
            operator.offer(rows.slice(at, step))
            yield from self.matched.out(operator.advance())
            if wait and remaining is not None and (held := operator.let_wait()) is not None:
                remaining.add(held, WAITING)
                held_rows += held.num_rows
        self.timing.came(rows.num_rows, operator.stats.misses - before, held_rows)

    def _sort(self, rows: Iterable[pa.RecordBatch], remaining: Remaining, *, phase: bool) -> Batches:
        """Join those of the rows that stayed behind that are due; the others stay."""
        for batch in rows:
            waiting, retry, dead = (of_fate(batch, fate) for fate in (WAITING, RETRY, DEAD))
            if phase:
                yield from self._feed(waiting, WAITING)
            else:
                remaining.add(waiting, WAITING)
            old = np.asarray(retry.column(TRIED)) != self._version
            yield from self._feed(retry.filter(pa.array(old)), RETRY)
            rest = retry.filter(pa.array(~old))
            over = self.timing.retries_over(rest)
            remaining.add(rest.filter(pa.array(over)), DEAD)
            remaining.add(rest.filter(pa.array(~over)), RETRY)
            # Those of earlier micro-batches were kept as dead letters then.
            remaining.add(dead.filter(pa.array(np.asarray(dead.column(BATCH)) == self.batch)), DEAD)

    def _feed(self, rows: pa.RecordBatch, fate: int) -> Batches:
        """Join rows that stayed behind and leave now."""
        if not rows.num_rows:
            return
        if fate == WAITING:
            self.timing.left(rows)
        else:
            self._retried += rows.num_rows
        yield from self.matched.out(self.gathered.add(rows))

    def _drain(self) -> Batches:
        """Have every row leave that was fed or taken, and not left behind."""
        yield from self.matched.out(self.gathered.drain())

    def _count(self) -> None:
        self.operator.stats.late_matches += self._retried - self.matched.retried_in_vain
        self.timing.count(self.operator.stats)
