"""HeldRows: the rows that the slots of a sample point to, as Arrow record batches that are compacted now and then."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from headrace.arrays import Int32s, Int64s
from headrace.memory import Reservation
from headrace.progressive.memory.lazy_arrays import LazyArrays
from headrace.progressive.memory.row_chunks import RowChunks
from headrace.row_copies import take

WASTE = 1.5  # rows are compacted when more than this times those in use are stored
_PIECE = 1 << 20  # bytes of rows that are copied at a time for a snapshot, roughly
_LEAST_WASTE = 1024  # rows that are stored beyond that without being compacted


class HeldRows:
    """The rows of the slots of a sample. A slot that is written again, or forgotten, leaves its row behind until it is compacted.

    Parameters
    ----------
    schema
        The schema of the rows.
    slots
        The number of slots.
    reservation
        Grows and shrinks with the bytes of the rows.
    most_bytes
        A chunk of rows takes about this many bytes at most.
    """

    def __init__(self, schema: pa.Schema, slots: int, reservation: Reservation, most_bytes: int) -> None:
        self.schema = schema
        self._reservation = reservation
        self._stored = 0  # rows, in use or not
        self._chunks = RowChunks(schema, LazyArrays(slots), reservation, most_bytes)

    @property
    def nbytes(self) -> int:
        """The bytes of all rows that are stored."""
        return self._reservation.nbytes

    def write(self, batch: pa.RecordBatch, rows: Int32s, slots: Int32s, held: int) -> None:
        """Copy rows of a batch, in ascending order, into slots; `held` slots will be in use. Slots may share a row."""
        if rows.size:
            self._chunks.insert(batch, rows, slots)
            self._stored += rows.size
        if self._stored > WASTE * held + _LEAST_WASTE:
            self.compact(held)

    def forget(self, slots: Int32s) -> None:
        """Forget the rows of slots."""
        self._chunks.remove(slots)

    def compact(self, held: int) -> None:
        """Free the rows that none of the `held` slots in use points to."""
        self._chunks.compact()
        self._stored = held

    def grow(self, slots: int) -> None:
        """Make room for more slots."""
        self._chunks.grow(LazyArrays(slots))

    def by_chunk(self, slots: Int32s) -> Int64s:
        """The order in which `rows_by_chunk` needs slots."""
        return self._chunks.by_chunk(slots)

    def rows(self, slots: Int32s) -> pa.RecordBatch:
        """The rows of slots, in their order."""
        order = self._chunks.by_chunk(slots)
        out = self._chunks.rows(slots[order])
        if (order[1:] > order[:-1]).all():
            return out
        back = np.empty(order.size, np.int64)
        back[order] = np.arange(order.size)
        return take(out, back)

    def pieces(self, slots: Int32s) -> Iterator[pa.RecordBatch]:
        """The rows of slots, in their order, a few at a time; an empty batch if there are none."""
        step = max(1, _PIECE * max(1, self._stored) // max(1, self.nbytes))
        for at in range(0, max(1, slots.size), step):
            yield self.rows(slots[at : at + step])

    def pairs_that_fit(self, batch: pa.RecordBatch, rows: Int32s, slots: Int32s, room: int) -> Iterator[slice]:
        """Divide pairs of a row of a batch and a slot, so that the rows of both take at most `room` bytes, or one pair more."""
        return self._chunks.pairs_that_fit(batch, rows, slots, room)

    def rows_by_chunk(self, slots: Int32s, columns: list[str] | None = None) -> pa.RecordBatch:
        """The rows of slots in the order of `by_chunk`, or some of their columns."""
        return self._chunks.rows(slots, columns)
