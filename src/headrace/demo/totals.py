"""Totals: sums and a checksum of a table of sales that do not depend on the order of its rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.demo.products import products
from headrace.demo.sales import Sales
from headrace.demo.scenario import Scenario
from headrace.demo.strings import fingerprints
from headrace.splitmix import GOLDEN, mix

ATTRIBUTES = ("name", "category", "brand", "unit_price")  # columns that the join adds to a sale
COLUMNS = ("sale_id", "source", "code", "quantity", *ATTRIBUTES, "line_total")
CHUNK = 100_000

_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class Totals:
    """Sums over sales. Two tables with the same rows have equal totals, whatever the order of the rows.

    Example:
        >>> rows = expected_rows(Sales(Scenario(rate=100, seconds=1, products=10)), 0, 100)
        >>> Totals.of(rows) == Totals.of(rows.slice(60)) + Totals.of(rows.slice(0, 60))
        True
    """

    sales: int = 0
    """rows"""
    quantity: int = 0
    """pieces sold"""
    line_totals: int = 0
    """cents"""
    unmatched: int = 0
    """sales without a product: their line total is null"""
    sale_ids: int = 0
    """sum of the sales' numbers"""
    checksum: int = 0
    """sum, modulo 2⁶⁴, of a hash of each row over `COLUMNS`"""

    @classmethod
    def of(cls, rows: pa.RecordBatch) -> Totals:
        """Compute the totals of a batch that has `COLUMNS`."""
        line_total = rows.column("line_total")
        return cls(
            sales=rows.num_rows,
            quantity=_sum(rows.column("quantity")),
            line_totals=_sum(line_total),
            unmatched=line_total.null_count,
            sale_ids=_sum(rows.column("sale_id")),
            checksum=_checksum(rows),
        )

    def __add__(self, other: Totals) -> Totals:
        sums = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        return Totals(**sums | {"checksum": sums["checksum"] & _MASK})


def expected(scenario: Scenario, watch: Callable[[int], None] | None = None) -> Totals:
    """Compute the totals that the table must have, from the generator; `watch` is called with the sales done."""
    sales, total = Sales(scenario), Totals()
    for start in range(0, sales.total, CHUNK):
        stop = min(start + CHUNK, sales.total)
        total += Totals.of(expected_rows(sales, start, stop))
        if watch is not None:
            watch(stop)
    return total


def expected_rows(sales: Sales, start: int, stop: int) -> pa.RecordBatch:
    """Generate `COLUMNS` of sales `start` to `stop` - 1 as the table must have them."""
    ids = np.arange(start, stop, dtype=np.int64)
    numbers = sales.products(ids)
    product = products(numbers)
    unknown = pa.array(numbers >= sales.scenario.products)
    columns: dict[str, Any] = {
        "sale_id": pa.array(ids),
        "source": product.column("source"),
        "code": product.column("code"),
        "quantity": pa.array(sales.quantities(ids)),
    }
    for name in ATTRIBUTES:
        columns[name] = pc.if_else(unknown, None, product.column(name))
    columns["line_total"] = pc.multiply(columns["quantity"].cast(pa.int64()), columns["unit_price"])
    return pa.record_batch(columns)


def _sum(column: pa.Array) -> int:
    return pc.sum(column).as_py() or 0


def _checksum(rows: pa.RecordBatch) -> int:
    words = np.zeros(rows.num_rows, np.uint64)
    for name in COLUMNS:
        words = mix((words + np.uint64(GOLDEN)) ^ fingerprints(rows.column(name)))
    return int(words.sum(dtype=np.uint64))
