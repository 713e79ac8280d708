"""TumblingWindow: all rows of windows that follow each other and have not ended."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Bools, Int64s
from headrace.sampling.arriving import Arriving
from headrace.sampling.event_times import START, whole_times
from headrace.sampling.everything import Everything
from headrace.windows import TimeWindow


class TumblingWindow(Everything):
    """All rows of windows of one length that follow each other, such as the hours of a day, until each has ended.

        starts     10:00              11:00              12:00
                   |-- rows leave at 11:00 --|-- rows leave at 12:00 --|
        clock                               ^ `close` says what time it is: rows of windows that end by then leave together

    It is the exact window of `Everything` with two differences. The time of a row is the start of its window, so that all rows
    of a window expire at one moment, its end. And the clock is told by the caller, who knows when no more rows of a window are
    to be waited for; rows may lie ahead of it.

    Parameters
    ----------
    schema
        The columns of rows.
    window
        The length of the windows, and the column with the start of a row's window.
    memory
        The most that the rows may take; None for no limit.

    Example
    -------
    >>> from datetime import UTC, datetime
    >>> schema = pa.schema({"hour": pa.timestamp("s"), "v": pa.int64()})
    >>> held = TumblingWindow(schema, window=TimeWindow(3600.0, "hour"))
    >>> hours = [datetime(2026, 7, 1, 10), datetime(2026, 7, 1, 11)]
    >>> held.insert(pa.record_batch({"hour": pa.array(hours, pa.timestamp("s")), "v": [1, 2]}))
    >>> eleven = int(hours[1].replace(tzinfo=UTC).timestamp())
    >>> held.close(eleven - 1).num_rows, held.close(eleven)["v"].to_pylist(), held.sample()["v"].to_pylist()
    (0, [1], [2])
    """

    window: TimeWindow

    def __init__(self, schema: pa.Schema, *, window: TimeWindow, **arguments: Any) -> None:
        super().__init__(window=window, **arguments)
        self.begin(schema, _empty(schema))

    @property
    def slot_bytes(self) -> int:
        """Bytes of a row that is held, beside its own."""
        return self._state.slot_bytes

    def in_time(self, starts: Int64s) -> Bools:
        """Say of starts of windows, in the unit of the column, whether each window is open."""
        open_: Bools = starts > (self.now - self.length if self.now > START else START)
        return open_

    def close(self, now: int) -> pa.RecordBatch:
        """Say what time it is, and give the rows of windows that have ended, in the order in which they came; they leave."""
        assert self._times is not None
        self._times.now = max(self._times.now, now)
        ended = self.members()
        ended = ended[self.until[ended] <= self._times.now]
        rows = self.rows.rows(ended)
        self.forget(self.advance(self._times.now))
        self._count()
        return rows

    def replace_rows(self, rows: pa.RecordBatch) -> None:
        """Hold these rows, of windows that are open, in the place of all others. It is as late as before."""
        assert self._times is not None
        now = self._times.now
        self._make(self.rows.schema, 1)
        self._times.now, self._arrived = now, 0  # a state begins with tuple number 1
        self.insert(rows)

    def _insert(self, batch: pa.RecordBatch) -> None:
        """Take in rows that have been accepted; those without a window, or of one that has ended, are counted and left out."""
        starts = batch.column(self.window.on)
        if starts.null_count:
            self.stats.untimed += starts.null_count
            batch = batch.filter(starts.is_valid())
            starts = batch.column(self.window.on)
        times = whole_times(starts)
        there = self.in_time(times)
        if not there.all():
            self.stats.late += int(there.size - np.count_nonzero(there))
            batch, times = batch.filter(pa.array(there)), times[there]
        self.stats.tuples_in += batch.num_rows
        if batch.num_rows:
            self.take_in(batch, times, np.full(times.size, self.now))

    def _arriving(self, n: int, times: Int64s | None, now: Int64s | None) -> Arriving:
        """Nothing is drawn, so that the number of live rows, which is counted in steps up to now, is not asked for."""
        assert times is not None and now is not None
        return Arriving(self._arrived, now, times + self.length, np.ones(n, np.int64))


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
