"""A multiset of rows, compared by content: a replay finds the rows of a decision among its own, in whatever order they come."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Bools, Int64s
from headrace.errors import RunLogError


class RowMultiset:
    """A multiset of rows, each of which is taken out once.

    Rows are equal if all their values are, bit by bit: nulls are equal, so are NaNs of the same bits, 0.0 and -0.0 are not.

    Parameters
    ----------
    rows
        The rows that are in it. They are held in memory.

    Example
    -------
    >>> import pyarrow as pa
    >>> from headrace.runlog import RowMultiset
    >>> waiting = RowMultiset(pa.table({"k": [1, 1, 2]}))
    >>> waiting.take(pa.record_batch({"k": [1, 2, 3, 1, 1]})).tolist()
    [True, True, False, True, False]
    >>> waiting.left
    0
    """

    def __init__(self, rows: pa.Table) -> None:
        self.left = rows.num_rows
        self._rows = rows.combine_chunks()
        if self.left:
            _, first, counts = np.unique(_code(self._rows.columns, self.left), return_index=True, return_counts=True)
            self._rows, self._counts = self._rows.take(pa.array(first)), counts.astype(np.int64)

    def take(self, batch: pa.RecordBatch) -> Bools:
        """Say which rows of a batch are in the multiset, and take them out: of equal rows no more are found than it holds."""
        if not self.left or not batch.num_rows:
            return np.zeros(batch.num_rows, np.bool_)
        if not batch.schema.equals(self._rows.schema):
            raise RunLogError(
                f"rows have columns {_named(batch.schema)}, decided ones have {_named(self._rows.schema)}"
            )
        n = self._rows.num_rows
        both = pa.concat_tables([self._rows, pa.Table.from_batches([batch])]).combine_chunks()
        codes = _code(both.columns, n + batch.num_rows)
        room = np.zeros(int(codes.max()) + 1, np.int64)
        room[codes[:n]] = self._counts
        mine = codes[n:]
        order = np.argsort(mine, kind="stable")
        starts = np.flatnonzero(np.diff(mine[order], prepend=-1))
        nth = np.empty(mine.size, np.int64)  # how many equal rows come before each row
        nth[order] = np.arange(mine.size) - np.repeat(starts, np.diff(starts, append=mine.size))
        taken: Bools = nth < room[mine]
        np.subtract.at(room, mine[taken], 1)
        self._counts = room[codes[:n]]
        self.left -= int(taken.sum())
        return taken


def _named(schema: pa.Schema) -> str:
    return ", ".join(f"{f.name} {f.type}" for f in schema)


def _code(columns: list[pa.ChunkedArray], rows: int) -> Int64s:
    """Number the rows so that equal rows, and only those, have equal numbers."""
    codes: Int64s = np.zeros(rows, np.int64)
    for column in columns:
        codes = _combine(codes, _numbers(_one(column)))
    return codes


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _combine(a: Int64s, b: Int64s) -> Int64s:
    # Numbers are made dense at each step, since the product of many columns would overflow.
    together = a * (int(b.max(initial=0)) + 1) + b
    dense: Int64s = np.unique(together, return_inverse=True)[1].astype(np.int64)
    return dense


def _numbers(array: pa.Array) -> Int64s:
    """Number the values so that equal values, and only those, have equal numbers."""
    type_ = array.type
    if isinstance(type_, pa.BaseExtensionType):
        return _numbers(array.storage)
    if pa.types.is_null(type_):
        return np.zeros(len(array), np.int64)
    if pa.types.is_dictionary(type_):
        return _numbers(array.dictionary_decode())
    if pa.types.is_struct(type_):
        codes = _valid(array)
        for part in array.flatten():
            codes = _combine(codes, _numbers(part))
        return codes
    if pa.types.is_nested(type_):
        return _combine(_valid(array), _lists(array))
    if pa.types.is_floating(type_):
        array = array.view({16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[type_.bit_width])
    return np.asarray(array.dictionary_encode(null_encoding="encode").indices).astype(np.int64)


def _valid(array: pa.Array) -> Int64s:
    return np.asarray(array.is_valid()).astype(np.int64)


def _lists(array: pa.Array) -> Int64s:
    """Number lists and maps: their values are numbered, and the bytes of those numbers are compared."""
    if pa.types.is_map(array.type):
        entry = pa.struct([pa.field("key", array.type.key_type), pa.field("item", array.type.item_type)])
        array = array.cast(pa.list_(entry))
    lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0)).astype(np.int64)
    values = _numbers(array.flatten())
    offsets = np.concatenate([[0], np.cumsum(8 * lengths)]).astype(np.int64)
    texts = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(array), [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(values.tobytes())]
    )
    return np.asarray(texts.dictionary_encode().indices).astype(np.int64)
