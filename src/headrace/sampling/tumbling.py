"""TumblingWindow: all rows of windows that follow each other and have not ended."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.arrays import Bools, Int64s
from headrace.sampling.event_times import START, whole_times
from headrace.sampling.everything import Everything
from headrace.sampling.sampler import ROWS_AT_ONCE
from headrace.sampling.slot_sampler import SlotState
from headrace.sampling.snapshot import Parts, SnapshotReader, write_side, write_snapshot
from headrace.windows import TimeWindow


class TumblingWindow:
    """All rows of windows of one length that follow each other, such as the hours of a day, until each has ended.

        starts     10:00                     11:00                     12:00
                   |-- rows leave at 11:00 --|-- rows leave at 12:00 --|
        clock                                ^ `close` says what time it is: rows of windows that end by then leave together

    It is the exact window of `Everything`, and two things are told to it that a sliding window finds out. The time of a row is
    the start of its window, so that all rows of a window expire at one moment, its end. And the clock is the caller's, who knows
    when no more rows of a window are to be waited for; rows may lie ahead of it.

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

    slot_bytes = SlotState.slot_bytes
    """bytes of a row that is held, beside its own"""

    def __init__(self, schema: pa.Schema, *, window: TimeWindow, memory: int | str | None = None) -> None:
        self.schema, self.window, self.memory = schema, window, memory
        self.now = START
        """what time it is, in the unit of the column: windows that end by then have ended"""
        self.late = self.untimed = 0
        """rows that came after their window had ended, and rows without one"""
        self._clear()

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"TumblingWindow(window={self.window!r}, memory={self.memory!r})"

    @property
    def nbytes(self) -> int:
        """Bytes that are held."""
        return self._held.budget.used

    def in_time(self, starts: Int64s) -> Bools:
        """Say of starts of windows, in the unit of the column, whether each window is open."""
        open_: Bools = starts > (self.now - self._held.length if self.now > START else START)
        return open_

    def insert(self, batch: pa.RecordBatch) -> None:
        """Take in rows; those without a window, or of one that has ended, are counted and left out."""
        starts = batch.column(self.window.on)
        if starts.null_count:
            self.untimed += starts.null_count
            batch = batch.filter(starts.is_valid())
            starts = batch.column(self.window.on)
        times = whole_times(starts)
        there = self.in_time(times)
        if not there.all():
            self.late += int(there.size - np.count_nonzero(there))
            batch, times = batch.filter(pa.array(there)), times[there]
        for at in range(0, times.size, ROWS_AT_ONCE):
            some = times[at : at + ROWS_AT_ONCE]
            self._held.take_in(batch.slice(at, ROWS_AT_ONCE), some, np.full(some.size, self.now))
        self._count += int(times.size)

    def close(self, now: int) -> pa.RecordBatch:
        """Say what time it is, and give the rows of windows that have ended, in the order in which they came; they leave."""
        self.now = max(self.now, now)
        slots = self._held.members()
        slots = slots[self._held.until[slots] <= self.now]
        rows = self._held.rows.rows(slots)
        self._held.forget(self._held.advance(self.now))
        self._count -= int(slots.size)
        return rows

    def sample(self) -> pa.RecordBatch:
        """The rows of windows that are open, in the order in which they came."""
        return self._held.sample()

    def replace_rows(self, rows: pa.RecordBatch) -> None:
        """Hold these rows, of windows that are open, in the place of all others. It is as late as before."""
        self._clear()
        self.insert(rows)

    def snapshot(self) -> Parts:
        """The state, as record batches for `restore`."""
        numbers = {"numbers": np.array([self.now, self.late, self.untimed, self._count], np.int64)}
        yield from write_snapshot(repr(self), numbers)
        yield from write_side("rows", self._held.snapshot())

    def restore(self, snapshot: SnapshotReader) -> None:
        """Go on from a snapshot of a window that was made in the same way."""
        snapshot.check(repr(self))
        numbers: list[int] = snapshot.arrays()["numbers"].tolist()
        self.now, self.late, self.untimed, self._count = numbers
        snapshot.side()
        for _ in self._held.restore_rows(snapshot):
            pass

    def _clear(self) -> None:
        self._held = Everything(window=self.window, memory=self.memory, counted=False)
        empty = [pa.array([], field.type) for field in self.schema]
        self._held.begin(self.schema, pa.RecordBatch.from_arrays(empty, schema=self.schema))
        self._count = 0
