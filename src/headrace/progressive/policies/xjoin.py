"""XJoin's flush policy: the largest partition."""

from __future__ import annotations

import numpy as np

from headrace.arrays import Float64s
from headrace.progressive.policies.base import FlushPolicy
from headrace.progressive.policies.stats import PartitionStats


class XJoin(FlushPolicy):
    """Flushes the largest partition as a whole, and no other. It is the baseline that later policies are compared with.

    Parameters
    ----------
    seed
        See FlushPolicy.

    Reference: [PQP] §2.1; Urhan and Franklin, XJoin, 1999.
    """

    whole = True

    def __init__(self, seed: int = 0) -> None:
        super().__init__(1, seed)  # one tuple, and with it its partition

    def scores(self, stats: PartitionStats) -> Float64s:
        """Return minus the number of tuples in memory."""
        return -stats.held.astype(np.float64)
