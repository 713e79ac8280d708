"""Comparison of texts, which are ordered by the bytes of their UTF-8 as Spark orders them, and equality of any other values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import AnyArray, Bools, Int32s, Int64s, UInt8s
from headrace.errors import BadInput, UnsupportedType
from headrace.predicates.numbers import Types
from headrace.predicates.pair_test import LeftRows, PairTest
from headrace.predicates.ranges import RangeEnd, SortedRanges, in_order
from headrace.relation.columns import from_arrow, plain_type
from headrace.relation.keys import ByteKeys


def is_text(type_: pa.DataType) -> bool:
    """Tell whether a column holds texts or binary strings, in any of Arrow's forms."""
    try:
        plain = plain_type("", type_)
    except UnsupportedType:
        return False
    return bool(pa.types.is_string(plain) or pa.types.is_binary(plain))


def common_type(x: str, left: Types, y: str, right: Types, sides: tuple[str, str]) -> pa.DataType:
    """Return the type that two columns are both stored as; refuses columns that cannot be compared, by name."""
    a, b = left[x], right[y]
    if pa.types.is_nested(a) or pa.types.is_nested(b) or plain_type(x, a) != plain_type(y, b):
        raise BadInput(
            f"{sides[0]} column {x!r} of type {a} and {sides[1]} column {y!r} of type {b} cannot be compared; cast one to the"
            " other's type"
        )
    return plain_type(x, a)


def as_plain(array: Any, type_: pa.DataType) -> pa.Array:
    """Return a column in its stored type."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array if array.type == type_ else array.cast(type_)


def bools(array: Any) -> Bools:
    """Return Arrow's booleans for NumPy; a null is false."""
    out: Bools = np.asarray(array.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)
    return out


def byte_keys(array: pa.Array) -> ByteKeys:
    """Return texts as byte strings, without a copy; a null is some text."""
    buffers = from_arrow(array)
    return ByteKeys(buffers.values, buffers.offsets)


class SameTest(PairTest):
    """Tests whether two columns of any type are equal. A null equals nothing."""

    def __init__(self, x: str, y: str) -> None:
        self.left, self.right = (x,), (y,)

    def bind(self, left: Types, right: Types, sides: tuple[str, str]) -> None:
        """Take the types of the columns; refuses two that cannot be compared."""
        self._type = common_type(self.left[0], left, self.right[0], right, sides)

    def can_match(self, batch: pa.RecordBatch) -> Bools | None:
        """Tell which left tuples have a value."""
        return bools(batch.column(self.left[0]).is_valid())

    def keep(self, left: pa.RecordBatch, right: pa.RecordBatch) -> Bools:
        """Tell which rows are equal."""
        x, y = left.column(self.left[0]), right.column(self.right[0])
        return bools(pc.equal(as_plain(x, self._type), as_plain(y, self._type)))


class HashTerm(SortedRanges):
    """Passes over pairs of texts whose hashes differ, and finds those with one hash; a SameTest beside it compares the texts."""

    rank, size, exact_lead, prefilter = 0, 1, True, True

    def __init__(self, x: str, y: str) -> None:
        self.x, self.y = x, y
        self.values: Int64s = np.empty(0, np.int64)  # hashes of left texts, by slot

    def bind(self, left: Types, right: Types, sides: tuple[str, str]) -> None:
        """Take the types of the columns; refuses two that cannot be compared."""
        self._type = common_type(self.x, left, self.y, right, sides)

    def read_left(self, batch: pa.RecordBatch) -> tuple[Int64s, Bools]:
        """Return the hashes of left texts, and which are not null."""
        return self._read(batch.column(self.x))

    def read_right(self, columns: dict[str, Any]) -> None:
        """Compute the hashes of the right texts that `keep` and `spans` refer to."""
        self._hashes, self._there = self._read(columns[self.y])

    def _read(self, array: Any) -> tuple[Int64s, Bools]:
        plain = as_plain(array, self._type)
        return byte_keys(plain).hashes().view(np.int64), bools(plain.is_valid())

    def keep(self, r: Int32s, slots: Int32s, keep: UInt8s) -> None:
        """Set keep[k] to 0 where right tuple r[k] and the left tuple in slots[k] have other hashes."""
        keep &= (self._there[r] & (self._hashes[r] == self.values[slots])).view(np.uint8)

    def in_order(self, slots: Int32s, rows: LeftRows) -> tuple[AnyArray, Int32s]:
        """Return the hashes of the tuples in some slots, sorted, and their slots."""
        return in_order(self.values, slots)

    def spans(self, xs: Int64s) -> tuple[Int64s, Int64s]:
        """Return the range of candidates of each right tuple in sorted hashes."""
        begin = np.searchsorted(xs, self._hashes, "left").astype(np.int64)
        end = np.searchsorted(xs, self._hashes, "right").astype(np.int64)
        return begin, np.where(self._there, end, begin)


class TextRange(PairTest, SortedRanges):
    """Tests whether low <= x <= high for texts, with ends from the right tuple; with `outside`, whether x is outside the range.

    As the leading part of a condition it sorts the left texts, and finds the ends of each range by binary search.
    """

    exact_lead = True

    def __init__(self, x: str, low: RangeEnd | None, high: RangeEnd | None, outside: bool = False) -> None:
        self.x, self.low, self.high, self.outside = x, low, high, outside
        self._ends = [end for end in (low, high) if end is not None]
        self.left, self.right = (x,), tuple(dict.fromkeys(end.y for end in self._ends))

    @property
    def rank(self) -> int:
        """The expected selectivity when this test looks up candidates: a lower rank gives fewer."""
        return 3 if self.outside else 2 if len(self._ends) == 1 else 1

    def bind(self, left: Types, right: Types, sides: tuple[str, str]) -> None:
        """Take the types of the columns; refuses two that cannot be compared."""
        for end in self._ends:
            self._type = common_type(self.x, left, end.y, right, sides)

    def can_match(self, batch: pa.RecordBatch) -> Bools | None:
        """Tell which left tuples have a text."""
        return bools(batch.column(self.x).is_valid())

    def keep(self, left: pa.RecordBatch, right: pa.RecordBatch) -> Bools:
        """Tell which rows have a text in the range."""
        x = as_plain(left.column(self.x), self._type)
        known = x.is_valid()
        inside: Any = pa.repeat(True, left.num_rows)
        for end, compare in (
            (self.low, pc.greater if self.low and self.low.strict else pc.greater_equal),
            (self.high, pc.less if self.high and self.high.strict else pc.less_equal),
        ):
            if end is None:
                continue
            y = as_plain(right.column(end.y), self._type)
            unbound = y.is_null() if end.open else pa.repeat(False, len(y))
            inside = pc.and_(inside, pc.or_(unbound, compare(x, y).fill_null(False)))
            known = pc.and_(known, pc.or_(unbound, y.is_valid()))
        kept: Bools = bools(known) & (bools(inside) != self.outside)
        return kept

    def in_order(self, slots: Int32s, rows: LeftRows) -> tuple[ByteKeys, Int32s]:
        """Return the texts of the tuples in some slots, sorted, and their slots."""
        texts = byte_keys(as_plain(rows.some_columns((self.x,), slots).column(0), self._type))
        order = texts.argsort()
        return texts.take(order), slots[order]

    def read_right(self, columns: dict[str, Any]) -> None:
        """Take the ends of the right tuples that `spans` refers to."""
        self._texts = {end.y: as_plain(columns[end.y], self._type) for end in self._ends}

    def spans(self, xs: ByteKeys) -> tuple[Int64s, Int64s]:
        """Return the range of candidates of each right tuple in sorted texts or, with `outside`, the range of the others."""
        n = len(self._texts[self._ends[0].y])
        begin, stop = np.zeros(n, np.int64), np.full(n, len(xs), np.int64)
        there: Bools = np.ones(n, np.bool_)
        for end, is_low in ((self.low, True), (self.high, False)):
            if end is None:
                continue
            y = self._texts[end.y]
            valid = bools(y.is_valid())
            at = np.where(valid, _search(xs, byte_keys(y), beyond=end.strict == is_low), 0 if is_low else len(xs))
            begin, stop = (at, stop) if is_low else (begin, at)
            there &= valid | end.open
        stop = np.maximum(begin, stop)
        begin[~there], stop[~there] = 0, len(xs) if self.outside else 0
        return begin.astype(np.int64), stop.astype(np.int64)


def _search(xs: ByteKeys, ys: ByteKeys, *, beyond: bool) -> Int64s:
    """Return where texts fall in sorted ones: before the first that is not below or, with `beyond`, after all that are equal."""
    order = ys.argsort()
    sorted_ys = ys.take(order)
    low, high = np.empty(len(ys), np.int32), np.empty(len(ys), np.int32)
    sorted_ys.locate(xs, np.zeros(len(xs), np.uint8), low, high)
    equal = sorted_ys.equal_at(xs, low)
    found = np.where(equal, high + 1 if beyond else low, low + 1)
    out = np.empty(len(ys), np.int64)
    out[order] = found
    return out
