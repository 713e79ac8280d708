"""Residual: the part of a condition that is tested on candidate pairs, which were found by another part or condition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.arrays import Bools, Int32s
from headrace.conditions import Condition, check_condition
from headrace.errors import BadInput
from headrace.predicates.numbers import Types
from headrace.predicates.pair_test import PairTest
from headrace.predicates.terms import split

SIDES = ("left", "right")


class Residual:
    """Tells which of many pairs of rows satisfy a condition.

    Numbers, dates and timestamps are compared exactly, whatever their types; texts by the bytes of their UTF-8. An equality may
    also be of booleans and everything else that Arrow can compare. Nulls and NaN satisfy nothing.

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
        self.wide = any(pa.types.is_nested(types[side][name]) for side in (0, 1) for name in self.columns(side))
        """whether rows have lists, so that pairs which share rows should not copy them for each pair"""
        terms, self._tests = split(condition, types[1], SIDES[1])
        self._terms = [term for term in terms if not term.prefilter]  # a test decides what a prefilter would let pass
        for part in (*terms, *self._tests):
            part.bind(types[0], types[1], SIDES)

    def columns(self, side: int) -> tuple[str, ...]:
        """Return the columns that are read of a side (0 is left, 1 is right)."""
        return self.condition.left_columns if side == 0 else self.condition.right_columns

    def keep(self, left: pa.RecordBatch, right: pa.RecordBatch) -> Bools:
        """Tell for each i whether row i of the left and row i of the right satisfy the condition."""
        assert left.num_rows == right.num_rows, (left.num_rows, right.num_rows)
        each = np.arange(left.num_rows, dtype=np.int32)
        return kept_by(self._tests, left, right, self._kept_by_terms((left, each), (right, each)))

    def keep_pairs(self, left: tuple[pa.RecordBatch, Int32s], right: tuple[pa.RecordBatch, Int32s]) -> Bools:
        """Tell for each i whether two rows satisfy the condition: of each side its rows, and the number of the row of pair i."""
        keep = self._kept_by_terms(left, right)
        if self._tests:
            rows = np.flatnonzero(keep)
            one, other = (batch.take(pa.array(number[rows])) for batch, number in (left, right))
            keep[rows] = kept_by(self._tests, one, other, np.ones(rows.size, np.bool_))
        return keep

    def _kept_by_terms(self, left: tuple[pa.RecordBatch, Int32s], right: tuple[pa.RecordBatch, Int32s]) -> Bools:
        (one, of_left), (other, of_right) = left, right
        keep = np.ones(of_left.size, np.uint8)
        for term in self._terms:
            values, there = term.read_left(one)
            term.values = values
            keep &= there[of_left].view(np.uint8)
            term.read_right({name: other.column(name) for name in self.condition.right_columns})
            term.keep(of_right, of_left, keep)
            term.values = values[:0]
        return keep.view(np.bool_)


def kept_by(tests: Sequence[PairTest], left: pa.RecordBatch, right: pa.RecordBatch, keep: Bools) -> Bools:
    """Tell which of the aligned rows that are kept so far pass all tests. A test sees the rows that those before it leave."""
    rows = np.flatnonzero(keep)
    for test in tests:
        if not rows.size:
            break
        whole = rows.size == left.num_rows
        some = (left, right) if whole else (left.take(pa.array(rows)), right.take(pa.array(rows)))
        rows = rows[test.keep(*some)]
    out: Bools = np.zeros(left.num_rows, np.bool_)
    out[rows] = True
    return out
