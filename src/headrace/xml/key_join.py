"""KeyJoin: rows of two or more named streams on one key, in the budget that their twig machines share. [PQP] §7.1.1"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from headrace.conditions import Equal
from headrace.errors import MemoryRefused
from headrace.memory import MemoryBudget
from headrace.progressive import (
    FlushPolicy,
    HashPartitioning,
    MultiWayJoin,
    ProgressiveJoin,
    ProgressiveStats,
    policy_of,
)
from headrace.progressive.multiway import LEAST_MEMORY
from headrace.units import format_size

PARTITIONS = 1024  # of each stream, as [PQP] Table 7.1 has it; a join with little memory takes fewer
_SHARE = 4  # the join has 3/4 of what the scanners leave: fragments wait for long, open elements are few


class KeyJoin:
    """Joins streams whose columns have different names; every result has all columns of all streams.

    Two streams take a `ProgressiveJoin`, more a `MultiWayJoin`. Its memory is a part of a budget that the twig machines of the
    streams have reserved theirs in before; what is left is for their open elements.
    """

    def __init__(
        self,
        schemas: Sequence[pa.Schema],
        on: Sequence[str],
        budget: MemoryBudget,
        flush: str | FlushPolicy,
        spill: Path | None,
    ) -> None:
        self.on = tuple(on)
        self.schema = pa.schema([field for schema in schemas for field in schema])
        share = budget.left - budget.left // _SHARE
        policy = policy_of(flush)
        least = LEAST_MEMORY * len(on) + policy.nbytes
        if share < least:
            smallest = format_size(budget.used + -(-least * _SHARE // (_SHARE - 1)) + _SHARE)
            raise MemoryRefused(
                f"memory={format_size(budget.limit)} is too small: the scanners of the documents hold {format_size(budget.used)},"
                f" and the join has {format_size(share)} of the rest; give at least {smallest}"
            )
        self._two: ProgressiveJoin | None = None
        self._more: MultiWayJoin | None = None
        if len(on) == 2:
            condition = Equal((on[0],), (on[1],))
            parts = HashPartitioning(condition, PARTITIONS)
            self._two = ProgressiveJoin(
                condition, memory=share, flush=policy, partitioning=parts, suffix=None, spill=spill
            )
        else:
            self._more = MultiWayJoin(
                on, len(on), memory=share, flush=policy, partitions=PARTITIONS, suffix=None, spill=spill
            )
        budget.reserve("join", share)

    @property
    def stats(self) -> ProgressiveStats:
        """The counters of the join."""
        join = self._two or self._more
        assert join is not None
        return join.stats

    def insert(self, number: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take in rows of a stream, and yield results."""
        if self._two is not None:
            return self._whole(self._two.insert("right" if number else "left", batch))
        assert self._more is not None
        return self._whole(self._more.insert(number, batch))

    def idle(self, budget: float | None = None) -> Iterator[pa.RecordBatch]:
        """Yield results of what is on disk; more than two streams have none before the end."""
        return iter(()) if self._two is None else self._whole(self._two.idle(budget))

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the results that are left, after all streams have ended."""
        join = self._two or self._more
        assert join is not None
        return self._whole(join.finish())

    def _whole(self, results: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The join has the key once, as the first stream calls it: the other streams get it back."""
        for out in results:
            key = out.column(self.on[0])
            columns = [key if name in self.on else out.column(name) for name in self.schema.names]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)
