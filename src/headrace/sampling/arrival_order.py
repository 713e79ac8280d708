"""ArrivalOrder: the rows of a micro-batch in an order that does not depend on how they came, and those that come too late.

Rows of a micro-batch come from several tasks at once. Those of one task keep their order, and the number of the task comes with
each: rows are taken by the numbers of their tasks, or by time and then by these. So a micro-batch that is run again is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from math import floor

import numpy as np
import pyarrow as pa

from headrace.arrays import Bools, Int64s
from headrace.row_copies import take
from headrace.sampling.event_times import START, unit_of, whole_times
from headrace.windows import RowWindow, TimeWindow, Window

FROM = "__headrace_from"  # a last column of rows: the number of the task that they come from
_SPAN = Fraction(1, 8)  # of a window by time, that a piece spans: an operator keeps tuples for so much longer
_PARTS = 16  # a piece has this part of a window by rows, so that both sides' windows move together
_LEAST_ROWS, _MOST_ROWS = 1 << 8, 1 << 16  # of a piece
_ROWS = 1 << 12  # of a piece where there is no window

SideBatch = tuple[int, pa.RecordBatch]


def window_within(window: TimeWindow, delays: Sequence[float | None]) -> TimeWindow:
    """The window that an operator needs whose rows come by `ArrivalOrder`: none is later than it allows."""
    span = _SPAN * Fraction(str(window.length))
    late = max(Fraction(str(delay or 0)) for delay in delays)
    return TimeWindow(window.length, window.on, float(span + late))


@dataclass
class ArrivalOrder:
    """Divides micro-batches into pieces, a batch of each side, and leaves out rows that are late.

    In a window by time a piece has the rows of both sides in a span of time, and earlier pieces come first. A row is late if its
    time is before the latest one of all earlier micro-batches by more than the delay of its side; within a micro-batch order does
    not matter. So no row comes out of order by more than the delay and the span of a piece. Otherwise a piece has the same part
    of both sides.
    """

    window: Window | None
    delays: tuple[float | None, ...]
    """seconds that rows of each side may be late; None: they never are"""
    latest: int = START
    """the latest time so far, in the unit of the column"""
    late: list[int] = field(default_factory=lambda: [0, 0])
    """late rows of each side so far"""

    def in_order(self, batches: Sequence[SideBatch]) -> Iterator[SideBatch]:
        """Give the rows of a micro-batch, without the numbers of their tasks."""
        if not batches:
            return
        held = _HeldRows(batches)
        if isinstance(self.window, TimeWindow):
            yield from self._by_time(held, self.window)
        else:
            yield from self._by_parts(held)

    def _by_time(self, held: _HeldRows, window: TimeWindow) -> Iterator[SideBatch]:
        unit = unit_of(held.batches[0][1].schema.field(window.on).type)
        assert unit is not None, "the column was looked at before"
        times = [_times(batch.column(window.on)) for _, batch in held.batches]
        keep = [self._in_time(side, one, unit) for (side, _), one in zip(held.batches, times, strict=True)]
        every = np.concatenate(times)
        rows = np.flatnonzero(np.concatenate(keep))
        rows = rows[np.lexsort((held.task[rows], every[rows]))]  # which is stable
        ranked, at = every[rows], 0
        span = floor(_SPAN * Fraction(str(window.length)) / unit)
        while at < rows.size:
            upto = min(at + _MOST_ROWS, int(np.searchsorted(ranked, ranked[at] + span, "right")))
            yield from held.piece(rows[at:upto])
            at = upto
        self.latest = max(self.latest, int(every.max()))

    def _by_parts(self, held: _HeldRows) -> Iterator[SideBatch]:
        rows = np.argsort(held.task, kind="stable")
        of_side = [rows[held.side[rows] == side] for side in np.unique(held.side)]
        most = _ROWS
        if isinstance(self.window, RowWindow):
            most = min(max(_LEAST_ROWS, self.window.size // _PARTS), _MOST_ROWS)
        pieces = -(-max(some.size for some in of_side) // most)
        for i in range(pieces):
            some = [mine[mine.size * i // pieces : mine.size * (i + 1) // pieces] for mine in of_side]
            yield from held.piece(np.concatenate(some))

    def _in_time(self, side: int, times: Int64s, unit: Fraction) -> Bools:
        """Which rows are not late. Those without a time are not."""
        delay = self.delays[side]
        if delay is None or self.latest == START:
            return np.ones(times.size, np.bool_)
        in_time: Bools = (times >= self.latest - floor(Fraction(str(delay)) / unit)) | (times == START)
        self.late[side] += int(times.size - np.count_nonzero(in_time))
        return in_time


class _HeldRows:
    """The rows of all batches, by their numbers. It takes 12 bytes for each, beside the batches."""

    def __init__(self, batches: Sequence[SideBatch]) -> None:
        self.batches = batches
        sizes = [batch.num_rows for _, batch in batches]
        self._starts = np.cumsum([0, *sizes])
        self.side = np.repeat(np.array([side for side, _ in batches], np.int8), sizes)
        self.task = np.concatenate([np.asarray(batch.column(FROM)) for _, batch in batches])

    def piece(self, rows: Int64s) -> Iterator[SideBatch]:
        """Rows in their order, a batch of each side."""
        for side in np.unique(self.side[rows]).tolist():
            mine = rows[self.side[rows] == side]
            order = np.argsort(mine, kind="stable")
            ascending = mine[order]
            numbers = np.searchsorted(self._starts, ascending, "right") - 1
            cuts = np.flatnonzero(np.diff(numbers, prepend=-1, append=len(self.batches)))
            parts = [
                take(self.batches[int(numbers[low])][1], ascending[low:high] - self._starts[int(numbers[low])])
                for low, high in pairwise(cuts.tolist())
            ]
            found = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
            if (order[1:] < order[:-1]).any():
                back = np.empty(order.size, np.int64)
                back[order] = np.arange(order.size)
                found = take(found, back)
            yield side, found.drop_columns([FROM])


def _times(column: pa.Array) -> Int64s:
    """The times of a column; START for none."""
    if not column.null_count:
        return whole_times(column)
    times = np.full(len(column), START)
    times[np.asarray(column.is_valid())] = whole_times(column.drop_null())
    return times
