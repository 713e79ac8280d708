"""Residual: the part of a condition that is tested on candidate pairs, which were found by another part or condition."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Bools
from headrace.conditions import AllOf, Condition, Equal, check_condition
from headrace.errors import BadInput
from headrace.predicates.numbers import Scale, Types
from headrace.predicates.terms import Term, terms
from headrace.relation.columns import plain_type

SIDES = ("left", "right")


class Residual:
    """Tells which of many pairs of rows satisfy a condition.

    Numbers, dates and timestamps are compared exactly, whatever their types. An equality may also be of strings, binary,
    booleans and everything else that Arrow can compare. Nulls and NaN satisfy nothing.

    Parameters
    ----------
    condition
        The condition that pairs must satisfy.
    left, right
        Schemas of the two sides; columns that are missing or cannot be compared are refused by name.

    Example
    -------
    >>> import pyarrow as pa, headrace as hr
    >>> from headrace.predicates.residual import Residual
    >>> sales = pa.record_batch({"shop": ["a", "a", "b"], "day": [1, 5, 5]})
    >>> offers = pa.record_batch({"shop": ["a", "a", "a"], "since": [0, 6, 0]})
    >>> asked = Residual(hr.all_of(hr.equal("shop"), hr.compare("day", ">=", "since")), sales.schema, offers.schema)
    >>> asked.columns(0), asked.columns(1)
    (('shop', 'day'), ('shop', 'since'))
    >>> asked.keep(sales, offers).tolist()  # row i of the one with row i of the other
    [True, False, False]
    """

    def __init__(self, condition: Condition, left: pa.Schema, right: pa.Schema) -> None:
        check_condition(condition)
        self.condition = condition
        for side, schema in enumerate((left, right)):
            for name in self.columns(side):
                if schema.names.count(name) != 1:
                    many = "no" if name not in schema.names else "more than one"
                    raise BadInput(
                        f"the condition names {name!r} of the {SIDES[side]} side, which has {many} such column; its columns are"
                        f" {', '.join(schema.names)}"
                    )
        types: list[Types] = [{field.name: field.type for field in schema} for schema in (left, right)]
        self._terms: list[Term] = []
        self._same: list[tuple[str, str, pa.DataType]] = []
        for one in _parts(condition):
            if isinstance(one, Equal) and not _numbers(one, *types):
                self._same.append((one.left[0], one.right[0], _common(one, *types)))
            else:
                self._terms += terms(one)
        for term in self._terms:
            term.bind(types[0], types[1], SIDES)

    def columns(self, side: int) -> tuple[str, ...]:
        """Return the columns that are read of a side (0 is left, 1 is right)."""
        return self.condition.left_columns if side == 0 else self.condition.right_columns

    def keep(self, left: pa.RecordBatch, right: pa.RecordBatch) -> Bools:
        """Tell for each i whether row i of the left and row i of the right satisfy the condition."""
        assert left.num_rows == right.num_rows, (left.num_rows, right.num_rows)
        keep = np.ones(left.num_rows, np.uint8)
        each = np.arange(left.num_rows, dtype=np.int32)
        for x, y, type_ in self._same:
            same = pc.equal(_as(left.column(x), type_), _as(right.column(y), type_)).fill_null(False)
            keep &= same.to_numpy(zero_copy_only=False).view(np.uint8)
        for term in self._terms:
            values, there = term.read_left(left)
            term.values = values
            keep &= there.view(np.uint8)
            term.read_right({name: right.column(name) for name in self.condition.right_columns})
            term.keep(each, each, keep)
            term.values = values[:0]
        return keep.view(np.bool_)


def _parts(condition: Condition) -> Iterator[Condition]:
    """Split a condition into parts that must all hold; an equality of several columns into one per pair of columns."""
    if isinstance(condition, AllOf):
        for one in condition.conditions:
            yield from _parts(one)
    elif isinstance(condition, Equal):
        for x, y in zip(condition.left, condition.right, strict=True):
            yield Equal((x,), (y,))
    else:
        yield condition


def _numbers(one: Equal, left: Types, right: Types) -> bool:
    return Scale.known(left[one.left[0]]) is not None and Scale.known(right[one.right[0]]) is not None


def _common(one: Equal, left: Types, right: Types) -> pa.DataType:
    """Return the common type of both columns; refuses columns that cannot be compared, by name."""
    (x,), (y,) = one.left, one.right
    a, b = left[x], right[y]
    if pa.types.is_nested(a) or pa.types.is_nested(b) or plain_type(x, a) != plain_type(y, b):
        raise BadInput(
            f"left column {x!r} of type {a} and right column {y!r} of type {b} cannot be compared; cast one to the other's type"
        )
    return plain_type(x, a)


def _as(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array if array.type == type_ else array.cast(type_)
