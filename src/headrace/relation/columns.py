"""Columns: the stored form of each Arrow type in memory and in pages, and conversions from and to Arrow.

A column is stored as packed values of a fixed width or as offsets and bytes, with one validity byte per row where it has
nulls. Types that differ only in Arrow's encoding (large, view, dictionary) are stored as their plain form.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import AnyArray, Int64s, UInt8s
from headrace.errors import BadInput, UnsupportedType, shown

NO_BYTES: UInt8s = np.empty(0, np.uint8)
NO_LONGS: Int64s = np.empty(0, np.int64)


def address(array: AnyArray) -> int:
    """Return the address of an array's bytes. The caller keeps the array alive while a kernel uses the address."""
    return int(array.__array_interface__["data"][0])


@dataclass(frozen=True, slots=True)
class Column:
    """A stored column. A width of 0 means variable; `position` is its number in a page, where 0 is the key."""

    name: str
    type: pa.DataType
    width: int
    position: int
    nullable: bool = True

    def with_nullable(self, nullable: bool) -> Column:
        return replace(self, nullable=nullable)


@dataclass(frozen=True, slots=True)
class Buffers:
    """The values of a column: bytes, offsets (empty for a fixed width), and validity bytes (empty if there are no nulls)."""

    values: UInt8s
    offsets: Int64s
    valid: UInt8s


def plain_type(name: str, type_: pa.DataType) -> pa.DataType:
    """Return the type that a column is stored as; refuses one that cannot be stored, by name."""
    t = pa.types
    if t.is_dictionary(type_):
        return plain_type(name, type_.value_type)
    if t.is_large_string(type_) or t.is_string_view(type_):
        return pa.string()
    if t.is_large_binary(type_) or t.is_binary_view(type_) or t.is_fixed_size_binary(type_):
        return pa.binary()
    if t.is_date64(type_):
        return pa.date32()
    if t.is_decimal32(type_) or t.is_decimal64(type_):
        return pa.decimal128(type_.precision, type_.scale)
    stored = (
        t.is_boolean(type_)
        or t.is_integer(type_)
        or t.is_floating(type_)
        or t.is_decimal128(type_)
        or t.is_string(type_)
        or t.is_binary(type_)
        or t.is_temporal(type_)
        or t.is_null(type_)
    )
    if not stored:
        raise UnsupportedType(
            f"column {name!r} has type {type_}, which a relation cannot store; expected an atomic type or a struct of"
            " such: drop the column, or convert it (a list or map to JSON text, say) before Relation.create"
        )
    return type_


def width_of(type_: pa.DataType) -> int:
    """Return the bytes of a stored value; 0 for strings and binary."""
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return 0
    if pa.types.is_boolean(type_) or pa.types.is_null(type_):
        return 1
    return int(type_.bit_width) // 8


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema as it is stored: structs flattened to columns outer_inner, every type in its stored form.

    The name is not outer.inner because PySpark's mapInArrow cannot resolve a column with a dot in its name.
    """
    fields = [pa.field(field.name, plain_type(field.name, field.type)) for field in _flat(list(schema))]
    names = [field.name for field in fields]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise BadInput(
            f"column name {min(twice)!r} appears {names.count(min(twice))} times once structs are flattened; rename"
            " the columns so that each name is unique"
        )
    return pa.schema(fields)


def _flat(fields: Sequence[pa.Field]) -> Iterator[pa.Field]:
    for field in fields:
        if pa.types.is_struct(field.type):
            yield from _flat([pa.field(f"{field.name}_{f.name}", f.type) for f in field.type])
        else:
            yield field


def in_microseconds(schema: pa.Schema, key: Sequence[str], *, truncate: bool) -> pa.Schema:
    """Return the schema with nanoseconds of the payload as microseconds if they may be truncated; otherwise refuses them.

    Spark has microseconds only, so a join on Spark could not give them back. A key is only compared, and keeps its unit.
    """
    fields = []
    for field in schema:
        if field.name not in key and beyond_spark(field.type):
            if not truncate:
                raise UnsupportedType(
                    f"column {field.name!r} has type {field.type}, and Spark has microseconds only; pass nanoseconds='truncate'"
                    " to Relation.create to store microseconds, or cast the column before"
                )
            field = field.with_type(_microseconds(field.type))
        fields.append(field)
    return pa.schema(fields)


def beyond_spark(type_: pa.DataType) -> bool:
    """Tell whether a type counts nanoseconds and Spark's counts microseconds: timestamps and durations, but not times of day."""
    return bool((pa.types.is_timestamp(type_) or pa.types.is_duration(type_)) and type_.unit == "ns")


def _microseconds(type_: pa.DataType) -> pa.DataType:
    return pa.timestamp("us", type_.tz) if pa.types.is_timestamp(type_) else pa.duration("us")


def plain_table(table: pa.Table, schema: pa.Schema, *, truncate: bool = False) -> pa.Table:
    """Convert the columns of a table to their stored form, in the order of a plain schema.

    With `truncate`, nanoseconds that are stored as microseconds lose their last three digits; otherwise such values are refused.
    """
    flat = dict(_flat_columns(table.schema.names, table.columns))
    arrays = []
    for field in schema:
        column = flat[field.name]
        if pa.types.is_dictionary(column.type):
            column = pa.chunked_array([decoded(chunk) for chunk in column.chunks], plain_type(field.name, column.type))
        if column.type != field.type:
            cut = truncate and beyond_spark(column.type)
            try:
                column = column.cast(field.type, safe=not cut)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise BadInput(
                    f"column {field.name!r} of type {column.type} does not fit {field.type}, its stored type: {shown(error)}"
                ) from error
        if pa.types.is_string(field.type):
            _check_text(field.name, column)
        arrays.append(column)
    return pa.Table.from_arrays(arrays, schema=schema)


def decoded(array: pa.DictionaryArray) -> pa.Array:
    """Return a dictionary array's values in their plain form: Arrow cannot take views, which Polars has, out of a dictionary."""
    plain = array.dictionary.cast(plain_type("", array.type.value_type))
    return pa.DictionaryArray.from_arrays(array.indices, plain).dictionary_decode()


def _check_text(name: str, column: pa.ChunkedArray) -> None:
    """Refuse strings that are not UTF-8: Arrow takes any bytes for a string, and readers of the results fail on them."""
    for chunk in column.chunks:
        try:
            chunk.validate(full=True)
        except pa.ArrowInvalid as error:
            raise BadInput(
                f"column {name!r} holds text that is not UTF-8 ({shown(error)}); decode it, or cast the column to binary"
            ) from error


def _flat_columns(names: Sequence[str], columns: Sequence[pa.ChunkedArray]) -> Iterator[tuple[str, pa.ChunkedArray]]:
    for name, column in zip(names, columns, strict=True):
        if pa.types.is_struct(column.type):
            # flatten() makes the fields of a null struct null.
            yield from _flat_columns([f"{name}_{f.name}" for f in column.type], column.flatten())
        else:
            yield name, column


def from_arrow(array: pa.Array) -> Buffers:
    """Return the values of an Arrow array of a stored type, without a copy where Arrow's layout is the stored one."""
    n = len(array)
    valid = NO_BYTES
    if array.null_count:
        valid = np.asarray(pc.cast(array.is_valid(), pa.uint8())).astype(np.uint8, copy=False)
    if pa.types.is_null(array.type):
        return Buffers(np.zeros(n, np.uint8), NO_LONGS, np.zeros(n, np.uint8))
    if pa.types.is_boolean(array.type):
        array = pc.cast(array, pa.uint8())
    buffers = array.buffers()
    start = array.offset
    if width_of(array.type) == 0:
        if n == 0:
            return Buffers(NO_BYTES, np.zeros(1, np.int64), valid)
        offsets = np.frombuffer(buffers[1], np.int32)[start : start + n + 1].astype(np.int64)
        data = NO_BYTES if buffers[2] is None else np.frombuffer(buffers[2], np.uint8)
        return Buffers(data, offsets, valid)
    width = width_of(array.type)
    if n == 0:
        return Buffers(NO_BYTES, NO_LONGS, valid)
    values = np.frombuffer(buffers[1], np.uint8)[start * width : (start + n) * width]
    return Buffers(values, NO_LONGS, valid)


def to_arrow(type_: pa.DataType, n: int, buffers: Buffers) -> pa.Array:
    """Make an Arrow array over stored values. Offsets must fit into 32 bits."""
    bitmap = None
    nulls = 0
    if buffers.valid.size:
        nulls = n - int(np.count_nonzero(buffers.valid))
        if nulls:
            bitmap = pa.py_buffer(np.packbits(buffers.valid, bitorder="little"))
    if pa.types.is_null(type_):
        return pa.nulls(n)
    if width_of(type_) == 0:
        offsets = pa.py_buffer(np.ascontiguousarray(buffers.offsets, dtype=np.int32))
        return pa.Array.from_buffers(type_, n, [bitmap, offsets, pa.py_buffer(buffers.values)], null_count=nulls)
    values = buffers.values
    if pa.types.is_boolean(type_):
        values = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(type_, n, [bitmap, pa.py_buffer(values)], null_count=nulls)
