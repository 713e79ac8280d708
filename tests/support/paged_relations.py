"""Relations whose index has pages of its own: many entries in few bytes, so that they are small and quick to make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import headrace as hr

PAGE = 4096  # bytes: the smallest page


def long_keys(numbers: Any) -> pa.Array:
    """Texts of a few hundred bytes in the order of the numbers: an index of these is large."""
    return pa.array([f"{int(i):08d}" + "x" * (200 + int(i) % 150) for i in numbers], pa.string())


def text_rows(rows: int, seed: int = 1) -> pa.Table:
    """Rows with long keys, twice the numbers 0, 1, ..., in no order; a page has ten or so, and the index a tenth of R's bytes."""
    numbers = np.random.default_rng(seed).permutation(rows)
    return pa.table({"k": long_keys(2 * numbers), "v": numbers})


def integer_rows(rows: int, seed: int = 1) -> pa.Table:
    """Rows with integer keys, twice the numbers 0, 1, ..., in no order, and hardly more."""
    numbers = np.random.default_rng(seed).permutation(rows)
    return pa.table({"k": 2 * numbers, "v": numbers})


def by_key(path: Path, rows: int, **options: Any) -> hr.Relation:
    """Long keys, in key order: an entry of the index for each page."""
    return hr.Relation.create(path, text_rows(rows), key="k", **{"page_size": PAGE, "shards": 2} | options)


def by_frequency(path: Path, rows: int, **options: Any) -> hr.Relation:
    """Integer keys, by popularity: an entry of the index for each row."""
    table = integer_rows(rows)
    frequencies = pa.table({"k": table["k"], "frequency": np.arange(rows) % 97})
    options = {"page_size": PAGE, "order": "frequency", "frequencies": frequencies} | options
    return hr.Relation.create(path, table, key="k", **options)
