"""RPJ's flush policy: the partitions whose opposite is least likely to receive the next tuple."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.arrays import Float64s
from headrace.progressive.policies.base import FlushPolicy
from headrace.progressive.policies.stats import PartitionStats


class RPJ(FlushPolicy):
    """Flushes the partitions whose opposite, on the other side, is least likely to receive the next tuple.

    Choose it where arrivals are steady and the tuples of a partition match each other alike: it looks at arrivals, and not at
    results as RRPJ does. p(side, partition) is the partition's share of all that has arrived on its side, times the side's share
    of the latest arrivals (about as many as memory holds). The same formula over the cells of a grid is the naive extension to
    boxes of §5.1.2 and to vectors of §6.1.3: it ignores the neighbouring cells that hold some of a vector's matches.

    Reference: [PQP] §2.1, eq. 5.1; Tao et al. 2005.

    Deviation: the original counts the latest arrivals by intervals of time. Counting since the last flush would not do, since
    that may be one tuple.
    """

    def __init__(self, share: float | int = 0.1, seed: int = 0) -> None:
        super().__init__(share, seed)
        self._lately: Any = 0.0  # arrivals of each side, older ones discounted

    def scores(self, stats: PartitionStats) -> Float64s:
        """Return the probability that the next tuple arrives in the opposite partition."""
        keep = max(0.0, 1 - stats.fresh.sum() / max(1, stats.held.sum()))
        self._lately = keep * self._lately + stats.fresh.sum(axis=1, keepdims=True)
        of_side = self._lately / max(1.0, self._lately.sum())
        within = stats.arrived / np.maximum(1, stats.arrived.sum(axis=1, keepdims=True))
        chance: Float64s = within * of_side
        # With more than two sides, a tuple of any of the others probes a partition.
        return chance[::-1] if chance.shape[0] == 2 else chance.sum(axis=0) - chance
