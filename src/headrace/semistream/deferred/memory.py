"""What DeferredJoin knows from earlier micro-batches, and when rows that wait are due. (DESIGN D7, [SSIJ] §IV.F)"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from headrace.clock import Clock, WallClock
from headrace.errors import OtherLog, RunLogError
from headrace.runlog import LogFile, ShardLog
from headrace.semistream.deadlines import JoinTime
from headrace.semistream.deferred.deferral import EXTRA, Deferral, Left, Notes, decision_schema
from headrace.semistream.protocols import DeferrableOperator

DECISION, FINISHING, FINISHED = "decision", "finishing", "finished"
_FILES = 16  # files of a shard before they are put together
_SLACK = 1.25  # a micro-batch may come so much later than the ones before
_FADES = 0.8  # of the longest interval, a micro-batch later
_EVER = 1 << 62  # later than every micro-batch


class DeferredMemory:
    """The log and the clock of a DeferredJoin; see there for the parameters."""

    _stream: pa.Schema
    _notes: Notes

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
        self._gathered: list[pa.RecordBatch] = []  # rows that leave now
        self._gathered_bytes = 0
        self._left: Left | None = None
        relation = operator.relation
        self._version, self._pages = relation.version, max(1, relation.num_pages)
        costs = relation.disk.costs(relation.page_size)
        self._time = JoinTime(costs, relation.disk.factors)
        self._time.scan = costs[0] + self._pages * costs[1]

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
                f"hr.finish was interrupted after batch {notes.batch} of {self.shard.directory}; call it again before the query"
                " goes on"
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
                f" {', '.join(self._stream.names)}; let the query finish with the columns it had, or begin anew with another"
                " state directory and checkpoint"
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
            self.batch,
            self.batch,
            self._now,
            self.run,
            self._interval(),
            left.waiting,
            left.waiting,
            left.earliest,
            left.retrying,
            left.tried,
            left.oldest,
            self._version,
            self._time.state(),
        )
        if not moved:
            now.since = notes.since
            now.waiting += notes.waiting
            now.earliest = min(now.earliest, notes.earliest)
            now.tried = min((n.tried for n in (now, notes) if n.retrying), default=0)
            now.retrying += notes.retrying
            now.oldest = min(now.oldest, notes.oldest)
        self.operator.stats.waiting += now.waiting + now.retrying
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
    last = shard.last(DECISION, before=_EVER)
    if last is not None and shard.find(FINISHING, last.facts["batch"]) is not None:
        shard.write(FINISHED, last.facts["batch"], pa.schema([]), [])


def forget(shard: ShardLog) -> None:
    """What `finish` gave has not arrived and will not: it waits again."""
    last = shard.last(DECISION, before=_EVER)
    if last is not None and shard.find(FINISHED, last.facts["batch"]) is None:
        shard.kept("dead_letter", last.facts["batch"], "finish").unlink(missing_ok=True)
        shard.expire(FINISHING, before=last.facts["batch"] + 1)


def unfinished(shard: ShardLog) -> int:
    """The batch after which there is something to finish; -1 if there is nothing."""
    last = shard.last(DECISION, before=_EVER)
    if last is None or shard.find(FINISHED, last.facts["batch"]) is not None:
        return -1
    return int(last.facts["batch"]) if last.facts["waiting"] + last.facts["retrying"] else -1
