"""QueuedJoin: a published join across micro-batches. Its queue and the place of its scan are kept from one to the next.

[MESH] §3.1: the scan of R is amortised over all tuples that wait, whichever micro-batch they came in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from itertools import pairwise
from math import inf

import numpy as np
import pyarrow as pa

from headrace.arrays import Bools, Float64s, Int64s
from headrace.clock import Clock, WallClock
from headrace.errors import OtherLog, RunLogError, VersionGone
from headrace.metrics import JoinStats
from headrace.relation import Relation
from headrace.runlog import Decision, DecisionDraft, LogFile, ReplayDriver, RowMultiset, ShardLog, Snapshot
from headrace.semistream.deferred.deferral import Deferral
from headrace.semistream.deferred.phase_timing import PhaseTiming
from headrace.semistream.deferred.queue_notes import QueueNotes
from headrace.semistream.deferred.queue_rows import (
    QUEUE_NAMES,
    TAGS,
    arrivals_of,
    as_decided,
    as_kept,
    batches_of,
    numbers_of,
    queue_schema,
    tagged,
)
from headrace.semistream.deferred.remaining import BATCH
from headrace.semistream.kept_tuples import NOT_MET, KeptTuples
from headrace.semistream.protocols import QueueingOperator
from headrace.units import format_duration, format_size

Batches = Iterator[pa.RecordBatch]
AtVersion = Callable[[int], AbstractContextManager[QueueingOperator]]


class QueuedJoin:
    """Joins one micro-batch of one shard with a join whose rows wait, and leaves in its queue what the paper leaves there.

        decision N-1: queue, page --put back--> [join] <-- rows of micro-batch N
                                                  | iterations while there are w rows for one, or a deadline is near
        decision N:   queue, page <--taken out----+--> results

    A micro-batch does as many iterations as its rows are worth (b pages for w rows in MESHJOIN), and none to empty the queue. So
    a row of MESHJOIN leaves after one scan of R: N_R / (pages a micro-batch) micro-batches later. If its deadline is nearer than
    that, iterations come without new rows, and all that waits shares them.

    Attempts. ReplayDriver (runlog/replay.py) calls the hooks. A decision holds the whole queue, which a memory bounds: of each
    row how many pages of the scan it has still to meet, and whether it has met a match. So it says which pages each row met in
    its micro-batch, and a replay joins each row with just these: the rows that left with all of their pages that are left, those
    of before that stay with the pages from the last position on, and those that came and stay with the pages up to this one.

    Versions. A row is joined with one version of the relation: that of the micro-batch in which it leaves or, of a scan, in
    which it met its first page. Where a micro-batch sees another version, rows that have met pages leave first, with the one that
    they began with; `hold` keeps it on disk. If it is gone all the same, those without a match begin anew with the new one, where
    a row has one match at most; else the query is refused.

    Parameters
    ----------
    operator
        The join, with order="any". No row is in it between two calls.
    shard
        The shard of the run log, held.
    deferral
        How long rows may wait.
    batch
        The micro-batch's number.
    at_version
        Opens the same join with another version of the relation; raises VersionGone.
    hold
        Called with the versions that must stay on disk, before a decision needs them.
    run, clock
        See DeferredJoin.
    """

    def __init__(
        self,
        operator: QueueingOperator,
        shard: ShardLog,
        deferral: Deferral,
        batch: int,
        *,
        at_version: AtVersion,
        hold: Callable[[set[int]], None] = lambda _: None,
        run: str = "",
        clock: Clock | None = None,
    ) -> None:
        assert deferral.deadline is not None
        self.operator, self.shard, self.deferral, self.batch = operator, shard, deferral, batch
        self.limit: float = deferral.deadline
        self.at_version, self.hold = at_version, hold
        self.timing = PhaseTiming(operator.relation, deferral, run, clock or WallClock())
        self.version = operator.relation.version
        """of the relation that the results given last were joined with"""
        self._stream = pa.schema([])
        self._last: Decision | None = None
        self._notes = QueueNotes()  # of the last micro-batch
        self._next: QueueNotes | None = None  # of this one
        self._anew = False  # whether the version is gone that rows began with, and they begin again with this one
        self._came: Counter[int] = Counter()  # rows put back, by their micro-batch
        self._stays: Counter[int] = Counter()  # rows that stay, by their micro-batch

    # -- the public steps ------------------------------------------------------------------------------------------------

    def join(self, rows: Iterable[pa.RecordBatch], stream: pa.Schema) -> Batches:
        """Join the rows of the micro-batch as far as it is their turn, and those of earlier ones. Every attempt gives the same.

        Parameters
        ----------
        rows
            Of this shard.
        stream
            Their schema.
        """
        self._stream = stream
        # Fields of a batch may be "not null" where those of the stream are not.
        some = (pa.RecordBatch.from_arrays(batch.columns, schema=stream) for batch in rows if batch.num_rows)
        return ReplayDriver(self.shard, self.batch, self).run(some)

    def finish(self, stream: pa.Schema) -> Batches:
        """Have all rows leave that wait. See ReplayDriver.finish."""
        self._stream = stream
        return ReplayDriver(self.shard, self.batch, self).finish()

    # -- hooks of the driver ---------------------------------------------------------------------------------------------

    beside: tuple[str, ...] = ()

    @property
    def decision_schema(self) -> pa.Schema:
        """The stream's columns, TAGS, and the state of a row."""
        return queue_schema(self._stream)

    def restore(self, decision: Decision | None) -> None:
        """Take up the notes of the last micro-batch."""
        self._last, self._notes = decision, QueueNotes.of(decision)
        self.timing.restore(self._notes)

    def on_batch(self, rows: Iterator[pa.RecordBatch], draft: DecisionDraft) -> Batches:
        """Go on where the last micro-batch has stopped, with the rows that come; what then waits is the decision."""
        notes, op = self._notes, self.operator
        notes.check_relation(op.relation, self.shard.directory)
        op.deadline, pages = self.limit, op.stats.pages_read
        yield from self._leave_first(op)
        yield from self._put_all_back(op)
        number = notes.next_number
        for batch in rows:
            op.offer(tagged(batch, self.batch, self.timing.now, number))
            number += batch.num_rows
            self.timing.came(batch.num_rows, 0, 0)
            yield from self._out(op, op.take_in())
            while op.ready:
                yield from self._out(op, op.advance())
        needed = op.seconds_left
        while op.waiting and (self.timing.clock_was_set_back or self._due(op) <= self.timing.next_begins(self.limit)):
            yield from self._out(op, op.advance(quiet=True))
            yield from self._out(op, op.settle())  # no iteration only to let those leave that have met every page
        yield from self._out(op, op.settle())
        now = self._next = QueueNotes.beside(self.timing.notes(op.budget.limit))
        now.due = self._due(op) if op.waiting else inf
        for kept in op.take_out():
            self._stay(kept, now)
            draft.add(as_decided(kept, draft.schema))
        now.position, now.scan, now.next_number = op.position, op.scan_pages or 0, number
        now.version, now.identity = op.relation.version, op.relation.identity
        now.single = op.relation.unique and bool(op.stream_key)
        now.add_pages(notes.scanned, op.stats.pages_read - pages)
        now.first_batch = min(self._stays, default=-1)
        now.warning = self._warning(needed)
        op.stats.deferred += self._stays[self.batch]

    def on_idle(self, draft: DecisionDraft) -> Batches:
        """Go on if a deadline is near, or if rows wait that have met a part of another version."""
        notes, timing = self._notes, self.timing
        if notes.owed and (
            (notes.begun and notes.version != self.operator.relation.version)
            or timing.clock_was_set_back
            or notes.due <= timing.next_begins(self.limit)
        ):
            yield from self.on_batch(iter(()), draft)

    def snapshot(self) -> Snapshot | None:
        """Note where the scan is and how many rows wait; None after a heartbeat that found nothing to do."""
        now = self._next
        if now is None:
            return None
        # A replay of this micro-batch needs the version that rows had begun with before it, too.
        self.hold({notes.version for notes in (self._notes, now) if notes.begun})
        return Snapshot(facts=now.as_facts(), owed=now.waiting)

    def on_replay(self, decision: Decision, rows: Iterator[pa.RecordBatch]) -> Batches:
        """Join each row with the pages that it met in the first attempt."""
        self._check(decision.file)
        decided = QueueNotes.of(replace(decision, finished=False))
        decided.check_relation(self.operator.relation, self.shard.directory)
        staying = _Staying.of(decision.file)
        with ExitStack() as stack:
            op = self.operator
            if decided.begun and decided.version != op.relation.version:  # another run of the query sees another one
                op = stack.enter_context(self.at_version(decided.version))
            op.deadline = self.limit
            yield from self._leave_first(op)
            yield from self._put_all_back(op, staying.without)
            yield from self._out(op, op.drain())
            yield from self._put_all_back(op, lambda kept: staying.as_far_as_they_came(kept, op))
            yield from self._out(op, op.drain())
            yield from self._join_those_that_left(op, decision.file, rows)
            yield from self._scan_again(op, decision.file, decided, staying.entered)
            self._add_stats(op)
        batches, rows_of = np.unique(staying.batches, return_counts=True)
        self._stays.update(dict(zip(batches.tolist(), rows_of.tolist(), strict=True)))
        self.operator.stats.deferred += self._stays[self.batch]
        self._next = decided

    def on_decided(self) -> None:
        """Count what waits, and for how many micro-batches rows have."""
        now, stats = self._next, self.operator.stats
        if now is None:
            return
        stats.waiting += now.waiting
        left = [batch for batch, rows in self._came.items() if rows > self._stays[batch]]
        stats.longest_wait_batches = max([stats.longest_wait_batches, *(self.batch - batch for batch in left)])
        if now.warning:
            stats.warnings["deadline"] = now.warning

    def on_finish(self) -> Batches:
        """Have all rows leave that wait."""
        self.operator.deadline = self.limit
        yield from self._leave_first(self.operator)
        yield from self._put_all_back(self.operator)
        yield from self._out(self.operator, self.operator.drain())

    # -- rows of earlier micro-batches -----------------------------------------------------------------------------------

    def _leave_first(self, op: QueueingOperator) -> Batches:
        """Rows leave that have met pages of another version than that of `op`, unless it is gone and they can begin anew."""
        notes, relation = self._notes, op.relation
        if not notes.begun or self._began_with(relation):
            return
        with ExitStack() as stack:
            try:
                if notes.identity != relation.identity:  # hr.finish was told to join them with the new relation
                    raise VersionGone
                old = stack.enter_context(self.at_version(notes.version))
            except VersionGone as error:
                if not notes.single and notes.identity == relation.identity:
                    raise VersionGone(
                        f"{notes.begun:,} rows wait in {self.shard.directory} that have met a part of version"
                        f" {notes.version} of {relation.path}, which is gone, and may have more matches in it; begin anew with"
                        " another state directory and checkpoint"
                    ) from error
                self._anew = True
                return
            old.deadline = self.limit
            yield from self._put_all_back(old, lambda kept: kept.filter(kept.left != NOT_MET))
            yield from self._out(old, old.drain())
            self._add_stats(old)

    def _began_with(self, relation: Relation) -> bool:
        """Whether rows that have met pages met those of this version."""
        return (self._notes.version, self._notes.identity) == (relation.version, relation.identity)

    def _put_all_back(
        self, op: QueueingOperator, some: Callable[[KeptTuples], KeptTuples] = lambda kept: kept
    ) -> Batches:
        """Put the queue back, or some of it: rows that have met pages only where these were of the version of `op`."""
        notes, same = self._notes, self._began_with(op.relation)
        position = notes.position % (op.scan_pages or 1)
        op.go_to(position)
        if not notes.waiting:
            return
        if notes.begun and same and op.scan_pages is None:
            raise OtherLog(
                f"{notes.begun:,} rows wait in {self.shard.directory} for a scan of {op.relation.path}, and"
                f" {type(op).__name__} does not scan; let the query finish with the algorithm it had, or begin anew with another"
                " state directory and checkpoint"
            )
        behind = op.clock.now() - self.timing.clock.now()
        self._came.clear()
        for rows in self._remembered():
            kept = as_kept(rows)
            _count(self._came, kept)
            if not same:
                kept = kept.filter((kept.left == NOT_MET) | (~kept.matched & self._anew))
                kept = KeptTuples(kept.rows, np.full(len(kept), NOT_MET, np.int64), kept.matched)
            kept = some(kept)
            yield from self._put_back(op, kept, arrivals_of(kept) + behind, position)

    def _put_back(self, op: QueueingOperator, kept: KeptTuples, came: Float64s, position: int) -> Batches:
        """Put rows back; where a smaller memory has no room for all, the first leave, and the others go on from the same page."""
        taken = op.put_back(kept, came)
        while taken < len(kept):
            yield from self._out(op, op.drain())
            op.go_to(position)
            kept, came = kept.slice(taken), came[taken:]
            taken = op.put_back(kept, came)

    def _remembered(self) -> Batches:
        """Read the queue as the last micro-batch left it."""
        assert self._last is not None
        self._check(self._last.file)
        yield from self._last.file.batches()

    def _check(self, file: LogFile) -> None:
        if not file.schema.equals(self.decision_schema):
            raise OtherLog(
                f"{file.path} holds rows with columns {', '.join(file.schema.names[: -len(QUEUE_NAMES)])}, and the stream now has"
                f" {', '.join(self._stream.names)}, or the algorithm is another one; let the query finish with the columns and"
                " the algorithm it had, or begin anew with another state directory and checkpoint"
            )

    # -- rows of this micro-batch, in a replay ---------------------------------------------------------------------------

    def _join_those_that_left(self, op: QueueingOperator, file: LogFile, rows: Iterator[pa.RecordBatch]) -> Batches:
        """Join the rows that came and left to their end; those that stay are found by content."""
        table = file.table()
        own = pa.array(np.asarray(table.column(BATCH)) == self.batch)
        mine = RowMultiset(table.filter(own).select(self._stream.names))
        for batch in rows:
            rest = batch.filter(pa.array(~mine.take(batch)))
            op.offer(tagged(rest, self.batch, self.timing.now, 0))
            while op.ready:
                yield from self._out(op, op.advance())
        if mine.left:
            raise RunLogError(
                f"{file.path} says that {mine.left} rows of batch {self.batch} stayed behind that are not among its rows now;"
                " does a column change from one attempt to the next, or do two operators share the log?"
            )
        yield from self._out(op, op.drain())

    def _scan_again(self, op: QueueingOperator, file: LogFile, decided: QueueNotes, entered: Int64s) -> Batches:
        """Let rows that the scan was first shared by in this micro-batch, and that stay, meet the pages that they met.

        All of them met the pages before the last position, those that came first the most: each comes in when it is its turn.
        """
        scan, ahead = op.scan_pages or 0, -1  # pages until the last position; -1 before the first row
        for rows in file.batches():
            kept = as_kept(rows)
            new = (batches_of(kept) == self.batch) | np.isin(numbers_of(kept), entered)
            kept = kept.filter(new & (kept.left != NOT_MET))
            pages = scan - kept.left
            kept = KeptTuples(kept.rows, pages, _uncounted(op, np.zeros(len(kept), np.bool_), kept.matched))
            came = np.full(len(kept), op.clock.now())
            ends = np.flatnonzero(np.diff(pages, append=-1)) + 1
            for a, b in pairwise([0, *ends.tolist()]):
                begins = (decided.position - int(pages[a])) % scan
                if ahead < 0:
                    op.go_to(begins)
                else:
                    yield from self._out(op, op.scan(ahead - int(pages[a])))
                ahead = int(pages[a])
                yield from self._put_back(op, kept.slice(a, b), came[a:b], begins)
        yield from self._out(op, op.drain())

    # -- rows out --------------------------------------------------------------------------------------------------------

    def _out(self, op: QueueingOperator, results: Iterable[pa.RecordBatch]) -> Batches:
        """Give results without the columns that only the log needs."""
        for out in results:
            if out.num_rows:
                self.version = op.relation.version
                yield out.drop_columns(TAGS.names)

    def _stay(self, kept: KeptTuples, now: QueueNotes) -> None:
        _count(self._stays, kept)
        now.waiting += len(kept)
        now.begun += int((kept.left != NOT_MET).sum())
        now.earliest = min(now.earliest, float(arrivals_of(kept).min(initial=inf)))

    def _due(self, op: QueueingOperator) -> float:
        """When, by the wall clock, the next iteration must come."""
        return op.due - op.clock.now() + self.timing.clock.now()

    def _warning(self, needed: float) -> str:
        """Say that rows cannot leave in time, if what waits needs longer than the deadline."""
        if needed <= self.limit:
            return ""
        return (
            f"a deadline of {format_duration(self.limit)} cannot be kept in {format_size(self.operator.budget.limit)} of memory:"
            f" what waits needs {format_duration(needed)}; give more memory or a longer deadline, or shed rows"
        )

    def _add_stats(self, op: QueueingOperator) -> None:
        """Count what the join with another version did; it has no memory any more."""
        if op is not self.operator:
            done = JoinStats() + op.stats
            done.memory, done.memory_limit, done.memory_peak = {}, 0, 0
            self.operator.stats = self.operator.stats + done


_NONE: Int64s = np.empty(0, np.int64)


def _count(into: Counter[int], kept: KeptTuples) -> None:
    """Count rows by their micro-batch."""
    batches, rows = np.unique(batches_of(kept), return_counts=True)
    into.update(dict(zip(batches.tolist(), rows.tolist(), strict=True)))


def _uncounted(op: QueueingOperator, before: Bools, after: Bools) -> Bools:
    """Have rows that stay not counted when a replay lets them go; gives what to put them back with, as matched or not.

    They go as if they had met a match, so that they are not taken for rows without one. A semi join gives a row out with its
    first match, and has to know whether it was before.
    """
    semi, stats = op.how == "semi", op.stats
    stats.tuples_in -= after.size
    stats.misses -= after.size
    stats.matched -= int(after.sum()) if semi else after.size
    stats.unmatched -= int((~after).sum()) if semi else 0
    return before if semi else np.ones(after.size, np.bool_)


class _Staying:
    """The rows that stay behind, found by their number.

    Parameters
    ----------
    numbers, batches, left, met
        Of each row, in the order of the numbers.
    """

    def __init__(self, numbers: Int64s, batches: Int64s, left: Int64s, met: Bools) -> None:
        # One more at the end, of no row, so that every search has an answer.
        self.numbers, self.left = np.append(numbers, np.iinfo(np.int64).max), np.append(left, 0)
        self.met = np.append(met, False)
        self.batches = batches
        self.entered = _NONE  # numbers of rows of earlier micro-batches that met their first page in this one

    @classmethod
    def of(cls, file: LogFile) -> _Staying:
        """Read them from a decision."""
        kept = [as_kept(rows) for rows in file.batches()]
        numbers = np.concatenate([_NONE, *(numbers_of(some) for some in kept)])
        order = np.argsort(numbers)
        left = np.concatenate([_NONE, *(some.left for some in kept)])[order]
        met = np.concatenate([np.empty(0, np.bool_), *(some.matched for some in kept)])[order]
        return cls(numbers[order], np.concatenate([_NONE, *(batches_of(some) for some in kept)])[order], left, met)

    def without(self, kept: KeptTuples) -> KeptTuples:
        """Those rows that leave."""
        return kept.filter(~self._find(kept)[0])

    def as_far_as_they_came(self, kept: KeptTuples, op: QueueingOperator) -> KeptTuples:
        """Those rows that stay and went on in the micro-batch; the pages that they met in it are all that they have to meet."""
        stay, at = self._find(kept)
        self.entered = np.concatenate([self.entered, numbers_of(kept)[stay & (kept.left == NOT_MET)]])
        pages = kept.left - self.left[at]
        on = stay & (kept.left != NOT_MET) & (pages > 0)
        matched = kept.matched.copy()
        matched[on] = _uncounted(op, matched[on], self.met[at][on])
        return KeptTuples(kept.rows, pages, matched).filter(on)

    def _find(self, kept: KeptTuples) -> tuple[Bools, Int64s]:
        """Which rows stay, and where they are here; of the others any place."""
        numbers = numbers_of(kept)
        at = np.searchsorted(self.numbers, numbers)
        return self.numbers[at] == numbers, at
