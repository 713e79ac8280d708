"""Conditions beyond equality: which waiting tuples a tuple of R matches. [MESH] §3.4

A condition is broken up into ranges (a value of the stream lies between bounds that a tuple of R gives) and distances. With an
equality beside it, pairs come from H and these only filter them. Alone, one of them leads:

    waiting tuples' values, sorted  [1 2 2 5 7 7 9]      a tuple of R that takes 2..7: binary search for both ends
    their slots                     [4 0 6 1 2 5 3]         ^-----------^   these are the candidates; the rest filters them

The sorted copy is made again when tuples came or went, once an iteration at most.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from headrace.arrays import AnyArray, Bools, Int32s, Int64s, UInt8s
from headrace.conditions import Condition, check_condition
from headrace.errors import BadInput
from headrace.kernels.ranges import expand_ranges
from headrace.predicates.distances import DistanceTerm
from headrace.predicates.numbers import Scale
from headrace.predicates.terms import terms
from headrace.relation import Relation
from headrace.relation.keys import Keys
from headrace.relation.store import TupleStore

_SORTED_BYTES = 8 + 4 + 16  # bytes of a waiting tuple in the sorted copy: value, slot, and what sorting needs
_SIDES = ("stream", "relation")  # what messages call the two sides of a condition
_PREDICATE_BYTES = 64  # bytes of a tuple of R for each predicate: its number, its bounds and what computing them needs


class Queue(Protocol):
    """The slots of the tuples that wait, in the order they came."""

    @property
    def used(self) -> int:
        """How many there are."""
        ...

    def oldest(self, count: int) -> Int32s:
        """The first of them."""
        ...


class Matching:
    """Finds the pairs that satisfy a condition, or filters given pairs by it.

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
        self._predicates = list(terms(condition))
        self._lead = min(self._predicates, key=lambda p: p.rank) if alone else None
        # A range finds its pairs exactly; the first coordinate of a distance does not.
        self._filters = [p for p in self._predicates if p is not self._lead or isinstance(p, DistanceTerm)]
        self._capacity = 0
        self._taken: list[AnyArray] = []  # values of the batch that is being taken in
        self._first = 0
        self._sorted: tuple[AnyArray, Int32s] | None = None

    @property
    def slot_bytes(self) -> int:
        """Bytes that the condition takes for a waiting tuple."""
        return 8 * sum(p.size for p in self._predicates) + (_SORTED_BYTES if self._lead else 0)

    @property
    def tuple_bytes(self) -> int:
        """Bytes that the condition takes for a tuple of R in the disk buffer."""
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
            predicate.bind({field.name: field.type for field in stream}, self._types, _SIDES)

    # -- the stream ------------------------------------------------------------------------------------------------------

    def take(self, batch: pa.RecordBatch, first: int) -> UInt8s:
        """Values of tuples that are numbered from `first` on; 1 for those that can match anything."""
        read = [predicate.read_left(batch) for predicate in self._predicates]
        self._taken, self._first = [values for values, _ in read], first
        can: Bools = np.logical_and.reduce([there for _, there in read])
        return can.view(np.uint8)

    def hold(self, batch: pa.RecordBatch) -> Bools:
        """Let the rows of a batch be all that waits, row i in slot i; returns which of them can match anything."""
        read = [predicate.read_left(batch) for predicate in self._predicates]
        for predicate, (values, _) in zip(self._predicates, read, strict=True):
            predicate.values = values
        can: Bools = np.logical_and.reduce([there for _, there in read])
        return can

    def enter(self, slots: Int32s, numbers: Int64s) -> None:
        """Store the values of tuples of the batch that was taken last: they have their slots now."""
        rows = numbers - self._first
        for predicate, taken in zip(self._predicates, self._taken, strict=True):
            width = predicate.size
            predicate.values.reshape(-1, width)[slots] = taken.reshape(-1, width)[rows]
        self.changed()

    def changed(self) -> None:
        """Forget the sorted copy: tuples came or went."""
        self._sorted = None

    def resize(self, capacity: int, old: Int32s, new: Int32s) -> None:
        """Have another number of slots; what was in `old` is in `new`."""
        for predicate in self._predicates:
            width = predicate.size
            values = np.empty((capacity, width), predicate.values.dtype)
            values[new] = predicate.values.reshape(-1, width)[old]
            predicate.values = values.reshape(-1)
        self.changed()

    # -- the relation ----------------------------------------------------------------------------------------------------

    def meet(self, keys: Keys, store: TupleStore) -> None:
        """Tuples of R are compared from now on: their keys, and a store with their other columns from column 1 on."""
        columns: dict[str, Any] = {c.name: store.array(i + 1) for i, c in enumerate(self.columns)}
        if any(name in self._key for name in self.condition.right_columns):
            columns |= dict(zip(self._key, self._codec.decode(keys), strict=True))
        self.look_at(columns)

    def follow(self, relation: Relation) -> None:
        """Read tuples of another version of R from now on: which of its columns have nulls may differ."""
        self.columns = relation.payload([column.name for column in self.columns])

    def look_at(self, columns: dict[str, Any]) -> None:
        """Tuples of R, whose columns these are, are compared from now on."""
        for predicate in self._predicates:
            predicate.read_right(columns)

    def kept(self, r: Int32s, slots: Int32s) -> tuple[Int32s, Int32s]:
        """Those pairs of a tuple of R and a slot that satisfy the condition."""
        keep = np.ones(r.size, np.uint8)
        for predicate in self._predicates if self._lead is None else self._filters:
            predicate.keep(r, slots, keep)
        some = keep == 1
        return r[some], slots[some]

    def pairs(self, H: Queue, most: int) -> Iterator[tuple[Int32s, Int32s]]:
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

    def _in_order(self, H: Queue) -> tuple[AnyArray, Int32s]:
        """The values of the leading predicate, sorted, and their slots."""
        assert self._lead is not None
        if self._sorted is None:
            slots = H.oldest(H.used)
            xs = self._lead.values[:: self._lead.size][slots]
            order = np.argsort(xs, kind="stable")
            self._sorted = xs[order], slots[order]
        return self._sorted
