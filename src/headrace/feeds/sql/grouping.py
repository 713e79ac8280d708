"""Grouping: GROUP BY, in windows of time that end, or until the end of a snapshot."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from headrace.feeds.sql.expressions import ARROW, Call, Column, Expr, Kind, call, keep
from headrace.feeds.sql.result_rows import KEY

_WIDTHS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}  # seconds
_ALL = "_all"  # the key of the one group of a query without GROUP BY


@dataclass(frozen=True)
class Aggregate:
    """An aggregate of a query: its name and its argument, None of count(*)."""

    name: Literal["count", "sum", "avg", "min", "max"]
    argument: Expr | None

    @property
    def kind(self) -> Kind:
        """The kind of its value."""
        if self.name == "count":
            return "integer"
        if self.name == "avg" or self.argument is None:
            return "double"
        return self.argument.kind

    def values(self, rows: pa.RecordBatch) -> list[pa.Array]:
        """What is added up of rows: the values, and of an average how many there are."""
        if self.argument is None:
            return [pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)]
        values = self.argument.evaluate(rows)
        there = values.is_valid().cast(pa.int64())
        if self.name == "count":
            return [there]
        return [values.cast(pa.float64()), there] if self.name == "avg" else [values]

    @property
    def merges(self) -> list[str]:
        """How each of these is added up."""
        return {"count": ["sum"], "sum": ["sum"], "avg": ["sum", "sum"], "min": ["min"], "max": ["max"]}[self.name]

    @property
    def nothing(self) -> list[pa.Array]:
        """What no rows add up to."""
        if self.name == "count":
            return [pa.array([0], pa.int64())]
        none = pa.nulls(1, ARROW[self.kind])
        return [none, pa.array([0], pa.int64())] if self.name == "avg" else [none]

    def value(self, parts: list[pa.Array]) -> pa.Array:
        """The aggregate of what was added up."""
        if self.name == "avg":
            return pc.divide(parts[0], parts[1].cast(pa.float64()))
        return parts[0].cast(ARROW[self.kind])


@dataclass(frozen=True)
class Grouping:
    """What a query groups by, and what it counts. Rows of groups have the columns `_key0`…, `_agg0`….

    Args:
        keys: the expressions of GROUP BY.
        aggregates: what is computed of each group.
        having: which groups leave, as an expression over rows of groups.
        slack: seconds that a window is kept open after its end.
    """

    keys: tuple[Expr, ...]
    aggregates: tuple[Aggregate, ...]
    having: Expr | None
    slack: float = 0.0

    @property
    def window(self) -> int | None:
        """Which of the keys is a window of time; None if none is."""
        return next((i for i, key in enumerate(self.keys) if width_of(key) is not None), None)

    @property
    def by_seen(self) -> bool:
        """Whether the window is one over the moment at which an item was seen, which no later item can precede."""
        if self.window is None:
            return False
        return all(name.endswith("__seen") for name in self.keys[self.window].columns)

    @property
    def width(self) -> int:
        """The microseconds of the window; 0 if there is none."""
        return 0 if self.window is None else width_of(self.keys[self.window]) or 0

    def state(self) -> GroupState:
        """Begin to group."""
        return GroupState(self)


def width_of(key: Expr) -> int | None:
    """The microseconds of the window that a key is; None if it is none."""
    if not isinstance(key, Call):
        return None
    if key.kernel == "bucket":
        return int(key.options[0])
    if key.kernel == "date_trunc" and key.options[0] in _WIDTHS:
        return _WIDTHS[key.options[0]] * 1_000_000
    return None


class GroupState:
    """Groups of which the window has not ended, as partial sums: a row for each.

    Args:
        grouping: what is grouped.
    """

    def __init__(self, grouping: Grouping) -> None:
        self.grouping = grouping
        self.late = 0  # rows that came after their window had ended, or have none
        self._open: pa.Table | None = None
        self._closed = -(1 << 62)  # microseconds: windows that end by then have ended
        self._keys = [f"k{i}" for i in range(len(grouping.keys))] or [_ALL]
        self._parts = [(i, j, how) for i, one in enumerate(grouping.aggregates) for j, how in enumerate(one.merges)]

    @property
    def nbytes(self) -> int:
        """Bytes of the groups that are open."""
        return 0 if self._open is None else int(self._open.nbytes)

    def insert(self, rows: pa.RecordBatch) -> None:
        """Add rows to their groups."""
        window = self.grouping.window
        if window is not None:
            starts = self.grouping.keys[window].evaluate(rows).cast(pa.int64())
            there = pc.fill_null(pc.greater(starts, self._closed - self.grouping.width), False)
            self.late += rows.num_rows - (pc.sum(there).as_py() or 0)
            rows = rows.filter(there)
        if not rows.num_rows:
            return
        columns: dict[str, Any] = {
            name: _storable(key.evaluate(rows)) for name, key in zip(self._keys, self.grouping.keys, strict=False)
        }
        columns = columns or {_ALL: pa.repeat(pa.scalar(0), rows.num_rows)}
        for i, one in enumerate(self.grouping.aggregates):
            columns |= {f"a{i}_{j}": values for j, values in enumerate(one.values(rows))}
        added = self._merged(pa.table(columns))
        self._open = added if self._open is None else self._merged(pa.concat_tables([self._open, added]))

    def advance(self, seen: int) -> pa.RecordBatch | None:
        """Say that items were seen at a moment, in microseconds; gives the groups of windows that have ended."""
        window = self.grouping.window
        if window is None:
            return None
        closed = seen - int(self.grouping.slack * 1e6)
        if closed <= self._closed:
            return None
        self._closed = closed
        if self._open is None:
            return None
        ended = pc.less_equal(
            pc.add(self._open.column(self._keys[window]).cast(pa.int64()), self.grouping.width), closed
        )
        out = self._open.filter(ended)
        self._open = self._open.filter(pc.invert(ended))
        return self._rows(out) if out.num_rows else None

    def finish(self) -> pa.RecordBatch | None:
        """Give the groups that are open."""
        out, self._open = self._open, None
        if out is None:
            if self.grouping.keys:
                return None
            zero = {
                f"a{i}_{j}": part
                for i, one in enumerate(self.grouping.aggregates)
                for j, part in enumerate(one.nothing)
            }
            out = pa.table({_ALL: [0], **zero})
        return self._rows(out)

    def _merged(self, table: pa.Table) -> pa.Table:
        options = pc.ScalarAggregateOptions(skip_nulls=True, min_count=1)
        wanted = [(f"a{i}_{j}", how, options) for i, j, how in self._parts]
        made = table.group_by(self._keys, use_threads=False).aggregate(wanted)
        names = {f"a{i}_{j}_{how}": f"a{i}_{j}" for i, j, how in self._parts}
        made = made.rename_columns([names.get(name, name) for name in made.column_names])
        return made.select([*self._keys, *names.values()]).combine_chunks()

    def _rows(self, groups: pa.Table) -> pa.RecordBatch:
        """Groups as rows with `_key`, `_agg` and `_group`, the hash of their keys; those that HAVING lets pass."""
        groups = groups.combine_chunks()
        columns: dict[str, pa.Array] = {}
        for i, key in enumerate(self.grouping.keys):
            columns[f"_key{i}"] = _array(groups.column(self._keys[i]))
            if key.kind == "list":
                columns[f"_key{i}"] = call("text_list", "list", [Column("text", f"_key{i}")]).evaluate(
                    pa.record_batch(columns)
                )
        ids = [
            hashlib.blake2b(repr(values).encode(), digest_size=16).digest()
            for values in zip(*(_plain(groups.column(name)) for name in self._keys), strict=True)
        ]
        for i, one in enumerate(self.grouping.aggregates):
            parts = [_array(groups.column(f"a{i}_{j}")) for j in range(len(one.merges))]
            columns[f"_agg{i}"] = one.value(parts)
        rows = pa.record_batch({**columns, "_group": pa.array(ids, KEY)})
        return rows if self.grouping.having is None else keep(self.grouping.having, rows)


def _storable(values: pa.Array) -> pa.Array:
    """Values that Arrow can group by."""
    if pa.types.is_list(values.type):
        return Call("text", "list_text", (Column("list", "x"),)).evaluate(pa.record_batch({"x": values}))
    return values


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _plain(column: pa.ChunkedArray) -> list[Any]:
    temporal = pa.types.is_temporal(column.type)
    values: list[Any] = (column.cast(pa.int64()) if temporal else column).to_pylist()
    return values
