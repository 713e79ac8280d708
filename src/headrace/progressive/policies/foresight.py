"""A flush policy without settings: result rates over as much of the past as foretells the present best."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.progressive.grids.partitioning import Doubles
from headrace.progressive.policies.flush import FlushPolicy, Ledger
from headrace.relation.keys import Hashes, Ints

_KEEP = np.array([1.0, 7 / 8, 1 / 2, 0.0])  # what a memory keeps of the past at each flush; the longest wins a tie
_FADE = 3 / 4  # what an old mistake counts at the next flush
_LOSS = 1 / 512  # share of the results a flush may cost
_LEAST, _MOST = 1 / 32, 1 / 16  # share of the tuples that are flushed


class Foresight(FlushPolicy):
    """Flushes the tuples with the lowest result rate, and finds out how far back to look and how much to flush.

    Choose it when you do not know whether arrivals will change, or how fast. It takes no parameters.

    - *Rate.* Results of a partition over the chances it had: its tuples in memory (their mean since the last flush) times the
      tuples that came to the other side meanwhile. R / N of RRPJ takes no account of how long the N were there. A partition
      with few chances so far is thought average: as if one more tuple with the mean rate had been there. What a tuple is
      worth is its rate times the share of the other side in the last arrivals, about as many as memory holds.
    - *How far back.* Four memories keep all, 7/8, half or nothing of the past at every flush. At each flush, before they learn
      what came since the last one, each has foretold how the results would be spread over partitions; their mistakes are summed
      up (an old mistake fades by 3/4), and the memory with the least so far ranks the partitions. Steady arrivals favour the
      long memory, which is the least noisy; after a change the short ones are right sooner. This replaces sigma.
    - *How much.* As many of the worst tuples as bring 1 result in 512 together, and at least 1/32 and at most 1/16 of memory.
      A partition brings what the chosen memory says or the one that keeps all of the past, whichever is more: what is useless
      now may be useful after the next change. If all are alike in the long run, memory stays nearly full; if many are useless
      for good, flushes are fewer and their segments longer. This replaces the share.

    Ours; [PQP] §4.1.3 leaves the tuning of sigma and share to future work. Measured: `docs/reference/flush-policies.md`.
    """

    def __init__(self) -> None:
        super().__init__(_LEAST)
        self._share = _LEAST
        self._results: Any = 0.0  # [memory, side, partition]
        self._chances: Any = 0.0
        self._mistakes = np.zeros(_KEEP.size)
        self._came = np.zeros((2, 1))
        self._lately = np.zeros((2, 1))

    def wanted(self, held: int) -> int:
        """What the last flush found worth it."""
        return min(held, max(1, round(self._share * held)))

    def arrive(self, side: int, cells: Hashes, partitions: Ints) -> None:
        """Count by side. The ledger's `fresh` leaves out the tuples that are about to be kept, whose results it has."""
        self._came[side] += partitions.size

    def _scores(self, ledger: Ledger) -> Doubles:
        came = self._came if self._came.any() else ledger.fresh.sum(axis=1, keepdims=True)
        mean_held = np.maximum(0.0, ledger.held - ledger.fresh / 2)
        chances, one = mean_held * came[::-1], max(1.0, came.sum() / 2)
        if np.ndim(self._results) and ledger.recent.any():  # a ledger may have had flushes before this policy saw one
            foretold = self._rates(one) * chances
            foretold *= ledger.recent.sum() / foretold.sum(axis=(1, 2), keepdims=True).clip(min=1e-9)
            missed = np.abs(foretold - ledger.recent).sum(axis=(1, 2)) / ledger.recent.sum()
            self._mistakes = _FADE * self._mistakes + missed
        # A side that nothing came to probe has learned nothing, and forgets nothing.
        keep = np.where(came[::-1] > 0, _KEEP[:, None, None], 1.0)
        self._results = keep * self._results + ledger.recent
        self._chances = keep * self._chances + chances
        self._lately = max(0.0, 1 - came.sum() / max(1, ledger.held.sum())) * self._lately + came
        self._came = np.zeros((2, 1))
        other = self._lately[::-1] / max(1.0, self._lately.sum())
        worths: Doubles = self._rates(one) * other
        worth: Doubles = worths[int(np.argmin(self._mistakes))]
        self._share = _share(worth, np.maximum(worth, worths[0]), ledger.held)
        return worth

    def _rates(self, one: float) -> Any:
        """By memory; a partition counts as if it had had the chances of one average tuple more."""
        results, chances = (each.sum(axis=(1, 2), keepdims=True) for each in (self._results, self._chances))
        return (self._results + results / chances.clip(min=1.0) * one) / (self._chances + one)


def _share(worth: Doubles, may_bring: Doubles, held: Any) -> float:
    """How much may go, the worst first: what brings so few results that a flush costs no more than _LOSS."""
    order = np.argsort(worth, axis=None, kind="stable")
    tuples, results = (np.append(0, np.cumsum(each.reshape(-1)[order])) for each in (held, may_bring * held))
    if not tuples[-1] or not results[-1]:
        return _LEAST
    return float(np.clip(np.interp(_LOSS * results[-1], results, tuples) / tuples[-1], _LEAST, _MOST))
