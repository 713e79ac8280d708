"""TimeOrder: the rows of a micro-batch, which come in any order, in pieces by time; and those that come too late."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from math import floor

import numpy as np
import pyarrow as pa

from headrace.arrays import Bools, Int64s
from headrace.sampling.event_times import START, unit_of, whole_times
from headrace.windows import TimeWindow

_SPAN = Fraction(1, 8)  # of the window's length, that a piece spans: an operator keeps tuples for so much longer
_ROWS = 1 << 16  # of a piece, at most

SideBatch = tuple[int, pa.RecordBatch]


def window_within(window: TimeWindow, delays: Sequence[float | None]) -> TimeWindow:
    """The window that an operator needs whose rows come by `TimeOrder`: none is later than it allows."""
    span = _SPAN * Fraction(str(window.length))
    late = max(Fraction(str(delay or 0)) for delay in delays)
    return TimeWindow(window.length, window.on, float(span + late))


@dataclass
class TimeOrder:
    """Divides micro-batches into pieces by time, and leaves out rows that are late.

    A row is late if its time is before the latest one of all earlier micro-batches by more than the delay of its side. Within a
    micro-batch order does not matter: a piece has the rows of both sides in a span of time, and earlier pieces come first. So no
    row comes out of order by more than the delay and the span of a piece.
    """

    window: TimeWindow
    delays: tuple[float | None, ...]
    """seconds that rows of each side may be late; None: they never are"""
    latest: int = START
    """the latest time so far, in the unit of the column"""
    late: list[int] = field(default_factory=lambda: [0, 0])
    """late rows of each side so far"""

    def in_order(self, batches: Sequence[SideBatch]) -> Iterator[SideBatch]:
        """Give the rows of a micro-batch, a batch of each side a piece. Rows without a time are in the first one."""
        if not batches:
            return
        unit = unit_of(batches[0][1].schema.field(self.window.on).type)
        assert unit is not None, "the column was looked at before"
        times = [_times(batch.column(self.window.on)) for _, batch in batches]
        keep = [self._in_time(side, one, unit) for (side, _), one in zip(batches, times, strict=True)]
        starts = np.cumsum([0, *(one.size for one in times)])
        every = np.concatenate(times)
        rows = np.flatnonzero(np.concatenate(keep))
        rows = rows[np.argsort(every[rows], kind="stable")]
        ranked, at = every[rows], 0
        span = floor(_SPAN * Fraction(str(self.window.length)) / unit)
        while at < rows.size:
            upto = min(at + _ROWS, int(np.searchsorted(ranked, ranked[at] + span, "right")))
            yield from _piece(batches, starts, np.sort(rows[at:upto]))
            at = upto
        self.latest = max(self.latest, int(every.max()))

    def _in_time(self, side: int, times: Int64s, unit: Fraction) -> Bools:
        """Which rows are not late. Those without a time are not."""
        delay = self.delays[side]
        if delay is None or self.latest == START:
            return np.ones(times.size, np.bool_)
        in_time: Bools = (times >= self.latest - floor(Fraction(str(delay)) / unit)) | (times == START)
        self.late[side] += int(times.size - np.count_nonzero(in_time))
        return in_time


def _times(column: pa.Array) -> Int64s:
    """The times of a column; START for none."""
    if not column.null_count:
        return whole_times(column)
    times = np.full(len(column), START)
    times[np.asarray(column.is_valid())] = whole_times(column.drop_null())
    return times


def _piece(batches: Sequence[SideBatch], starts: Int64s, rows: Int64s) -> Iterator[SideBatch]:
    """Rows by their numbers in all batches, in ascending order: a batch of each side."""
    numbers = np.searchsorted(starts, rows, "right") - 1
    cuts = np.flatnonzero(np.diff(numbers, prepend=-1, append=len(batches)))
    parts: dict[int, list[pa.RecordBatch]] = {}
    for low, high in pairwise(cuts.tolist()):
        number = int(numbers[low])
        side, batch = batches[number]
        parts.setdefault(side, []).append(batch.take(pa.array(rows[low:high] - starts[number])))
    for side in sorted(parts):
        yield side, pa.concat_batches(parts[side])
