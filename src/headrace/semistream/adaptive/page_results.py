"""PageResults: results copied from pages while these are in the read buffer, and sent out by the thousand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from headrace.arrays import Int32s, Int64s
from headrace.relation import Relation
from headrace.relation.columns import Column
from headrace.relation.store import StoreFull, TupleStore


class PageResults:
    """KeyPages of a stream row and a tuple of R; the tuple is copied from its page at once.

    Parameters
    ----------
    relation, payload
        The relation, and the columns of a tuple that a result has.
    batch, schema
        The stream rows, and the schema of results.
    rows
        Rows of a result batch at most.
    """

    def __init__(
        self, relation: Relation, payload: Sequence[Column], batch: pa.RecordBatch, schema: pa.Schema, rows: int
    ) -> None:
        self._payload = tuple(payload)
        self._batch = batch
        self._schema = schema
        self._most = rows
        total = max(1, relation.num_rows)
        self._data = {
            c.name: int(1.1 * rows * relation.variable_bytes[c.name] / total) + relation.page_size
            for c in self._payload
            if c.width == 0
        }
        self._begin()

    def _begin(self) -> None:
        # A new store every time: the batch that goes out lies in it.
        self._store = TupleStore(self._payload, self._most, self._data)
        self._rows: list[Int32s] = []

    @property
    def room(self) -> int:
        """How many pairs may be added at once; at least one."""
        return self._most - self._store.used or self._most

    def add(self, rows: Int32s, at: Int64s, tuples: Int32s) -> Iterator[pa.RecordBatch]:
        """Add pairs of a stream row, a page address and a row in the page; gives the batch before them if they do not fit it."""
        if self._store.used + rows.size > self._most:
            yield from self.flush()
        try:
            self._store.append_from_pages(at, tuples)
        except StoreFull:  # longer texts than expected
            yield from self.flush()
            while True:
                try:
                    self._store.append_from_pages(at, tuples)
                    break
                except StoreFull:
                    self._data = {name: 2 * size for name, size in self._data.items()}
                    self._begin()
        self._rows.append(rows)

    def flush(self) -> Iterator[pa.RecordBatch]:
        """The results that were added since the last flush, as one batch."""
        if self._rows:
            stream = self._batch.take(pa.array(np.concatenate(self._rows)))
            arrays = [self._store.array(i) for i in range(len(self._payload))]
            if len(self._schema) > len(stream.columns) + len(arrays):  # a mark: these have a match
                arrays.append(pa.repeat(pa.scalar(True), stream.num_rows))
            yield pa.RecordBatch.from_arrays([*stream.columns, *arrays], schema=self._schema)
            self._begin()
