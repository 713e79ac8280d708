"""The stream buffer: record batches that were offered and that the join has not taken in yet."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from headrace.arrays import Bools, Float64s, Int64s, UInt64s
from headrace.relation import Sketch
from headrace.row_copies import POOL, take


class InputBuffer:
    """Offered stream tuples, in the order they came; each gets a number when it is taken in."""

    def __init__(self) -> None:
        self.rows = 0
        self.offered = 0  # tuples that ever came
        self.schema: pa.Schema | None = None  # of the stream
        self.tuple_bytes = 0.0  # v_S, by the first batch that has a tuple; 0 before it
        self._batches: list[pa.RecordBatch] = []
        self._times: list[float] = []  # when each batch came
        self._numbered = 0
        self.counts: Sketch | None = None  # how often each key was taken in lately, where a join measures that

    def add(self, batch: pa.RecordBatch, now: float) -> None:
        """Hold a batch that comes now."""
        self._batches.append(batch)
        self._times.append(now)
        self.rows += batch.num_rows
        self.offered += batch.num_rows

    def count_keys(self, hashes: UInt64s) -> None:
        """Count the keys of tuples that were taken, given by their hashes."""
        if self.counts is not None:
            self.counts.add(hashes, np.ones(hashes.size, np.int32))

    @property
    def oldest(self) -> float:
        """When the first tuple in it came; inf where there is none."""
        return self._times[0] if self._times else np.inf

    def take(self, count: int) -> tuple[pa.RecordBatch, Int64s, Float64s]:
        """The first tuples, their numbers, and when they came."""
        parts, times, left = [], [], count
        while left:
            batch, now = self._batches[0], self._times[0]
            if batch.num_rows <= left:
                parts.append(self._batches.pop(0))
                self._times.pop(0)
            else:
                parts.append(batch.slice(0, left))
                self._batches[0] = batch.slice(left)
            times.append(np.full(parts[-1].num_rows, now))
            left -= parts[-1].num_rows
        self.rows -= sum(part.num_rows for part in parts)
        one = len(parts) == 1
        return (
            parts[0] if one else pa.concat_batches(parts, memory_pool=POOL),
            self._numbers(count),
            np.concatenate(times),
        )

    def take_rows(self, rows: Int64s) -> tuple[pa.RecordBatch, Int64s]:
        """The tuples at these positions, ascending, and their numbers."""
        whole, oldest = pa.concat_batches(self._batches, memory_pool=POOL), self.oldest
        rest = np.setdiff1d(np.arange(whole.num_rows), rows, assume_unique=True)
        self._batches, self.rows = ([take(whole, rest)], rest.size) if rest.size else ([], 0)
        self._times = [oldest] * len(self._batches)
        return take(whole, rows), self._numbers(rows.size)

    def all_rows(self) -> pa.RecordBatch:
        """All tuples in it, which stay."""
        return pa.concat_batches(self._batches, memory_pool=POOL)

    def clear(self) -> Iterator[pa.RecordBatch]:
        """Give all tuples in it out, batch by batch."""
        self.rows = 0
        self._times.clear()
        while self._batches:
            yield self._batches.pop(0)

    def keep(self, mask: Bools) -> None:
        """Keep some of the tuples in it; the others never get a number."""
        ends = np.cumsum([0, *(batch.num_rows for batch in self._batches)])
        parts = [
            (batch.filter(pa.array(mask[a : a + batch.num_rows])), now)
            for batch, now, a in zip(self._batches, self._times, ends[:-1], strict=True)
        ]
        self._batches = [batch for batch, _ in parts if batch.num_rows]
        self._times = [now for batch, now in parts if batch.num_rows]
        self.rows = sum(batch.num_rows for batch in self._batches)

    def _numbers(self, count: int) -> Int64s:
        self._numbered += count
        return np.arange(self._numbered - count, self._numbered)
