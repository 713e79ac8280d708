"""What AdaptiveJoin has seen of its stream, as running means: its memory is divided by them."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

import numpy as np

from headrace.arrays import Float64s, Int32s

#: Weight of the newest slice in running means: the last five slices or so count, and one odd slice does not decide.
EMA = 0.2

#: Times that rows are there at least while they are put together: one column of them is there twice.
USUAL_COPIES = 1.5

#: Rows of a batch that are assumed before the first one comes.
FIRST_BATCH_ROWS = 1 << 14


@dataclass(frozen=True)
class HitCurve:
    """The share of the stream that a hot set of some size would serve: hits[i] if entries[i] keys are held."""

    entries: Float64s
    hits: Float64s

    @classmethod
    def of(cls, before: Int32s, counts: Int32s, window: int, strangers: Int32s) -> HitCurve:
        """Estimate the curve from some keys of a slice.

        A key seen p times in the window comes back in n tuples n * p / window times, so each return stands for window / (n * p)
        such keys. Half is taken off p: among keys seen once, most were lucky. Keys share the counters of the sketch: a key that
        counts no more than keys that never came was as likely not seen at all.

        Parameters
        ----------
        before
            How often each key was seen before this slice, by the sketch.
        counts
            How often each key is in this slice.
        window
            Stream tuples that `before` counts.
        strangers
            What the sketch says of keys that never came.
        """
        seen = before > 0
        order = np.argsort(-before[seen], kind="stable")
        back, p = counts[seen][order] / max(1, int(counts.sum())), before[seen][order] - 0.5
        if strangers.any():
            back = back * _really_seen(before, strangers)[before[seen][order]]
        zero = np.zeros(1)
        return cls(np.concatenate([zero, np.cumsum(back * window / p)]), np.concatenate([zero, np.cumsum(back)]))

    def hit_ratio(self, entries: float) -> float:
        """The share of the stream that so many of the most popular keys make."""
        return float(np.interp(entries, self.entries, self.hits))


def _really_seen(before: Int32s, strangers: Int32s) -> Float64s:
    """For every count: the share of keys with it that were seen. The others count what strangers do."""
    levels = int(max(before.max(initial=0), strangers.max(initial=0))) + 1
    mine, theirs = (np.bincount(x, minlength=levels) / max(1, x.size) for x in (before, strangers))
    middle = int(np.median(strangers))
    # The share of the slice's keys that come for the first time
    new = min(1.0, mine[: middle + 1].sum() / theirs[: middle + 1].sum())
    share: Float64s = np.clip(1 - new * theirs / np.maximum(mine, 1e-12), 0, 1)
    return share


@dataclass(kw_only=True)
class Workload:
    """Running means of a stream.

    Parameters
    ----------
    rows
        Rows of a batch.
    distinct, missed
        Distinct keys, and distinct keys that must be read for, as shares of the rows of a slice.
    absent
        Share of rows without a match.
    seen
        Slices that these means are made of.
    hit_curve
        What a hot set of some size would serve, by the last slice.
    stream_bytes
        Bytes of a row.
    copies
        How many times the bytes of rows are there while those that wait are put together, column by column.
    between
        Rows from one time that all waiting rows must leave to the next: no more than their misses can wait together.
    """

    rows: float
    distinct: float = 1.0
    missed: float = 1.0
    absent: float = 1.0
    seen: int = 0
    hit_curve: HitCurve = field(default_factory=lambda: HitCurve(np.zeros(1), np.zeros(1)))
    stream_bytes: float = 32.0
    copies: float = USUAL_COPIES
    between: float = inf

    def observe(self, rows: int, distinct: int, missed: int, absent: int) -> None:
        """Take in what a slice of so many rows showed."""
        for name, seen in (("distinct", distinct), ("missed", missed), ("absent", absent)):
            old = getattr(self, name)
            share = seen / max(1, rows)
            setattr(self, name, old + EMA * (share - old) if self.seen else share)
        self.seen += 1

    def drained(self, rows: int) -> None:
        """Take in that all rows have left, so many after the last time."""
        self.between = min(self.between, 2.0 * rows)  # the first time there is no mean yet
        self.between += 0.5 * (rows - self.between)
