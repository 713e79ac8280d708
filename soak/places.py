"""The warehouse that is soaked: where everything is, and what its rows say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

SOURCES = ("shop", "web", "agents")
KEYS = 3000  # products that rows name; the relation has most of them, now more, now fewer
SALES = pa.schema({"id": pa.int64(), "source": pa.string(), "product": pa.int64(), "amount": pa.int64()})


@dataclass(frozen=True)
class Places:
    """Directories below one."""

    root: Path

    @property
    def relation(self) -> Path:
        """The dimension that rows are enriched with; it changes all the time."""
        return self.root / "products"

    @property
    def lookup(self) -> Path:
        """Surrogate keys, given out as rows come."""
        return self.root / "lookup"

    @property
    def input(self) -> Path:
        """Files of sales."""
        return self.root / "in"

    @property
    def table(self) -> Path:
        """The warehouse's table."""
        return self.root / "sales"

    @property
    def checkpoint(self) -> Path:
        """Spark's."""
        return self.root / "checkpoint"

    @property
    def state(self) -> Path:
        """Run logs: what waits and what was shed."""
        return self.root / "state"


def sales(first: int, rows: int, seed: int) -> pa.Table:
    """Rows with ids from `first` on, popular products among them; the same for the same arguments."""
    rng = np.random.default_rng([seed, first])
    product = (KEYS ** rng.random(rows)).astype(np.int64) * 7919 % KEYS
    source = pa.array(np.array(SOURCES)[rng.integers(0, len(SOURCES), rows)])
    columns = [np.arange(first, first + rows), source, product, rng.integers(1, 1000, rows)]
    return pa.table(dict(zip(SALES.names, columns, strict=True)), schema=SALES)
