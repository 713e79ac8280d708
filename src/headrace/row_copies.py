"""Copies of rows: where their bytes come from, and how many they are.

What is made of rows is cut by the bytes of each, since a few of them may take more than all others together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Int32s, Int64s

#: Where copies come from. Arrow's own pool keeps freed memory for later use: with copies that come and go, three times what is
#: in use, and more where they are large.
POOL = pa.system_memory_pool()


def take(batch: pa.RecordBatch, rows: Int32s | Int64s) -> pa.RecordBatch:
    """A copy of some rows of a batch."""
    return pc.take(batch, pa.array(rows), memory_pool=POOL)


def copied_bytes(batch: pa.RecordBatch, rows: Int32s | Int64s | None = None) -> int:
    """The bytes of a copy of a batch, or of some of its rows, at most.

    A copy may have a validity bitmap where the batch has none.
    """
    many, nbytes = (batch.num_rows, batch.nbytes) if rows is None else (rows.size, row_sizes(batch, rows).sum())
    return int(nbytes + batch.num_columns * (many // 8 + 64))


def row_sizes(batch: pa.RecordBatch, rows: Int32s | Int64s | None = None) -> Int64s:
    """The bytes of each row of a batch in a copy of it, or of some rows by their numbers.

    Example
    -------
    >>> row_sizes(pa.record_batch({"k": [1, 2], "t": ["", "four"]})).tolist()
    [12, 16]
    """
    total = np.zeros(batch.num_rows if rows is None else rows.size, np.int64)
    for column in batch.columns:
        total += column_sizes(column) if rows is None else column_sizes(column, rows)
    return total


def largest_row(batch: pa.RecordBatch) -> int:
    """No row of a batch takes more bytes than this: the largest value of each column, added up."""
    return sum(int(np.max(column_sizes(column), initial=0)) for column in batch.columns)


def column_sizes(column: pa.Array, rows: Int32s | Int64s | None = None) -> Int64s | int:
    """The bytes of each value of a column, of some of them by their numbers; or one number, if all take as much."""
    type_, n = column.type, len(column)
    if pa.types.is_dictionary(type_):  # the values are shared
        return column_sizes(column.indices, rows)
    width = _offset_width(type_)
    if width and n:
        offsets = np.frombuffer(column.buffers()[1], f"i{width}")[column.offset : column.offset + n + 1]
        ends: Any = _list_ends(column, offsets) if type_.num_fields else offsets
        sizes: Int64s = np.diff(ends) if rows is None else ends[np.add(rows, 1)] - ends[rows]
        return sizes.astype(np.int64) + width
    if pa.types.is_primitive(type_) or pa.types.is_fixed_size_binary(type_):
        return max(1, int(type_.bit_width) // 8)
    if pa.types.is_struct(type_):
        fields = [column_sizes(field, rows) for field in column.flatten()]
        return sum(fields[1:], start=fields[0]) if fields else 0
    # Of other types the mean must do; of no values, nothing.
    return int(column.nbytes) // max(1, n) + 1 if n else 0


def _offset_width(type_: pa.DataType) -> int:
    """The bytes of an offset, for types whose values lie between two offsets; else 0."""
    t = pa.types
    if t.is_string(type_) or t.is_binary(type_) or t.is_list(type_) or t.is_map(type_):
        return 4
    return 8 if t.is_large_string(type_) or t.is_large_binary(type_) or t.is_large_list(type_) else 0


def _list_ends(column: Any, offsets: Any) -> Int64s:
    """Where the items of each list end, in bytes of all items."""
    items = column.values
    if pa.types.is_map(column.type):
        items = pa.StructArray.from_arrays([column.keys, column.items], names=["key", "item"])
    sizes = column_sizes(items)
    ends = np.zeros(len(items) + 1, np.int64)
    ends[1:] = np.cumsum(np.broadcast_to(sizes, len(items)))
    found: Int64s = ends[offsets]
    return found


def cuts(sizes: Int64s, room: int) -> Iterator[slice]:
    """Neighbours that take at most `room` bytes together, or one that takes more alone.

    Example
    -------
    >>> list(cuts(np.array([3, 3, 3, 9, 1]), 6))
    [slice(0, 2, None), slice(2, 3, None), slice(3, 4, None), slice(4, 5, None)]
    """
    ends = np.cumsum(sizes)
    at = 0
    while at < sizes.size:
        before = int(ends[at - 1]) if at else 0
        end = max(at + 1, int(np.searchsorted(ends, before + room, side="right")))
        yield slice(at, end)
        at = end
