"""RunStatus: how far a run is, for displays; and the meter that measures it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Literal, Protocol

import numpy as np

from headrace.arrivals import Arrivals
from headrace.metrics import JoinStats

Stage = Literal["products", "spark", "sales", "proof"]

BURSTS = 40  # seconds of arrivals that a status shows: the width of the chart in characters
_WINDOW = 5 * 1_000_000  # microseconds that the loading rate is averaged over: several micro-batches
_SECOND = 1_000_000  # microseconds


class BatchMetrics(Protocol):
    """The measurements of a micro-batch that this module uses, as `hr.progress` reports them."""

    @property
    def batch(self) -> int:
        """The number of the micro-batch."""
        ...

    @property
    def rows(self) -> int:
        """Rows of the stream in it."""
        ...

    @property
    def seconds(self) -> float:
        """Seconds that it took."""
        ...

    @property
    def stats(self) -> JoinStats:
        """The join's counters."""
        ...


@dataclass(frozen=True)
class RunStatus:
    """How far a run is. Before and after the load only `stage`, `done` and `total` are set."""

    stage: Stage
    done: int = 0
    """products made, sales loaded or rows checked, by stage"""
    total: int = 0
    """what `done` will be at the end of the stage"""
    _: KW_ONLY
    arrived: int = 0
    """sales that have arrived"""
    arriving: int = 0
    """sales that arrived in the last second"""
    bursts: tuple[int, ...] = ()
    """sales that arrived in each of the last seconds"""
    loading: float = 0.0
    """sales loaded per second, averaged over the last few seconds"""
    behind: float = 0.0
    """seconds since the arrival of the oldest sale that is not loaded"""
    batch: int = -1
    batch_rows: int = 0
    batch_seconds: float = 0.0
    batches: int = 0
    stats: JoinStats | None = None
    """counters of all micro-batches of this run; the memory figures are of the last one"""

    @property
    def waiting(self) -> int:
        """Sales that have arrived and are not loaded yet."""
        return max(0, self.arrived - self.done)


class StatusMeter:
    """Measures the load: counters, rate and delay.

    Args:
        arrivals: the schedule of the sales.
        loaded: sales that earlier runs have loaded.
    """

    def __init__(self, arrivals: Arrivals, loaded: int) -> None:
        self.arrivals = arrivals
        self.loaded = loaded
        self.most_behind = 0.0
        self.stats = JoinStats()
        self.batches = 0
        self._last: BatchMetrics | None = None
        self._samples: deque[tuple[int, int]] = deque()

    def count(self, metrics: Sequence[BatchMetrics], complete: int) -> None:
        """Add the micro-batches up to number `complete` that are new since the last call.

        Later ones are left out: their tasks may still be running, so their counters are incomplete.
        """
        for one in metrics:
            if one.batch <= complete and (self._last is None or one.batch > self._last.batch):
                self._last = one
                self.batches += 1
                self.stats = add(self.stats, one.stats)

    def status(self, loaded: int, now: int) -> RunStatus:
        """Return the status of the load at microsecond `now` of the schedule."""
        self.loaded = max(self.loaded, loaded)
        arrived = max(self.arrivals.by(now), self.loaded)
        behind = 0.0
        if arrived > self.loaded:
            behind = max(0.0, (now - int(self.arrivals.time_of(np.array([self.loaded]))[0])) / _SECOND)
            self.most_behind = max(self.most_behind, behind)
        marks = [self.arrivals.by(now - second * _SECOND) for second in range(BURSTS, -1, -1)]
        status = RunStatus(
            "sales",
            self.loaded,
            self.arrivals.total,
            arrived=arrived,
            arriving=marks[-1] - marks[-2],
            bursts=tuple(np.diff(marks).tolist()),
            loading=self._rate(now),
            behind=behind,
            batches=self.batches,
            stats=self.stats,
        )
        last = self._last
        if last is None:
            return status
        return replace(status, batch=last.batch, batch_rows=last.rows, batch_seconds=last.seconds)

    def _rate(self, now: int) -> float:
        self._samples.append((now, self.loaded))
        while len(self._samples) > 2 and self._samples[1][0] < now - _WINDOW:
            self._samples.popleft()
        (then, before), (until, after) = self._samples[0], self._samples[-1]
        return (after - before) * _SECOND / (until - then) if until > then else 0.0


def add(total: JoinStats, batch: JoinStats) -> JoinStats:
    """Add the counters of a micro-batch to a total. Memory is not added up, because micro-batches use the same memory.

    Example:
        >>> one = JoinStats(tuples_in=5, memory={"index": 7}, memory_limit=10, memory_peak=9)
        >>> both = add(one, one)
        >>> both.tuples_in, both.memory, both.memory_limit, both.memory_peak
        (10, {'index': 7}, 10, 9)
    """
    return replace(
        total + batch,
        memory=dict(batch.memory),
        memory_limit=batch.memory_limit,
        memory_peak=max(total.memory_peak, batch.memory_peak),
    )
