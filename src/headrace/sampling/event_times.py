"""EventTimes: the times of the tuples of a window by time, what the time is now, and which tuples come too late."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

import numpy as np
import pyarrow as pa

from headrace.arrays import Int64s
from headrace.errors import BadInput, UnsupportedType
from headrace.kernels.samplers import FIRST, TOTAL, live_counts
from headrace.windows import TimeWindow

START = int(np.iinfo(np.int64).min)  # the time before the first tuple
_SECONDS = {"s": Fraction(1), "ms": Fraction(1, 10**3), "us": Fraction(1, 10**6), "ns": Fraction(1, 10**9)}
_DAY = Fraction(86400)  # seconds
_STEPS = 1024  # of a window in which its tuples are counted: the count is exact to a thousandth of the window
_SPARE_STEPS = 2  # a window that begins within a step ends within another


@dataclass(frozen=True, slots=True)
class TimedRows:
    """The rows of a batch that have a time and are not late, in the order in which they came."""

    batch: pa.RecordBatch
    times: Int64s
    """the time of each, in the unit of the column"""
    now: Int64s
    """the latest time that was seen when each had come, its own included"""


class EventTimes:
    """Reads the times of tuples. Now is the latest time so far, of all streams that share this object.

    Times are whole numbers in the unit of the column: no rounding decides which tuples are live.

    Parameters
    ----------
    window
        The window; its column must have the same type in all batches.
    """

    def __init__(self, window: TimeWindow) -> None:
        self.window = window
        self.now = START
        self._type: pa.DataType | None = None
        self.length = self.late = 0

    def bind(self, schema: pa.Schema, whose: str) -> None:
        """Learn the type of the column, before the first batch with this schema."""
        name = self.window.on
        if schema.names.count(name) != 1:
            many = "no" if name not in schema.names else "more than one"
            raise BadInput(
                f"{whose} has {many} column {name!r}, which the window is on; its columns are {', '.join(schema.names)}"
            )
        type_ = schema.field(name).type
        unit = unit_of(type_)
        if unit is None:
            raise UnsupportedType(
                f"column {name!r} of {whose} has type {type_}; a window by time is on a timestamp or a date"
            )
        if self._type is not None and type_ != self._type:
            raise BadInput(
                f"column {name!r} of {whose} has type {type_}, and that of the other side {self._type}; cast one to the other's"
            )
        self._type = type_
        # Times are whole units, so a difference is below a length just if it is below the next whole number.
        self.length = ceil(Fraction(str(self.window.length)) / unit)
        self.late = floor(Fraction(str(self.window.late)) / unit)

    def read(self, batch: pa.RecordBatch) -> tuple[TimedRows, int, int]:
        """Return the rows with a time that are not late, the number of rows without one, and the number of late rows."""
        column = batch.column(self.window.on)
        untimed = column.null_count
        if untimed:
            batch = batch.filter(column.is_valid())
            column = batch.column(self.window.on)
        times = whole_times(column)
        if not times.size:
            return TimedRows(batch, times, times), untimed, 0
        now = np.maximum(np.maximum.accumulate(times), self.now)
        self.now = int(now[-1])
        in_time = now - times <= self.late
        late = int(times.size - in_time.sum())
        if late:
            batch, times, now = batch.filter(pa.array(in_time)), times[in_time], now[in_time]
        return TimedRows(batch, times, now), untimed, late


class LiveCounts:
    """The number of live tuples of one stream in a window by time, to a thousandth of the window, in 8 KiB.

    Parameters
    ----------
    length
        The length of the window, in the unit of the times.
    """

    def __init__(self, length: int) -> None:
        self.length = length
        self.width = max(1, -(-length // _STEPS))
        self.counts: Int64s = np.zeros(_STEPS + _SPARE_STEPS, np.int64)
        self.steps: Int64s = np.array([START, 0], np.int64)

    def count(self, times: Int64s, now: Int64s) -> Int64s:
        """Count tuples, and return how many are live when each has come."""
        live = np.empty(times.size, np.int64)
        if times.size:
            if self.steps[FIRST] == START:
                self.steps[FIRST] = (int(now[0]) - self.length + 1) // self.width
            live_counts(self.counts, self.steps, self.width, self.length, times, now, live)
        return live

    def live(self, now: int, length: int) -> float:
        """The number of tuples that are less than `length`, at most that of the window, before now."""
        if not self.steps[TOTAL] or now == START:
            return 0.0
        begin = now - length + 1
        first, known = begin // self.width, int(self.steps[FIRST])
        # Cells of the ring stand for the steps from the first one on; those beyond the latest tuple are empty.
        steps = np.arange(max(first, known), min(now // self.width + 1, known + self.counts.size))
        inside = self.counts[steps % self.counts.size]
        over = (begin - first * self.width) / self.width if steps.size and steps[0] == first else 0.0
        return float(inside.sum() - (over * inside[0] if steps.size else 0.0))


def whole_times(column: pa.Array) -> Int64s:
    """The times of a column without nulls, as whole numbers in its unit."""
    return np.asarray(column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())).astype(np.int64)


def unit_of(type_: pa.DataType) -> Fraction | None:
    """The seconds of a time's unit; None for a type that is no time."""
    if pa.types.is_timestamp(type_):
        return _SECONDS[type_.unit]
    if pa.types.is_date32(type_):
        return _DAY
    return _SECONDS["ms"] if pa.types.is_date64(type_) else None
