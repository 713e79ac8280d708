"""Expressions of a query: trees of columns, literals and calls of kernels, evaluated over record batches.

An expression says its kind before it sees a row. It can be pickled: a call names its kernel and holds no function.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from headrace.feeds.items import BOX, MOMENT
from headrace.feeds.sql.kernels import KERNELS

Kind = Literal["text", "integer", "double", "boolean", "moment", "interval", "list", "box", "null"]
Datum: TypeAlias = "pa.Array | pa.Scalar"

ARROW: dict[Kind, pa.DataType] = {
    "text": pa.string(),
    "integer": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "moment": MOMENT,
    "interval": pa.duration("us"),
    "list": pa.list_(pa.string()),
    "box": BOX,
    "null": pa.null(),
}
NUMBERS = ("integer", "double")
COMPARABLE = ("text", "integer", "double", "boolean", "moment", "interval")

KINDS = {
    "text": "a text",
    "integer": "a whole number",
    "double": "a number",
    "number": "a number",
    "boolean": "true or false",
    "moment": "a moment",
    "interval": "an interval",
    "list": "a list of texts",
    "box": "a box",
    "null": "NULL",
}
"""Kinds as messages name them."""


def kind_of(type_: pa.DataType) -> Kind:
    """The kind of the values of a column of items."""
    return next(kind for kind, arrow in ARROW.items() if arrow == type_)


@dataclass(frozen=True)
class Expr(ABC):
    """A value for each row of a batch."""

    kind: Kind

    @property
    @abstractmethod
    def columns(self) -> frozenset[str]:
        """The columns that it reads."""

    @abstractmethod
    def datum(self, batch: pa.RecordBatch) -> Datum:
        """The values as an array, or as one scalar where all rows have the same."""

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        """The values as an array of the kind's Arrow type."""
        found = self.datum(batch)
        if isinstance(found, pa.Scalar):
            found = pa.repeat(found, batch.num_rows)
        if isinstance(found, pa.ChunkedArray):
            found = found.combine_chunks()
        return found if found.type == ARROW[self.kind] else found.cast(ARROW[self.kind])


@dataclass(frozen=True)
class Column(Expr):
    """A column of the batch."""

    name: str

    @property
    def columns(self) -> frozenset[str]:
        """The column."""
        return frozenset((self.name,))

    def datum(self, batch: pa.RecordBatch) -> Datum:
        """The column's values."""
        return batch.column(self.name)


@dataclass(frozen=True)
class Constant(Expr):
    """One value for all rows."""

    value: Any

    @property
    def columns(self) -> frozenset[str]:
        """None."""
        return frozenset()

    def datum(self, batch: pa.RecordBatch) -> Datum:
        """The value."""
        return pa.scalar(self.value, ARROW[self.kind])


@dataclass(frozen=True)
class Call(Expr):
    """What a kernel makes of its arguments. `options` are values that are the same for all rows and known to the plan."""

    kernel: str
    arguments: tuple[Expr, ...]
    options: tuple[Any, ...] = ()

    @property
    def columns(self) -> frozenset[str]:
        """The columns of all arguments."""
        return frozenset().union(*(one.columns for one in self.arguments))

    def datum(self, batch: pa.RecordBatch) -> Datum:
        """What the kernel gives."""
        return KERNELS[self.kernel](*(one.datum(batch) for one in self.arguments), *self.options)


def call(kernel: str, kind: Kind, arguments: Iterable[Expr], *options: Any) -> Expr:
    """A call, or the constant that it gives if all of its arguments are constants."""
    made = Call(kind, kernel, tuple(arguments), options)
    constants = [one for one in made.arguments if isinstance(one, Constant)]
    if not constants or len(constants) < len(made.arguments):
        return made
    names = [str(i) for i in range(len(constants))]
    batch = pa.record_batch([pa.array([one.value], ARROW[one.kind]) for one in constants], names=names)
    columns = tuple(Column(one.kind, name) for one, name in zip(constants, names, strict=True))
    return Constant(kind, plain_value(Call(kind, kernel, columns, options).evaluate(batch)[0]))


def plain_value(value: pa.Scalar) -> Any:
    """The value of a scalar as Python's; moments and intervals in whole microseconds."""
    if pa.types.is_timestamp(value.type) and value.is_valid:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value.value)
    return value.as_py()


def to_double(value: Expr) -> Expr:
    """A number as a double."""
    if value.kind == "double":
        return value
    if isinstance(value, Constant):
        return Constant("double", None if value.value is None else float(value.value))
    return call("to double", "double", [value])


def renamed(expr: Expr, names: dict[str, str]) -> Expr:
    """An expression that reads columns of other names."""
    if isinstance(expr, Column):
        return Column(expr.kind, names.get(expr.name, expr.name))
    if isinstance(expr, Call):
        return Call(expr.kind, expr.kernel, tuple(renamed(one, names) for one in expr.arguments), expr.options)
    return expr


@dataclass(frozen=True)
class PairTest:
    """A condition of hr.predicate: an expression over the columns of both sides."""

    expr: Expr

    def __call__(self, left: pa.RecordBatch, right: pa.RecordBatch) -> pa.Array:
        """Tell for each pair of rows whether the expression is true; null counts as false."""
        both = pa.RecordBatch.from_arrays(
            [*left.columns, *right.columns], names=[*left.schema.names, *right.schema.names]
        )
        return self.expr.evaluate(both).fill_null(False)


def keep(expr: Expr, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows for which an expression is true."""
    return batch.filter(expr.evaluate(batch).fill_null(False))
