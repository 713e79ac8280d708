"""OuterOutput: the results of outer, semi and anti joins of two streams: of pairs, and of rows that leave alone."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from headrace.arrays import Int64s
from headrace.errors import BadInput
from headrace.progressive.grids.partitioning import LEFT, RIGHT, SIDES
from headrace.progressive.output import Output
from headrace.row_copies import take

How = Literal["inner", "left", "right", "full", "semi", "anti"]
HOWS: tuple[How, ...] = ("inner", "left", "right", "full", "semi", "anti")
_KEPT: dict[How, tuple[int, ...]] = {
    "inner": (),
    "left": (LEFT,),
    "right": (RIGHT,),
    "full": (LEFT, RIGHT),
    "semi": (LEFT,),
    "anti": (LEFT,),
}


def kept_sides(how: How) -> tuple[int, ...]:
    """The sides of which it must be known whether a row has found a partner."""
    return _KEPT[how]


def number_column(side: int) -> str:
    """The column with the numbers of a side's rows."""
    return f"__headrace_row_{SIDES[side]}"


def numbered_schemas(schemas: tuple[pa.Schema, pa.Schema], how: How) -> tuple[pa.Schema, pa.Schema]:
    """The columns of both sides, with a row's number as the last one where it must be known whether it finds a partner."""
    left, right = (
        schema.append(pa.field(number_column(side), pa.int64())) if side in kept_sides(how) else schema
        for side, schema in enumerate(schemas)
    )
    return left, right


class OuterOutput:
    """The columns of results: those of pairs, or of the left side; rows that leave alone have nulls for the other side.

    Parameters
    ----------
    how
        Which rows are wanted.
    output
        Makes pairs, with numbers of rows among their columns.
    schemas
        The columns of both sides, with numbers.
    """

    def __init__(self, how: How, output: Output, schemas: tuple[pa.Schema, pa.Schema]) -> None:
        self.how = how
        numbers = {number_column(side) for side in (LEFT, RIGHT)}
        left = [i for i, name in enumerate(schemas[LEFT].names) if name not in numbers]
        right = [i for i, name in enumerate(output.right) if name not in numbers]
        n = len(schemas[LEFT])
        self._columns = left if how in ("semi", "anti") else [*left, *(n + i for i in right)]
        self.schema = pa.schema([output.schema.field(i) for i in self._columns])
        self.right = [] if how in ("semi", "anti") else [output.right[i] for i in right]
        """the right side's columns of a result"""
        self._of_right = dict(zip(output.schema.names[n:], output.right, strict=True)) | output.equal
        self._left = set(schemas[LEFT].names)
        if RIGHT in kept_sides(how):
            for mine, theirs in output.equal.items():
                kinds = schemas[LEFT].field(mine).type, schemas[RIGHT].field(theirs).type
                if kinds[0] != kinds[1]:
                    raise BadInput(
                        f"how={how!r} has the key {mine!r} of a right row without a partner in the left side's column, and"
                        f" {theirs!r} of the right side is {kinds[1]} and not {kinds[0]}; cast one of them"
                    )

    def of_pairs(self, out: pa.RecordBatch, which: Int64s | None) -> pa.RecordBatch:
        """The results of pairs; of some of them."""
        if self.how == "anti":
            out = out.slice(0, 0)
        columns = [out.column(i) for i in self._columns]
        made = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        return made if which is None else take(made, which)

    def alone(self, side: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The results of a side's rows without partners."""
        columns = []
        for field in self.schema:
            name = field.name if side == LEFT else self._of_right.get(field.name)
            there = name is not None and (side == RIGHT or name in self._left)
            columns.append(rows.column(name) if there else pa.nulls(rows.num_rows, field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)
