"""The stream buffer: record batches that were offered and that the join has not taken in yet."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.arrays import Int64s


class InputBuffer:
    """Offered stream tuples, in the order they came; each gets a number when it is taken in."""

    def __init__(self) -> None:
        self.rows = 0
        self.schema: pa.Schema | None = None  # of the stream
        self.tuple_bytes = 0.0  # v_S, by the first batch that has a tuple; 0 before it
        self._batches: list[pa.RecordBatch] = []
        self._numbered = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Hold a batch."""
        self._batches.append(batch)
        self.rows += batch.num_rows

    def take(self, count: int) -> tuple[pa.RecordBatch, Int64s]:
        """The first tuples, and their numbers."""
        parts, left = [], count
        while left:
            batch = self._batches[0]
            if batch.num_rows <= left:
                parts.append(self._batches.pop(0))
            else:
                parts.append(batch.slice(0, left))
                self._batches[0] = batch.slice(left)
            left -= parts[-1].num_rows
        self.rows -= sum(part.num_rows for part in parts)
        return (parts[0] if len(parts) == 1 else pa.concat_batches(parts)), self._numbers(count)

    def take_rows(self, rows: Int64s) -> tuple[pa.RecordBatch, Int64s]:
        """The tuples at these positions, ascending, and their numbers."""
        whole = pa.concat_batches(self._batches)
        rest = np.setdiff1d(np.arange(whole.num_rows), rows, assume_unique=True)
        self._batches, self.rows = [whole.take(pa.array(rest))], rest.size
        return whole.take(pa.array(rows)), self._numbers(rows.size)

    def _numbers(self, count: int) -> Int64s:
        self._numbered += count
        return np.arange(self._numbered - count, self._numbered)
