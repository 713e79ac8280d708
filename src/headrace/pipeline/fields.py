"""Types of values in a pipeline file: texts, sizes, durations, names, SQL. Each refuses other values and says what it expects."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import AfterValidator, Field, PlainValidator

from headrace import conditions
from headrace.errors import BadInput, choice
from headrace.pipeline.columns import arrow_type
from headrace.pipeline.document import Filled, filled
from headrace.units import DURATION_EXAMPLES, SIZE_EXAMPLES, parse_duration, parse_size

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_QUANTITY = re.compile(r"(sum|avg)\s*\((.+)\)")
_CONDITIONS = ("equal", "compare", "between", "band", "within", "intersects", "edit_distance", "jaccard")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(filled(value).strip()) and "\0" not in filled(value)


def _text(value: Any) -> str:
    if not _is_text(value):
        raise ValueError("expected a text")
    return str(value) if not isinstance(value, Filled) else value


def _own_text(value: Any, what: str) -> str:
    """Check a text that must not come from the environment."""
    if isinstance(value, Filled):
        raise ValueError(
            f"expected {what} without values from the environment; ${{...}} is for paths, addresses and options"
        )
    if not _is_text(value):
        raise ValueError(f"expected {what}")
    return str(value)


def is_name(text: str) -> bool:
    """Whether a text can be a part of the name of a file."""
    return _NAME.fullmatch(text) is not None


def _name(value: Any) -> str:
    words = "a name of letters, digits, - and _: it becomes the name of a directory"
    if not isinstance(value, str) or not _NAME.fullmatch(_own_text(value, words)):
        raise ValueError(f"expected {words}")
    return value


def _sql(value: Any) -> str:
    return _own_text(value, "an SQL expression")


def _twig(value: Any) -> str:
    from headrace.xml import Twig  # loads kernels, which most files do not need

    text = _own_text(value, "a twig, such as '//item[id][name]'")
    try:
        Twig(text)
    except BadInput as error:
        raise ValueError(f"which is not a twig: {error}") from None
    return text


def _content(value: Any) -> dict[str, tuple[str, ...]]:
    words = 'what columns show, such as { name = "text", item = ["order", "xml"] }'
    if not isinstance(value, dict):
        raise ValueError(f"expected {words}")
    out = {}
    for name, kinds in value.items():
        given = [kinds] if isinstance(kinds, str) else kinds
        if not isinstance(given, list) or not given or not all(isinstance(kind, str) for kind in given):
            raise ValueError(f"expected {words}")
        out[name] = tuple(_own_text(kind, words) for kind in given)
    return out


def _column(value: Any) -> str:
    return _own_text(value, "the name of a column")


def _source_name(value: Any) -> str:
    return _own_text(value, "the name of a source, as in [sources.NAME]")


def _columns(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list) or not value:
        raise ValueError("expected the name of a column, or a list of them")
    return tuple(_column(name) for name in value)


def _on(value: Any) -> str | list[str] | dict[str, str]:
    if isinstance(value, dict) and value:
        return {_column(stream): _column(relation) for stream, relation in value.items()}
    if not isinstance(value, str | list):
        raise ValueError('expected a column, a list of columns, or { stream_column = "relation_column" }')
    names = _columns(value)
    return names[0] if len(names) == 1 else list(names)


def _size(value: Any) -> Any:
    return _unit(value, lambda v: parse_size(v, name="size"), f"a size: {SIZE_EXAMPLES}")


def _duration(value: Any) -> Any:
    return _unit(value, lambda v: parse_duration(v, name="duration"), f"a duration: {DURATION_EXAMPLES}")


def _lateness(value: Any) -> Any:
    return _unit(value, lambda v: parse_duration(v, name="late", zero=True), f"a duration, or 0: {DURATION_EXAMPLES}")


def _window(value: Any) -> Any:
    expected = "a number of rows, or a duration: '10 minutes'"
    if isinstance(value, str):
        return _unit(value, lambda v: parse_duration(v, name="window"), expected)
    return _rows(value, expected)


def _rows_or_size(value: Any) -> Any:
    expected = "a number of rows, or a size: '64MiB'"
    return _unit(value, parse_size, expected) if isinstance(value, str) else _rows(value, expected)


def _rows(value: Any, expected: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"expected {expected}")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _part(value: Any) -> float:
    if not _is_number(value) or not 0 < value <= 1:
        raise ValueError("expected a part of the whole: more than 0, and 1 at most")
    return float(value)


def _cell(value: Any) -> Any:
    widths = value if isinstance(value, list) else [value]
    if not widths or not all(_is_number(width) and width > 0 for width in widths):
        raise ValueError("expected the width of a cell, more than 0; or a list with one for each dimension")
    return value


@dataclass(frozen=True)
class Quantity:
    """Something to estimate: the count, or the sum or average of a column."""

    kind: Literal["count", "sum", "avg"]
    column: str | None = None

    def __str__(self) -> str:
        return self.kind if self.column is None else f"{self.kind}({self.column})"


def _quantities(value: Any) -> tuple[Quantity, ...]:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list) or not value:
        raise ValueError('expected what to estimate, such as ["count", "sum(amount)", "avg(amount)"]')
    return tuple(_quantity(one) for one in value)


def _quantity(value: Any) -> Quantity:
    text = _own_text(value, "what to estimate: 'count', 'sum(column)' or 'avg(column)'")
    if text == "count":
        return Quantity("count")
    if found := _QUANTITY.fullmatch(text):
        return Quantity("sum" if found[1] == "sum" else "avg", _column(found[2].strip()))
    raise ValueError(f"expected what to estimate: 'count', 'sum(column)' or 'avg(column)', and not {text!r}")


def _summed(value: Any) -> bool | tuple[str, ...]:
    if isinstance(value, bool):
        return value
    if not isinstance(value, str | list):
        raise ValueError("expected true for the number of results, or columns that are summed")
    return _columns(value)


def _column_or_none(value: Any) -> str | None:
    if value is False:
        return None
    return _own_text(value, "the name of a column, or false for none")


def _source_value(value: Any) -> str | int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not _is_text(value):
        raise ValueError("expected a text or a whole number")
    return _text(value)


def _unit(value: Any, parse: Callable[[Any], object], expected: str) -> Any:
    try:
        parse(filled(value) if isinstance(value, str) else value)
    except BadInput:
        raise ValueError(f"expected {expected}") from None
    return value


def _type(value: Any) -> pa.DataType:
    text = _own_text(value, "a type, such as 'long'")
    try:
        return arrow_type(text)
    except BadInput as error:
        raise ValueError(str(error)) from None


def _fields(value: dict[str, pa.DataType]) -> dict[str, pa.DataType]:
    seen: set[str] = set()
    for name in value:
        if name.lower() in seen:
            raise ValueError(f"expected names that differ in more than case; Spark sees {name!r} twice")
        seen.add(name.lower())
        _column(name)
    return value


def _options(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError("expected options and their values")
    out: dict[str, str] = {}
    for name, option in value.items():
        if isinstance(option, bool):
            out[name] = str(option).lower()
        elif isinstance(option, int | float):
            out[name] = str(option)
        elif isinstance(option, str):
            out[name] = option
        else:
            raise ValueError(f"expected a text, a number, true or false for option {name!r}")
    return out


def _settings(value: Any) -> dict[str, str]:
    """Flatten Spark's settings: without quotes, TOML reads sql.shuffle.partitions = 4 as a table in a table."""
    if not isinstance(value, dict):
        raise ValueError("expected settings of Spark and their values")
    flat: dict[str, Any] = {}
    todo = list(value.items())
    while todo:
        name, setting = todo.pop()
        if isinstance(setting, dict):
            todo += [(f"{name}.{inner}", v) for inner, v in setting.items()]
        else:
            flat[name if name.startswith("spark.") else f"spark.{name}"] = setting
    return _options(flat)


def _condition(value: Any) -> conditions.Condition:
    if not isinstance(value, dict) or not value:
        raise ValueError('expected a condition, such as { between = ["sold_at", "valid_from", "valid_to"] }')
    parts = []
    for name, arguments in value.items():
        try:
            make = getattr(conditions, choice("condition", name, _CONDITIONS))
            parts.append(make(**arguments) if isinstance(arguments, dict) else make(*arguments))
        except (BadInput, TypeError) as error:
            raise ValueError(f"this condition cannot be made: {error}") from None
    return parts[0] if len(parts) == 1 else conditions.all_of(*parts)


def filled_size(size: Any) -> Any:
    """Return a size or duration of the file with its values from the environment."""
    return filled(size) if isinstance(size, str) else size


Text = Annotated[str, PlainValidator(_text)]
Name = Annotated[str, PlainValidator(_name)]
SourceName = Annotated[str, PlainValidator(_source_name)]
Sql = Annotated[str, PlainValidator(_sql)]
Column = Annotated[str, PlainValidator(_column)]
ColumnOrNone = Annotated[str | None, PlainValidator(_column_or_none)]
SourceValue = Annotated[Any, PlainValidator(_source_value)]
Columns = Annotated[tuple[str, ...], PlainValidator(_columns)]
On = Annotated[Any, PlainValidator(_on)]
Size = Annotated[Any, PlainValidator(_size)]
Duration = Annotated[Any, PlainValidator(_duration)]
Lateness = Annotated[Any, PlainValidator(_lateness)]
Window = Annotated[Any, PlainValidator(_window)]
RowsOrSize = Annotated[Any, PlainValidator(_rows_or_size)]
Part = Annotated[float, PlainValidator(_part)]
Cell = Annotated[Any, PlainValidator(_cell)]
Quantities = Annotated[Any, PlainValidator(_quantities)]
Summed = Annotated[Any, PlainValidator(_summed)]
Fields = Annotated[dict[str, Annotated[Any, PlainValidator(_type)]], Field(min_length=1), AfterValidator(_fields)]
Settings = Annotated[dict[str, str], PlainValidator(_settings)]
Options = Annotated[dict[str, str], PlainValidator(_options)]
Condition = Annotated[Any, PlainValidator(_condition)]
TwigPath = Annotated[str, PlainValidator(_twig)]
Content = Annotated[Any, PlainValidator(_content)]
