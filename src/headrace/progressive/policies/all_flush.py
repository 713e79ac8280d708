"""The flush policy that empties memory."""

from __future__ import annotations

import numpy as np

from headrace.arrays import Float64s
from headrace.progressive.policies.base import FlushPolicy
from headrace.progressive.policies.stats import PartitionStats


class AllFlush(FlushPolicy):
    """Flushes everything. It is the simplest policy, and writes the longest segments.

    Parameters
    ----------
    share
        See FlushPolicy; 1.0 by default.
    """

    def __init__(self, share: float | int = 1.0) -> None:
        super().__init__(share)

    def scores(self, stats: PartitionStats) -> Float64s:
        """Return the same score for all."""
        return np.zeros(stats.held.shape)
