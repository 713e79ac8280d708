"""OpenGroups: the groups of windows that have not ended, in the exact window of `headrace.sampling`."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import MemoryRefused
from headrace.feeds.sql.grouping import Grouping
from headrace.feeds.sql.partial_sums import ROWS, WINDOW, PartialSums
from headrace.memory import MemoryBudget
from headrace.sampling.event_times import whole_times
from headrace.sampling.snapshot import Parts, SnapshotReader
from headrace.sampling.tumbling import TumblingWindow
from headrace.windows import TimeWindow

_FOLD = 1024  # rows that are held, beyond twice those of the last time, before rows of the same group are added up
_COPIES = 3  # of rows that come: themselves, as they are held, and while the arrays that hold them grow


class OpenGroups:
    """Rows of windows that have not ended; groups leave with their window.

        rows --> added up by group --> TumblingWindow --> rows of windows that end --> added up --> groups

    What the window holds are partial sums, and not the rows of the query: they take as much memory as there are groups, however
    many items a window has. Rows of one group are added up when there are twice as many rows as groups.

    Args:
        grouping: what is grouped.
        budget: where the memory is reserved.
    """

    def __init__(self, grouping: Grouping, budget: MemoryBudget) -> None:
        self.grouping, self.late = grouping, 0
        """late: rows that came after their window had ended, or have none"""
        self.sums = PartialSums(grouping)
        # Without a window in GROUP BY there is one window, whose end nobody ever says.
        length = Fraction(grouping.width or 1, 1_000_000)
        self._window = TumblingWindow(self.sums.schema, window=TimeWindow(float(length), WINDOW))
        self._folded = 0
        self._held = budget.reserve("groups", 0)

    def insert(self, sums: pa.RecordBatch) -> None:
        """Take in partial sums."""
        starts = sums.column(WINDOW)
        there = np.asarray(starts.is_valid())
        there[there] = self._window.in_time(whole_times(starts.drop_null()))
        if not there.all():
            out = pa.array(~there)
            self.late += pc.sum(sums.column(ROWS).filter(out)).as_py()
            sums = sums.filter(pa.array(there))
        if not sums.num_rows:
            return
        window = self._window
        try:
            self._held.resize(window.nbytes + _COPIES * (sums.nbytes + sums.num_rows * window.slot_bytes))
        except MemoryRefused as error:
            raise MemoryRefused(
                f"{error}; GROUP BY keeps a row for each group of a window that is open: group by fewer values, or in shorter"
                " windows, or give more memory"
            ) from error
        window.insert(sums)
        if len(window) > 2 * self._folded + _FOLD:
            window.replace_rows(self.sums.merged(window.sample()))
            self._folded = len(window)
        self._held.resize(window.nbytes)

    def advance(self, seen: int) -> pa.RecordBatch | None:
        """Say that items were seen at a moment, in microseconds; gives the groups of windows that have ended."""
        if self.grouping.window is None:
            return None
        return self._left(self._window.close(seen - int(self.grouping.slack * 1e6)))

    def finish(self) -> pa.RecordBatch | None:
        """Give the groups that are open."""
        rows = self._window.sample()
        if not rows.num_rows and not self.grouping.keys:
            return self.sums.groups(self.sums.nothing())
        self._window.replace_rows(rows.slice(0, 0))
        return self._left(rows)

    def snapshot(self) -> Parts:
        """The state, for `restore`."""
        return self._window.snapshot()

    def restore(self, snapshot: SnapshotReader) -> None:
        """Go on from a snapshot."""
        self._window.restore(snapshot)
        self._held.resize(self._window.nbytes)

    def _left(self, rows: pa.RecordBatch) -> pa.RecordBatch | None:
        self._held.resize(self._window.nbytes)
        return self.sums.groups(self.sums.merged(rows)) if rows.num_rows else None
