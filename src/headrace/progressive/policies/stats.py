"""The counters that a flush policy decides by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.arrays import Int32s, Int64s, UInt64s


@dataclass(slots=True)
class PartitionStats:
    """Counters of the partitions of both sides, or of several streams. Every array has the shape [side, partition].

    The join updates them through `arrived_tuples`, `made_results`, `flushed_tuples` and `flush_ended`; a policy only reads them.
    A result is credited to the partition that was probed, and not to that of the arriving tuple.
    """

    held: Int64s
    """N_i: tuples in memory"""
    arrived: Int64s
    """tuples that have arrived since the join began"""
    fresh: Int64s
    """tuples that have arrived since the last flush"""
    results: Int64s
    """R_i: results of probes against the partition since the join began"""
    recent: Int64s
    """results of probes against the partition since the last flush"""
    flushes: int = 0
    """flushes since the join began"""

    @classmethod
    def empty(cls, partitions: int, sides: int = 2) -> PartitionStats:
        """Counters of a join that has seen no tuple yet."""
        held, arrived, fresh, results, recent = (np.zeros((sides, partitions), np.int64) for _ in range(5))
        return cls(held, arrived, fresh, results, recent)

    def arrived_tuples(self, side: int, partitions: Int32s) -> None:
        """Count tuples that were just put into memory, each by its partition."""
        came = np.bincount(partitions, minlength=self.held.shape[1])
        for counts in (self.held, self.arrived, self.fresh):
            counts[side] += came

    def made_results(self, side: int, partitions: Int32s) -> None:
        """Count results, each by the partition of the tuple in memory that took part in it."""
        made = np.bincount(partitions, minlength=self.held.shape[1])
        self.results[side] += made
        self.recent[side] += made

    def flushed_tuples(self, side: int, partitions: Int32s) -> None:
        """Count tuples that left memory, each by its partition."""
        self.held[side] -= np.bincount(partitions, minlength=self.held.shape[1])

    def flush_ended(self) -> None:
        """Count a flush, and begin anew with the counters that are kept since the last flush."""
        self.fresh[:], self.recent[:] = 0, 0
        self.flushes += 1

    def productive_first(self, side: int, partitions: Int32s | Int64s) -> Int64s:
        """The order of partitions of a side by results a tuple, the most first; of equal ones by number."""
        rate = self.results[side] / np.maximum(1, self.arrived[side])
        return np.lexsort([partitions, -rate[partitions]])


@dataclass(frozen=True, slots=True)
class TupleStats:
    """The tuples of one side that are in memory, for a policy that chooses among tuples. Each array has an item a tuple."""

    partition: Int32s
    cell: UInt64s
    arrived: Int64s
    """the stamp of arrival; a later tuple has a larger one"""
    results: Int32s
    """results that the tuple took part in when it was probed in memory"""
