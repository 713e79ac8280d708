"""Conditions beyond equality: which waiting tuples a tuple of R matches. [MESH] §3.4

A condition is broken up into ranges (a value of the stream lies between bounds that a tuple of R gives) and distances. With an
equality beside it, pairs come from H and these only filter them. Alone, one of them leads:

    waiting tuples' values, sorted  [1 2 2 5 7 7 9]      a tuple of R that takes 2..7: binary search for both ends
    their slots                     [4 0 6 1 2 5 3]         ^-----------^   these are the candidates; the rest filters them

The sorted copy is made again when tuples came or went, once an iteration at most.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.conditions import (
    METRICS,
    AllOf,
    Amount,
    Band,
    Between,
    Compare,
    Condition,
    Equal,
    Intersects,
    Within,
    check_condition,
)
from headrace.errors import BadInput
from headrace.kernels.ranges import expand_ranges, near
from headrace.relation import Relation
from headrace.relation.columns import Bytes, Longs
from headrace.relation.keys import Ints, Keys
from headrace.relation.store import TupleStore
from headrace.semistream.numbers import Bounds, Doubles, Mask, Numbers, Scale, bound, unbounded
from headrace.semistream.window import HashQueue

_SORTED_BYTES = 8 + 4 + 16  # of a waiting tuple: value and slot in order, and what sorting needs
_PREDICATE_BYTES = 64  # of a tuple of R, a predicate: its number, its bounds and what computing them needs
_SLACK = 4 * np.finfo(np.float64).eps  # of the first coordinate: a candidate lost by rounding would be a result lost


@dataclass(frozen=True)
class End:
    """A bound that a tuple of R gives: its column y, moved by an amount; `open`: a null is no bound."""

    y: str
    strict: bool = False
    shift: Amount = 0
    open: bool = False


class Range:
    """low <= x <= high, with ends that a tuple of R gives; `outside`: x is there and not so."""

    def __init__(self, x: str, low: End | None, high: End | None, outside: bool = False) -> None:
        self.x, self.low, self.high, self.outside = x, low, high, outside
        self.size = 1
        self.values: Numbers = np.empty(0, np.int64)  # of the stream, by slot
        self._ends = [end for end in (low, high) if end is not None]

    @property
    def rank(self) -> int:
        """How few candidates it should give, as a leader: lower is better."""
        return 3 if self.outside else 2 if len(self._ends) == 1 else 0

    def bind(self, stream: pa.Schema, right: dict[str, pa.DataType]) -> None:
        """The columns' types are known: choose the form to compare in, or refuse."""
        mine = Scale.of("stream", self.x, stream.field(self.x).type)
        self._scales = [Scale.of("relation", end.y, right[end.y]) for end in self._ends]
        for end, scale in zip(self._ends, self._scales, strict=True):
            if scale.family != mine.family:
                raise BadInput(
                    f"stream column {self.x!r} of type {stream.field(self.x).type} and relation column {end.y!r} of type"
                    f" {right[end.y]} cannot be compared; cast one to the other's type"
                )
            _seconds_or_number(end.shift, scale, end.y)
        self._mine, self._form = mine, mine.beside(self._scales)
        self.values = self.values.astype(np.float64 if self._form.doubles else np.int64, copy=False)

    def read_stream(self, batch: pa.RecordBatch) -> tuple[Numbers, Mask]:
        """Values of stream tuples, and which there are."""
        return self._mine.read(batch.column(self.x), self._form.doubles)

    def meet(self, columns: dict[str, pa.Array]) -> None:
        """Bounds of tuples of R."""
        there: Mask = np.ones(len(columns[self._ends[0].y]), np.bool_)
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

    def keep(self, r: Ints, slots: Ints, keep: Bytes) -> None:
        """keep[k] becomes 0 where pair k does not satisfy it."""
        x, bounds = self.values[slots], self._bounds
        inside = (bounds.low[r] <= x) & (x <= bounds.high[r]) & ~bounds.empty[r]
        keep &= (self._there[r] & (inside != self.outside)).view(np.uint8)

    def spans(self, xs: Numbers) -> tuple[Longs, Longs]:
        """Where each tuple of R finds its candidates in sorted values, or (outside) where it does not."""
        bounds = self._bounds
        begin = np.searchsorted(xs, bounds.low, "left").astype(np.int64)
        end = np.maximum(begin, np.searchsorted(xs, bounds.high, "right"))
        end = np.where(bounds.empty, begin, end)
        nothing = ~self._there
        begin[nothing], end[nothing] = 0, xs.size if self.outside else 0
        return begin, end.astype(np.int64)


class Near:
    """The distance of two vectors is at most eps."""

    rank, outside = 1, False

    def __init__(self, condition: Within) -> None:
        self.condition = condition
        self.size = len(condition.right)
        self.values: Doubles = np.empty(0, np.float64)  # of the stream, by slot, coordinate after coordinate

    def bind(self, stream: pa.Schema, right: dict[str, pa.DataType]) -> None:
        """Check that both sides are vectors of one size."""
        left = self.condition.left
        self._list = len(left) == 1 and pa.types.is_fixed_size_list(stream.field(left[0]).type)
        types = [stream.field(name).type for name in left]
        if self._list:
            types = [types[0].value_type] * types[0].list_size
        if len(types) != self.size:
            raise BadInput(
                f"the stream's vector {', '.join(left)} has {len(types)} coordinates, and the relation's"
                f" ({', '.join(self.condition.right)}) has {self.size}; name as many"
            )
        self._scales = [self._number("stream", left[min(i, len(left) - 1)], t) for i, t in enumerate(types)]
        self._right = [self._number("relation", name, right[name]) for name in self.condition.right]

    @staticmethod
    def _number(whose: str, name: str, type_: pa.DataType) -> Scale:
        scale = Scale.of(whose, name, type_)
        if scale.family != "number":
            raise BadInput(f"{whose} column {name!r} of type {type_} is no coordinate; expected numbers")
        return scale

    def read_stream(self, batch: pa.RecordBatch) -> tuple[Doubles, Mask]:
        """Vectors of stream tuples, coordinate after coordinate, and which there are."""
        if not self._list:
            return _vectors([batch.column(name) for name in self.condition.left], self._scales)
        lists = batch.column(self.condition.left[0])
        flat = lists.values.slice(lists.offset * self.size, len(lists) * self.size)
        values, there = self._scales[0].read(flat, as_doubles=True)
        whole = there.reshape(-1, self.size).all(axis=1) & lists.is_valid().to_numpy(zero_copy_only=False)
        return np.ascontiguousarray(values, np.float64), whole

    def meet(self, columns: dict[str, pa.Array]) -> None:
        """Vectors of tuples of R."""
        self._vectors, self._there = _vectors([columns[name] for name in self.condition.right], self._right)

    def keep(self, r: Ints, slots: Ints, keep: Bytes) -> None:
        """keep[k] becomes 0 where pair k does not satisfy it."""
        keep &= self._there[r].view(np.uint8)
        near(
            self.values,
            self._vectors,
            self.size,
            float(self.condition.eps),
            METRICS.index(self.condition.metric),
            r,
            slots,
            keep,
        )

    def spans(self, xs: Doubles) -> tuple[Longs, Longs]:
        """Where each tuple of R finds its candidates in sorted first coordinates."""
        first, eps = self._vectors[:: self.size], float(self.condition.eps)
        slack = _SLACK * (np.abs(first) + eps)
        begin = np.searchsorted(xs, first - eps - slack, "left").astype(np.int64)
        end = np.searchsorted(xs, first + eps + slack, "right").astype(np.int64)
        return begin, np.where(self._there, end, begin)


Predicate = Range | Near


class Matching:
    """Finds the pairs that satisfy a condition, or keeps those that do.

    Parameters
    ----------
    relation
        R. Columns that the condition reads need not be in the result.
    condition
        What pairs must satisfy.
    alone
        Whether there is no equality beside it: then one predicate leads.
    """

    def __init__(self, relation: Relation, condition: Condition, alone: bool) -> None:
        check_condition(condition)
        for name in condition.right_columns:
            if name not in relation.schema.names:
                raise BadInput(
                    f"the condition names {name!r} of the relation, which has no such column; its columns are"
                    f" {', '.join(relation.schema.names)}"
                )
        self.condition = condition
        self._codec, self._key = relation.codec, relation.key
        self._types = {field.name: field.type for field in relation.schema}
        for name in condition.right_columns:
            Scale.of("relation", name, self._types[name])
        self.columns = relation.payload([n for n in condition.right_columns if n not in relation.key])
        self._predicates = list(_predicates(condition))
        self._lead = min(self._predicates, key=lambda p: p.rank) if alone else None
        # A range finds its pairs exactly; the first coordinate of a distance does not.
        self._filters = [p for p in self._predicates if p is not self._lead or isinstance(p, Near)]
        self._capacity = 0
        self._taken: list[Numbers] = []  # values of the batch that is being taken in
        self._first = 0
        self._sorted: tuple[Numbers, Ints] | None = None

    @property
    def slot_bytes(self) -> int:
        """Bytes of a waiting tuple."""
        return 8 * sum(p.size for p in self._predicates) + (_SORTED_BYTES if self._lead else 0)

    @property
    def tuple_bytes(self) -> int:
        """Bytes of a tuple of R in the disk buffer."""
        return sum(_PREDICATE_BYTES + 8 * p.size for p in self._predicates)

    def check(self, stream: pa.Schema) -> None:
        """Refuse a stream without the condition's columns, or with types that cannot be compared."""
        for name in self.condition.left_columns:
            if stream.names.count(name) != 1:
                many = "no" if name not in stream.names else "more than one"
                raise BadInput(
                    f"the condition names {name!r} of the stream, which has {many} such column; its columns are"
                    f" {', '.join(stream.names)}"
                )
        for predicate in self._predicates:
            predicate.bind(stream, self._types)

    # -- the stream ------------------------------------------------------------------------------------------------------

    def take(self, batch: pa.RecordBatch, first: int) -> Bytes:
        """Values of tuples that are numbered from `first` on; 1 for those that can match anything."""
        read = [predicate.read_stream(batch) for predicate in self._predicates]
        self._taken, self._first = [values for values, _ in read], first
        can: Mask = np.logical_and.reduce([there for _, there in read])
        return can.view(np.uint8)

    def hold(self, batch: pa.RecordBatch) -> Mask:
        """The rows of a batch are all that waits, row i in slot i; says which of them can match anything."""
        read = [predicate.read_stream(batch) for predicate in self._predicates]
        for predicate, (values, _) in zip(self._predicates, read, strict=True):
            predicate.values = values
        can: Mask = np.logical_and.reduce([there for _, there in read])
        return can

    def enter(self, slots: Ints, numbers: Longs) -> None:
        """Tuples of the batch taken last have their slots."""
        rows = numbers - self._first
        for predicate, taken in zip(self._predicates, self._taken, strict=True):
            width = predicate.size
            predicate.values.reshape(-1, width)[slots] = taken.reshape(-1, width)[rows]
        self.changed()

    def changed(self) -> None:
        """Tuples came or went."""
        self._sorted = None

    def resize(self, capacity: int, old: Ints, new: Ints) -> None:
        """Another number of slots; what was in `old` is in `new`."""
        for predicate in self._predicates:
            width = predicate.size
            values = np.empty((capacity, width), predicate.values.dtype)
            values[new] = predicate.values.reshape(-1, width)[old]
            predicate.values = values.reshape(-1)
        self.changed()

    # -- the relation ----------------------------------------------------------------------------------------------------

    def meet(self, keys: Keys, store: TupleStore) -> None:
        """Tuples of R, whose keys and columns (from 1 on) these are, are looked at from now on."""
        columns: dict[str, Any] = {c.name: store.array(i + 1) for i, c in enumerate(self.columns)}
        if any(name in self._key for name in self.condition.right_columns):
            columns |= dict(zip(self._key, self._codec.decode(keys), strict=True))
        self.look_at(columns)

    def look_at(self, columns: dict[str, Any]) -> None:
        """The same, given by their columns."""
        for predicate in self._predicates:
            predicate.meet(columns)

    def kept(self, r: Ints, slots: Ints) -> tuple[Ints, Ints]:
        """Those pairs of a tuple of R and a slot that satisfy the condition."""
        keep = np.ones(r.size, np.uint8)
        for predicate in self._predicates if self._lead is None else self._filters:
            predicate.keep(r, slots, keep)
        some = keep == 1
        return r[some], slots[some]

    def pairs(self, H: HashQueue, most: int) -> Iterator[tuple[Ints, Ints]]:
        """All pairs of a tuple of R and a slot that satisfy the condition, at most so many at a time."""
        assert self._lead is not None
        xs, order = self._in_order(H)
        begin, end = self._lead.spans(xs)
        stop, filled = np.zeros(2, np.int64), 0
        r, slots = np.empty(most, np.int32), np.empty(most, np.int32)
        while stop[0] < begin.size:
            n = filled + expand_ranges(begin, end, order, self._lead.outside, stop, r[filled:], slots[filled:])
            if self._filters:
                some_r, some_slots = self.kept(r[filled:n], slots[filled:n])
                n = filled + some_r.size
                r[filled:n], slots[filled:n] = some_r, some_slots
            filled = n
            if filled and (2 * filled > most or stop[0] == begin.size):
                yield r[:filled], slots[:filled]
                r, slots, filled = np.empty(most, np.int32), np.empty(most, np.int32), 0

    def _in_order(self, H: HashQueue) -> tuple[Numbers, Ints]:
        assert self._lead is not None
        if self._sorted is None:
            slots = H.oldest(H.used)
            xs = self._lead.values[:: self._lead.size][slots]
            order = np.argsort(xs, kind="stable")
            self._sorted = xs[order], slots[order]
        return self._sorted


def _predicates(condition: Condition) -> Iterator[Predicate]:
    """The ranges and distances that all must hold."""
    match condition:
        case AllOf(conditions):
            for one in conditions:
                yield from _predicates(one)
        case Equal(left, right):
            for x, y in zip(left, right, strict=True):
                yield Range(x, End(y), End(y))
        case Compare(left, op, right):
            if op in ("=", "!="):
                yield Range(left, End(right), End(right), outside=op == "!=")
            else:
                end = End(right, strict=op in ("<", ">"))
                yield Range(left, end if op[0] == ">" else None, end if op[0] == "<" else None)
        case Between(column, low, high, side, inclusive, open_ends):
            above, below = (
                inclusive in ("high", "neither"),
                inclusive in ("low", "neither"),
            )  # whether a bound is left out
            if side == "left":
                yield Range(column, End(low, above, open=open_ends), End(high, below, open=open_ends))
            else:
                yield Range(low, None, End(column, above))
                yield Range(high, End(column, below), None)
        case Band(left, right, below, above):
            yield Range(left, End(right, shift=below), End(right, shift=above))
        case Intersects(left, right):
            half = len(left) // 2
            for i in range(half):
                yield Range(left[i], None, End(right[half + i]))
                yield Range(left[half + i], End(right[i]), None)
        case Within():
            yield Near(condition)
        case _:
            raise BadInput(f"{condition!r} is not a condition that a join of a stream and a relation knows")


def _seconds_or_number(shift: Amount, scale: Scale, name: str) -> Fraction:
    """An amount in the column's own terms: seconds for dates and timestamps, else the number."""
    if isinstance(shift, timedelta) and scale.family != "number":
        return Fraction(shift // timedelta(microseconds=1), 10**6)
    if isinstance(shift, timedelta) or (shift and scale.family != "number"):
        wanted = "a number" if scale.family == "number" else "a timedelta"
        raise BadInput(f"below or above is {shift!r}, and column {name!r} needs {wanted}")
    return Fraction(shift)


def _vectors(columns: list[Any], scales: list[Scale]) -> tuple[Doubles, Mask]:
    read = [scale.read(column, as_doubles=True) for scale, column in zip(scales, columns, strict=True)]
    vectors = np.stack([np.asarray(values, np.float64) for values, _ in read], axis=1)
    return np.ascontiguousarray(vectors).reshape(-1), np.logical_and.reduce([there for _, there in read])
