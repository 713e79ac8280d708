"""Parsing of keys typed on a command line to the types of a relation's key columns."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import BadInput, shown

_LOOKS = (
    (pa.types.is_integer, "such as 42"),
    (pa.types.is_date, "such as 2024-12-31"),
    (pa.types.is_timestamp, "such as 2024-12-31T23:59:59"),
    (pa.types.is_decimal, "such as 12.50"),
    (pa.types.is_binary, "such as 0x00ff, or text"),
)


def parse_keys(texts: Sequence[str], schema: pa.Schema, key: Sequence[str]) -> pa.Table:
    """A table of the key columns with one row for each text.

    The values of a composite key are separated by commas; ``"..."`` protects a comma in a value.

    Args:
        texts: the keys as typed.
        schema: the relation's schema.
        key: the names of its key columns.

    Example:
        >>> schema = pa.schema({"day": pa.date32(), "shop": pa.int32(), "sales": pa.int64()})
        >>> parse_keys(["2024-12-31,7"], schema, ["day", "shop"]).to_pylist()
        [{'day': datetime.date(2024, 12, 31), 'shop': 7}]
    """
    fields = [schema.field(name) for name in key]
    rows = [_split(text, key) for text in texts]
    columns = [pa.array([_parse(row[i], field) for row in rows], type=field.type) for i, field in enumerate(fields)]
    return pa.table(columns, schema=pa.schema(fields))


def _split(text: str, key: Sequence[str]) -> list[str]:
    if len(key) == 1:
        return [text]
    parts = next(csv.reader([text], skipinitialspace=True), [])
    if len(parts) != len(key):
        raise BadInput(
            f"key {shown(text)} has {len(parts)} value{'' if len(parts) == 1 else 's'}; "
            f"this relation's key is {','.join(key)}, separated by commas"
        )
    return parts


def _parse(text: str, field: pa.Field) -> pa.Scalar:
    wanted = field.type
    try:
        if pa.types.is_decimal(wanted):
            return pa.scalar(Decimal(text), type=wanted)
        if pa.types.is_timestamp(wanted):
            return _parse_timestamp(text, wanted)
        if _is_bytes(wanted) and text.startswith("0x"):
            return pa.scalar(bytes.fromhex(text[2:]), type=wanted)
        return pa.scalar(text).cast(wanted)
    except (pa.ArrowException, InvalidOperation, ValueError) as error:
        looks = next((f", {example}" for is_it, example in _LOOKS if is_it(wanted)), "")
        raise BadInput(f"key {shown(text)} is not a value of column {field.name} ({wanted}{looks})") from error


def _parse_timestamp(text: str, wanted: pa.DataType) -> pa.Scalar:
    # Arrow parses it, because datetime would drop nanoseconds.
    if wanted.tz is None:
        return pa.scalar(text).cast(wanted)
    try:
        return pa.scalar(text).cast(wanted)
    except pa.ArrowInvalid:
        # a text without a time zone is in the column's own
        return pc.assume_timezone(pa.scalar(text).cast(pa.timestamp(wanted.unit)), wanted.tz)


def _is_bytes(wanted: pa.DataType) -> bool:
    return any(is_it(wanted) for is_it in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary))
