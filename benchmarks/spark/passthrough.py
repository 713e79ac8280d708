"""The limit: what a join in Python could reach at most. Columns go to Python and back, nothing is looked up.

In a module of its own that the workers import, so that the payload is made once a worker and not once a task.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.data import Dataset, columns_of
from benchmarks.systems.base import OUTPUT

PAYLOAD_ROWS = 100_000  # as many as Spark sends at a time


def narrow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The stream's own columns, unchanged."""
    return batches


def wide(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The stream's columns with the columns of some rows of R beside them: what a join returns."""
    payload = _payload()
    for batch in batches:
        for start in range(0, batch.num_rows, PAYLOAD_ROWS):
            part = batch.slice(start, PAYLOAD_ROWS)
            columns = [c.slice(0, part.num_rows) for c in payload]
            yield pa.record_batch([*part.columns, *columns], schema=OUTPUT)


@cache
def _payload() -> list[pa.Array]:
    return columns_of(Dataset(PAYLOAD_ROWS, 0, Path()).values(np.arange(PAYLOAD_ROWS, dtype=np.int64)))
