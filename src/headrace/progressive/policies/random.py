"""The flush policy that draws lots."""

from __future__ import annotations

import numpy as np

from headrace.arrays import Float64s
from headrace.progressive.policies.base import FlushPolicy
from headrace.progressive.policies.stats import PartitionStats


class Random(FlushPolicy):
    """Flushes partitions in an order that is drawn anew for each flush. It is the baseline of [PQP] §6.2.

    Parameters
    ----------
    share
        See FlushPolicy.
    seed
        The seed of the draws; the same seed gives the same choices.
    """

    def __init__(self, share: float | int = 0.1, seed: int = 0) -> None:
        super().__init__(share, seed)
        self._draw = np.random.default_rng(seed)

    def scores(self, stats: PartitionStats) -> Float64s:
        """Return random numbers."""
        return np.asarray(self._draw.random(stats.held.shape))
