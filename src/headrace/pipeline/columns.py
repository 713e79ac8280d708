"""Types of columns in a pipeline file, by Spark's names: ``long``, ``decimal(10, 2)``, ``array<string>``."""

from __future__ import annotations

import re

import pyarrow as pa

from headrace.errors import BadInput
from headrace.pipeline.document import near

WORDS = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_SAME = {"tinyint": "byte", "smallint": "short", "integer": "int", "bigint": "long", "real": "float"}
_DECIMAL = re.compile(r"(?:decimal|numeric)\s*\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_ARRAY = re.compile(r"array\s*<(.*)>", re.DOTALL)
_STRUCT = re.compile(r"struct\s*<(.*)>", re.DOTALL)
_EXAMPLES = (*WORDS, "decimal(10,2)", "array<...>", "struct<name: ...>")
_MOST_DIGITS = 38


def arrow_type(text: str) -> pa.DataType:
    """Return the Arrow type of Spark's batches for a type of this name.

    Example:
        >>> arrow_type("bigint"), arrow_type("array<decimal(10, 2)>")
        (DataType(int64), ListType(list<element: decimal128(10, 2)>))
        >>> arrow_type("lnog")
        Traceback (most recent call last):
        ...
        headrace.errors.BadInput: expected one of boolean, byte, ...; did you mean 'long'?
    """
    words = text.strip().lower()
    if found := _DECIMAL.fullmatch(words):
        digits, scale = int(found[1]), int(found[2])
        if not 1 <= digits <= _MOST_DIGITS or scale > digits:
            raise BadInput(f"expected decimal(digits, scale) with at most {_MOST_DIGITS} digits")
        return pa.decimal128(digits, scale)
    if found := _ARRAY.fullmatch(text.strip()):
        return pa.list_(pa.field("element", arrow_type(found[1])))
    if found := _STRUCT.fullmatch(text.strip()):
        return pa.struct([_field(part) for part in _split(found[1])])
    words = _SAME.get(words, words)
    if words in WORDS:
        return WORDS[words]
    raise BadInput(near(text, _EXAMPLES))


def type_word(type_: pa.DataType) -> str:
    """Return Spark's name of a type, if it has one."""
    if pa.types.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    if pa.types.is_list(type_):
        return f"array<{type_word(type_.value_type)}>"
    if pa.types.is_struct(type_):
        return f"struct<{', '.join(f'{f.name}: {type_word(f.type)}' for f in type_)}>"
    return next((word for word, known in WORDS.items() if known == type_), str(type_))


def _field(text: str) -> pa.Field:
    name, colon, type_ = text.partition(":")
    if not colon or not name.strip():
        raise BadInput(f"expected name: type in a struct, and not {text.strip()!r}")
    return pa.field(name.strip(), arrow_type(type_))


def _split(text: str) -> list[str]:
    """Split a text at commas that are not inside brackets."""
    parts, depth = [""], 0
    for c in text:
        depth += (c in "<(") - (c in ">)")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return parts
