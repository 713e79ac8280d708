"""Feeds a system with batches and keeps the time it takes for each.

A batch's time runs from handing it over to being asked for the next. Loading the next batch is not
timed. Warm-up and measurement are one unbroken stream, so nothing an operator keeps is lost.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import perf_counter

import pyarrow as pa

from benchmarks.streams import StreamFileReader

PROBE_ROWS = 10_000  # the first batch: tells whether a whole batch fits the time allowed
_STEADY = 0.03
_PRECISE = 0.01
_FEW = 8


@dataclass
class Phase:
    """Rows and seconds of each batch fed in a phase."""

    rows: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def add(self, rows: int, seconds: float) -> None:
        self.rows.append(rows)
        self.seconds.append(seconds)

    @property
    def elapsed(self) -> float:
        return sum(self.seconds)

    def rate(self, part: slice) -> float:
        seconds: float = sum(self.seconds[part])
        return sum(self.rows[part]) / max(seconds, 1e-9)

    def steady(self) -> bool:
        """The last third went as fast as the third before it."""
        third = len(self.rows) // 3
        if third < 2:
            return False
        late, middle = self.rate(slice(-third, None)), self.rate(slice(-2 * third, -third))
        return bool(abs(late - middle) <= _STEADY * middle)

    def precise(self) -> bool:
        """The standard error of a batch's time is within one per cent."""
        if len(self.seconds) < _FEW:
            return False
        error = statistics.stdev(self.seconds) / len(self.seconds) ** 0.5
        return bool(error <= _PRECISE * statistics.fmean(self.seconds))


@dataclass
class Feed:
    """An iterable of stream batches with a warm-up and a measured phase.

    A batch that would take longer than the whole measurement is fed in slices that fit, each a
    range of keys, so that a slice is as dense as the batch it is cut from; `piece` says how many
    rows were fed at a time. Only a system that itself goes through a batch by key is `divisible`:
    to it a slice is a part of the same work. The others get whole batches, however long they take.
    """

    reader: StreamFileReader
    batch: int
    seconds: float
    warmup_seconds: float
    divisible: bool
    may_stop_early: bool
    before_batch: Callable[[], None]
    on_measure: Callable[[], None]
    warmup: Phase = field(default_factory=Phase)
    measured: Phase = field(default_factory=Phase)
    piece: int = 0
    _rest: pa.RecordBatch | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        self.piece = min(self.batch, PROBE_ROWS) if self.divisible else self.batch
        while not self._is_warm():
            yield from self._hand_over(self.warmup)
            self.piece = self._fitting()
        self.on_measure()
        while not self._is_measured():
            yield from self._hand_over(self.measured)

    def _hand_over(self, phase: Phase) -> Iterator[pa.RecordBatch]:
        batch = self._next()
        self.before_batch()
        start = perf_counter()
        yield batch
        phase.add(batch.num_rows, perf_counter() - start)

    def _next(self) -> pa.RecordBatch:
        if self.piece == self.batch:
            return self.reader.read(self.batch)
        if self._rest is None or self._rest.num_rows == 0:
            self._rest = self.reader.read_sorted(self.batch)
        head, self._rest = self._rest.slice(0, self.piece), self._rest.slice(self.piece)
        return head

    def _fitting(self) -> int:
        if not self.divisible:
            return self.batch
        last = self.warmup.rate(slice(-1, None))
        fits = int(last * self.seconds)
        if fits >= self.batch:
            return self.batch
        return max(min(PROBE_ROWS, self.batch), fits - fits % 1000)

    def _is_warm(self) -> bool:
        elapsed = self.warmup.elapsed
        if elapsed < self.warmup_seconds / 2:
            return False
        return elapsed >= self.warmup_seconds or self.warmup.steady()

    def _is_measured(self) -> bool:
        elapsed = self.measured.elapsed
        if elapsed >= self.seconds:
            return True
        return self.may_stop_early and elapsed >= self.seconds / 2 and self.measured.precise()
