"""QueryPlan: what a query does with the items of its feeds, as functions of record batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.conditions import AllOf, Condition, Intersects, Within
from headrace.feeds.items import ITEM_SCHEMA, RESULT_COLUMNS
from headrace.feeds.sql.expressions import ARROW, Expr, keep
from headrace.feeds.sql.grouping import Grouping
from headrace.feeds.sql.result_rows import KEY, combined, item_keys, places
from headrace.progressive import BoxGrid
from headrace.progressive.grids.partitioning import Partitioning
from headrace.progressive.grids.unbounded import UnboundedVectors

if TYPE_CHECKING:
    from headrace.feeds.sql.operator import QueryOperator

_WORLD = (-180.0, -90.0, 180.0, 90.0)  # degrees of longitude and latitude
Named = tuple[str, Expr]


@dataclass(frozen=True)
class Source:
    """A feed that a query reads, under an alias."""

    alias: str
    url: str


@dataclass(frozen=True)
class Scan:
    """What is made of the items of a source before they are joined. Picklable.

    `prepare` selects items, names their columns ``alias__column``, and adds the columns that a join compares.

    Args:
        source: the feed and its alias.
        select: what items must satisfy, or None.
        carried: the columns that are needed later, as ``alias__column``.
        computed: the columns that a join compares, and what they are.
    """

    source: Source
    select: Expr | None
    carried: tuple[str, ...]
    computed: tuple[Named, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """The columns of prepared items."""
        empty = [pa.array([], field.type) for field in ITEM_SCHEMA]
        return self.prepare(pa.RecordBatch.from_arrays(empty, schema=ITEM_SCHEMA)).schema

    def prepare(self, items: pa.RecordBatch, keys: pa.Array | None = None) -> pa.RecordBatch:
        """Items of ITEM_SCHEMA as rows of `schema`; `keys` are their item_keys, where these are known."""
        alias = self.source.alias
        names = [f"{alias}__{name}" for name in items.schema.names]
        rows = pa.RecordBatch.from_arrays(items.columns, names=names)
        if keys is not None:
            rows = rows.append_column(f"{alias}__key", keys)
        if self.select is not None:
            rows = keep(self.select, rows)
        if keys is None:
            kept = pa.RecordBatch.from_arrays(rows.columns, schema=items.schema)
            rows = rows.append_column(f"{alias}__key", item_keys(kept))
        return with_columns(rows, (*self.carried, f"{alias}__key"), self.computed)


@dataclass(frozen=True)
class JoinStage:
    """The join of what came before (left) with one more scan (right). Picklable.

    `condition` is for ProgressiveJoin and hr.progressive_join, on the columns of both schemas; no name is on both sides.
    `carry` takes the columns of its results that are needed later, and adds those that the next join compares.

    Args:
        right: the scan of the right side.
        condition: the lead, and what is asked of each pair.
        cell: of boxes, the width of a grid's cell on Spark.
        carried: the columns that are needed later.
        computed: the columns that the next join compares, and what they are.
        shown: the lead and the rest as SQL, for the drawing of the plan.
    """

    right: Scan
    condition: Condition
    cell: tuple[float, ...] | None
    carried: tuple[str, ...]
    computed: tuple[Named, ...]
    shown: tuple[str, str]

    def carry(self, pairs: pa.RecordBatch) -> pa.RecordBatch:
        """Results of the join, by names, as rows for the next step."""
        return with_columns(pairs, self.carried, self.computed)

    def partitioning(self) -> Partitioning | None:
        """How ProgressiveJoin divides the sides: what is known of places beforehand; None for its default."""
        lead = self.condition.conditions[0] if isinstance(self.condition, AllOf) else self.condition
        if isinstance(lead, Within):
            return UnboundedVectors(lead)
        return BoxGrid(lead, space=_WORLD) if isinstance(lead, Intersects) else None


@dataclass(frozen=True)
class Ordering:
    """ORDER BY and LIMIT: the columns that rows are sorted by, whether downwards, and how many are given."""

    by: tuple[tuple[Expr, bool], ...]
    limit: int | None


@dataclass(frozen=True)
class QueryPlan:
    """A query that was checked: its sources, the columns of its results, and the steps that lead from the ones to the others.

    scans[0] is joined by stages[0] with stages[0].right, and so on; `results` makes results of the rows of the last stage (of
    scans[0] if there is none).

    Args:
        text: the query.
        sources: its feeds, in the order of FROM.
        select: the columns of results, and what they are.
        scans: a scan for each source, in the order of joins.
        stages: the joins; one less than there are scans.
        grouping: GROUP BY, or None.
        ordering: ORDER BY and LIMIT, or None.
        explained: whether the query is an EXPLAIN.
        within_time: seconds that items of a result are seen apart at most, or None.
        snapshot_only: why the query needs an end (ORDER BY, LIMIT, GROUP BY without a window), or None.
        drawing: the plan as a tree.
    """

    text: str
    sources: tuple[Source, ...]
    select: tuple[Named, ...]
    scans: tuple[Scan, ...]
    stages: tuple[JoinStage, ...]
    grouping: Grouping | None
    ordering: Ordering | None
    explained: bool
    within_time: float | None
    snapshot_only: str | None
    drawing: str

    @property
    def output(self) -> pa.Schema:
        """The columns that were selected."""
        return pa.schema([(name, ARROW[expr.kind]) for name, expr in self.select])

    @property
    def schema(self) -> pa.Schema:
        """The columns of results: the output, then RESULT_COLUMNS."""
        return pa.schema([*self.output, *RESULT_COLUMNS])

    @property
    def urls(self) -> tuple[str, ...]:
        """The addresses of its feeds, each once."""
        return tuple(dict.fromkeys(one.url for one in self.sources))

    @property
    def history(self) -> float | None:
        """Seconds after which an item that was seen takes no part in results any more; None: it may at any time."""
        within = (self.within_time if self.stages else 0.0) if self.grouping is None else self.within_time or 0.0
        if self.grouping is None or within is None:
            return within
        # A window stays open for so long after its end, and its first item may have had a partner so long before.
        return self.grouping.width / 1e6 + 2 * within if self.grouping.by_seen else None

    def results(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Results of joined rows, or of rows of groups."""
        columns = [expr.evaluate(rows) for _, expr in self.select]
        if self.grouping is None:
            aliases = [one.alias for one in self.sources]
            columns += [combined([rows.column(f"{alias}__key") for alias in aliases]), places(rows, aliases)]
        else:
            columns += [rows.column("_group"), places(rows, ())]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def operator(self, memory: int | str = "64MiB", *, spill: Path | None = None) -> QueryOperator:
        """Make the operator that runs the query in this process.

        Args:
            memory: the budget of all joins together.
            spill: the directory of what does not fit; the system's for temporary files if None.
        """
        from headrace.feeds.sql.operator import QueryOperator

        return QueryOperator(self, memory, spill=spill)

    def explain(self) -> str:
        """Draw the plan as a tree, from the result down to the feeds."""
        return self.drawing


def with_columns(rows: pa.RecordBatch, carried: Sequence[str], computed: Sequence[Named]) -> pa.RecordBatch:
    """Some columns of rows, and columns that are computed of them."""
    columns = [rows.column(name) for name in carried] + [expr.evaluate(rows) for _, expr in computed]
    names = [*carried, *(name for name, _ in computed)]
    return pa.RecordBatch.from_arrays(
        columns, schema=pa.schema([(n, c.type) for n, c in zip(names, columns, strict=True)])
    )


__all__ = ["KEY", "JoinStage", "Ordering", "QueryPlan", "Scan", "Source", "with_columns"]
