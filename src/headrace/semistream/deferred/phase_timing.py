"""PhaseTiming: when rows that wait can wait no longer, and how many left too late. [SSIJ] §IV.F"""

from __future__ import annotations

from math import inf

import numpy as np
import pyarrow as pa

from headrace.arrays import Bools, Float64s
from headrace.clock import Clock
from headrace.metrics import JoinStats
from headrace.relation import Relation
from headrace.semistream.deferred.batch_times import BatchTimes
from headrace.semistream.deferred.deferral import Deferral
from headrace.semistream.deferred.notes import Notes
from headrace.semistream.deferred.remaining import ARRIVED
from headrace.units import format_duration, format_size

_SLACK = 1.25  # times the interval to be expected: the next micro-batch may come later than all in the window
_MARGIN = 1.1  # times a join phase: the next may be worse, and the decision has to reach the disk
_AHEAD = 2  # times over, as many micro-batches as a slowdown was seen in: a warning comes so long before


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
        self.times = BatchTimes()
        self._notes = Notes()
        self._pages = max(1, relation.num_pages)
        self._costs, self._factors = relation.disk.costs(relation.page_size), relation.disk.factors
        self.misses = 0
        """rows of this micro-batch that pages have to be read for, now or later"""
        self._rows = 0  # rows of this micro-batch
        self._fresh = 0  # those of them that were read for at once
        self._dues: list[Float64s] = []  # deadlines of rows of earlier ones that left

    def restore(self, notes: Notes) -> None:
        """Go on after the micro-batch that noted this."""
        self._notes = notes
        self.times = BatchTimes([*notes.batches], [*notes.joins])
        if notes.run == self.run and not notes.first and notes.at > -inf:
            spent, rest = notes.decided - notes.at, self.now - notes.decided
            self.times.add_batch(spent, rest, notes.rows, idle=not notes.owed)

    # -- when a join phase is due ----------------------------------------------------------------------------------------

    def is_due(self, waiting: int, more: int) -> bool:
        """Whether so many rows that wait, and more that will come, cannot wait for the next micro-batch."""
        limit = self.deferral.deadline
        if limit is None or not waiting + more:
            return waiting > 0
        notes = self._notes
        if self.clock_was_set_back:
            return True
        first = min(notes.earliest, self.now)
        # As many rows as wait of this micro-batch may come with the next one.
        fresh = max(notes.fresh, more, waiting - notes.waiting)
        return first + limit <= self.next_begins(limit) + self._phase(waiting + fresh)

    @property
    def clock_was_set_back(self) -> bool:
        """Whether nobody knows how long rows have waited."""
        return self._notes.at > self.now or (self._notes.waiting > 0 and self._notes.earliest > self.now)

    def next_begins(self, deadline: float) -> float:
        """When the next micro-batch will have begun, with high probability.

        That is an interval after this one began; later, if this one has taken longer than others by now.
        """
        interval = max(self.times.interval(deadline), self.deferral.period)
        return max(self.now + _SLACK * interval, self.clock.now() + _SLACK * self.times.rest())

    def warning(self, memory: int) -> str:
        """Say why the deadline cannot be kept, if even rows that leave at once cannot; it is said some micro-batches before.

        Parameters
        ----------
        memory
            Bytes of the join.
        """
        limit = self.deferral.deadline
        if limit is None or not self.misses or not self.times.joins:
            return ""
        needed = self._phase(self.misses) * self.times.slowdown() ** _AHEAD
        if needed <= limit:
            return ""
        slower = " soon, as micro-batches slow down" if self.times.slowdown() > 1 else ""
        return (
            f"a deadline of {format_duration(limit)} cannot be kept at {self.times.rate():,.0f} rows a second in"
            f" {format_size(memory)} of memory: a micro-batch needs {format_duration(needed)}{slower}; give more memory or a"
            " longer deadline, or shed rows"
        )

    def _phase(self, rows: int) -> float:
        """Seconds of a micro-batch with a join phase for so many rows, with high probability."""
        pages = min(rows, self._pages)
        seek, transfer = self._costs
        reads = min(pages * (seek + transfer), seek + self._pages * transfer)
        steps = rows * (self._factors.c_E + self._factors.c_H + self._factors.c_O)
        return _MARGIN * self.times.join(pages, reads + steps)

    def retry_is_over(self, arrived: float) -> bool:
        """Whether a row that came then has been tried again for long enough."""
        return arrived + self.deferral.retry_for <= self.now

    def retries_over(self, rows: pa.RecordBatch) -> Bools:
        """Which rows with EXTRA columns have been tried again for long enough."""
        over: Bools = np.asarray(rows.column(ARRIVED)) + self.deferral.retry_for <= self.now
        return over

    # -- what happened ---------------------------------------------------------------------------------------------------

    def came(self, rows: int, read_for: int, held: int) -> None:
        """Note rows of this micro-batch, how many of them are read for in it, and how many may wait."""
        self._rows += rows
        self._fresh += read_for
        self.misses += read_for + held

    def left(self, rows: pa.RecordBatch) -> None:
        """Note that rows with EXTRA columns that waited for their deadline leave now."""
        self._dues.append(np.asarray(rows.column(ARRIVED)) + (self.deferral.deadline or 0.0))

    def learn(self) -> None:
        """Note that a join phase has ended."""
        rows = self._fresh + sum(dues.size for dues in self._dues)
        if rows:
            self.times.add_join(min(rows, self._pages), self.clock.now() - self.now)

    def notes(self, memory: int) -> Notes:
        """Notes of this micro-batch that have no rows yet."""
        return Notes(
            at=self.now,
            run=self.run,
            first=self._notes.run != self.run,
            decided=self.clock.now(),
            rows=self._rows,
            deadline=self.deferral.deadline,
            warning=self.warning(memory),
            batches=self.times.batches,
            joins=self.times.joins,
        )

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
