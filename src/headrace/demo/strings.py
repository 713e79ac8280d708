"""Columns of strings made from bytes, and hashed, without a Python object per row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Int64s, UInt8s, UInt64s
from headrace.splitmix import draw

_WORD = 8  # bytes of a 64-bit word
_NULL = np.uint64(0xD1B54A32D192ED03)  # the fingerprint of a null; arbitrary


def strings(rows: UInt8s, lengths: Int64s) -> pa.StringArray:
    """Make a column of strings from a matrix of bytes: string i is the first lengths[i] bytes of row i.

    Example:
        >>> rows = np.frombuffer(b"abcxyz", np.uint8).reshape(2, 3)
        >>> strings(rows, np.array([3, 1])).to_pylist()
        ['abc', 'x']
    """
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    data = rows[np.arange(rows.shape[1]) < lengths[:, None]]
    return pa.StringArray.from_buffers(len(rows), pa.py_buffer(offsets), pa.py_buffer(data))


def fingerprints(column: pa.Array) -> UInt64s:
    """Return a 64-bit hash of each value of an integer or string column. All nulls have one hash of their own.

    Example:
        >>> a, b, c, d = fingerprints(pa.array(["bolt", "nut", "bolt", None]))
        >>> bool(a == c), len({int(a), int(b), int(d)})
        (True, 3)
    """
    known = ~np.asarray(column.is_null())
    if pa.types.is_integer(column.type):
        words = np.asarray(pc.fill_null(column, 0)).astype(np.int64).view(np.uint64)
        return np.where(known, words, _NULL)
    words, lengths = _words(pc.fill_null(column.cast(pa.string()), ""))
    # A sum over the words of a string: padding adds zeros, so the result does not depend on the longest string of the batch.
    factors = draw(0, 0, np.arange(words.shape[1])) | np.uint64(1)
    return np.where(known, (words * factors).sum(axis=1) + lengths.astype(np.uint64), _NULL)


def _words(column: pa.StringArray) -> tuple[UInt64s, Int64s]:
    """Return the bytes of each string as words, padded with zeros, and the lengths of the strings."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    lengths = np.diff(offsets).astype(np.int64)
    width = max(1, -(-int(lengths.max(initial=0)) // _WORD)) * _WORD
    rows = np.zeros((len(column), width), np.uint8)
    if lengths.any():
        data = np.frombuffer(column.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
        rows[np.arange(width) < lengths[:, None]] = data
    return rows.view(np.uint64), lengths
