"""Foresight: a flush policy without settings. It ranks by result rates over as much of the past as predicts the present best."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.arrays import Float64s, Int32s, UInt64s
from headrace.progressive.policies.base import FlushPolicy
from headrace.progressive.policies.stats import PartitionStats

_KEEP = np.array(
    [1.0, 7 / 8, 1 / 2, 0.0]
)  # the part of the past that each history keeps at a flush; the longest wins a tie
_FADE = 3 / 4  # the weight of an old error at the next flush
_LOSS = 1 / 512  # the share of the results that a flush may cost
_LEAST, _MOST = 1 / 32, 1 / 16  # the share of the tuples that a flush removes


class Foresight(FlushPolicy):
    """Flushes the tuples with the lowest result rate, and finds out how far back to look and how much to flush.

    Choose it when you do not know whether arrivals will change, or how fast. It takes no parameters.

    - *Rate.* The rate of a partition is its results over the chances it had: its tuples in memory (their mean since the last
      flush) times the tuples that arrived on the other side meanwhile. R / N of RRPJ ignores how long the N were there. A
      partition with few chances so far counts as average, as if one more tuple with the mean rate had been there. The worth of a
      tuple is its rate times the other side's share of the latest arrivals, about as many as memory holds.
    - *How far back.* Four histories keep all, 7/8, half or nothing of the past at every flush. At each flush, before they learn
      what came since the last one, each has predicted how the results would be spread over partitions; their errors are summed
      up (an old error fades by 3/4), and the history with the least error so far ranks the partitions. Steady arrivals favour
      the long history, which is the least noisy; after a change the short ones are right sooner. This replaces sigma.
    - *How much.* A flush removes as many of the worst tuples as bring 1 result in 512 together, and at least 1/32 and at most
      1/16 of memory. A partition is taken to bring what the chosen history says or the one that keeps all of the past, whichever
      is more: what is useless now may be useful after the next change. If all partitions are alike in the long run, memory stays
      nearly full; if many are useless for good, flushes are fewer and their segments longer. This replaces the share.

    It is our own; [PQP] §4.1.3 leaves the tuning of sigma and share to future work. Measured:
    `docs/reference/flush-policies.md`.
    """

    two_sided = True

    def __init__(self) -> None:
        super().__init__(_LEAST)
        self._share = _LEAST
        self._results: Any = 0.0  # discounted results, [history, side, partition]
        self._chances: Any = 0.0  # discounted chances, of the same shape
        self._errors = np.zeros(_KEEP.size)
        self._came = np.zeros((2, 1))  # arrivals of each side since the last flush
        self._lately = np.zeros((2, 1))  # arrivals of each side, older ones discounted

    def wanted(self, held: int) -> int:
        """Return the share of `held` that the last flush found worthwhile."""
        return min(held, max(1, round(self._share * held)))

    def arrive(self, side: int, cells: UInt64s, partitions: Int32s) -> None:
        """Count arrivals by side, with those about to be inserted: their results are in PartitionStats, but they are not."""
        self._came[side] += partitions.size

    def scores(self, stats: PartitionStats) -> Float64s:
        """Return the worth of a tuple of each partition, and learn from what came since the last flush."""
        came = self._came if self._came.any() else stats.fresh.sum(axis=1, keepdims=True)
        mean_held = np.maximum(0.0, stats.held - stats.fresh / 2)
        chances, one = mean_held * came[::-1], max(1.0, came.sum() / 2)
        if (
            np.ndim(self._results) and stats.recent.any()
        ):  # the join may have flushed before this policy was first asked
            predicted = self._rates(one) * chances
            predicted *= stats.recent.sum() / predicted.sum(axis=(1, 2), keepdims=True).clip(min=1e-9)
            missed = np.abs(predicted - stats.recent).sum(axis=(1, 2)) / stats.recent.sum()
            self._errors = _FADE * self._errors + missed
        # A side that was not probed has learned nothing, so its past is not discounted.
        keep = np.where(came[::-1] > 0, _KEEP[:, None, None], 1.0)
        self._results = keep * self._results + stats.recent
        self._chances = keep * self._chances + chances
        self._lately = max(0.0, 1 - came.sum() / max(1, stats.held.sum())) * self._lately + came
        self._came = np.zeros((2, 1))
        other = self._lately[::-1] / max(1.0, self._lately.sum())
        worths: Float64s = self._rates(one) * other
        worth: Float64s = worths[int(np.argmin(self._errors))]
        self._share = _share(worth, np.maximum(worth, worths[0]), stats.held)
        return worth

    def _rates(self, one: float) -> Any:
        """Rates by history; each partition is given the chances `one` of an average tuple in addition to its own."""
        results, chances = (each.sum(axis=(1, 2), keepdims=True) for each in (self._results, self._chances))
        return (self._results + results / chances.clip(min=1.0) * one) / (self._chances + one)


def _share(worth: Float64s, may_bring: Float64s, held: Any) -> float:
    """The share of the tuples that can leave, the worst first, while the results they would bring stay below _LOSS."""
    order = np.argsort(worth, axis=None, kind="stable")
    tuples, results = (np.append(0, np.cumsum(each.reshape(-1)[order])) for each in (held, may_bring * held))
    if not tuples[-1] or not results[-1]:
        return _LEAST
    return float(np.clip(np.interp(_LOSS * results[-1], results, tuples) / tuples[-1], _LEAST, _MOST))
