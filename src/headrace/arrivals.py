"""Arrivals: a schedule of the arrival times of a stream's tuples, bursty at every time scale and exact to the microsecond."""

from __future__ import annotations

import math

import numpy as np

from headrace.arrays import Int64s
from headrace.splitmix import draw, uniform_floats

BIAS = 0.7  # share of a period's arrivals that falls into its busier half, as in measured traffic; 0.5 would be smooth
SLOT = 0.05  # seconds of a slot, within which arrivals are evenly spaced; shorter bursts would not be noticed

_STREAM = 10  # number of the stream of random words, see `draw`; others use other numbers
_MICRO = 1_000_000  # microseconds of a second


class Arrivals:
    """A schedule of `total` arrivals over `seconds` by the b-model, a multiplicative cascade.

    The total is split 70 : 30 between the two halves of the time, at random which way round, and so on down to slots
    of about 50 ms. The result is self-similar: there are bursts of seconds, with bursts of milliseconds in them.

    Counts and times are integers (arrivals, microseconds), so `by` and `time_of` are exact inverses of each other.

    Args:
        total: the number of arrivals.
        seconds: the time over which they are spread.
        seed: of the random choice of the busier half.
        bias: the share of the busier half.

    Example:
        >>> arrivals = Arrivals(1000, 10.0, seed=1)
        >>> arrivals.by(0), arrivals.by(10_000_000)
        (0, 1000)
        >>> times = arrivals.time_of(np.arange(1000))
        >>> arrivals.by(int(times[499])) >= 500 > arrivals.by(int(times[499]) - 1)
        True

    Reference:
        Wang, Madhyastha, Chan, Papadimitriou, Faloutsos, "Data mining meets performance evaluation: fast algorithms for
        modeling bursty traffic", ICDE 2002.

    Deviations: counts are integers, so a split is rounded at random, and the sum is kept.
    """

    def __init__(self, total: int, seconds: float, seed: int, bias: float = BIAS) -> None:
        self.total = total
        self.seconds = seconds
        self.seed = seed
        self.bias = bias
        levels = max(0, round(math.log2(seconds / SLOT)))
        self.slot = max(1, round(seconds * _MICRO / (1 << levels)))
        self.counts = self._cascade(levels)
        self._before = np.concatenate([[0], np.cumsum(self.counts)])

    def __repr__(self) -> str:
        return f"Arrivals({self.total}, {self.seconds}, seed={self.seed}, bias={self.bias})"

    @property
    def duration(self) -> int:
        """The length of the schedule in microseconds."""
        return self.slot * len(self.counts)

    def by(self, microseconds: int) -> int:
        """Return the number of arrivals up to this time."""
        slot, rest = divmod(min(max(microseconds, 0), self.duration), self.slot)
        if slot == len(self.counts):
            return self.total
        return int(self._before[slot]) + rest * int(self.counts[slot]) // self.slot

    def time_of(self, numbers: Int64s) -> Int64s:
        """Return the arrival times of tuples, given by number, in microseconds: the first time at which `by` counts each."""
        slot = np.searchsorted(self._before, numbers, side="right") - 1
        place = numbers - self._before[slot] + 1
        times: Int64s = slot * self.slot - (-place * self.slot // self.counts[slot])  # rounded up
        return times

    def _cascade(self, levels: int) -> Int64s:
        counts = np.array([self.total], np.int64)
        for _ in range(levels):
            # nodes are numbered as in a heap, so that every node has a random word of its own
            words = draw(self.seed, _STREAM, len(counts) + np.arange(len(counts)))
            left = np.where(words & np.uint64(1), self.bias, 1 - self.bias)
            first = np.floor(counts * left + uniform_floats(words)).astype(np.int64)
            first = np.minimum(first, counts)
            counts = np.stack([first, counts - first], axis=1).ravel()
        return counts
