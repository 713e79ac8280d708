"""The reason why a record is malformed, which Spark does not tell."""

from __future__ import annotations

import csv
import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.pipeline.columns import type_word

_LONGEST = 60  # characters of a value that is shown


def why(record: str, format_: str, schema: pa.Schema, separator: str = ",") -> str:
    """Return the reason in one line.

    Example:
        >>> schema = pa.schema({"sale": pa.int64(), "quantity": pa.int32()})
        >>> why('{"sale": 1, "quantity"', "json", schema)
        "not JSON: expecting ':' delimiter (character 23)"
        >>> why('{"sale": 1, "quantity": "many"}', "json", schema)
        "column 'quantity': found 'many', expected int"
        >>> why("1,2,3", "csv", schema)
        'found 3 values, expected 2: sale, quantity'
    """
    return _json(record, schema) if format_ == "json" else _csv(record, schema, separator)


def _json(record: str, schema: pa.Schema) -> str:
    if not record.strip():
        return "not JSON: the record is empty"
    try:
        value = json.loads(record)
    except json.JSONDecodeError as error:
        return f"not JSON: {error.msg[0].lower()}{error.msg[1:]} (character {error.pos + 1})"
    except RecursionError:
        return "not JSON: nested too deep"
    if not isinstance(value, dict):
        return f"found {_show(value)}, expected an object with the columns {', '.join(schema.names)}"
    for field in schema:
        found = value.get(field.name)
        if found is not None and not _fits(found, field.type):
            return f"column {field.name!r}: found {_show(found)}, expected {type_word(field.type)}"
    return "does not fit the declared columns"


def _csv(record: str, schema: pa.Schema, separator: str) -> str:
    try:
        values = next(csv.reader([record], delimiter=separator), [])
    except csv.Error as error:
        return f"not CSV: {error}"
    if len(values) != len(schema):
        return f"found {len(values)} values, expected {len(schema)}: {', '.join(schema.names)}"
    for field, found in zip(schema, values, strict=True):
        if found and not _parses(found, field.type):
            return f"column {field.name!r}: found {_show(found)}, expected {type_word(field.type)}"
    return "does not fit the declared columns"


def _fits(value: Any, type_: pa.DataType) -> bool:
    is_ = pa.types
    if is_.is_string(type_):
        return True  # Spark takes the text of anything
    if is_.is_boolean(type_):
        return isinstance(value, bool)
    if is_.is_integer(type_):
        low, high = -(1 << (type_.bit_width - 1)), (1 << (type_.bit_width - 1)) - 1
        return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    if is_.is_floating(type_) or is_.is_decimal(type_):
        return isinstance(value, int | float) and not isinstance(value, bool)
    if is_.is_temporal(type_):
        return isinstance(value, str) and _parses(value, type_)
    if is_.is_list(type_):
        return isinstance(value, list) and all(v is None or _fits(v, type_.value_type) for v in value)
    if is_.is_struct(type_):
        return isinstance(value, dict)
    return isinstance(value, str)


def _parses(text: str, type_: pa.DataType) -> bool:
    try:
        pc.cast(pa.scalar(text.strip()), type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
