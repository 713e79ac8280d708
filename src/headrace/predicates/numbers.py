"""Exact comparison of numeric columns, which are read as integers in a unit or as doubles.

A condition in one dimension selects the left values from a lower to an upper bound, which a right tuple gives. Bounds are
computed in the form of the left column (64-bit integers or doubles), both inclusive, whatever the form of the right column: x < 7
is x <= 6 among integers, and x <= the double before 7.0 among doubles. So no value is rounded to be compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
import pyarrow as pa

from headrace.arrays import AnyArray, Bools, Float64s, Int64s
from headrace.errors import UnsupportedType
from headrace.relation.columns import plain_type
from headrace.relation.keys import as_ints

Types = Mapping[str, pa.DataType]  # types of the columns of a side, by name

_LEAST, _MOST = -(2**63), 2**63 - 1  # of 64-bit integers
_EDGE = 2.0**63  # the smallest double above all 64-bit integers
_LONGEST_DECIMAL = 18  # digits of a decimal that always fits into 64 bits
# per second
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True)
class Scale:
    """The meaning of a column's numbers: integers times a unit (in ones, or in seconds), or doubles if there is no unit."""

    family: Literal["number", "time", "zoned time"]
    unit: Fraction | None

    @classmethod
    def of(cls, whose: str, name: str, type_: pa.DataType) -> Scale:
        """Return the scale of a column; refuses a type that is not numeric, by name."""
        scale = cls.known(type_)
        if scale is None:
            raise UnsupportedType(
                f"{whose} column {name!r} has type {type_}, which cannot be compared; expected integers up to int64, floats,"
                f" dates, timestamps or decimals of at most {_LONGEST_DECIMAL} digits: cast it first"
            )
        return scale

    @classmethod
    def known(cls, type_: pa.DataType) -> Scale | None:
        """Return the scale of a type; None if it is not numeric."""
        t = pa.types
        try:
            plain = plain_type("", type_)
        except UnsupportedType:  # a list, say
            return None
        if t.is_floating(plain):
            return cls("number", None)
        if t.is_integer(plain) and not t.is_uint64(plain):
            return cls("number", Fraction(1))
        if t.is_decimal128(plain) and plain.precision <= _LONGEST_DECIMAL:
            return cls("number", Fraction(10) ** -plain.scale)
        if t.is_date(plain):
            return cls("time", Fraction(86_400))
        if t.is_timestamp(plain):
            return cls("zoned time" if plain.tz else "time", Fraction(1, _UNITS[plain.unit]))
        return None

    @property
    def doubles(self) -> bool:
        """Whether the numbers are doubles."""
        return self.unit is None

    def beside(self, others: list[Scale]) -> Scale:
        """Return the form to compare in with others: this one, or doubles if it is a decimal and another is double."""
        return Scale(self.family, None) if self.unit != 1 and any(o.doubles for o in others) else self

    def read(self, array: pa.Array | pa.ChunkedArray, as_doubles: bool) -> tuple[AnyArray, Bools]:
        """Return the numbers of a column, and which of them are neither null nor NaN."""
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        array = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
        if self.unit is None:  # doubles without nulls are not copied
            array = array.cast(pa.float64())
            values: Float64s = (array.fill_null(np.nan) if array.null_count else array).to_numpy(zero_copy_only=False)
            return values, ~np.isnan(values)
        there: Bools = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)
        integers = as_ints(array.cast(plain_type("", array.type)))
        if as_doubles:
            return integers * float(self.unit) if self.unit >= 1 else integers / float(1 / self.unit), there
        return integers, there


@dataclass(frozen=True)
class Bounds:
    """The range of left values of each right tuple, from low to high, both inclusive; `empty` where there is none."""

    low: AnyArray
    high: AnyArray
    empty: Bools


def unbounded(count: int, doubles: bool) -> Bounds:
    """Return bounds that include all values."""
    low, high = (-np.inf, np.inf) if doubles else (_LEAST, _MOST)
    type_ = np.float64 if doubles else np.int64
    return Bounds(np.full(count, low, type_), np.full(count, high, type_), np.zeros(count, np.bool_))


def bound(
    side: Literal["low", "high"], strict: bool, y: AnyArray, of: Scale, to: Scale, shift: Fraction
) -> tuple[AnyArray, Bools]:
    """Return the least (low) or largest (high) value in the form `to` within y + shift, and where there is none."""
    if to.unit is None:
        return _double_bound(side, strict, y, of, shift)
    if of.unit is None:
        return _rounded_bound(side, strict, np.asarray(y) + float(shift))
    return _integer_bound(side, strict, np.asarray(y, np.int64), of.unit / to.unit, shift / to.unit)


def _double_bound(side: str, strict: bool, y: AnyArray, of: Scale, shift: Fraction) -> tuple[Float64s, Bools]:
    to = np.inf if side == "low" else -np.inf
    if of.unit is None or shift or of.unit != 1:
        at: Float64s = np.asarray(y, np.float64) + float(shift) if shift else np.asarray(y, np.float64)
        beyond = np.zeros(at.size, np.int64)  # the sign of at - y
    else:
        exact = np.asarray(y, np.int64)
        at = exact.astype(np.float64)
        back = np.where(at >= _EDGE, 0, at).astype(np.int64)
        beyond = np.where(at >= _EDGE, 1, np.sign(back - exact))
    sign = 1 if side == "low" else -1
    step = sign * beyond < 0  # the double nearest to y lies outside the range
    if strict:
        step |= beyond == 0
    return np.where(step, np.nextafter(at, to), at), step & (at == to)


def _rounded_bound(side: str, strict: bool, v: Float64s) -> tuple[Int64s, Bools]:
    """Return the bound among integers for a double."""
    low = side == "low"
    whole = np.ceil(v) if low else np.floor(v)
    too_large, too_small = whole >= _EDGE, whole < -_EDGE
    plain = ~(too_large | too_small | np.isnan(whole))
    out = np.where(plain, whole, 0).astype(np.int64)
    if strict:
        step = plain & (whole == v)
        none = step & (out == (_MOST if low else _LEAST))
        out = out + np.where(step & ~none, 1 if low else -1, 0)
    else:
        none = np.zeros(v.size, np.bool_)
    out = np.where(too_large, _MOST, np.where(too_small, _LEAST, out))
    return out, none | (too_large if low else too_small)


def _integer_bound(side: str, strict: bool, y: Int64s, factor: Fraction, shift: Fraction) -> tuple[Int64s, Bools]:
    """Return the bound among integers for y * factor + shift; the factor is an integer or one over an integer."""
    p, q = factor.numerator, factor.denominator
    offset = shift * q  # the bound is (y * p + offset) / q
    floor_wanted = (side == "high") != strict
    c = offset.numerator // offset.denominator if floor_wanted else -(-offset.numerator // offset.denominator)
    # low is the ceiling, or floor + 1 if strict; high is the floor, or ceiling - 1 if strict. A ceiling is computed as a floor.
    c += 0 if floor_wanted else q - 1
    whole, rest = divmod(c, q)
    if q > 1:
        y = y // q + (y % q + rest) // q
    elif rest:
        raise AssertionError("a remainder of a division by 1")
    extra = whole + ((1 if side == "low" else -1) if strict else 0)
    least, most = -((extra - _LEAST) // p), (_MOST - extra) // p  # of y, for a result that fits into 64 bits
    over, under = y > most, y < least
    bits = y.view(np.uint64) * np.uint64(p) + np.uint64(
        extra % 2**64
    )  # overflow wraps around, and back if the result fits
    out = np.where(over, _MOST, np.where(under, _LEAST, bits.view(np.int64)))
    return out, over if side == "low" else under
