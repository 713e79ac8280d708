"""PartialSums: rows of a grouped query as sums that can be added to each other, and groups made of them.

_window   the start of the window; 1970 for a query without one, which has one window that never ends
k0, k1    the values of GROUP BY
a0_0, a1_0, a1_1    what is added up of each aggregate; of an average the sum and the number of its values
_rows     the rows that were added up
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.feeds.items import MOMENT
from headrace.feeds.sql.expressions import ARROW, Call, Column, call, keep
from headrace.feeds.sql.grouping import Grouping
from headrace.feeds.sql.result_rows import KEY

WINDOW, ROWS = "_window", "_rows"


class PartialSums:
    """Adds up rows by their groups. Sums are added in the order of rows, so that it does not matter when they are.

    Args:
        grouping: what is grouped.
    """

    def __init__(self, grouping: Grouping) -> None:
        self.grouping = grouping
        self._keys = [f"k{i}" for i in range(len(grouping.keys))]
        self._sums = [
            (f"a{i}_{j}", how) for i, one in enumerate(grouping.aggregates) for j, how in enumerate(one.merges)
        ]

    @property
    def schema(self) -> pa.Schema:
        """The columns of partial sums."""
        keys = [
            (name, ARROW["text" if key.kind == "list" else key.kind])
            for name, key in zip(self._keys, self.grouping.keys, strict=True)
        ]
        sums = [
            (f"a{i}_{j}", part.type)
            for i, one in enumerate(self.grouping.aggregates)
            for j, part in enumerate(one.nothing)
        ]
        return pa.schema([*keys, (WINDOW, MOMENT), *sums, (ROWS, pa.int64())])

    def of(self, rows: pa.RecordBatch, beside: Sequence[str] = ()) -> pa.RecordBatch:
        """Add up joined rows: a row for each group. Those that differ in columns `beside` are added up apart, and keep them."""
        grouping = self.grouping
        columns: dict[str, Any] = {name: rows.column(name) for name in beside}
        columns |= {name: _storable(key.evaluate(rows)) for name, key in zip(self._keys, grouping.keys, strict=True)}
        if grouping.window is None:
            columns[WINDOW] = pa.repeat(pa.scalar(0, pa.int64()).cast(MOMENT), rows.num_rows)
        else:
            columns[WINDOW] = columns[f"k{grouping.window}"].cast(MOMENT)
        for i, one in enumerate(grouping.aggregates):
            columns |= {f"a{i}_{j}": values for j, values in enumerate(one.values(rows))}
        columns[ROWS] = pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)
        made = self.merged(pa.RecordBatch.from_pydict(columns), beside)
        fields = [*(made.schema.field(name) for name in beside), *self.schema]
        return pa.RecordBatch.from_arrays(
            [
                column if column.type.equals(field.type) else column.cast(field.type)
                for column, field in zip(made.columns, fields, strict=True)
            ],
            schema=pa.schema(fields),
        )

    def merged(self, sums: pa.RecordBatch, beside: Sequence[str] = ()) -> pa.RecordBatch:
        """Add up sums: a row for each group."""
        by = [*beside, *self._keys, WINDOW]
        options = pc.ScalarAggregateOptions(skip_nulls=True, min_count=1)
        added = [*self._sums, (ROWS, "sum")]
        made = pa.table(sums).group_by(by, use_threads=False).aggregate([(name, how, options) for name, how in added])
        names = {f"{name}_{how}": name for name, how in added}
        made = made.rename_columns([names.get(name, name) for name in made.column_names])
        out = made.select([*by, *names.values()]).combine_chunks()
        return pa.RecordBatch.from_arrays([_array(column) for column in out.columns], names=out.column_names)

    def nothing(self) -> pa.RecordBatch:
        """The sums of a query without GROUP BY over no rows."""
        columns = {
            f"a{i}_{j}": part for i, one in enumerate(self.grouping.aggregates) for j, part in enumerate(one.nothing)
        }
        return pa.RecordBatch.from_pydict({WINDOW: pa.array([0], pa.int64()).cast(MOMENT), **columns})

    def groups(self, sums: pa.RecordBatch) -> pa.RecordBatch:
        """Sums as rows of groups: `_key`, `_agg` and `_group`, the hash of their keys; those that HAVING lets pass."""
        grouping = self.grouping
        columns: dict[str, pa.Array] = {}
        for i, key in enumerate(grouping.keys):
            columns[f"_key{i}"] = sums.column(self._keys[i])
            if key.kind == "list":
                columns[f"_key{i}"] = call("text_list", "list", [Column("text", f"_key{i}")]).evaluate(
                    pa.record_batch(columns)
                )
        ids = [
            hashlib.blake2b(repr(values).encode(), digest_size=16).digest()
            for values in zip(*(_plain(sums.column(name)) for name in self._keys or [WINDOW]), strict=True)
        ]
        for i, one in enumerate(grouping.aggregates):
            columns[f"_agg{i}"] = one.value([sums.column(f"a{i}_{j}") for j in range(len(one.merges))])
        rows = pa.record_batch({**columns, "_group": pa.array(ids, KEY)})
        return rows if grouping.having is None else keep(grouping.having, rows)


def _storable(values: pa.Array) -> pa.Array:
    """Values that Arrow can group by."""
    if pa.types.is_list(values.type):
        return Call("text", "list_text", (Column("list", "x"),)).evaluate(pa.record_batch({"x": values}))
    return values


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _plain(column: pa.Array) -> list[Any]:
    values: list[Any] = (column.cast(pa.int64()) if pa.types.is_temporal(column.type) else column).to_pylist()
    return values
