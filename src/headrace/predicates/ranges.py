"""The term of a condition that a value of the left side lies between bounds of the right side."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction

import numpy as np
import pyarrow as pa

from headrace.arrays import AnyArray, Bools, Int32s, Int64s, UInt8s
from headrace.conditions import Amount
from headrace.errors import BadInput
from headrace.kernels.ranges import expand_ranges
from headrace.predicates.numbers import Bounds, Scale, Types, bound, unbounded
from headrace.predicates.pair_test import LeftRows


@dataclass(frozen=True)
class RangeEnd:
    """One end of a range: a column y of the right side, shifted by an amount. With `open`, a null means unbounded."""

    y: str
    strict: bool = False
    shift: Amount = 0
    open: bool = False


class SortedRanges:
    """What leads a condition: each right tuple has a range of sorted left tuples, or all outside it, as its candidates."""

    outside = False

    def expand(self, begin: Int64s, end: Int64s, order: Int32s, stop: Int64s, r: Int32s, slots: Int32s) -> int:
        """Write the next pairs of a right tuple and a slot; see the kernel."""
        return int(expand_ranges(begin, end, order, self.outside, stop, r, slots))


class RangeTerm(SortedRanges):
    """Tests whether low <= x <= high, with ends from the right tuple; with `outside`, whether x is outside the range."""

    exact_lead, prefilter = True, False  # a range finds its pairs exactly, and decides alone

    def __init__(self, x: str, low: RangeEnd | None, high: RangeEnd | None, outside: bool = False) -> None:
        self.x, self.low, self.high, self.outside = x, low, high, outside
        self.size = 1
        self.values: AnyArray = np.empty(0, np.int64)  # x of left tuples, by slot
        self._ends = [end for end in (low, high) if end is not None]

    @property
    def rank(self) -> int:
        """The expected selectivity when this term looks up candidates: a lower rank gives fewer."""
        return 3 if self.outside else 2 if len(self._ends) == 1 else 0

    def bind(self, left: Types, right: Types, sides: tuple[str, str]) -> None:
        """Take the types of the columns and the names of the sides; chooses the form to compare in, or refuses."""
        self._scales = [Scale.of(sides[1], end.y, right[end.y]) for end in self._ends]
        known = Scale.known(left[self.x])
        for end, scale in zip(self._ends, self._scales, strict=True):
            if known is None or scale.family != known.family:
                raise BadInput(
                    f"{sides[0]} column {self.x!r} of type {left[self.x]} and {sides[1]} column {end.y!r} of type"
                    f" {right[end.y]} cannot be compared; cast one to the other's type"
                )
            _seconds_or_number(end.shift, scale, end.y)
        mine = Scale.of(sides[0], self.x, left[self.x])
        self._mine, self._form = mine, mine.beside(self._scales)
        self.values = self.values.astype(np.float64 if self._form.doubles else np.int64, copy=False)

    def read_left(self, batch: pa.RecordBatch) -> tuple[AnyArray, Bools]:
        """Return x of left tuples, and which are neither null nor NaN."""
        return self._mine.read(batch.column(self.x), self._form.doubles)

    def read_right(self, columns: dict[str, pa.Array]) -> None:
        """Compute the bounds of the right tuples that `keep` and `spans` refer to."""
        there: Bools = np.ones(len(columns[self._ends[0].y]), np.bool_)
        whole = unbounded(there.size, self._form.doubles)
        low, high, empty = whole.low, whole.high, whole.empty
        for side in ("low", "high"):
            end = getattr(self, side)
            if end is None:
                continue
            scale = self._scales[self._ends.index(end)]
            y, known = scale.read(columns[end.y], self._form.doubles and scale.unit != 1)
            shift = _seconds_or_number(end.shift, scale, end.y)
            at, none = bound(side, end.strict, y, scale, self._form, shift if side == "high" else -shift)
            if end.open:
                unbound = np.asarray(columns[end.y].is_null())
                at, none = np.where(unbound, getattr(whole, side), at), none & ~unbound
                known = known | unbound
            there &= known
            low, high = (at, high) if side == "low" else (low, at)
            empty = empty | none
        self._bounds, self._there = Bounds(low, high, empty), there

    def keep(self, r: Int32s, slots: Int32s, keep: UInt8s) -> None:
        """Set keep[k] to 0 where right tuple r[k] and the left tuple in slots[k] do not satisfy the term."""
        x, bounds = self.values[slots], self._bounds
        inside = (bounds.low[r] <= x) & (x <= bounds.high[r]) & ~bounds.empty[r]
        keep &= (self._there[r] & (inside != self.outside)).view(np.uint8)

    def in_order(self, slots: Int32s, rows: LeftRows) -> tuple[AnyArray, Int32s]:
        """Return x of the tuples in some slots, sorted, and their slots."""
        return in_order(self.values, slots)

    def spans(self, xs: AnyArray) -> tuple[Int64s, Int64s]:
        """Return the range of candidates of each right tuple in sorted values or, with `outside`, the range of the others."""
        bounds = self._bounds
        begin = np.searchsorted(xs, bounds.low, "left").astype(np.int64)
        end = np.maximum(begin, np.searchsorted(xs, bounds.high, "right"))
        end = np.where(bounds.empty, begin, end)
        nothing = ~self._there
        begin[nothing], end[nothing] = 0, xs.size if self.outside else 0
        return begin, end.astype(np.int64)


def in_order(values: AnyArray, slots: Int32s) -> tuple[AnyArray, Int32s]:
    """Return the values in some slots, sorted, and their slots."""
    xs = values[slots]
    order = np.argsort(xs, kind="stable")
    return xs[order], slots[order]


def _seconds_or_number(shift: Amount, scale: Scale, name: str) -> Fraction:
    """Return an amount in the unit of the column: seconds for dates and timestamps, else the number."""
    if isinstance(shift, timedelta) and scale.family != "number":
        return Fraction(shift // timedelta(microseconds=1), 10**6)
    if isinstance(shift, timedelta) or (shift and scale.family != "number"):
        wanted = "a number" if scale.family == "number" else "a timedelta"
        raise BadInput(f"below or above is {shift!r}, and column {name!r} needs {wanted}")
    return Fraction(shift)
