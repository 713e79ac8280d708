"""Relations of the shapes that are watched, made once and kept for later cells."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import headrace as hr
from soak.memory.cells import Cell
from soak.memory.streams import MATCHES, Rows

_ROW_BYTES = {"wide": 2_090, "columns": 1_850, "many": 520, "long": 2_310}  # in memory, roughly
_PAGES = {"long": "1MiB"}  # a row of 1 MB needs a page as large
_HELD, _BEYOND, _FAR_BEYOND = 0.55, 1.5, 3.0  # times the budget: fits it; does not; does not by far
_LARGEST_HELD = 440 << 20  # a relation is held whole up to 512 MiB


def relation_for(cell: Cell, place: Path) -> Path:
    """The relation that a cell joins with; it is made if it is not there."""
    nbytes, giants = _size(cell)
    path = place / f"{cell.shape}-{nbytes >> 20}MiB"
    if not path.exists():
        rows = Rows(cell.shape, seed=1)
        first = rows.batch({"k": np.zeros(1, np.int64)}, 1).schema
        reader = pa.RecordBatchReader.from_batches(first, _batches(rows, nbytes // _ROW_BYTES[cell.shape], giants))
        hr.Relation.create(path, reader, key="k", shards=2, page_size=_PAGES.get(cell.shape, "8KiB")).close()
    return path


def giant_keys(relation: hr.Relation) -> int:
    """How many of the relation's keys, from 0 on, have 10,000 rows."""
    return int(relation.num_rows - relation.distinct_keys) // (MATCHES - 1)


def _size(cell: Cell) -> tuple[int, int]:
    """Bytes of the relation's rows, and keys with 10,000 rows."""
    if cell.operator == "enrich-whole":
        nbytes = min(int(_HELD * cell.budget), _LARGEST_HELD)
    else:
        nbytes = int((_FAR_BEYOND if cell.budget < 1 << 29 else _BEYOND) * cell.budget)
    giants = max(1, min(20, nbytes // _ROW_BYTES["many"] // MATCHES // 2)) if cell.shape == "many" else 0
    return nbytes, giants


def _batches(rows: Rows, many: int, giants: int) -> Iterator[pa.RecordBatch]:
    """Rows with every even key once, and those of the first keys 10,000 times."""
    keys = np.concatenate(
        [np.repeat(np.arange(giants) * 2, MATCHES), np.arange(giants, max(giants, many - giants * MATCHES)) * 2]
    )
    keys = np.random.default_rng(2).permutation(keys)
    for at in range(0, keys.size, rows.batch_rows):
        some = keys[at : at + rows.batch_rows]
        yield rows.batch({"k": some}, some.size)
