"""Variable: one variable of a query, from the rows of its twigs to the rows that the join takes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.arrays import Int64s
from headrace.memory import MemoryBudget
from headrace.xml.fwr import values as v
from headrace.xml.fwr.syntax import Binding, VarPath
from headrace.xml.twig import Twig

MANY = "\0"  # between the keys of an element that has several: no character of XML
_ROWS = 1024  # rows for the join at a time
_BYTES = 1 << 18  # bytes of them, about: an element that has many keys is repeated for each


@dataclass(frozen=True)
class KeyOf:
    """The path that a variable is joined on; `single` if no element may have several values of it."""

    path: VarPath
    single: bool


class Variable(ABC):
    """A variable with its twigs. `schema` are the columns that the join takes: its keys, if it is joined, and returned paths."""

    twigs: list[Twig]

    def __init__(self, binding: Binding, returned: Sequence[VarPath], key: KeyOf | None) -> None:
        self.binding, self.returned, self.key = binding, list(returned), key
        name = f"${binding.variable}"
        self.key_column, self.keys_column = f"key of {name}", f"keys of {name}"
        keys = [] if key is None else [self.key_column, self.keys_column]
        # A query may return no path of a variable that is not joined: a column of nulls counts its elements.
        columns = [*keys, *(path.text for path in self.returned)] or [f"elements of {name}"]
        self.schema = pa.schema([(column, pa.string()) for column in columns])

    @abstractmethod
    def take(self, number: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take rows of one of the twigs; yields rows for the join."""

    @abstractmethod
    def describe(self) -> list[str]:
        """The lines of the plan, from the join down to the document."""

    def reserve(self, budget: MemoryBudget) -> None:  # noqa: B027  # most hold nothing
        """Reserve what is held between calls."""


def in_slices(
    schema: pa.Schema, columns: Sequence[pa.Array], which: Int64s, keys: pa.Array | None = None
) -> Iterator[pa.RecordBatch]:
    """Rows `which` of columns, with their keys as the first column if there are any, some at a time."""
    each = sum(column.nbytes for column in columns) // max(1, len(columns[0])) + 1
    step = int(np.clip(_BYTES // each, 1, _ROWS))
    for at in range(0, which.size, step):
        some = v.indices(which[at : at + step])
        taken = [column.take(some) for column in columns]
        if keys is not None:
            taken.insert(0, keys.slice(at, step))
        yield pa.RecordBatch.from_arrays(taken, schema=schema)
