"""The clean-up of a multi-way join: partition by partition, the n-tuples of which one had left memory when the last came."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from headrace.progressive.memory.evict import Evictor
from headrace.progressive.memory.streams import Streams
from headrace.progressive.multiway_segments import SegmentsJoin
from headrace.progressive.policies.stats import PartitionStats
from headrace.progressive.stats import ProgressiveStats


class MultiWayCleanup:
    """Joins what memory could not join, after all streams have ended.

    What is in memory of a partition that has tuples on disk is written to disk too, and the segments of each stream become one,
    sorted by cell. SegmentsJoin joins them.

    Parameters
    ----------
    streams
        The streams of the join.
    evictor
        Writes what is in memory.
    partition_stats
        Says which partitions have been productive; these are joined first.
    stats
        Where results are counted.
    """

    def __init__(
        self, streams: Streams, evictor: Evictor, partition_stats: PartitionStats, stats: ProgressiveStats
    ) -> None:
        self._streams, self._evictor, self._partition_stats, self._stats = streams, evictor, partition_stats, stats
        self._step: Iterator[pa.RecordBatch] | None = None
        self._left: list[int] | None = (
            None  # partitions that are still to come, the last is next; None before the first
        )

    def run(self) -> Iterator[pa.RecordBatch]:
        """Give all results that are left. After an error of the disk, or if it was dropped, another run goes on."""
        yield from self._finish_step()
        if not self._streams.all_present:
            return
        if self._left is None:
            self._left = self._begin()
        while self._left:
            for memory in self._streams.present:
                self._streams.merger(memory.number).reduce(self._left[-1], 1)
            self._step = self._join(self._left.pop())
            yield from self._finish_step()

    def _finish_step(self) -> Iterator[pa.RecordBatch]:
        """Give the rest of the results of a partition."""
        if self._step is not None:
            # `yield from` would close the step when the caller closes this generator.
            for out in self._step:  # noqa: UP028
                yield out
            self._step = None

    def _begin(self) -> list[int]:
        """Write to disk what has to be joined there, and free memory. Returns the partitions to join, productive ones last."""
        streams, came = self._streams, self._partition_stats.arrived
        spills = [streams.spill(memory.number) for memory in streams.present]
        self._distribute()
        spilled = np.any([spill.segments_by_partition() > 0 for spill in spills], axis=0)
        wanted = spilled & (came > 0).all(axis=0)
        if wanted.any():
            self._evictor.flush_partitions(wanted)
        self._distribute()
        streams.clear()
        partitions = np.flatnonzero(wanted)
        rate = self._partition_stats.results.sum(axis=0) / np.maximum(1, came.sum(axis=0))
        return list(partitions[np.lexsort([partitions, -rate[partitions]])][::-1].tolist())

    def _distribute(self) -> None:
        for memory in self._streams.present:
            self._streams.merger(memory.number).distribute()

    def _join(self, partition: int) -> Iterator[pa.RecordBatch]:
        """Join the segments of a partition."""
        streams = self._streams
        spills = [streams.spill(memory.number) for memory in streams.present]
        for out in SegmentsJoin(spills, streams.output, block=streams.block_bytes, work=streams.work).run(partition):
            self._stats.disk_disk += out.num_rows
            yield out
