"""MultiWayOutput: makes result batches of a row of each stream, and keeps those whose keys are equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Bools, Int32s
from headrace.errors import BadInput
from headrace.progressive.memory.side_memory import SideMemory
from headrace.progressive.output import PairRows
from headrace.row_copies import take


@dataclass(frozen=True, slots=True)
class ScatteredRows:
    """Rows in the memory of a stream, by their slots in any order."""

    memory: SideMemory
    slots: Int32s

    def take(self, columns: Sequence[str] | None = None, which: Bools | None = None) -> pa.RecordBatch:
        """Copy the rows out of the stream's memory."""
        slots = self.slots if which is None else self.slots[which]
        order = self.memory.by_chunk(slots)
        rows = self.memory.rows(slots[order], columns)
        if (order[1:] > order[:-1]).all():
            return rows
        back = np.empty(order.size, np.int64)
        back[order] = np.arange(order.size)
        return take(rows, back)


class MultiWayOutput:
    """Makes result batches. The key appears once, as stream 0 has it; other columns are those of stream 0, 1, ... in this order.

    Parameters
    ----------
    schemas
        The schemas of the streams; None of one that is not known yet, whose columns are left out.
    on
        The key's column in each stream.
    suffix
        Added, with the stream's number, to the name of a column that an earlier stream has too; None refuses it.
    ask
        Whether keys have to be compared, since equal hashes do not mean equal keys.
    """

    def __init__(self, schemas: Sequence[pa.Schema | None], on: Sequence[str], suffix: str | None, ask: bool) -> None:
        self._on, self._ask = on, ask
        self.columns: list[list[str]] = []
        """the columns of each stream that results have, by their names in the stream"""
        fields, taken = list[pa.Field](), dict[str, int]()
        for number, schema in enumerate(schemas):
            known = pa.schema([]) if schema is None else schema
            self.columns.append([name for name in known.names if number == 0 or name != on[number]])
            for name in self.columns[-1]:
                called = name
                if called in taken:
                    if suffix is None:
                        raise BadInput(
                            f"column {name!r} is in stream {taken[name]} and in stream {number}; rename one, or give a suffix"
                        )
                    called += f"{suffix}{number}"
                    if called in taken:
                        raise BadInput(
                            f"column {name!r} of stream {number} would be {called!r} in results, and so is a column of stream"
                            f" {taken[called]}; use another suffix"
                        )
                taken[called] = number
                fields.append(known.field(name).with_name(called))
        self.schema = pa.schema(fields)

    def make(self, rows: Sequence[PairRows]) -> tuple[pa.RecordBatch, Bools | None]:
        """Return the results of a row of each stream, and a mask of the rows that they are made of (None if all are)."""
        which = self._equal(rows) if self._ask else None
        parts = [of.take(names, which) for of, names in zip(rows, self.columns, strict=True) if names]
        columns = [column for part in parts for column in part.columns]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema), which

    def _equal(self, rows: Sequence[PairRows]) -> Bools | None:
        """Which rows have the key of stream 0 in every stream; None if all have."""
        keys = [of.take([name]).column(0) for of, name in zip(rows, self._on, strict=True)]
        same = np.ones(len(keys[0]), np.bool_)
        for key in keys[1:]:
            same &= np.asarray(pc.equal(keys[0], key))
        return None if same.all() else same
