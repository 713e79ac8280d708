"""Output: makes result batches of pairs of rows, and keeps the pairs that satisfy the whole condition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from headrace.arrays import Bools, Int32s
from headrace.conditions import AllOf, Condition, Equal
from headrace.errors import BadInput
from headrace.predicates import Residual
from headrace.progressive.grids.partitioning import LEFT, SIDES
from headrace.progressive.memory.side_memory import SideMemory
from headrace.row_copies import take


class PairRows(Protocol):
    """The rows of one side of some pairs, wherever they are stored; row k belongs to pair k."""

    def take(self, columns: Sequence[str] | None = None, which: Bools | None = None) -> pa.RecordBatch:
        """Copy the rows; or some of their columns, and only the rows that `which` marks."""
        ...


@dataclass(frozen=True, slots=True)
class BatchRows:
    """Rows of a record batch, by their numbers."""

    batch: pa.RecordBatch
    rows: Int32s

    def take(self, columns: Sequence[str] | None = None, which: Bools | None = None) -> pa.RecordBatch:
        """Copy the rows out of the batch."""
        batch = self.batch if columns is None else self.batch.select(list(columns))
        return take(batch, self.rows if which is None else self.rows[which])

    def distinct(self, columns: Sequence[str]) -> tuple[pa.RecordBatch, Int32s]:
        """Copy each row once."""
        used = np.zeros(self.batch.num_rows, np.bool_)
        used[self.rows] = True
        number = np.cumsum(used, dtype=np.int32) - np.int32(1)
        return take(self.batch.select(list(columns)), np.flatnonzero(used)), number[self.rows]


@dataclass(frozen=True, slots=True)
class MemoryRows:
    """Rows in the memory of a side, by their slots in the order of `SideMemory.by_chunk`."""

    side: SideMemory
    slots: Int32s

    def take(self, columns: Sequence[str] | None = None, which: Bools | None = None) -> pa.RecordBatch:
        """Copy the rows out of the side's memory."""
        return self.side.rows(self.slots if which is None else self.slots[which], columns)

    def distinct(self, columns: Sequence[str]) -> tuple[pa.RecordBatch, Int32s]:
        """Copy the row of each slot once."""
        slots, number = np.unique(self.slots, return_inverse=True)
        order = self.side.by_chunk(slots)
        place = np.empty(order.size, np.int32)
        place[order] = np.arange(order.size, dtype=np.int32)
        return self.side.rows(slots[order], columns), place[number]


class Output:
    """Makes result batches of pairs of a left and a right row.

    Parameters
    ----------
    condition
        The whole condition. Columns that it asks to be equal appear once, as the left side has them.
    left, right
        The schemas of the sides.
    ask
        The part of the condition that is still to be tested on each pair; None for nothing.
    suffix
        Added to the name of a right column that the left side has too; None refuses it.
    """

    def __init__(
        self, condition: Condition, left: pa.Schema, right: pa.Schema, ask: Condition | None, suffix: str | None
    ) -> None:
        self.equal = {mine: name for c in _equalities(condition) for mine, name in zip(c.left, c.right, strict=True)}
        """the right columns that are asked to be equal to left ones, by the names of these"""
        taken_once = {name for c in _equalities(condition) for name in c.right}
        self.right = [name for name in right.names if name not in taken_once]
        fields, taken = list(left), set(left.names)
        for name in self.right:
            called = name
            if called in taken:
                if suffix is None:
                    raise BadInput(f"column {name!r} is on both sides; rename one, or give a suffix")
                called += suffix
                if called in taken:
                    raise BadInput(f"column {name!r} is on both sides, and so is {called!r}; use another suffix")
            taken.add(called)
            fields.append(right.field(name).with_name(called))
        self.schema = pa.schema(fields)
        self._residual = None if ask is None else Residual(ask, left, right)

    def make(self, left: PairRows, right: PairRows) -> tuple[pa.RecordBatch, Bools | None]:
        """Return the results of pairs, and a mask of the pairs that they are made of (None if all are)."""
        which = self.test(left, right)
        return self.results(left, right, which), which

    def test(self, left: PairRows, right: PairRows) -> Bools | None:
        """Ask pairs for what is still to be tested. Returns a mask of those that satisfy it; None if all do."""
        if self._residual is None:
            return None
        asked = self._residual.columns(0), self._residual.columns(1)
        if self._residual.wide:
            which = self._residual.keep_pairs(_distinct(left, asked[0]), _distinct(right, asked[1]))
        else:
            which = self._residual.keep(left.take(asked[0]), right.take(asked[1]))
        return None if which.all() else which

    def results(self, left: PairRows, right: PairRows, which: Bools | None) -> pa.RecordBatch:
        """The results of the pairs that `which` marks; of all if it is None."""
        a, b = left.take(None, which), right.take(self.right, which)
        return pa.RecordBatch.from_arrays([*a.columns, *b.columns], schema=self.schema)

    def empty(self) -> pa.RecordBatch:
        """Return a batch of no results."""
        return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in self.schema], schema=self.schema)


def _distinct(rows: PairRows, columns: Sequence[str]) -> tuple[pa.RecordBatch, Int32s]:
    """Columns of rows, and the number of each pair's row among them; of rows in memory each is there once."""
    if isinstance(rows, BatchRows | MemoryRows):
        return rows.distinct(columns)
    batch = rows.take(columns)
    return batch, all_rows(batch.num_rows)


def _equalities(condition: Condition) -> list[Equal]:
    """The equalities that every result satisfies."""
    if isinstance(condition, AllOf):
        return [one for c in condition.conditions for one in _equalities(c)]
    return [condition] if isinstance(condition, Equal) else []


def plain_schema(schema: pa.Schema, whose: str) -> pa.Schema:
    """A schema as rows are kept: dictionary columns have the type of their values. Refuses two columns of one name."""
    twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if twice:
        raise BadInput(f"{whose} has more than one column {', '.join(twice)}; rename them")
    types = [f.type.value_type if pa.types.is_dictionary(f.type) else f.type for f in schema]
    return pa.schema([pa.field(f.name, type_) for f, type_ in zip(schema, types, strict=True)])


def in_schema(batch: pa.RecordBatch, schema: pa.Schema, whose: str) -> pa.RecordBatch:
    """Return a batch in the types of a schema; refuse one with other columns."""
    if batch.schema.names != schema.names:
        raise BadInput(
            f"a batch of {whose} has columns {', '.join(batch.schema.names)}, where the first had {', '.join(schema.names)}"
        )
    columns = []
    for column, field in zip(batch.columns, schema, strict=True):
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if column.type != field.type:
            raise BadInput(
                f"column {field.name!r} of {whose} has type {column.type} in a batch, where the first had {field.type}"
            )
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def side_name(number: int) -> str:
    """The name of a side in messages."""
    return f"the {SIDES[number]} side"


def left_and_right(side: int, mine: PairRows, other: PairRows) -> tuple[PairRows, PairRows]:
    """Put the rows of side number `side` and those of the other side in the order left, right."""
    return (mine, other) if side == LEFT else (other, mine)


def all_rows(n: int) -> Int32s:
    """The numbers of the first n rows: 0, 1, 2, ..."""
    return np.arange(n, dtype=np.int32)
