"""Arithmetic. What overflows, has no value or divides by zero is null."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_LARGEST = (
    2.0**63 - 2.0**11
)  # integers of a size below this one are exact in 64 bits, rounding of the estimate included
_NUMBER = r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?\s*$"
_WHOLE = r"^\s*[+-]?[0-9]{1,18}\s*$"  # 18 digits always fit 64 bits


def _exact(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Integers wrap around in Arrow; the result of doubles tells where they did."""

    def run(x: Any, y: Any) -> Any:
        made = operation(x, y)
        if not pa.types.is_integer(made.type):
            return made
        about = pc.abs(operation(x.cast(pa.float64(), safe=False), y.cast(pa.float64(), safe=False)))
        return pc.if_else(pc.less(about, _LARGEST), made, pa.scalar(None, made.type))

    return run


def divide(x: Any, y: Any) -> Any:
    """X / y as doubles."""
    y = y.cast(pa.float64(), safe=False)
    return pc.divide(x.cast(pa.float64(), safe=False), _or_null(pc.not_equal(y, 0.0), y))


def modulo(x: Any, y: Any) -> Any:
    """What is left of x / y, with the sign of x."""
    y = _or_null(pc.not_equal(y, pa.scalar(0, y.type)), y)
    quotient = pc.divide(x, y)
    if not pa.types.is_integer(quotient.type):
        quotient = pc.trunc(quotient)
    return pc.subtract(x, pc.multiply(quotient, y))


def root(x: Any) -> Any:
    """The square root."""
    return pc.sqrt(_or_null(pc.greater_equal(x, 0.0), x))


def rounded(x: Any, digits: int = 0) -> Any:
    """X with so many digits after the point; halves go away from zero."""
    return pc.round(x, digits, round_mode="half_towards_infinity")


def to_double(x: Any) -> Any:
    """A number, or a text that is one, as a double."""
    if not pa.types.is_string(x.type):
        return x.cast(pa.float64(), safe=False)
    return pc.utf8_trim_whitespace(_or_null(pc.match_substring_regex(x, _NUMBER), x)).cast(pa.float64())


def to_integer(x: Any) -> Any:
    """A number, rounded, or a text that is a whole number, as an integer."""
    if pa.types.is_string(x.type):
        text = pc.utf8_trim_whitespace(_or_null(pc.match_substring_regex(x, _WHOLE), x))
        return pc.utf8_ltrim(text, "+").cast(pa.int64())
    if pa.types.is_floating(x.type):
        x = pc.round(x, round_mode="half_to_even")
        return _or_null(pc.less(pc.abs(x), _LARGEST), x).cast(pa.int64())
    return x.cast(pa.int64())


def _or_null(condition: Any, x: Any) -> Any:
    return pc.if_else(pc.fill_null(condition, False), x, pa.scalar(None, x.type))


KERNELS: dict[str, Callable[..., Any]] = {
    "+": _exact(pc.add),
    "-": _exact(pc.subtract),
    "*": _exact(pc.multiply),
    "/": divide,
    "%": modulo,
    "negate": pc.negate,
    "abs": pc.abs,
    "round": rounded,
    "floor": pc.floor,
    "ceil": pc.ceil,
    "sqrt": root,
    "to double": to_double,
    "to integer": to_integer,
}
