"""64-bit hashes of rows that depend on their content and a seed alone, so that every process gets the same ones."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Int64s, UInt64s
from headrace.kernels.hashing import hash_strings
from headrace.relation.columns import address, from_arrow
from headrace.splitmix import GOLDEN, mix

_NULL = np.uint64(0xC2B2AE3D27D4EB4F)  # the hash of a null; arbitrary
_MASK = (1 << 64) - 1  # Python's integers do not wrap around by themselves


def row_hashes(batch: pa.RecordBatch | pa.Table, seed: int) -> UInt64s:
    """Return a hash of each row. The names of columns do not matter, their order does.

    Example
    -------
    >>> rows = pa.record_batch({"a": [1, 2, 1], "b": ["x", "y", "x"]})
    >>> words = row_hashes(rows, seed=1)
    >>> bool(words[0] == words[2]), bool(words[0] == words[1])
    (True, False)
    """
    start = np.uint64((seed * GOLDEN + batch.num_columns) & _MASK)
    words = np.full(batch.num_rows, start, np.uint64)
    for column in batch.columns:
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        words = mix((words + np.uint64(GOLDEN)) ^ _words(array))
    return words


def _words(array: pa.Array) -> UInt64s:
    t = pa.types
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if t.is_dictionary(array.type):
        array = array.dictionary_decode()
    if t.is_null(array.type):
        return np.full(len(array), _NULL, np.uint64)
    if t.is_struct(array.type):
        words = np.zeros(len(array), np.uint64)
        for child in array.flatten():
            words = mix((words + np.uint64(GOLDEN)) ^ _words(child))
    elif (
        t.is_map(array.type) or t.is_list(array.type) or t.is_large_list(array.type) or t.is_fixed_size_list(array.type)
    ):
        words = _of_lists(array)
    elif t.is_string(array.type) or t.is_binary(array.type) or _is_other_bytes(array.type):
        plain = array.cast(pa.binary()) if _is_other_bytes(array.type) else array
        buffers = from_arrow(plain)
        words = np.empty(len(array), np.uint64)
        hash_strings(address(buffers.values), buffers.offsets, words)
    else:
        words = _of_fixed(array)
    if array.null_count:
        words = np.where(np.asarray(pc.cast(array.is_valid(), pa.uint8())) == 1, words, _NULL)
    return words


def _is_other_bytes(type_: pa.DataType) -> bool:
    t = pa.types
    return bool(
        t.is_large_string(type_)
        or t.is_large_binary(type_)
        or t.is_string_view(type_)
        or t.is_binary_view(type_)
        or t.is_fixed_size_binary(type_)
    )


def _of_fixed(array: pa.Array) -> UInt64s:
    """Hash values of fixed width by their bytes, 8 at a time."""
    if len(array) == 0:
        return np.empty(0, np.uint64)
    values = from_arrow(array).values
    width = values.size // len(array)
    padded = -(-width // 8) * 8
    if padded != width:
        wide = np.zeros((len(array), padded), np.uint8)
        wide[:, :width] = values.reshape(-1, width)
        values = wide.reshape(-1)
    parts = np.ascontiguousarray(values).view(np.uint64).reshape(len(array), -1)
    words = np.zeros(len(array), np.uint64)
    for i in range(parts.shape[1]):
        words = mix((words + np.uint64(GOLDEN)) ^ parts[:, i])
    return words


def _of_lists(array: pa.Array) -> UInt64s:
    """Hash lists by their elements, the positions of these, and the length: a sum over a list is a difference of running sums."""
    starts, sizes, values = _stretches(array)
    elements = _words(values)
    owner = np.repeat(np.arange(len(array)), sizes)
    place = np.arange(owner.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    taken = np.repeat(starts, sizes) + place
    placed = mix(elements[taken] ^ mix(place.astype(np.uint64) + np.uint64(GOLDEN)))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(placed, dtype=np.uint64)])
    ends = np.cumsum(sizes)
    return mix(sums[ends] - sums[ends - sizes] + sizes.astype(np.uint64))


def _stretches(array: pa.Array) -> tuple[Int64s, Int64s, pa.Array]:
    """Return the start and the number of the elements of each list, and the array that has them."""
    sizes = np.asarray(pc.fill_null(pc.list_value_length(_as_list(array)), 0)).astype(np.int64)
    if pa.types.is_fixed_size_list(array.type):
        starts = (np.arange(len(array)) + array.offset) * array.type.list_size
        return starts, sizes, array.values
    offsets = np.asarray(array.offsets).astype(np.int64)
    if pa.types.is_map(array.type):
        values: pa.Array = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
    else:
        values = array.values
    return offsets[:-1], sizes, values


def _as_list(array: pa.Array) -> pa.Array:
    if not pa.types.is_map(array.type):
        return array
    return pa.ListArray.from_arrays(array.offsets, array.keys, mask=array.is_null() if array.null_count else None)
