"""Items of feeds as rows: the columns of ``rss('url')``, and what makes two items the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.arrays import AnyArray, UInt64s
from headrace.errors import UnsupportedType
from headrace.kernels.row_hashes import hash_rows, hash_values

MOMENT = pa.timestamp("us", "UTC")
BOX = pa.struct([(side, pa.float64()) for side in ("xmin", "ymin", "xmax", "ymax")])
"""x is the longitude, y the latitude, in degrees."""

ITEM_SCHEMA = pa.schema(
    [
        ("guid", pa.string()),
        ("link", pa.string()),
        ("title", pa.string()),
        ("description", pa.string()),
        ("author", pa.string()),
        ("category", pa.list_(pa.string())),
        ("pubDate", MOMENT),
        ("updated", MOMENT),
        ("geoLat", pa.float64()),
        ("geoLong", pa.float64()),
        ("box", BOX),
        ("elev", pa.float64()),
        ("feed", pa.string()),
        ("seen", MOMENT),
    ]
)

PLACE = pa.struct(
    [("alias", pa.string()), ("title", pa.string()), ("lat", pa.float64()), ("long", pa.float64()), ("box", BOX)]
)
RESULT_COLUMNS = (pa.field("_id", pa.binary(16)), pa.field("_places", pa.list_(PLACE)))
"""What a result has beside the columns that were selected: its identity, and the places of its items on a map."""

_HASH = 16  # bytes: among a billion items two have the same hash with a chance of 1 in 10^21
# Seeds of hashes, so that a guid and a link with the same text are not the same item. They are kept for ever.
_GUID, _LINK, _CONTENT = 1, 2, 3
_SAID = [name for name in ITEM_SCHEMA.names if name not in ("feed", "seen")]


def identities(items: pa.RecordBatch) -> pa.Array:
    """The identity of each item in its feed: its guid, else its link, else its title, description and date.

    The same item has the same identity on every machine, in every release.
    """
    found = _row_hashes([items.column(name) for name in ("title", "description", "pubDate")], _CONTENT)
    for name, seed in (("link", _LINK), ("guid", _GUID)):
        column = items.column(name)
        named = _row_hashes([column], seed)
        present = _valid(column) & (_lengths(column) > 0)
        found = np.where(present[:, None], named, found)
    return _binary(found)


def contents(items: pa.RecordBatch) -> pa.Array:
    """A hash of all that an item says: of everything but where and when it was seen."""
    return row_hashes([items.column(name) for name in _SAID])


def row_hashes(columns: Sequence[pa.Array]) -> pa.Array:
    """16-byte hashes of rows of texts, bytes, numbers, moments, lists and structs, the same for ever; null is not an empty text.

    Example
    -------
    >>> import pyarrow as pa
    >>> len(set(row_hashes([pa.array(["a", "", None])]).to_pylist()))
    3
    """
    return _binary(_row_hashes(columns, 0))


def _binary(words: UInt64s) -> pa.Array:
    little = np.ascontiguousarray(words, "<u8")
    return pa.Array.from_buffers(pa.binary(_HASH), len(words), [None, pa.py_buffer(little)])


def _row_hashes(columns: Sequence[pa.Array], seed: int) -> UInt64s:
    """Two words a row: the hash of the hashes of its columns."""
    n = len(columns[0])
    if not n:
        return np.empty((0, 2), np.uint64)
    flat = [leaf for column in columns for leaf in _leaves(column)]
    words = np.empty(n * 2 * len(flat), np.uint64)
    for k, leaf in enumerate(flat):
        _hash_into(leaf, k, len(flat), words)
    out = np.empty(2 * n, np.uint64)
    hash_rows(words, 2 * len(flat), seed, out)
    return out.reshape(-1, 2)


def _leaves(column: pa.Array) -> list[pa.Array]:
    """A column without structs: their fields, null where the struct is."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return (
        [leaf for part in column.flatten() for leaf in _leaves(part)] if pa.types.is_struct(column.type) else [column]
    )


def _hash_into(column: pa.Array, k: int, columns: int, words: UInt64s) -> None:
    """Write the hashes of a column to its place in the rows."""
    type_, valid = column.type, _valid(column)
    if pa.types.is_list(type_):
        offsets = np.asarray(column.offsets).astype(np.int64)
        values = (
            np.ascontiguousarray(_row_hashes([column.values], 0), "<u8") if len(column.values) else np.zeros(2, "<u8")
        )
        hash_values(values.ctypes.data, _HASH * offsets, valid, 0, k, columns, words)
    elif pa.types.is_string(type_) or pa.types.is_binary(type_):
        _, offsets_, data = column.buffers()
        address = data.address if data is not None and data.size else 0
        hash_values(address, _offsets(column, offsets_), valid, 0, k, columns, words)
    elif pa.types.is_fixed_size_binary(type_):
        width, start = type_.byte_width, column.offset
        offsets = np.arange(start, start + len(column) + 1) * width
        hash_values(column.buffers()[1].address, offsets, valid, 0, k, columns, words)
    elif pa.types.is_primitive(type_):
        values = _eight_bytes(column)
        hash_values(values.ctypes.data, np.arange(len(column) + 1) * 8, valid, 0, k, columns, words)
    else:
        raise UnsupportedType(
            f"a column of type {type_} has no hash; select texts, numbers, moments, lists or structs of them"
        )


def _eight_bytes(column: pa.Array) -> AnyArray:
    """Numbers as doubles, everything else as whole numbers, of eight bytes each, the least first."""
    if column.type.bit_width == 64:
        # As they lie there; what a null has in its place is not looked at. Zero has no sign.
        values = np.frombuffer(column.buffers()[1], "<f8" if pa.types.is_floating(column.type) else "<i8")
        values = values[column.offset : column.offset + len(column)]
        return values + 0.0 if pa.types.is_floating(column.type) else values
    if pa.types.is_floating(column.type):
        return np.ascontiguousarray(column.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False) + 0.0, "<f8")
    if pa.types.is_date32(column.type) or pa.types.is_time32(column.type):
        column = column.cast(pa.int32())
    return np.ascontiguousarray(column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False), "<i8")


def _valid(column: pa.Array) -> AnyArray:
    """1 for each value, 0 for each null; straight from the bitmap, as a batch of fifty items is made of a dozen columns."""
    bitmap = column.buffers()[0]
    if bitmap is None:
        return np.ones(len(column), np.uint8)
    bits = np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little")
    return bits[column.offset : column.offset + len(column)]


def _offsets(column: pa.Array, buffer: pa.Buffer) -> AnyArray:
    return np.frombuffer(buffer, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)


def _lengths(column: pa.Array) -> AnyArray:
    if not len(column):
        return np.empty(0, np.int64)
    return np.diff(_offsets(column, column.buffers()[1]))
