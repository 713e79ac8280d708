"""The flush policy of the Hash-Merge Join: both sides of a partition together."""

from __future__ import annotations

import numpy as np

from headrace.arrays import Float64s
from headrace.progressive.policies.base import FlushPolicy
from headrace.progressive.policies.stats import PartitionStats


class HMJ(FlushPolicy):
    """Flushes both sides of a partition together: the pair with the most tuples that keeps the two sides even.

    Choose it when the time of the clean-up matters most. The tuples of one flush were joined with each other while they were in
    memory, so the segments that it writes need not be joined with each other.

    Reference: [PQP] §2.1; Mokbel, Lu and Aref, Hash-Merge Join, 2004.

    Deviations: there is no threshold for the size of a pair; a pair that has more tuples of the side that holds fewer is taken
    only after all others.
    """

    pairs = True

    def scores(self, stats: PartitionStats) -> Float64s:
        """Return minus the size of the pair of partitions, for both sides; pairs that keep the sides even come first."""
        pair = stats.held.sum(axis=0)
        larger = int(np.argmax(stats.held.sum(axis=1)))
        lopsided = stats.held[larger] < stats.held.max(axis=0)
        scores = np.where(lopsided, 0.0, -pair.sum()) - pair
        return np.stack([scores] * stats.held.shape[0])
