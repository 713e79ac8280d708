"""DeferredJoin: AdaptiveJoin across micro-batches. Misses wait in the run log for their deadline, unmatched rows for a new version.

[SSIJ] §IV.F (deadlines), §IV.E (a row sees one version of the relation).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from headrace.clock import Clock, SystemClock, WallClock
from headrace.errors import OtherLog, RunLogError
from headrace.runlog import Decided, LogFile, ShardLog
from headrace.semistream.adaptive import AdaptiveJoin
from headrace.semistream.deadlines import JoinTime
from headrace.semistream.deferral import (
    ARRIVED,
    BATCH,
    DEAD,
    EXTRA,
    FATE,
    LETTER,
    MARK,
    RETRY,
    TRIED,
    WAITING,
    Deferral,
    Left,
    Notes,
    decision_schema,
    letters,
    of_fate,
    state_schema,
    with_extra,
)  # fmt: skip

DECISION, FINISHING, FINISHED = "decision", "finishing", "finished"
_FILES = 16  # files of a shard before they are put together
_SLACK = 1.25  # a micro-batch may come so much later than the ones before
_FADES = 0.8  # of the longest interval, a micro-batch later


class DeferredJoin:
    """One micro-batch of one shard: what is in memory leaves; what must be read for may stay behind, in the run log.

        rows --> AdaptiveJoin: hot set, filter --hit or absent--> results
                      | miss
                 run log <--- until the earliest deadline is nearer than the next micro-batch and a join phase
                      +----> join phase for all of them --> results

    It uses AdaptiveJoin and not SSIJ: hits come from the hot set that the workers of an executor share, so they do not depend on
    which worker a shard meets; a row that waits is its own columns in a file, so nothing but the log has to survive.

    A join phase takes everything that waits, as in [SSIJ]: rows whose deadline is far share reads that are made anyway. It comes
    when the earliest deadline would pass during the next micro-batch's; the time for it is a read a page at first, later the worst
    of phases of its size, and is kept in the log.

    Parameters
    ----------
    operator
        The join, with order="any"; how="left" and mark=MARK where rows without a match are sorted out. Nothing waits in it
        between two calls.
    shard
        The shard of the run log, held.
    deferral
        What may be put off.
    batch
        The micro-batch's number.
    run
        The run of the query; a restart is another. The time between two runs is not taken for that of a micro-batch.
    clock
        Says what time it is, to this and to other runs.

    Deviations from [SSIJ] §IV.F: rows meet no page between two join phases, so there is no inverted index to keep; a row's
    pages count as one each, or as the whole relation where there are fewer pages than rows.
    """

    def __init__(
        self, operator: AdaptiveJoin, shard: ShardLog, deferral: Deferral, batch: int, *, run: str = "",
        clock: Clock | None = None,
    ) -> None:  # fmt: skip
        self.operator = operator
        self.shard = shard
        self.deferral = deferral
        self.batch = batch
        self.run = run
        self.clock = clock or WallClock()
        self._now = self.clock.now()
        self._fresh = 0  # rows fed that came in this batch and need pages
        self._old_dues: list[np.ndarray[tuple[int], np.dtype[np.float64]]] = []
        self._retried = self._again = 0  # rows tried again, and how many had no match again
        self._strays: list[pa.RecordBatch] = []
        self._left: Left | None = None
        relation = operator.relation
        self._version, self._pages = relation.version, max(1, relation.num_pages)
        costs = relation.disk.costs(relation.page_size)
        self._time = JoinTime(costs, relation.disk.factors)
        self._time.scan = costs[0] + self._pages * costs[1]

    # -- the public steps ------------------------------------------------------------------------------------------------

    def join(self, rows: Iterable[pa.RecordBatch], stream: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Join the rows of the micro-batch, and of earlier ones what is due. Every attempt gives the same rows.

        Parameters
        ----------
        rows
            Of this shard.
        stream
            Their schema.
        """
        self._stream = stream
        rows = (pa.RecordBatch.from_arrays(batch.columns, schema=stream) for batch in rows)  # without "not null"
        self._notes = notes = self._noted()
        self._time.restore(notes.phases)
        decided = self.shard.find(DECISION, self.batch)
        if decided is None:
            yield from self._decide(rows)
        else:
            yield from self._follow(decided, rows)
        self._count()

    def finish(self, stream: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Join everything that the log holds; what has no match is a dead letter. Until `close` it can be done again."""
        self._stream = stream
        self._notes = notes = self._noted(finishing=True)
        if notes.batch < 0 or not notes.waiting + notes.retrying:
            return
        self.shard.write(FINISHING, notes.batch, pa.schema([]), [])
        for batch in self._remembered():
            yield from self._feed(of_fate(batch, WAITING), WAITING)
            yield from self._feed(of_fate(batch, RETRY), RETRY)
        yield from self._out(self.operator.drain())
        if self._strays:
            self._keep_letters(iter(self._strays), notes.batch, part="finish", replace=True)
        self._count()

    # -- the first attempt -----------------------------------------------------------------------------------------------

    def _decide(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        notes, schema = self._notes, decision_schema(self._stream)
        self._tidy()
        known = notes.waiting + notes.retrying
        phase = self._is_due(notes.waiting, notes.fresh)
        again = notes.retrying > 0 and (notes.tried != self._version or self._over(notes.oldest))
        begun, came = SystemClock().now(), False
        with (
            self.shard.draft(DECISION, self.batch, schema) as first,
            self.shard.draft(DECISION, self.batch, schema) as second,
        ):
            self._left = Left(first)
            if phase:
                yield from self._recall(phase)  # the earliest first
            for batch in rows:
                came = came or batch.num_rows > 0
                yield from self._take(with_extra(batch, self.batch, self._now), wait=not phase)
            if not came and not known:
                return  # a heartbeat, and nothing to do
            if not phase and self._is_due(notes.waiting + self._left.waiting, 0):
                self.operator.stats.deferred -= self._left.waiting  # they leave after all
                self._left, phase = Left(second), True
                yield from self._recall(phase)
                yield from self._sort(first.read(), phase)
            elif again and not phase:
                yield from self._recall(phase)
            yield from self._out(self.operator.drain())
            moved = phase or again or not known
            if phase:
                self._learn(SystemClock().now() - begun)
            self._left.draft.commit(self._next_notes(moved).as_facts())
        if self._left.dead:
            self._write_letters()

    def _take(self, rows: pa.RecordBatch, *, wait: bool) -> Iterator[pa.RecordBatch]:
        """Rows of this micro-batch: those that must be read for may stay behind."""
        operator, before = self.operator, self.operator.stats.misses
        wait = wait and self.deferral.deadline is not None
        # With nothing to wait for, the operator takes what it can at once and reads for all at the end.
        step = max(1, operator.wanted) if wait else max(1, rows.num_rows)
        for at in range(0, rows.num_rows, step):
            operator.offer(rows.slice(at, step))
            yield from self._out(operator.advance())
            if wait and (held := operator.let_wait()) is not None:
                assert self._left is not None
                self._left.add(held, WAITING)
        self._fresh += operator.stats.misses - before

    def _recall(self, phase: bool) -> Iterator[pa.RecordBatch]:
        yield from self._sort(self._remembered(), phase)

    def _sort(self, rows: Iterable[pa.RecordBatch], phase: bool) -> Iterator[pa.RecordBatch]:
        """Rows that stayed behind: those that are due are fed, the others stay."""
        left = self._left
        assert left is not None
        for batch in rows:
            waiting, retry = of_fate(batch, WAITING), of_fate(batch, RETRY)
            if phase:
                yield from self._feed(waiting, WAITING)
            else:
                left.add(waiting, WAITING)
            old = np.asarray(retry.column(TRIED)) != self._version
            yield from self._feed(retry.filter(pa.array(old)), RETRY)
            rest = retry.filter(pa.array(~old))
            over = np.asarray(rest.column(ARRIVED)) + self.deferral.retry_for <= self._now
            left.add(rest.filter(pa.array(over)), DEAD)
            left.add(rest.filter(pa.array(~over)), RETRY)
            dead = of_fate(batch, DEAD)
            left.add(dead.filter(pa.array(np.asarray(dead.column(BATCH)) == self.batch)), DEAD)

    def _feed(self, rows: pa.RecordBatch, fate: int) -> Iterator[pa.RecordBatch]:
        if not rows.num_rows:
            return
        if fate == WAITING:
            self._old_dues.append(np.asarray(rows.column(ARRIVED)) + (self.deferral.deadline or 0.0))
        else:
            self._retried += rows.num_rows
        self.operator.offer(rows)
        yield from self._out(self.operator.advance())

    # -- a later attempt -------------------------------------------------------------------------------------------------

    def _follow(self, decided: LogFile, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Let go what the first attempt did not keep."""
        self._check(decided)
        table, moved = decided.table(), decided.facts["since"] == self.batch
        own = np.asarray(table.column(BATCH)) == self.batch
        mine = Decided(table.filter(pa.array(own)).select(self._stream.names))
        known = [*self._stream.names, BATCH, ARRIVED]
        old = Decided(table.filter(pa.array(~own)).select(known))
        for batch in rows:
            rest = batch.filter(pa.array(~mine.take(batch)))
            yield from self._take(with_extra(rest, self.batch, self._now), wait=False)
        for batch in self._remembered() if moved else ():
            batch = batch.filter(pa.array(np.asarray(batch.column(FATE)) != DEAD))
            batch = batch.filter(pa.array(~old.take(batch.select(known))))
            yield from self._feed(of_fate(batch, WAITING), WAITING)
            yield from self._feed(of_fate(batch, RETRY), RETRY)
        if mine.left or old.left:
            raise RunLogError(
                f"{decided.path} says that {mine.left + old.left} rows of batch {self.batch} stayed behind that are not among its"
                " rows now; does a column change from one attempt to the next, or do two operators share the log?"
            )
        yield from self._out(self.operator.drain())
        self.operator.stats.deferred += int((own & (np.asarray(table.column(FATE)) == WAITING)).sum())
        if bool((np.asarray(table.column(FATE)) == DEAD).any()):
            self._write_letters()
        if self._strays:
            # The version of the first attempt is gone, and these rows have no match in this one.
            self._keep_letters(iter(self._strays), self.batch, part=f"v{self._version}")

    # -- results ---------------------------------------------------------------------------------------------------------

    def _out(self, results: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Results as they leave; rows without a match are sorted out."""
        for out in results:
            if self.deferral.sorts_out:
                mark = out.column(MARK)
                if mark.true_count < out.num_rows:
                    self._sort_out(out.filter(pa.array(~np.asarray(mark))))
                    out = out.filter(mark)
                out = out.drop_columns([MARK])
            if out.num_rows:
                yield out.drop_columns(EXTRA.names)

    def _sort_out(self, rows: pa.RecordBatch) -> None:
        n = rows.num_rows
        tried = np.asarray(rows.column(TRIED))
        self._again += int((tried > 0).sum())
        columns = rows.columns[: len(self._stream) + len(EXTRA)]
        columns[-1] = pa.array(np.full(n, self._version))
        rows = pa.RecordBatch.from_arrays(columns, schema=state_schema(self._stream))
        if self._left is None:
            self._strays.append(rows)
            return
        hopeless = np.full(n, self.deferral.unmatched == "dead_letter")
        hopeless |= np.asarray(rows.column(ARRIVED)) + self.deferral.retry_for <= self._now
        for name in self.operator.stream_key:
            hopeless |= np.asarray(rows.column(name).is_null())
        self._left.add(rows.filter(pa.array(hopeless)), DEAD)
        self._left.add(rows.filter(pa.array(~hopeless)), RETRY)

    def _write_letters(self) -> None:
        """From the decision, not from what this attempt saw: they are the same in every attempt."""
        decided = self.shard.find(DECISION, self.batch)
        assert decided is not None
        self._keep_letters((of_fate(batch, DEAD) for batch in decided.batches()), self.batch)

    def _keep_letters(
        self, rows: Iterator[pa.RecordBatch], batch: int, *, part: str = "", replace: bool = False
    ) -> None:  # fmt: skip
        counted = []

        def count() -> Iterator[pa.RecordBatch]:
            for letter in letters(rows, self._stream, self.operator.stream_key):
                counted.append(letter.num_rows)
                yield letter

        schema = pa.schema([*self._stream, *LETTER])
        self.shard.keep("dead_letter", batch, schema, count(), part=part, replace=replace)
        self.operator.stats.dead_letters += sum(counted)

    # -- what is remembered ----------------------------------------------------------------------------------------------

    def _noted(self, *, finishing: bool = False) -> Notes:
        """What the last micro-batch before this one noted."""
        last = self.shard.last(DECISION, before=self.batch)
        if last is None:
            return Notes()
        notes = Notes.of(last.facts)
        if self.shard.find(FINISHED, notes.batch) is not None:
            return Notes(notes.batch, notes.batch + 1, phases=notes.phases)
        if self.shard.find(FINISHING, notes.batch) is not None and not finishing:
            raise RunLogError(
                f"hr.finish was interrupted after batch {notes.batch} of {self.shard.directory}; call it again before the query goes on"
            )
        return notes

    def _remembered(self) -> Iterator[pa.RecordBatch]:
        """Rows that stayed behind before this micro-batch, and their fates."""
        if self._notes.waiting + self._notes.retrying:
            for file in self.shard.read(DECISION, before=self.batch, since=self._notes.since):
                self._check(file)
                yield from file.batches()

    def _check(self, file: LogFile) -> None:
        wanted = decision_schema(self._stream)
        if not file.schema.equals(wanted):
            raise OtherLog(
                f"{file.path} holds rows with columns {', '.join(file.schema.names[: -len(EXTRA) - 1])}, and the stream now has"
                f" {', '.join(self._stream.names)}; let the query finish with the columns it had, or begin anew with another state"
                " directory and checkpoint"
            )

    def _tidy(self) -> None:
        """Files that nobody needs: Spark may replay this micro-batch, but none before it."""
        for kind in (DECISION, FINISHING, FINISHED):
            self.shard.expire(kind, before=min(self._notes.since, self._notes.batch))
        if len(self.shard.entries(DECISION, before=self.batch)) > _FILES:
            self.shard.compact(DECISION, before=self.batch, since=self._notes.since)

    def _next_notes(self, moved: bool) -> Notes:
        left, notes = self._left, self._notes
        assert left is not None
        now = Notes(
            self.batch, self.batch, self._now, self.run, self._interval(), left.waiting, left.waiting, left.earliest,
            left.retrying, left.tried, left.oldest, self._version, self._time.state(),
        )  # fmt: skip
        if not moved:
            now.since = notes.since
            now.waiting += notes.waiting
            now.earliest = min(now.earliest, notes.earliest)
            now.tried = min((n.tried for n in (now, notes) if n.retrying), default=0)
            now.retrying += notes.retrying
            now.oldest = min(now.oldest, notes.oldest)
        self.operator.stats.waiting = now.waiting + now.retrying
        return now

    # -- time ------------------------------------------------------------------------------------------------------------

    def _interval(self) -> float:
        """How long the next micro-batch may take to come."""
        notes = self._notes
        lately = _FADES * notes.interval
        if notes.run == self.run and notes.batch >= 0:
            lately = max(lately, self._now - notes.at)
        return lately

    def _is_due(self, waiting: int, more: int) -> bool:
        """Whether rows that wait cannot wait for the next micro-batch."""
        limit = self.deferral.deadline
        if limit is None or not waiting + more:
            return waiting > 0
        notes = self._notes
        if notes.at > self._now or (notes.waiting and notes.earliest > self._now):
            return True  # the clock was set back: nobody knows how long they have waited
        first = min(notes.earliest, self._now)
        phase = self._time.estimate(min(waiting, self._pages), waiting, more)
        return first + limit <= self._now + _SLACK * max(self._interval(), self.deferral.period) + phase

    def _over(self, arrived: float) -> bool:
        return arrived + self.deferral.retry_for <= self._now

    def _learn(self, seconds: float) -> None:
        rows = self._fresh + sum(dues.size for dues in self._old_dues)
        if rows:
            self._time.joined(min(rows, self._pages), seconds)

    def _count(self) -> None:
        stats, now = self.operator.stats, self.clock.now()
        stats.late_matches += self._retried - self._again
        if self.deferral.deadline is not None:
            stats.late += sum(int((dues < now).sum()) for dues in self._old_dues)
            stats.late += self._fresh if self._now + self.deferral.deadline < now else 0
            waited = [now + self.deferral.deadline - dues for dues in self._old_dues]
            stats.waiting_seconds += float(sum(w.sum() for w in waited))
            stats.longest_wait = max([stats.longest_wait, *(float(w.max(initial=0.0)) for w in waited)])


def close(shard: ShardLog) -> None:
    """Everything that `finish` gave has arrived where it belongs: the log holds it no longer."""
    last = shard.last(DECISION, before=1 << 62)
    if last is not None and shard.find(FINISHING, last.facts["batch"]) is not None:
        shard.write(FINISHED, last.facts["batch"], pa.schema([]), [])


def forget(shard: ShardLog) -> None:
    """What `finish` gave has not arrived and will not: it waits again."""
    last = shard.last(DECISION, before=1 << 62)
    if last is not None and shard.find(FINISHED, last.facts["batch"]) is None:
        shard.kept("dead_letter", last.facts["batch"], "finish").unlink(missing_ok=True)
        shard.expire(FINISHING, before=last.facts["batch"] + 1)


def unfinished(shard: ShardLog) -> int:
    """The batch after which there is something to finish; -1 if there is nothing."""
    last = shard.last(DECISION, before=1 << 62)
    if last is None or shard.find(FINISHED, last.facts["batch"]) is not None:
        return -1
    return int(last.facts["batch"]) if last.facts["waiting"] + last.facts["retrying"] else -1
