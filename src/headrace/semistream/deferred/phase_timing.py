"""PhaseTiming: when rows that wait can wait no longer, and how many left too late. [SSIJ] §IV.F"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.arrays import Bools, Float64s
from headrace.clock import Clock
from headrace.metrics import JoinStats
from headrace.relation import Relation
from headrace.semistream.deadlines import JoinTime
from headrace.semistream.deferred.deferral import Deferral
from headrace.semistream.deferred.notes import Notes
from headrace.semistream.deferred.remaining import ARRIVED

_SLACK = 1.25  # times the longest interval lately: the next micro-batch may come a quarter later than the ones before
_FADES = 0.8  # of the longest interval is left one micro-batch later, so that one long one is forgotten after a few


class PhaseTiming:
    """The clock of one attempt at a micro-batch.

    Parameters
    ----------
    relation
        Its disk says what reads cost, until join phases have been measured.
    deferral
        How long rows may wait.
    run
        The run of the query; the time between two runs is not an interval between micro-batches.
    clock
        The wall clock, which other runs have too.
    """

    def __init__(self, relation: Relation, deferral: Deferral, run: str, clock: Clock) -> None:
        self.deferral, self.run, self.clock = deferral, run, clock
        self.now = clock.now()  # when the attempt began
        self._notes = Notes()
        self._pages = max(1, relation.num_pages)
        costs = relation.disk.costs(relation.page_size)
        self._time = JoinTime(costs, relation.disk.factors)
        self._time.scan = costs[0] + self._pages * costs[1]
        self._fresh = 0  # rows of this micro-batch that were read for
        self._dues: list[Float64s] = []  # deadlines of rows of earlier ones that left

    def restore(self, notes: Notes) -> None:
        """Go on after the micro-batch that noted this."""
        self._notes = notes
        self._time.restore(notes.phases)

    # -- when a join phase is due ----------------------------------------------------------------------------------------

    def is_due(self, waiting: int, more: int) -> bool:
        """Whether so many rows that wait, and more that will come, cannot wait for the next micro-batch."""
        limit = self.deferral.deadline
        if limit is None or not waiting + more:
            return waiting > 0
        notes = self._notes
        if notes.at > self.now or (notes.waiting and notes.earliest > self.now):
            return True  # the clock was set back, so nobody knows how long they have waited
        first = min(notes.earliest, self.now)
        phase = self._time.estimate(min(waiting, self._pages), waiting, more)
        return first + limit <= self.now + _SLACK * max(self._interval(), self.deferral.period) + phase

    def retry_is_over(self, arrived: float) -> bool:
        """Whether a row that came then has been tried again for long enough."""
        return arrived + self.deferral.retry_for <= self.now

    def retries_over(self, rows: pa.RecordBatch) -> Bools:
        """Which rows with EXTRA columns have been tried again for long enough."""
        over: Bools = np.asarray(rows.column(ARRIVED)) + self.deferral.retry_for <= self.now
        return over

    def _interval(self) -> float:
        """Seconds that the next micro-batch may take to come."""
        notes = self._notes
        lately = _FADES * notes.interval
        if notes.run == self.run and notes.at > -np.inf:
            lately = max(lately, self.now - notes.at)
        return lately

    # -- what happened ---------------------------------------------------------------------------------------------------

    def read_for(self, rows: int) -> None:
        """Note that rows of this micro-batch were, or will be, read for."""
        self._fresh += rows

    def left(self, rows: pa.RecordBatch) -> None:
        """Note that rows with EXTRA columns that waited for their deadline leave now."""
        self._dues.append(np.asarray(rows.column(ARRIVED)) + (self.deferral.deadline or 0.0))

    def learn(self, seconds: float) -> None:
        """Note that a join phase took so long."""
        rows = self._fresh + sum(dues.size for dues in self._dues)
        if rows:
            self._time.joined(min(rows, self._pages), seconds)

    def notes(self) -> Notes:
        """Notes of this micro-batch that have no rows yet."""
        return Notes(at=self.now, run=self.run, interval=self._interval(), phases=self._time.state())

    def count(self, stats: JoinStats) -> None:
        """Count rows that left too late, and how long rows waited."""
        deadline, now = self.deferral.deadline, self.clock.now()
        if deadline is None:
            return
        stats.late += sum(int((dues < now).sum()) for dues in self._dues)
        stats.late += self._fresh if self.now + deadline < now else 0
        waited = [now + deadline - dues for dues in self._dues]
        stats.waiting_seconds += float(sum(w.sum() for w in waited))
        stats.longest_wait = max([stats.longest_wait, *(float(w.max(initial=0.0)) for w in waited)])
