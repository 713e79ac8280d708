"""PageResults: results copied from pages while these are in the read buffer, and sent out by the thousand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from headrace.arrays import Int32s, Int64s
from headrace.relation import Relation
from headrace.relation.columns import Column
from headrace.relation.store import StoreFull, TupleStore
from headrace.row_copies import cuts, row_sizes, take


class PageResults:
    """KeyPages of a stream row and a tuple of R; the tuple is copied from its page at once.

    Parameters
    ----------
    relation, payload
        The relation, and the columns of a tuple that a result has.
    batch, schema
        The stream rows, and the schema of results.
    rows, room
        Rows and bytes of a result batch; what was added at once may be that much more.
    """

    def __init__(
        self,
        relation: Relation,
        payload: Sequence[Column],
        batch: pa.RecordBatch,
        schema: pa.Schema,
        rows: int,
        room: int,
    ) -> None:
        self._payload = tuple(payload)
        self._batch = batch
        self._schema = schema
        self._most, self._room = rows, room
        self._sizes = row_sizes(batch)
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
        self._stream_bytes = 0  # of these rows

    @property
    def room(self) -> int:
        """How many pairs may be added at once; at least one."""
        return self._most - self._store.used or self._most

    def add(self, rows: Int32s, at: Int64s, tuples: Int32s) -> Iterator[pa.RecordBatch]:
        """Add pairs of a stream row, a page address and a row in the page; gives the batches that these make full."""
        sizes = self._sizes[rows]
        if self._stream_bytes + int(sizes.sum()) <= self._room:
            yield from self._add(rows, at, tuples)
            return
        for some in cuts(sizes, self._room):
            if self._stream_bytes + int(sizes[some].sum()) > self._room:
                yield from self.flush()
            yield from self._add(rows[some], at[some], tuples[some])

    def _add(self, rows: Int32s, at: Int64s, tuples: Int32s) -> Iterator[pa.RecordBatch]:
        if self._store.used + rows.size > self._most:
            yield from self.flush()
        try:
            self._store.append_from_pages(at, tuples)
        except StoreFull:  # longer texts than expected
            if self._rows:
                yield from self.flush()
                yield from self._add(rows, at, tuples)
                return
            half = rows.size // 2
            if not half:
                raise  # there is room for the longest text that a page has
            yield from self._add(rows[:half], at[:half], tuples[:half])
            yield from self._add(rows[half:], at[half:], tuples[half:])
            return
        self._rows.append(rows)
        self._stream_bytes += int(self._sizes[rows].sum())
        if self._stream_bytes + self._store.used_bytes > self._room:
            yield from self.flush()

    def flush(self) -> Iterator[pa.RecordBatch]:
        """The results that were added since the last flush, as one batch."""
        if self._rows:
            stream = take(self._batch, np.concatenate(self._rows))
            arrays = [self._store.array(i) for i in range(len(self._payload))]
            if len(self._schema) > len(stream.columns) + len(arrays):  # a mark: these have a match
                arrays.append(pa.repeat(pa.scalar(True), stream.num_rows))
            yield pa.RecordBatch.from_arrays([*stream.columns, *arrays], schema=self._schema)
            self._begin()
