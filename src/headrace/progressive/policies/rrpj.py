"""The flush policies of the Result Rate based Progressive Join: RRPJ, amortised RRPJ, and RRPJ-F by tuple. [PQP] §3.2"""

from __future__ import annotations

import numpy as np

from headrace.arrays import Float64s
from headrace.errors import BadInput
from headrace.progressive.policies.base import FlushPolicy, TupleFlushPolicy
from headrace.progressive.policies.stats import PartitionStats, TupleStats


class RRPJ(FlushPolicy):
    """Flushes the partitions with the fewest results a tuple: Th = R / N. It is the default. [PQP] §3.2.1, eq. 3.3

    N counts the tuples that have arrived, not those in memory. The text says both ("tuples in partition i", and their sum "that
    have arrived"); only the first is a rate. R is never reset, so over tuples in memory a partition that was just flushed,
    useless as it may be, has the highest value of all and is kept the next time. Measured: `docs/reference/flush-policies.md`.
    """

    def scores(self, stats: PartitionStats) -> Float64s:
        """Return results over arrivals."""
        return np.divide(stats.results, np.maximum(1, stats.arrived))


class AmortisedRRPJ(FlushPolicy):
    """Flushes as RRPJ does, and discounts the past: results of earlier flushes count sigma, sigma^2, ... [PQP] §3.2.2, eq. 3.4

    Choose it when arrivals change over time, and you know how fast.

    Parameters
    ----------
    share, seed
        See FlushPolicy.
    sigma
        The weight of the past: with 0 only results since the last flush count, 1 is RRPJ.

    N counts all tuples that have arrived, as in RRPJ and as eq. 3.4 has it, which discounts R alone. §4.1.3 says of sigma = 0
    that the size of a partition since the last flush is used. Measured both ways, sigma = 0 is the same, and for other sigmas a
    discounted N (the one that makes sigma = 1 RRPJ) is farther from Table 4.3: a partition that gets no tuples any more has an N
    that shrinks as fast as its R, and keeps the rate it once had. See `docs/reference/flush-policies.md`.
    """

    def __init__(self, share: float | int = 0.1, sigma: float = 0.2, seed: int = 0) -> None:
        super().__init__(share, seed)
        if not 0 <= sigma <= 1:
            raise BadInput(f"sigma={sigma!r} is not a weight of the past; give one from 0 to 1")
        self.sigma = sigma
        self._results: Float64s | float = 0.0  # discounted results, [side, partition]

    def scores(self, stats: PartitionStats) -> Float64s:
        """Return discounted results over arrivals."""
        self._results = (self.sigma * self._results + stats.recent).astype(np.float64)
        return np.asarray(self._results / np.maximum(1, stats.arrived))


class RRPJF(TupleFlushPolicy):
    """Flushes the tuples with the fewest results, the oldest of them first: RRPJ for each tuple, where N is 1. [PQP] §5.1.2

    Choose it when the tuples of one partition differ much, as boxes of many sizes do. It costs a counter a tuple.
    """

    def tuple_scores(self, stats: PartitionStats, side: int, tuples: TupleStats) -> Float64s:
        """Return the results that each tuple took part in."""
        return tuples.results.astype(np.float64)
