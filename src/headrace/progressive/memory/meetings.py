"""Meetings: which tuples in memory have been joined with which partitions of the other side on disk."""

from __future__ import annotations

import numpy as np

from headrace.arrays import Int32s, Int64s


class Meetings:
    """For each side and partition on disk, the stamp up to which tuples that arrived on the other side have met it.

    A partition on disk meets memory as a whole, so one stamp says all: tuples that arrived before it and were in memory then have
    been joined with every tuple of the partition that had departed before they arrived. What a tuple has met is written down
    when it leaves memory, as the number of the first partition that it has not met. If matches may be in neighbouring
    partitions, partitions meet memory in the order of their numbers, so that one number is enough. If they are in the partition
    of the same number alone, any order will do: the number is that of the next partition, or 0.

    Parameters
    ----------
    partitions
        The number of partitions of each side.
    identity
        Whether matches are in the partition of the same number alone.
    """

    def __init__(self, partitions: int, identity: bool) -> None:
        self.identity = identity
        self._met: Int64s = np.zeros((2, partitions), np.int64)

    def met(self, side: int) -> Int64s:
        """The stamps of the partitions of a side on disk."""
        met: Int64s = self._met[side]
        return met

    def note(self, side: int, partition: int, stamp: int) -> None:
        """Note that a partition on disk has met all tuples in the other side's memory that arrived before a stamp."""
        if self.identity:
            self._met[side, partition] = stamp
        else:  # those before it that were left out had nothing to meet
            self._met[side, : partition + 1] = stamp

    def note_all(self, side: int, stamp: int) -> None:
        """Note that all partitions of a side on disk have met the other side's memory."""
        self._met[side] = stamp

    def swept(self, side: int, partition: Int32s, arrived: Int64s) -> Int32s:
        """For tuples in a side's memory: partitions of the other side before this number have met the tuple on disk."""
        met = self.met(1 - side)
        if self.identity:
            return np.where(arrived < met[partition], partition + 1, 0).astype(np.int32)
        # The stamps never rise from one partition to the next.
        return np.asarray(met.size - np.searchsorted(met[::-1], arrived, side="right"), np.int32)
