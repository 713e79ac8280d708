"""The rows of one side that are in memory, as Arrow record batches that slots point into."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Int32s, Int64s
from headrace.memory import Reservation, trim_malloc
from headrace.progressive.memory.lazy_arrays import LazyArrays
from headrace.row_copies import POOL, cuts, largest_row, row_sizes, take


@dataclass(slots=True)
class Chunk:
    """Rows that lie in one record batch."""

    rows: pa.RecordBatch
    slots: Int32s
    """the slots of its rows when it was made; a slot that has left memory since belongs to another chunk, or to none"""
    largest_row: int
    """no row takes more bytes than this"""


class RowChunks:
    """The rows of one side, copied from the input. A slot has the number of its chunk and the number of its row in the chunk.

    Parameters
    ----------
    schema
        The schema of the rows.
    arrays
        Where the numbers of each slot are allocated.
    tuples
        The reservation that grows and shrinks with the bytes of the rows.
    most_bytes
        Two chunks are merged only if they take at most this many bytes together.
    """

    def __init__(self, schema: pa.Schema, arrays: LazyArrays, tuples: Reservation, most_bytes: int) -> None:
        self.schema = schema
        self._tuples = tuples
        self._most_bytes = most_bytes
        self._chunks: dict[int, Chunk] = {}
        self._next = 0
        self._freed = 0  # bytes of rows that were freed since malloc was last asked to return them
        self._chunk, self._row = arrays.allocate(np.int32), arrays.allocate(np.int32)  # of each slot

    @property
    def row_bytes(self) -> int:
        """The bytes of a row, on average."""
        rows: int = sum(chunk.rows.num_rows for chunk in self._chunks.values())
        return self._tuples.nbytes // max(1, rows) + 1

    @property
    def largest_row(self) -> int:
        """No row takes more bytes than this."""
        return max((chunk.largest_row for chunk in self._chunks.values()), default=0)

    # -- changes ---------------------------------------------------------------------------------------------------------

    def insert(self, batch: pa.RecordBatch, rows: Int32s, slots: Int32s) -> None:
        """Copy rows of a batch, given by their numbers in ascending order, for their slots. Slots may share a row."""
        first = np.ones(rows.size, np.bool_)
        np.not_equal(rows[1:], rows[:-1], out=first[1:])
        kept = take(batch, rows[first])
        self._row[slots] = np.cumsum(first) - 1
        self._chunks[self._next] = Chunk(kept, slots, largest_row(kept))
        self._chunk[slots] = self._next
        self._next += 1
        self._tuples.resize(self._tuples.nbytes + kept.nbytes)
        self._merge()

    def grow(self, arrays: LazyArrays) -> None:
        """Allocate the numbers of more slots elsewhere; those that there are keep theirs."""
        for name in ("_chunk", "_row"):
            old, new = getattr(self, name), arrays.allocate(np.int32)
            new[: old.size] = old
            setattr(self, name, new)

    def remove(self, slots: Int32s) -> None:
        """Forget slots. Rows that no slot points to any more take memory until `compact`."""
        self._chunk[slots] = -1

    def clear(self) -> None:
        """Free all rows, for good."""
        self._chunks.clear()
        self._tuples.release()

    def compact(self) -> None:
        """Rewrite the chunks that have lost rows."""
        for name, chunk in list(self._chunks.items()):
            chunk.slots = chunk.slots[self._chunk[chunk.slots] == name]
            rows = self._row[chunk.slots]
            used = np.zeros(chunk.rows.num_rows, np.bool_)
            used[rows] = True
            kept = np.flatnonzero(used)
            if kept.size == chunk.rows.num_rows:
                continue
            before = chunk.rows.nbytes
            if kept.size:
                self._row[chunk.slots] = (np.cumsum(used) - 1)[rows]
                chunk.rows = take(chunk.rows, kept)
                chunk.largest_row = largest_row(chunk.rows)
            else:
                del self._chunks[name]
            after = chunk.rows.nbytes if kept.size else 0
            self._tuples.resize(self._tuples.nbytes - before + after)
            self._return_freed(before)
        self._merge(everywhere=True)

    def renumber(self, live: Int32s, number: Int32s) -> None:
        """Give slot live[i] the number i; `number` is the inverse, and -1 for slots that are not in use."""
        for name, chunk in self._chunks.items():
            chunk.slots = number[chunk.slots[self._chunk[chunk.slots] == name]]
        for array in (self._chunk, self._row):
            array[: live.size] = array[live]

    def _merge(self, everywhere: bool = False) -> None:
        """Merge chunks that are small beside their successor, so that each row is copied a few times and chunks stay few.

        It begins with the newest chunk and ends at the first that is large enough, or goes on to the oldest with `everywhere`.
        """
        names = list(self._chunks)
        at = len(names) - 1
        while at > 0:
            old, new = self._chunks[names[at - 1]], self._chunks[names[at]]
            small = old.rows.nbytes + new.rows.nbytes <= self._most_bytes
            if not small or (old.rows.num_rows >= 2 * new.rows.num_rows and not everywhere):
                if not everywhere:
                    return
                at -= 1
                continue
            slots = new.slots[self._chunk[new.slots] == names[at]]
            older = old.slots[self._chunk[old.slots] == names[at - 1]]
            self._row[slots] += old.rows.num_rows
            self._chunk[slots] = names[at - 1]
            before = old.rows.nbytes + new.rows.nbytes
            del self._chunks[names[at]]
            old.rows = pa.concat_batches([old.rows, new.rows], memory_pool=POOL)
            old.slots, old.largest_row = np.concatenate([older, slots]), max(old.largest_row, new.largest_row)
            self._tuples.resize(self._tuples.nbytes - before + old.rows.nbytes)
            names.pop(at)
            at -= 1
            if everywhere:
                self._return_freed(before)

    def _return_freed(self, nbytes: int) -> None:
        """Let malloc return what was freed, a chunk's worth at a time: what it keeps comes on top of the new chunks."""
        self._freed += nbytes
        if self._freed >= self._most_bytes:
            trim_malloc()
            self._freed = 0

    # -- reading ---------------------------------------------------------------------------------------------------------

    def by_chunk(self, slots: Int32s) -> Int64s:
        """The order that puts slots of one chunk together, as `rows` needs them."""
        return np.argsort(self._chunk[slots], kind="stable")

    def pairs_that_fit(self, batch: pa.RecordBatch, rows: Int32s, slots: Int32s, room: int) -> Iterator[slice]:
        """Divide pairs of a row of a batch and a slot, so that the rows of both take at most `room` bytes, or one pair more.

        The slots are in the order of `by_chunk`. How many pairs fit cannot be told from the mean of all rows: rows that have
        many partners, or are long, may be the ones that meet.
        """
        if rows.size * (largest_row(batch) + self.largest_row) <= room:
            return iter([slice(0, rows.size)])
        theirs = np.concatenate([row_sizes(chunk, at) for chunk, at in self._by_chunk(slots)])
        return cuts(row_sizes(batch, rows) + theirs, room)

    def _by_chunk(self, slots: Int32s) -> Iterator[tuple[pa.RecordBatch, Int32s]]:
        """The chunks of slots that are in the order of `by_chunk`, and their rows there."""
        chunks = self._chunk[slots]
        first = np.flatnonzero(np.diff(chunks, prepend=-1))
        for name, rows in zip(chunks[first].tolist(), np.split(self._row[slots], first[1:]), strict=True):
            yield self._chunks[name].rows, rows

    def rows(self, slots: Int32s, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The rows of slots, or some of their columns. The slots must be in the order of `by_chunk`."""
        if not slots.size:
            schema = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
            return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
        parts: list[Any] = [
            take(chunk if columns is None else chunk.select(list(columns)), rows)
            for chunk, rows in self._by_chunk(slots)
        ]
        return parts[0] if len(parts) == 1 else pa.concat_batches(parts, memory_pool=POOL)
