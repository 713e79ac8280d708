"""FlushPolicy: what a policy that chooses the tuples to flush has to say. [PQP] §3.1.2

A policy gives every partition in memory (or every tuple) a score. The driver, `headrace.progressive.policies.driver`, asks for
the scores, checks them, and flushes what has the lowest ones until enough is gone. A policy sees counters and no tuples, so the
same policy serves keys, boxes and vectors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from headrace.arrays import Float64s, Int32s, UInt64s
from headrace.errors import BadInput
from headrace.progressive.policies.stats import PartitionStats, TupleStats


class FlushPolicy(ABC):
    """Chooses the partitions that leave memory when it is full. A policy of your own writes one method, `scores`.

    Parameters
    ----------
    share
        The part of the tuples in memory that is flushed at a time, above 0 and at most 1; or their number, as an int.
    seed
        The seed of the draws among partitions of equal scores; the same seed gives the same choices.

    Example
    -------
    >>> import pyarrow as pa, headrace as hr
    >>> from headrace.progressive import FlushPolicy, ProgressiveJoin
    >>> class Smallest(FlushPolicy):
    ...     def scores(self, stats):
    ...         return stats.held  # the partition with the fewest tuples in memory leaves first
    >>> op = ProgressiveJoin(hr.equal("k"), memory="8MiB", flush=Smallest(share=0.2))
    >>> list(op.insert("left", pa.record_batch({"k": [1, 2]})))
    []
    """

    per_tuple: ClassVar[bool] = False
    """whether single tuples are scored; a TupleFlushPolicy sets it"""
    pairs: ClassVar[bool] = False
    """whether all sides of a partition leave together"""
    two_sided: ClassVar[bool] = False
    """whether it can only decide between two sides, each of which is probed by the other"""
    whole: ClassVar[bool] = False
    """whether a partition leaves as a whole, even if that is more than `wanted` asks for"""

    def __init__(self, share: float | int = 0.1, seed: int = 0) -> None:
        fits = isinstance(share, int | float) and not isinstance(share, bool)
        if not fits or share <= 0 or (isinstance(share, float) and share > 1):
            raise BadInput(
                f"share={share!r} is not a part of memory; give one above 0 and at most 1, or a number of tuples"
            )
        self.share, self.seed = share, seed

    @abstractmethod
    def scores(self, stats: PartitionStats) -> Float64s:
        """Return a number for each partition, of shape [side, partition]. The lowest leave first. Called once a flush."""

    def wanted(self, held: int) -> int:
        """Return how many of `held` tuples in memory a flush removes."""
        if isinstance(self.share, int):
            return min(self.share, held)
        return min(held, max(1, round(self.share * held)))

    @property
    def nbytes(self) -> int:
        """Bytes of what it learns, and of what it computes with in a flush; 0 where that is next to nothing."""
        return 0

    def arrive(self, side: int, cells: UInt64s, partitions: Int32s) -> None:  # noqa: B027
        """Learn of tuples that have just arrived. Most policies need no more than PartitionStats has."""


class TupleFlushPolicy(FlushPolicy):
    """Chooses the single tuples that leave memory. A policy of your own writes one method, `tuple_scores`.

    The join keeps a counter of results for every tuple in memory, which costs 20 bytes a tuple.

    Parameters
    ----------
    share, seed
        See FlushPolicy.
    """

    per_tuple: ClassVar[bool] = True

    @abstractmethod
    def tuple_scores(self, stats: PartitionStats, side: int, tuples: TupleStats) -> Float64s:
        """Return a number for each tuple of a side. The lowest leave first, and the oldest of equal ones."""

    def scores(self, stats: PartitionStats) -> Float64s:
        """Return 0 for every partition: this policy does not tell partitions apart, and the driver does not ask."""
        return np.zeros(stats.held.shape)
