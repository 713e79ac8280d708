"""The warehouse that is soaked: where everything is, and what its rows say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.arrays import Int64s

SOURCES = ("shop", "web", "agents")
KEYS = 3000  # products that rows name; the relation has most of them, now more, now fewer
SALES = pa.schema({"id": pa.int64(), "source": pa.string(), "product": pa.int64(), "amount": pa.int64()})
PAIR_KEYS = 2000
SAMPLE_SIZE, SAMPLE_WINDOW = 40, 200
TOPIC = "orders"


@dataclass(frozen=True)
class Places:
    """Directories below one; relations and state on a small disk in it, which may be full."""

    root: Path

    @property
    def small(self) -> Path:
        """The small disk."""
        return self.root / "small"

    @property
    def relation(self) -> Path:
        """The dimension that rows are enriched with; it changes all the time."""
        return self.small / "products"

    @property
    def lookup(self) -> Path:
        """Surrogate keys, given out as rows come."""
        return self.small / "lookup"

    @property
    def state(self) -> Path:
        """Run logs: what waits and what was shed."""
        return self.small / "state"

    @property
    def input(self) -> Path:
        """Files of rows, by query: sales, left and right sides of pairs, rows to sample."""
        return self.root / "in"

    @property
    def table(self) -> Path:
        """The warehouse's table of sales."""
        return self.root / "tables" / "sales"

    @property
    def pairs(self) -> Path:
        """The table of pairs."""
        return self.root / "tables" / "pairs"

    @property
    def samples(self) -> Path:
        """The table of samples."""
        return self.root / "tables" / "samples"

    @property
    def clock(self) -> Path:
        """How far the clock is off."""
        return self.root / "clock"

    def checkpoint(self, query: str) -> Path:
        """Spark's, of a query."""
        return self.root / "checkpoints" / query


def products(first: int, rows: int, seed: int) -> Int64s:
    """Products, popular ones among them."""
    rng = np.random.default_rng([seed, first])
    drawn: Int64s = (KEYS ** rng.random(rows)).astype(np.int64) * 7919 % KEYS
    return drawn


def sales(first: int, rows: int, seed: int) -> pa.Table:
    """Rows with ids from `first` on, popular products among them; the same for the same arguments."""
    rng = np.random.default_rng([seed, first, 1])
    source = pa.array(np.array(SOURCES)[rng.integers(0, len(SOURCES), rows)])
    columns = [np.arange(first, first + rows), source, products(first, rows, seed), rng.integers(1, 1000, rows)]
    return pa.table(dict(zip(SALES.names, columns, strict=True)), schema=SALES)


def side(first: int, rows: int, seed: int, number: int) -> pa.Table:
    """Rows of a side of the pairs."""
    rng = np.random.default_rng([seed, first, 2 + number])
    return pa.table({"k": rng.integers(0, PAIR_KEYS, rows), "ab"[number]: np.arange(first, first + rows)})
