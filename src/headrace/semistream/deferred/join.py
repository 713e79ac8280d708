"""DeferredJoin: AdaptiveJoin across micro-batches. Misses wait for their deadline, unmatched rows for a new version.

[SSIJ] §IV.F (deadlines), §IV.E (a row sees one version of the relation).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np
import pyarrow as pa

from headrace.clock import SystemClock
from headrace.errors import RunLogError
from headrace.runlog import Decided, LogFile
from headrace.semistream.deferred.deferral import (
    ARRIVED,
    BATCH,
    DEAD,
    FATE,
    RETRY,
    TRIED,
    WAITING,
    Left,
    decision_schema,
    of_fate,
    with_extra,
)
from headrace.semistream.deferred.memory import DECISION, FINISHING
from headrace.semistream.deferred.results import DeferredResults

_SHARE = 8  # of the budget: rows that leave together are gathered up to such a part of it


class DeferredJoin(DeferredResults):
    """One micro-batch of one shard: what is in memory leaves; what must be read for may stay behind, in the run log.

        rows --> AdaptiveJoin: hot set, filter --hit or absent--> results
                      | miss
                 run log <--- until the earliest deadline is nearer than the next micro-batch and a join phase
                      +----> join phase for all of them --> results

    It uses AdaptiveJoin and not SSIJ: hits come from the hot set that the workers of an executor share, so they do not depend on
    which worker a shard meets; a row that waits is its own columns in a file, so nothing but the log has to survive.

    A join phase takes everything that waits, as in [SSIJ]: rows whose deadline is far share reads that are made anyway. They are
    gathered, the earliest first, and put in the order of the pages; this takes up to an eighth of the budget beside it. A phase
    comes when the earliest deadline would pass before one of the next micro-batch ends; it is expected to take a read for each
    page at first, later as long as the worst of its size, which the log keeps.

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
        yield from self._drain()
        if self._strays:
            self._keep_letters(iter(self._strays), notes.batch, part="finish", replace=True)
        self._count()

    # -- the first attempt -----------------------------------------------------------------------------------------------

    def _decide(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        notes, schema = self._notes, decision_schema(self._stream)
        self._tidy()
        known = notes.waiting + notes.retrying
        at_once = not notes.waiting and self._is_due(0, notes.fresh)
        again = notes.retrying > 0 and (notes.tried != self._version or self._over(notes.oldest))
        begun, came = SystemClock().now(), False
        with (
            self.shard.draft(DECISION, self.batch, schema) as first,
            self.shard.draft(DECISION, self.batch, schema) as second,
        ):
            self._left = Left(first)
            for batch in rows:
                came = came or batch.num_rows > 0
                yield from self._take(with_extra(batch, self.batch, self._now), wait=not at_once)
            if not came and not known:
                return  # a heartbeat, and nothing to do
            if phase := self._is_due(notes.waiting + self._left.waiting, 0):
                self.operator.stats.deferred -= self._left.waiting  # they leave after all
                self._left = Left(second)
                yield from self._sort(chain(self._remembered(), first.read()), phase)
            elif again:
                yield from self._sort(self._remembered(), phase)
            yield from self._drain()
            moved = phase or again or not known
            if phase or at_once:
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
        """Rows that leave now. They are gathered first."""
        if not rows.num_rows:
            return
        if fate == WAITING:
            self._old_dues.append(np.asarray(rows.column(ARRIVED)) + (self.deferral.deadline or 0.0))
        else:
            self._retried += rows.num_rows
        self._gathered.append(rows)
        self._gathered_bytes += rows.nbytes
        if self._gathered_bytes > self.operator.budget.limit // _SHARE:
            yield from self._send()

    def _send(self) -> Iterator[pa.RecordBatch]:
        """What was gathered, in the order of the pages: each is read once for all of them, however few rows fit the operator."""
        if self._gathered:
            rows = pa.concat_batches(self._gathered)
            self._gathered, self._gathered_bytes = [], 0
            order, at = self.operator.by_page(rows), 0
            while at < rows.num_rows:
                some = order[at : at + max(1, self.operator.capacity)]
                self.operator.offer(rows.take(pa.array(some)))
                yield from self._out(self.operator.drain())
                at += some.size

    def _drain(self) -> Iterator[pa.RecordBatch]:
        yield from self._send()
        yield from self._out(self.operator.drain())

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
        yield from self._drain()
        self.operator.stats.deferred += int((own & (np.asarray(table.column(FATE)) == WAITING)).sum())
        self.operator.stats.waiting += decided.facts["waiting"] + decided.facts["retrying"]
        if bool((np.asarray(table.column(FATE)) == DEAD).any()):
            self._write_letters()
        if self._strays:
            # The version of the first attempt is gone, and these rows have no match in this one.
            self._keep_letters(iter(self._strays), self.batch, part=f"v{self._version}")
