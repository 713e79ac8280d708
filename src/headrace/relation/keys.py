"""Keys in two forms, and the codec that converts between them and Arrow columns.

The key of one integer-like column (integers, dates, timestamps, decimals of up to 18 digits) is a 64-bit integer. Any other key
is a byte string whose memcmp order is the key's order: strings and binary as they are, composites and wide decimals encoded by
kernels.keys. Both forms have the same methods, so callers need not know which they have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import AnyArray, Bools, Int32s, Int64s, UInt8s, UInt64s
from headrace.errors import BadInput, DamagedRelation, UnsupportedType, shown
from headrace.kernels import hashing, index, pages, store, unique
from headrace.kernels import keys as kernels
from headrace.relation.columns import NO_BYTES, Buffers, address, decoded, from_arrow, plain_type, to_arrow

_LONGEST_INT_DECIMAL = 18  # digits of a decimal that always fits into 64 bits


@dataclass(frozen=True, slots=True)
class IntKeys:
    """Keys that are 64-bit integers."""

    values: Int64s

    def __len__(self) -> int:
        return self.values.size

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    def take(self, rows: AnyArray) -> IntKeys:
        return IntKeys(self.values[rows])

    def slice(self, start: int, stop: int) -> IntKeys:
        return IntKeys(self.values[start:stop])

    def argsort(self, *, nearly_sorted: bool = False) -> Int64s:
        """Return a stable order: NumPy's vectorised sort made stable is several times faster than its stable sort.

        Of keys half of which lie in a few sorted runs the stable sort, which merges runs, is the faster one.
        """
        if nearly_sorted:
            return np.argsort(self.values, kind="stable")
        order = np.argsort(self.values)
        hashing.stabilise(self.values, order)
        return order

    def hashes(self) -> UInt64s:
        out = np.empty(self.values.size, np.uint64)
        hashing.hash_ints(self.values, out)
        return out

    def repeats(self) -> UInt8s:
        """Return 1 where a key equals the one before it, else 0."""
        out = np.zeros(self.values.size, np.uint8)
        np.equal(self.values[1:], self.values[:-1], out=out[1:].view(np.bool_))
        return out

    def unique(self, valid: UInt8s, hashes: UInt64s, scratch: tuple[Int32s, ...]) -> int:
        return int(unique.unique_ints(self.values, valid, hashes, *scratch))

    def locate(self, fence: IntKeys, continues: UInt8s, low: Int32s, high: Int32s) -> None:
        index.locate_ints(fence.values, continues, self.values, low, high)

    def equal_at(self, others: IntKeys, at: Int32s) -> Bools:
        """Tell whether key i equals others[at[i]]; an `at` of -1 is never equal."""
        if len(others) == 0:
            return np.zeros(at.size, np.bool_)
        same: Bools = others.values[np.maximum(at, 0)] == self.values
        return same & (at >= 0)

    def find(self, page_addresses: Int64s, which: Int32s, low: Int32s, high: Int32s) -> int:
        return int(pages.find_ints(page_addresses, self.values[which], low, high))

    def probe(self, stores: Int64s, hashes: UInt64s, src: Int32s, pos: Int32s, count: Int32s) -> int:
        """Look up keys without a source in stores, which are described by rows of addresses."""
        return int(store.probe_ints(stores, hashes, self.values, src, pos, count))

    def buffers(self) -> Buffers:
        return Buffers(self.values.view(np.uint8), np.empty(0, np.int64), NO_BYTES)


@dataclass(frozen=True, slots=True)
class ByteKeys:
    """Keys that are byte strings: key i is data[offsets[i] : offsets[i + 1]]."""

    data: UInt8s
    offsets: Int64s

    def __len__(self) -> int:
        return self.offsets.size - 1

    @property
    def nbytes(self) -> int:
        return int(self.offsets[-1] - self.offsets[0]) + self.offsets.nbytes

    def take(self, rows: AnyArray) -> ByteKeys:
        rows = np.ascontiguousarray(rows, dtype=np.int64)
        offsets = np.zeros(rows.size + 1, np.int64)
        np.cumsum(self.offsets[rows + 1] - self.offsets[rows], out=offsets[1:])
        data = np.empty(int(offsets[-1]), np.uint8)
        kernels.take_strings(address(self.data), self.offsets, rows, address(data), offsets)
        return ByteKeys(data, offsets)

    def slice(self, start: int, stop: int) -> ByteKeys:
        return ByteKeys(self.data, self.offsets[start : stop + 1])

    def argsort(self, *, nearly_sorted: bool = False) -> Int64s:
        array = pa.Array.from_buffers(
            pa.large_binary(), len(self), [None, pa.py_buffer(self.offsets), pa.py_buffer(self.data)]
        )
        return np.asarray(pc.array_sort_indices(array)).astype(np.int64)

    def hashes(self) -> UInt64s:
        out = np.empty(len(self), np.uint64)
        hashing.hash_strings(address(self.data), self.offsets, out)
        return out

    def repeats(self) -> UInt8s:
        out = np.empty(len(self), np.uint8)
        index.same_as_before(address(self.data), self.offsets, out)
        return out

    def unique(self, valid: UInt8s, hashes: UInt64s, scratch: tuple[Int32s, ...]) -> int:
        return int(unique.unique_strings(address(self.data), self.offsets, valid, hashes, *scratch))

    def locate(self, fence: ByteKeys, continues: UInt8s, low: Int32s, high: Int32s) -> None:
        index.locate_strings(address(fence.data), fence.offsets, continues, address(self.data), self.offsets, low, high)

    def equal_at(self, others: ByteKeys, at: Int32s) -> Bools:
        out = np.zeros(at.size, np.bool_)
        if len(others):
            index.equal_strings(
                address(self.data),
                self.offsets,
                address(others.data),
                others.offsets,
                at.astype(np.int32, copy=False),
                out.view(np.uint8),
            )
        return out

    def find(self, page_addresses: Int64s, which: Int32s, low: Int32s, high: Int32s) -> int:
        return int(pages.find_strings(page_addresses, address(self.data), self.offsets, which, low, high))

    def probe(self, stores: Int64s, hashes: UInt64s, src: Int32s, pos: Int32s, count: Int32s) -> int:
        """Look up keys without a source in stores, which are described by rows of addresses."""
        return int(store.probe_strings(stores, hashes, address(self.data), self.offsets, src, pos, count))

    def buffers(self) -> Buffers:
        return Buffers(self.data, self.offsets, NO_BYTES)


Keys = IntKeys | ByteKeys


def concat_keys(parts: Sequence[Keys], codec: KeyCodec) -> Keys:
    """Concatenate keys of one codec."""
    if codec.integer:
        return IntKeys(np.concatenate([np.empty(0, np.int64), *(p.values for p in parts)]))  # type: ignore[union-attr]
    datas, offsets, used = [NO_BYTES], [np.zeros(1, np.int64)], 0
    for part in parts:
        assert isinstance(part, ByteKeys)
        start, stop = int(part.offsets[0]), int(part.offsets[-1])
        datas.append(part.data[start:stop])
        offsets.append(part.offsets[1:] - start + used)
        used += stop - start
    return ByteKeys(np.concatenate(datas), np.concatenate(offsets))


def positions(keys: Keys, fence: Keys) -> tuple[Int32s, Bools]:
    """Return the last fence not above each key (-1 for none), and whether it is equal. Keys and distinct fences are sorted."""
    n = len(keys)
    low, high = np.empty(n, np.int32), np.empty(n, np.int32)
    keys.locate(fence, np.zeros(len(fence), np.uint8), low, high)  # type: ignore[arg-type]
    # locate starts at a fence equal to the key, so low is the last fence not above the key in either case.
    return low, keys.equal_at(fence, low)  # type: ignore[arg-type]


def bounds(keys: Keys, cuts: Keys, after: UInt8s) -> Int64s:
    """Return where sorted distinct cuts fall in sorted keys, from 0 to len(keys): the first key not below each cut and,
    where `after` is set, the first key above it too.
    """
    n = len(keys)
    low, high = np.empty(len(cuts), np.int32), np.empty(len(cuts), np.int32)
    cuts.locate(keys, np.zeros(n, np.uint8), low, high)  # type: ignore[arg-type]
    equal = cuts.equal_at(keys, low)  # type: ignore[arg-type]
    first = np.where(equal, low, low + 1)
    beyond = np.where(equal, high + 1, first)[after == 1]
    return np.concatenate([[0], np.sort(np.concatenate([first, beyond])), [n]]).astype(np.int64)


class KeyCodec:
    """Converts between Arrow columns of the key's types and `Keys`.

    Parameters
    ----------
    names, types
        The key columns of the relation, in order.
    source
        Where keys that are decoded were stored, for errors.
    """

    def __init__(self, names: Sequence[str], types: Sequence[pa.DataType], source: object = "the relation") -> None:
        self.names = tuple(names)
        self.source = source
        self.types = tuple(types)
        for name, type_ in zip(names, types, strict=True):
            _check_key_type(name, type_)
        self.integer = len(self.types) == 1 and _is_int(self.types[0])
        self._raw = len(self.types) == 1 and _is_bytes(self.types[0])

    @property
    def width(self) -> int:
        """The width in bytes of the key column in a page; 0 for variable."""
        return 8 if self.integer else 0

    def check(self, stream: Sequence[pa.Field]) -> None:
        """Refuse stream columns whose values cannot be compared with the key's, naming both types."""
        for name, type_, field in zip(self.names, self.types, stream, strict=True):
            given = plain_type(field.name, field.type)
            if not _comparable(given, type_):
                raise BadInput(
                    f"stream column {field.name!r} has type {field.type}, but the relation's column {name!r} has type"
                    f" {type_}; cast the stream column to {type_} first"
                )

    def encode(self, arrays: Sequence[pa.Array | pa.ChunkedArray]) -> tuple[Keys, UInt8s]:
        """Return the keys of the rows, and validity bytes (empty if no component is null)."""
        plain = []
        valid = NO_BYTES
        for array, type_ in zip(arrays, self.types, strict=True):
            if isinstance(array, pa.ChunkedArray):
                array = array.combine_chunks()
            if pa.types.is_dictionary(array.type):
                array = decoded(array)
            if array.type != type_ and not (pa.types.is_integer(array.type) and pa.types.is_integer(type_)):
                array = _cast(array, type_)
            if array.null_count:
                here = np.asarray(pc.cast(array.is_valid(), pa.uint8()))
                valid = here if valid.size == 0 else valid & here
            plain.append(array)
        if self.integer:
            return IntKeys(as_ints(plain[0])), valid
        if self._raw:
            buffers = from_arrow(plain[0])
            return ByteKeys(buffers.values, buffers.offsets), valid
        return self._encode_composite(plain), valid

    def _encode_composite(self, arrays: Sequence[pa.Array]) -> ByteKeys:
        n = len(arrays[0])
        sizes = np.zeros(n, np.int64)
        parts: list[Any] = []
        for array, type_ in zip(arrays, self.types, strict=True):
            if _is_bytes(type_):
                strings = from_arrow(array)
                kernels.string_sizes(address(strings.values), strings.offsets, sizes)
                parts.append(strings)
            elif _is_int(type_):
                parts.append(as_ints(array))
                sizes += 8
            else:
                parts.append(np.ascontiguousarray(from_arrow(array).values).view(np.uint64))
                sizes += 16
        offsets = np.zeros(n + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        data = np.empty(int(offsets[-1]), np.uint8)
        cursor = offsets[:-1].copy()
        for part, type_ in zip(parts, self.types, strict=True):
            if isinstance(part, Buffers):
                kernels.encode_strings(address(part.values), part.offsets, address(data), cursor)
            elif _is_int(type_):
                kernels.encode_ints(part, address(data), cursor)
            else:
                kernels.encode_wide(part, address(data), cursor)
        return ByteKeys(data, offsets)

    def keys_in(self, arrays: dict[str, AnyArray]) -> Keys:
        """Return the keys in the arrays "values" and "offsets" of a sidecar, without a copy."""
        if self.integer:
            return IntKeys(arrays["values"].view(np.int64))
        return ByteKeys(arrays["values"], arrays["offsets"])

    def decode(self, keys: Keys) -> list[pa.Array]:
        """Return keys as Arrow columns."""
        if isinstance(keys, IntKeys):
            return [self._from_ints(keys.values, self.types[0])]
        n = len(keys)
        if self._raw:
            start = keys.offsets[0]
            values = keys.data[start : keys.offsets[-1]]
            return [to_arrow(self.types[0], n, Buffers(values, keys.offsets - start, NO_BYTES))]
        cursor, ends = keys.offsets[:-1].copy(), keys.offsets[1:]
        data = address(keys.data)
        out = []
        for type_ in self.types:
            if _is_bytes(type_):
                values = np.empty(int(keys.offsets[-1] - keys.offsets[0]), np.uint8)
                offsets = np.zeros(n + 1, np.int64)
                self._check_decoded(kernels.decode_strings(data, cursor, ends, address(values), offsets) == n)
                out.append(to_arrow(type_, n, Buffers(values[: offsets[-1]], offsets, NO_BYTES)))
            elif _is_int(type_):
                ints = np.empty(n, np.int64)
                self._check_decoded(kernels.decode_ints(data, cursor, ends, ints) == n)
                out.append(self._from_ints(ints, type_))
            else:
                words = np.empty(2 * n, np.uint64)
                self._check_decoded(kernels.decode_wide(data, cursor, ends, words) == n)
                out.append(to_arrow(type_, n, Buffers(words.view(np.uint8), np.empty(0, np.int64), NO_BYTES)))
        self._check_decoded(bool((cursor == ends).all()))
        return out

    def shown(self, keys: Keys) -> str:
        """Return the first of some keys as a message shows it, each component cut to a readable length."""
        return ", ".join(shown(column[0].as_py()) for column in self.decode(keys.slice(0, 1)))

    def _check_decoded(self, sound: bool) -> None:
        if not sound:
            raise self._malformed(f"made of {', '.join(map(str, self.types))}")

    def _from_ints(self, values: Int64s, type_: pa.DataType) -> pa.Array:
        try:
            return _from_ints(values, type_)
        except pa.ArrowInvalid as error:
            raise self._malformed(f"of type {type_} ({shown(error)})") from error

    def _malformed(self, expected: str) -> DamagedRelation:
        return DamagedRelation(self.source, f"a key in it is not {expected}; verify() names the page")


def _check_key_type(name: str, type_: pa.DataType) -> None:
    t = pa.types
    fits = t.is_signed_integer(type_) or t.is_date32(type_) or t.is_timestamp(type_) or t.is_decimal128(type_)
    if not (fits or _is_bytes(type_)):
        raise UnsupportedType(
            f"column {name!r} has type {type_}, which cannot be a key; expected int8..int64, string, binary, date,"
            " timestamp or decimal (or several such columns)"
        )


def _is_bytes(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_binary(type_))


def _is_int(type_: pa.DataType) -> bool:
    """Tell whether values of a key column fit into 64 bits."""
    if pa.types.is_decimal128(type_):
        return bool(type_.precision <= _LONGEST_INT_DECIMAL)
    return not _is_bytes(type_)


def _comparable(given: pa.DataType, key: pa.DataType) -> bool:
    """Tell whether every value of the given type can be cast to the key's type without changing what it equals."""
    t = pa.types
    if t.is_integer(key):
        return bool(t.is_integer(given) and not t.is_uint64(given))
    if t.is_timestamp(key):
        units = ["s", "ms", "us", "ns"]
        return bool(
            t.is_timestamp(given)
            and units.index(given.unit) <= units.index(key.unit)
            and (given.tz is None) == (key.tz is None)
        )
    if t.is_decimal128(key):
        return bool(t.is_decimal128(given) and given.scale == key.scale and given.precision <= key.precision)
    return bool(given == key)


def _cast(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Cast an array to the key's type. A timestamp out of range of the key's unit becomes null, as it matches nothing."""
    if pa.types.is_timestamp(type_) and pa.types.is_timestamp(array.type):
        steps = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
        most = (2**63 - 1) // (steps[type_.unit] // steps[array.type.unit])
        within = pc.less_equal(pc.abs_checked(pc.max_element_wise(array.view(pa.int64()), -(2**63 - 1))), most)
        array = pc.if_else(within, array, pa.scalar(None, array.type))
    return array.cast(type_)


def as_ints(array: pa.Array) -> Int64s:
    """Return the values of an integer-like array as 64-bit integers."""
    t = pa.types
    if t.is_decimal128(array.type):
        return np.ascontiguousarray(from_arrow(array).values.view(np.int64)[::2])
    if t.is_date32(array.type):
        array = array.view(pa.int32())
    elif t.is_timestamp(array.type):
        array = array.view(pa.int64())
    if not t.is_int64(array.type):
        array = array.cast(pa.int64())
    return from_arrow(array).values.view(np.int64)


def _from_ints(values: Int64s, type_: pa.DataType) -> pa.Array:
    t = pa.types
    if t.is_decimal128(type_):
        words = np.empty((values.size, 2), np.int64)
        words[:, 0] = values
        words[:, 1] = values >> 63
        return to_arrow(type_, values.size, Buffers(words.reshape(-1).view(np.uint8), np.empty(0, np.int64), NO_BYTES))
    if t.is_date32(type_):
        return pa.array(values.astype(np.int32)).view(type_)
    if t.is_timestamp(type_):
        return pa.array(values).view(type_)
    return pa.array(values).cast(type_)
