"""Conditions beyond equality: which waiting tuples a tuple of R matches. [MESH] §3.4

A condition is broken up into terms, which keep a few words for each waiting tuple (ranges and distances of numbers, hashes and
signatures of texts), and tests, which read the columns of pairs that the terms leave (texts, a user's function). With an
equality beside it, pairs come from H and these only filter them. Alone, one of them leads:

    waiting tuples' values, sorted  [1 2 2 5 7 7 9]      a tuple of R that takes 2..7: binary search for both ends
    their slots                     [4 0 6 1 2 5 3]         ^-----------^   these are the candidates; the rest filters them

The sorted copy is made again when tuples came or went, once an iteration at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from headrace.arrays import AnyArray, Bools, Int32s, Int64s, UInt8s
from headrace.conditions import Condition, check_condition
from headrace.errors import BadInput
from headrace.predicates.pair_test import LeftRows
from headrace.predicates.ranges import SortedRanges
from headrace.predicates.residual import kept_by
from headrace.predicates.terms import Term, split
from headrace.predicates.texts import TextRange
from headrace.relation import Relation
from headrace.semistream.waiting_plan import mean_bytes

_SORTED_BYTES = 8 + 4 + 16  # bytes of a waiting tuple in the sorted copy: value, slot, and what sorting needs
_SORTED_TEXTS = 2  # copies of a text that sorting makes: as it is gathered, and in order
_SIDES = ("stream", "relation")  # what messages call the two sides of a condition
_PREDICATE_BYTES = 64  # bytes of a tuple of R for each predicate: its number, its bounds and what computing them needs
_CANDIDATES = 1 << 15  # pairs that terms filter together: what a step takes besides is little beside them
_CANDIDATE_BYTES = 32  # bytes of such a pair: its numbers, whether it passes, and copies of those that do
_ASSUMED_TEXT = 80  # bytes of a stream tuple's tested columns, assumed before the first tuple is seen


class Queue(Protocol):
    """The slots of the tuples that wait, in the order they came."""

    @property
    def used(self) -> int:
        """How many there are."""
        ...

    def oldest(self, count: int) -> Int32s:
        """The first of them."""
        ...


class EveryPair(SortedRanges):
    """Leads where nothing else can: every waiting tuple is a candidate of every tuple of R."""

    def read_right(self, columns: dict[str, Any]) -> None:
        """Count the tuples of R."""
        self._count = len(next(iter(columns.values())))

    def in_order(self, slots: Int32s, rows: LeftRows) -> tuple[AnyArray, Int32s]:
        """The tuples as they come."""
        return slots, slots

    def spans(self, xs: AnyArray) -> tuple[Int64s, Int64s]:
        """All of them, for each tuple of R."""
        return np.zeros(self._count, np.int64), np.full(self._count, xs.size, np.int64)


Lead = Term | TextRange | EveryPair


class BatchRows:
    """The rows of a batch as waiting tuples, row i in slot i."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def some_columns(self, names: Sequence[str], slots: Int32s) -> pa.RecordBatch:
        """Copy some columns of rows."""
        return self._batch.select(list(names)).take(pa.array(slots))


class Matching:
    """Finds the pairs that satisfy a condition, or filters given pairs by it.

    Parameters
    ----------
    relation
        R. Columns that the condition reads need not be in the result.
    condition
        What pairs must satisfy.
    alone
        Whether there is no equality beside it: then one part of it leads.
    rows
        Where the columns of waiting tuples are.
    """

    def __init__(self, relation: Relation, condition: Condition, alone: bool, rows: LeftRows | None = None) -> None:
        check_condition(condition)
        for name in condition.right_columns:
            if name not in relation.schema.names:
                raise BadInput(
                    f"the condition names {name!r} of the relation, which has no such column; its columns are"
                    f" {', '.join(relation.schema.names)}"
                )
        self.condition = condition
        self._types = {field.name: field.type for field in relation.schema}
        self._predicates, tests = split(condition, self._types, _SIDES[1])
        self._lead: Lead | None = None
        if alone:
            leads = [*self._predicates, *(test for test in tests if isinstance(test, TextRange))]
            self._lead = min(leads, key=lambda lead: lead.rank) if leads else EveryPair()
        # What finds its pairs exactly need not filter them. First coordinates find too many.
        self._filters = [p for p in self._predicates if p is not self._lead or not p.exact_lead]
        self._tests = [test for test in tests if test is not self._lead]
        self._all_tests = tests
        self._tested_right = tuple(dict.fromkeys(name for test in self._tests for name in test.right))
        self._tested_left = tuple(dict.fromkeys(name for test in self._tests for name in test.left))
        self._right_bytes = mean_bytes(relation, self._tested_right)
        # Columns of a tuple of R that tests read, and what is made of them: those of the one that leads are among them.
        self._row_bytes = 2 * mean_bytes(relation, list(dict.fromkeys(name for test in tests for name in test.right)))
        self._left_bytes = float(_ASSUMED_TEXT)
        self._right: dict[str, Any] = {}  # columns of the tuples of R that are compared now
        self.rows = rows
        self.test_room = 0  # bytes for columns of pairs that are tested together
        self._taken: list[AnyArray] = []  # values of the batch that is being taken in
        self._first = 0
        self._sorted: tuple[Any, Int32s] | None = None

    def slot_bytes(self, stream_bytes: float) -> float:
        """Bytes that the condition takes for a waiting tuple, with stream tuples of so many bytes."""
        texts = _SORTED_TEXTS * (stream_bytes or _ASSUMED_TEXT) if isinstance(self._lead, TextRange) else 0
        return 8 * sum(p.size for p in self._predicates) + (_SORTED_BYTES if self._lead else 0) + texts

    @property
    def tuple_bytes(self) -> float:
        """Bytes that the condition takes for a tuple of R in the disk buffer."""
        words = sum(_PREDICATE_BYTES + 8 * p.size for p in self._predicates)
        return words + _PREDICATE_BYTES * len(self._all_tests) + self._row_bytes

    @property
    def pair_bytes(self) -> float:
        """Bytes that testing a pair takes: copies of its columns, and what tests make of them."""
        copies = max((test.copies for test in self._tests), default=0)
        most = max((test.pair_bytes for test in self._tests), default=0)
        return copies * (self._left_bytes + self._right_bytes) + most

    @property
    def tests(self) -> bool:
        """Whether columns of pairs are copied and tested."""
        return bool(self._tests)

    def check(self, stream: pa.Schema) -> None:
        """Refuse a stream without the condition's columns, or with types that cannot be compared."""
        for name in self.condition.left_columns:
            if stream.names.count(name) != 1:
                many = "no" if name not in stream.names else "more than one"
                raise BadInput(
                    f"the condition names {name!r} of the stream, which has {many} such column; its columns are"
                    f" {', '.join(stream.names)}"
                )
        for part in (*self._predicates, *self._all_tests):
            part.bind({field.name: field.type for field in stream}, self._types, _SIDES)

    # -- the stream ------------------------------------------------------------------------------------------------------

    def take(self, batch: pa.RecordBatch, first: int) -> UInt8s:
        """Values of tuples that are numbered from `first` on; 1 for those that can match anything."""
        self._taken, can = self._read(batch)
        self._first = first
        return can.view(np.uint8)

    def hold(self, batch: pa.RecordBatch) -> Bools:
        """Let the rows of a batch be all that waits, row i in slot i; returns which of them can match anything."""
        self.rows = BatchRows(batch)
        read, can = self._read(batch)
        for predicate, values in zip(self._predicates, read, strict=True):
            predicate.values = values
        return can

    def _read(self, batch: pa.RecordBatch) -> tuple[list[AnyArray], Bools]:
        """What terms keep of the rows of a batch, and which rows can match anything."""
        read = [predicate.read_left(batch) for predicate in self._predicates]
        can: Bools = np.ones(batch.num_rows, np.bool_)
        for _, there in read:
            can &= there
        for test in self._all_tests:
            possible = test.can_match(batch)
            if possible is not None:
                can &= possible
        if self._tested_left and batch.num_rows:
            mean = batch.select(list(self._tested_left)).nbytes / batch.num_rows
            self._left_bytes = max(self._left_bytes, mean)
        return [values for values, _ in read], can

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

    def follow(self, relation: Relation) -> None:
        """Compare with tuples of another version of R from now on: they may be longer."""
        self._right_bytes = mean_bytes(relation, self._tested_right)

    def look_at(self, columns: dict[str, Any]) -> None:
        """Tuples of R, whose columns these are, are compared from now on."""
        for predicate in self._predicates:
            predicate.read_right(columns)
        if self._lead is not None and self._lead not in self._predicates:
            self._lead.read_right(columns)
        self._right = {name: columns[name] for name in self._tested_right}

    def kept(self, r: Int32s, slots: Int32s) -> tuple[Int32s, Int32s]:
        """Those pairs of a tuple of R and a slot that satisfy the condition."""
        if self._filters:
            keep = np.ones(r.size, np.uint8)
            for predicate in self._filters:
                predicate.keep(r, slots, keep)
            some = keep == 1
            r, slots = r[some], slots[some]
        if not self._tests or not r.size:
            return r, slots
        step = max(1, int(self.test_room / self.pair_bytes))
        passed = np.concatenate([self._tested(r[a : a + step], slots[a : a + step]) for a in range(0, r.size, step)])
        return r[passed], slots[passed]

    def _tested(self, r: Int32s, slots: Int32s) -> Bools:
        """Which pairs pass all tests, which read their columns."""
        assert self.rows is not None
        left = self.rows.some_columns(self._tested_left, slots)
        some = pa.array(r)
        right = pa.RecordBatch.from_pydict({name: column.take(some) for name, column in self._right.items()})
        return kept_by(self._tests, left, right, np.ones(r.size, np.bool_))

    def pairs(self, H: Queue, most: int) -> Iterator[tuple[Int32s, Int32s]]:
        """All pairs of a tuple of R and a slot that satisfy the condition, at most so many at a time."""
        assert self._lead is not None
        xs, order = self._in_order(H)
        begin, end = self._lead.spans(xs)
        stop, filled = np.zeros(2, np.int64), 0
        # Few of many candidates pass a test; they are looked at in the room for pairs that are tested.
        step = max(most, min(_CANDIDATES, self.test_room // _CANDIDATE_BYTES))
        r, slots = np.empty(step, np.int32), np.empty(step, np.int32)
        while stop[0] < begin.size:
            n = filled + self._lead.expand(begin, end, order, stop, r[filled:], slots[filled:])
            if self._filters or self._tests:
                some_r, some_slots = self.kept(r[filled:n], slots[filled:n])
                n = filled + some_r.size
                r[filled:n], slots[filled:n] = some_r, some_slots
            filled = n
            if filled and (2 * filled > step or stop[0] == begin.size):
                for a in range(0, filled, most):
                    yield r[a : min(filled, a + most)], slots[a : min(filled, a + most)]
                r, slots, filled = np.empty(step, np.int32), np.empty(step, np.int32), 0

    def _in_order(self, H: Queue) -> tuple[Any, Int32s]:
        """The values of what leads, sorted, and their slots."""
        assert self._lead is not None and self.rows is not None
        if self._sorted is None:
            self._sorted = self._lead.in_order(H.oldest(H.used), self.rows)
        return self._sorted
