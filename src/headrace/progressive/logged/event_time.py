"""EventTime: the watermark of a micro-batch, which rows are late, and which rows in memory have expired."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.arrays import Int64s
from headrace.metrics import JoinStats
from headrace.progressive.logged.checkpoint import NEVER, Checkpoint
from headrace.progressive.logged.join_spec import TimeBound
from headrace.progressive.logged.state_cache import StateCache


class EventTime:
    """Event time in one micro-batch. Without a bound on event times no row is late, and none expires.

    Parameters
    ----------
    bound
        How far apart the rows of a pair may be.
    stats
        Counts late rows.
    """

    def __init__(self, bound: TimeBound | None, stats: JoinStats) -> None:
        self.bound, self.stats = bound, stats
        self._watermark = NEVER

    def begin(self, checkpoint: Checkpoint, cache: StateCache) -> None:
        """Set the watermark by the rows of earlier micro-batches, and drop rows from memory that have expired."""
        bound = self.bound
        if bound is None:
            return
        self._watermark = bound.watermark(checkpoint.latest)
        if self._watermark == NEVER:
            return
        checkpoint.note_watermark(self._watermark)
        expired = self._watermark - bound.within
        checkpoint.flushed[checkpoint.until < expired] = 0
        checkpoint.first = _first_alive(bound, checkpoint, cache, expired)
        cache.drop(checkpoint.first)

    def expired(self, checkpoint: Checkpoint) -> int:
        """Rows in the log of event times before this one can be removed: they match nothing to come, and owe nothing."""
        return NEVER if self.bound is None else max(NEVER, checkpoint.safe_watermark() - self.bound.within)

    def in_time(self, number: int, batch: pa.RecordBatch, *, timeless: bool = False) -> pa.RecordBatch:
        """Select the rows of a side that have an event time and are not late; `timeless`: also those that have none."""
        bound = self.bound
        if bound is None:
            return batch
        times = bound.times(number, batch)
        late = (times < self._watermark) & (times > NEVER) & (bound.delays[number] is not None)
        self.stats.late += int(late.sum())
        there = ~late if timeless else (times > NEVER) & ~late
        return batch if there.all() else batch.filter(pa.array(there))

    def latest(self, number: int, rows: pa.RecordBatch) -> int:
        """The latest event time of a side's rows."""
        return NEVER if self.bound is None else int(self.bound.times(number, rows).max())


def _first_alive(bound: TimeBound, checkpoint: Checkpoint, cache: StateCache, expired: int) -> Int64s:
    """The step from which on memory is needed, [side, partition]: all rows in it of steps before have expired."""
    first = checkpoint.first.copy()
    for side, column in zip(cache.sides, bound.columns, strict=True):
        slots = side.live()
        slots = slots[side.by_chunk(slots)]
        alive = slots[bound.times(side.number, side.rows(slots, [column])) >= expired]
        begin = np.full(checkpoint.partitions, checkpoint.steps, np.int64)
        np.minimum.at(begin, side.partition[alive], side.arrived[alive])
        first[side.number] = np.maximum(first[side.number], begin)
    return first
