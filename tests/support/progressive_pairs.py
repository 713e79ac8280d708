"""The pairs that a partitioning finds, through an index of cells without the driver and through the driver."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import BadInput
from headrace.kernels import cells
from headrace.progressive import ProgressiveJoin
from headrace.progressive.grids.partitioning import Partitioning


def pairs(partitioning: Partitioning, left: pa.RecordBatch, right: pa.RecordBatch, room: int = 3) -> Counter[Any]:
    """(left row, right row) of each pair, as often as it is found: the right side is kept, the left one looks."""
    for side, batch in enumerate((left, right)):
        partitioning.bind(side, batch.schema)
    readings = [partitioning.read(0, left), partitioning.read(1, right)]
    home = partitioning.home(1, readings[1])
    assert (np.diff(home.row) >= 0).all()
    assert ((partitions := partitioning.partition_of(home.cell)) >= 0).all()
    assert (partitions < partitioning.partitions).all()
    n = home.cell.size
    heads, ends = np.full(max(1, n // 2), -1, np.int32), np.array([-1, 0, 0], np.int64)
    codes, slots = np.empty(n, np.uint64), np.empty(n, np.int32)
    before, after = np.empty(n, np.int32), np.empty(n, np.int32)
    cells.insert(heads, codes, before, after, ends, home.cell, slots)
    width = partitioning.width
    held = np.empty((n, width))
    held[slots] = readings[1].values.reshape(-1, width)[home.row]
    row_of = np.empty(n, np.int32)
    row_of[slots] = home.row
    reach = partitioning.home(0, readings[0]) if partitioning.identity else partitioning.reach(0, readings[0])
    assert len(set(zip(reach.row.tolist(), reach.cell.tolist(), strict=True))) == reach.row.size  # each cell once
    if not partitioning.identity:
        _check_kappa(partitioning, readings[0], reach)
    found: Counter[Any] = Counter()
    stop = np.array([0, -1], np.int64)
    while stop[0] < reach.cell.size:
        number, at = np.empty(room, np.int32), np.empty(room, np.int32)
        got = partitioning.match(
            heads,
            codes,
            after,
            held.reshape(-1),
            reach.cell,
            reach.row,
            readings[0].values,
            partitioning.limits,
            stop,
            number,
            at,
        )
        assert got == room or stop[0] == reach.cell.size
        found.update(zip(reach.row[number[:got]].tolist(), row_of[at[:got]].tolist(), strict=True))
    return found


def _check_kappa(partitioning: Partitioning, reading: Any, reach: Any) -> None:
    """What a row looks into lies in partitions that kappa names for its own."""
    home = partitioning.home(0, reading)
    own = dict(zip(home.row.tolist(), partitioning.partition_of(home.cell).tolist(), strict=True))
    kappa = {p: set(partitioning.neighbours(np.array([p], np.int32)).tolist()) for p in set(own.values())}
    for row, partition in zip(reach.row.tolist(), partitioning.partition_of(reach.cell).tolist(), strict=True):
        assert partition in kappa[own[row]]
    together = partitioning.neighbours(np.array(sorted(kappa), np.int32)).tolist()
    assert together == sorted(set().union(*kappa.values()))


def through(op: ProgressiveJoin, left: pa.RecordBatch, right: pa.RecordBatch, cut: int) -> Counter[Any]:
    out = []
    numbered = {
        name: rows.append_column(name, pa.array(np.arange(rows.num_rows)))
        for name, rows in (("left", left), ("right", right))
    }
    for at in range(0, max(left.num_rows, right.num_rows), cut):
        for name, rows in numbered.items():
            out += op.insert(name, rows.slice(at, cut))  # type: ignore[arg-type]
        if at % 3 == 0:
            out += list(op.idle())
    out += op.finish()
    op.stats.check()
    return Counter(pair for b in out for pair in zip(b["left"].to_pylist(), b["right"].to_pylist(), strict=True))


def refuses(says: str, make: Any, error: Any = BadInput) -> None:
    with pytest.raises(error, match=says):
        make()
