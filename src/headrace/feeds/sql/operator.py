"""QueryOperator: runs a planned query over items as they come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import BadInput
from headrace.feeds.items import ITEM_SCHEMA
from headrace.feeds.sql.open_groups import OpenGroups
from headrace.feeds.sql.result_rows import item_keys
from headrace.feeds.sql.seen_items import SeenItems
from headrace.feeds.sql.snapshot import Snapshot
from headrace.memory import MemoryBudget
from headrace.progressive import ProgressiveJoin, ProgressiveStats

if TYPE_CHECKING:
    from headrace.feeds.sql.plan import QueryPlan

_JOINS = 3  # of 4 parts of the memory: the rest is for keys of items, groups and the rows of a snapshot


@dataclass(slots=True)
class QueryStats:
    """Counts what a query has done so far."""

    items: int = 0
    """items that were taken in"""
    repeated: int = 0
    """items among them that had come before, unchanged: they take no part"""
    results: int = 0
    """results that were given"""
    late: int = 0
    """rows of a grouped query that came after their window had ended, or have no time"""


class QueryOperator:
    """Takes items of feeds and gives results: all those of these items with each other and with all before.

        items --> scan a: select, columns --+
                                            +--> join --+--> join --> … --> results, or groups of them
        items --> scan b: select, columns --+           |
        items --> scan c: select, columns --------------+

    What does not fit the memory lies on disk, chosen by RRPJ. Pairs with what lies there are made before `insert` ends, unless
    it is told not to settle, so what an insertion gives depends on the items alone: the operator is a function of the items in
    their order, whatever the memory. An item that comes again with the same content gives nothing.

    Parameters
    ----------
    plan
        The query.
    memory
        The budget of joins, keys of items, groups and the rows of a snapshot together.
    spill
        The directory of what does not fit; the system's for temporary files if None.

    Example
    -------
    >>> import pyarrow as pa
    >>> from headrace.feeds.items import ITEM_SCHEMA
    >>> from headrace.feeds.sql import parse_query
    >>> op = parse_query("SELECT a.title FROM rss('u') a, rss('v') b WHERE a.title = b.title").operator()
    >>> def items(url, *titles):
    ...     return pa.RecordBatch.from_pylist([{"title": t, "feed": url} for t in titles], schema=ITEM_SCHEMA)
    >>> list(op.insert("u", items("u", "flood", "storm")))
    []
    >>> [row["a.title"] for out in op.insert("v", items("v", "flood")) for row in out.to_pylist()]
    ['flood']

    Reference: [PQP] app. C.

    Deviations: pairs with tuples on disk are made at once, and not when sources are silent.
    """

    def __init__(self, plan: QueryPlan, memory: int | str = "64MiB", *, spill: Path | None = None) -> None:
        self.plan = plan
        self.budget = MemoryBudget(memory)
        self.stats = QueryStats()
        share = self.budget.limit * _JOINS // 4 // max(1, len(plan.stages))
        self._joins = [
            ProgressiveJoin(
                stage.condition, memory=share, flush="rrpj", partitioning=stage.partitioning(), suffix=None, spill=spill
            )
            for stage in plan.stages
        ]
        for _ in self._joins:
            self.budget.reserve("joins", share)
        self._seen = SeenItems(self.budget, spill)
        self._groups = OpenGroups(plan.grouping, self.budget) if plan.grouping else None
        self._snapshot = Snapshot(plan, self.budget) if plan.ordering else None

    @property
    def joins(self) -> list[ProgressiveStats]:
        """The counters of each join."""
        return [join.stats for join in self._joins]

    @property
    def memory(self) -> int:
        """Bytes that are held now."""
        shares = sum(join.budget.limit for join in self._joins)
        return self.budget.used - shares + sum(join.budget.used for join in self._joins)

    @property
    def spilled(self) -> int:
        """Tuples that were written to disk."""
        return sum(join.stats.flushed for join in self._joins)

    def insert(
        self, url: str, items: pa.RecordBatch, keys: pa.Array | None = None, *, settle: bool = True
    ) -> Iterator[pa.RecordBatch]:
        """Take items of a feed for every alias of its url, with their item_keys if known. To be read to its end.

        With `settle` false, results with what lies on disk wait for the next call that settles: reading it once for many
        insertions costs less. Windows of time need them at once, and do not wait.
        """
        if items.schema != ITEM_SCHEMA:
            raise BadInput(f"items have columns {items.schema.names}; give those of ITEM_SCHEMA, {ITEM_SCHEMA.names}")
        if url not in self.plan.urls:
            raise BadInput(f"the query does not read {url!r}; it reads {', '.join(self.plan.urls)}")
        if self._groups is not None:
            settle = True
        return self._insert(url, items, item_keys(items) if keys is None else keys, settle)

    def settle(self) -> Iterator[pa.RecordBatch]:
        """Give results that wait for what lies on disk. To be read to its end."""
        for joined in self._settled():
            yield from self._made(joined)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Give what is left when no more items come: open windows, and the rows of a snapshot."""
        yield from self.settle()
        if self._groups is not None:
            groups = self._groups.finish()
            if groups is not None:
                yield from self._leave(groups)
        if self._snapshot is not None:
            for out in self._snapshot.finish():
                self.stats.results += out.num_rows
                yield out

    def _insert(self, url: str, items: pa.RecordBatch, keys: pa.Array, settle: bool) -> Iterator[pa.RecordBatch]:
        new = self._seen.new(keys)
        self.stats.items += items.num_rows
        self.stats.repeated += items.num_rows - len(new)
        if len(new) < items.num_rows:
            items, keys = items.take(new), keys.take(new)
        for position, scan in enumerate(self.plan.scans):
            if scan.source.url == url and items.num_rows:
                rows = scan.prepare(items, keys)
                for joined in self._push(max(0, position - 1), "right" if position else "left", rows):
                    yield from self._made(joined)
        if settle:
            yield from self.settle()
        if self._groups is not None:
            latest = pc.max(items.column("seen").cast(pa.int64())).as_py()
            groups = None if latest is None else self._groups.advance(latest)
            self.stats.late = self._groups.late
            if groups is not None:
                yield from self._leave(groups)

    def _push(self, level: int, side: Literal["left", "right"], rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Give rows to a join, and its results to the next one; gives the rows of the last."""
        if not rows.num_rows:
            return
        if level == len(self._joins):
            yield rows
            return
        join, stage = self._joins[level], self.plan.stages[level]
        for pairs in join.insert(side, rows):
            yield from self._push(level + 1, "left", stage.carry(pairs))

    def _settled(self) -> Iterator[pa.RecordBatch]:
        """The rows that are owed, because a partner lay on disk. A join is settled before the one that takes its results."""
        for level, (join, stage) in enumerate(zip(self._joins, self.plan.stages, strict=True)):
            if join.stats.flushed:
                for pairs in join.idle():
                    yield from self._push(level + 1, "left", stage.carry(pairs))

    def _made(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self._groups is None:
            yield from self._leave(rows)
        else:
            self._groups.insert(self._groups.sums.of(rows))

    def _leave(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if not rows.num_rows:
            return
        if self._snapshot is not None:
            self._snapshot.insert(rows)
            return
        self.stats.results += rows.num_rows
        yield self.plan.results(rows)
