"""LA's flush policy: arrival probabilities with reference locality."""

from __future__ import annotations

import numpy as np

from headrace.arrays import Float64s, Int32s, UInt64s
from headrace.errors import BadInput
from headrace.progressive.policies.base import FlushPolicy
from headrace.progressive.policies.stats import PartitionStats


class LA(FlushPolicy):
    """Flushes as RPJ does, and assumes reference locality: a partition that was hit recently is likely to be hit again.

    The next tuple repeats the partition of one of the last h arrivals with probability 1 - b, each of them alike, and follows
    the long-term popularity of partitions with probability b.

    Parameters
    ----------
    share
        See FlushPolicy.
    h
        The number of latest arrivals, of both sides together, that may repeat.
    b
        The weight of long-term popularity: 0 is locality alone, 1 is popularity alone.

    Reference: [PQP] §2.1; Li et al. 2006.

    Deviations: partitions are counted and not single values, whose popularity would take a counter for each value that ever
    arrived; all a_i are equal, where the original fits each of them; a batch is taken as it comes, so h should be larger than a
    batch.
    """

    def __init__(self, share: float | int = 0.1, h: int = 1000, b: float = 0.5) -> None:
        super().__init__(share)
        if h < 1:
            raise BadInput(f"h={h!r} is not a number of arrivals; give 1 or more")
        if not 0 <= b <= 1:
            raise BadInput(f"b={b!r} is not a probability; give one from 0 to 1")
        self.h = h
        self.b = b
        self._last = np.empty((2, 0), np.int32)  # the sides and partitions of the last h arrivals, the latest last

    def arrive(self, side: int, cells: UInt64s, partitions: Int32s) -> None:
        """Remember the last h arrivals."""
        new = np.stack([np.full(partitions.size, side, np.int32), partitions])
        self._last = np.concatenate([self._last, new], axis=1)[:, -self.h :]

    def scores(self, stats: PartitionStats) -> Float64s:
        """Return the probability that the next tuple arrives in the opposite partition."""
        popularity = stats.arrived / max(1, int(stats.arrived.sum()))
        places = np.ravel_multi_index(tuple(self._last), stats.arrived.shape)
        lately = np.bincount(places, minlength=stats.arrived.size).reshape(stats.arrived.shape)
        chance = self.b * popularity + (1 - self.b) * lately / max(1, self._last.shape[1])
        return chance[::-1]
