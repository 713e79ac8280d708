"""Cleanup: the blocking and the clean-up phase. Memory is joined with disk, then disk with disk, in bounded steps. [PQP] §3.2"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from headrace.progressive.disk_join import DiskJoiner
from headrace.progressive.grids.partitioning import LEFT, RIGHT
from headrace.progressive.memory.sides import Sides
from headrace.progressive.memory_sweep import MemorySweep
from headrace.progressive.policies.stats import PartitionStats
from headrace.progressive.stats import ProgressiveStats


class Cleanup:
    """Joins what memory could not join, when both sources are silent or have ended.

    A step joins one partition on disk with memory, or a block of one side's rows on disk with a block of the other's. Its results
    are sent as they are made. If the caller does not take them all, the rest comes before the next tuples are taken in, so that
    memory is as it was when the step began.

    Parameters
    ----------
    sides
        Both sides of the join.
    partition_stats
        Says which partitions have been productive; these are joined first.
    stats
        Where results are counted.
    tick
        Gives the next stamp.
    """

    def __init__(
        self, sides: Sides, partition_stats: PartitionStats, stats: ProgressiveStats, tick: Callable[[], int]
    ) -> None:
        self._sides = sides
        self._sweep = MemorySweep(sides, partition_stats, stats, tick)
        self._disk = DiskJoiner(sides, partition_stats, stats)
        self._step: Iterator[pa.RecordBatch] | None = None

    def run(self, *, last: bool = False) -> Iterator[pa.RecordBatch]:
        """Give all results that can be made now, and empty batches in between.

        `last` says that no more tuples will come, so memory is freed as soon as it has met disk.
        """
        yield from self.finish_step()
        if not self._sides.both_present:
            return
        for step in self._steps(last):
            self._step = step
            yield from self.finish_step()
            yield self._sides.output.empty()
        self.free_block()

    def finish_step(self) -> Iterator[pa.RecordBatch]:
        """Give the rest of the results of a step that the caller left."""
        if self._step is not None:
            # `yield from` would close the step when the caller closes this generator.
            for out in self._step:  # noqa: UP028
                yield out
            self._step = None

    def free_block(self) -> None:
        """Free the rows that are kept between steps, since arriving tuples need the working memory."""
        self._disk.free_block()

    def _steps(self, last: bool) -> Iterator[Iterator[pa.RecordBatch]]:
        for number in (LEFT, RIGHT):
            yield from self._sweep.steps(number)
        if last:
            self._sides.clear()
        yield from self._disk.steps()
