"""Grouping: what GROUP BY asks for, in windows of time that end, or until the end of a snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from headrace.feeds.sql.expressions import ARROW, Call, Expr, Kind

_WIDTHS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}  # seconds


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


def width_of(key: Expr) -> int | None:
    """The microseconds of the window that a key is; None if it is none."""
    if not isinstance(key, Call):
        return None
    if key.kernel == "bucket":
        return int(key.options[0])
    if key.kernel == "date_trunc" and key.options[0] in _WIDTHS:
        return _WIDTHS[key.options[0]] * 1_000_000
    return None
