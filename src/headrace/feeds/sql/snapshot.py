"""Snapshot: ORDER BY and LIMIT over the rows of a query that ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headrace.memory import MemoryBudget

if TYPE_CHECKING:
    from headrace.feeds.sql.plan import QueryPlan

_SLACK = 4  # times LIMIT, and some: as many rows are kept before they are cut to the first ones
_LEAST = 10_000  # rows that are kept however small LIMIT is


class Snapshot:
    """Keeps results with what they are sorted by, and gives the first ones in the end. Equal ones are in the order of their ids.

    Args:
        plan: the query, with an ordering.
        budget: where the memory is reserved.
    """

    def __init__(self, plan: QueryPlan, budget: MemoryBudget) -> None:
        assert plan.ordering is not None
        self.plan, self.ordering = plan, plan.ordering
        self._kept: list[pa.Table] = []
        self._rows = 0
        self._held = budget.reserve("snapshot", 0)

    def insert(self, rows: pa.RecordBatch) -> None:
        """Keep the results of rows."""
        results = pa.Table.from_batches([self.plan.results(rows)])
        for i, (expr, _) in enumerate(self.ordering.by):
            results = results.append_column(f"_by{i}", expr.evaluate(rows))
        self._kept.append(results)
        self._rows += results.num_rows
        limit = self.ordering.limit
        if limit is not None and self._rows > _SLACK * limit + _LEAST:
            self._kept = [self._first()]
            self._rows = self._kept[0].num_rows
        self._held.resize(sum(table.nbytes for table in self._kept))

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Give the results in order."""
        if self._kept:
            yield from self._first().select(self.plan.schema.names).to_batches()

    def _first(self) -> pa.Table:
        table = pa.concat_tables(self._kept)
        keys = [(f"_by{i}", "descending" if down else "ascending") for i, (_, down) in enumerate(self.ordering.by)]
        # Arrow sorts no 16 bytes of fixed size.
        table = table.append_column("_tie", table.column("_id").cast(pa.binary()))
        order = pc.sort_indices(table, sort_keys=[*keys, ("_tie", "ascending")])
        order = order if self.ordering.limit is None else order.slice(0, self.ordering.limit)
        return table.take(order).drop_columns(["_tie"])
