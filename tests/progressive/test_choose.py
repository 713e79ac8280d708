"""From a condition to a partitioning, and what remains to be asked."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.conditions import Condition, Equal
from headrace.errors import BadInput
from headrace.progressive import BoxGrid, HashPartitioning, ProgressiveJoin, VectorGrid
from headrace.progressive.grids.partitioning_for import partitioning_for
from tests.support.progressive_pairs import through

BOX, NEAR, LESS = hr.intersects(("x0", "x1")), hr.within("v", eps=1), hr.compare("a", "<", "b")
K, L = hr.equal("k"), hr.equal("l", "m")


@pytest.mark.parametrize(
    ("condition", "kind", "lead", "ask"),
    [
        (K, HashPartitioning, K, None),
        (hr.all_of(K), HashPartitioning, K, None),
        (hr.all_of(LESS, K), HashPartitioning, K, LESS),
        (hr.all_of(L, hr.all_of(K, BOX), LESS), HashPartitioning, Equal(("l", "k"), ("m", "k")), hr.all_of(BOX, LESS)),
        (hr.all_of(K, K), HashPartitioning, K, None),
        (hr.all_of(K, hr.equal("k", "l")), HashPartitioning, K, hr.equal("k", "l")),
        (BOX, BoxGrid, BOX, None),
        (NEAR, VectorGrid, NEAR, None),
        (hr.all_of(LESS, BOX, NEAR), BoxGrid, BOX, hr.all_of(LESS, NEAR)),
        (hr.all_of(NEAR, BOX), VectorGrid, NEAR, BOX),
    ],
)
def test_what_leads(condition: Condition, kind: type, lead: Condition, ask: Condition | None) -> None:
    partitioning, rest = partitioning_for(condition)
    assert type(partitioning) is kind
    assert partitioning.condition == lead  # type: ignore[attr-defined]
    assert rest == ask


def test_options_go_where_they_belong() -> None:
    assert partitioning_for(K, partitions=7)[0].partitions == 7
    assert partitioning_for(BOX, partitions=3, cells=5, space=(0, 1))[0].partitions == 3
    assert partitioning_for(hr.within(("a", "b"), eps=1), cells=3)[0].partitions == 9
    for call, says in [
        (
            lambda: partitioning_for(LESS),
            "cannot divide two streams; use equal, intersects or within, or all_of with one of them",
        ),
        (lambda: partitioning_for(hr.all_of(LESS, hr.band("a", "b", below=1, above=1))), "cannot divide two streams"),
        (
            lambda: partitioning_for(NEAR, partitions=4),
            "partitions=4 is for keys and boxes; a grid over vectors takes cells=",
        ),
        (lambda: partitioning_for(NEAR, cells=(4, 4)), r"cells=\(4, 4\) is not a number"),
        (lambda: partitioning_for(K, space=(0, 1)), r"space=\(0, 1\) is for boxes and vectors"),
        (lambda: partitioning_for(K, cells=3), "cells=3 is for boxes and vectors"),
    ]:
        with pytest.raises(BadInput, match=says):
            call()


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        (hr.all_of(hr.equal("k"), hr.compare("a", "<", "a")), lambda x, y: x["k"] == y["k"] and x["a"] < y["a"]),
        (hr.all_of(hr.equal("s"), hr.equal("k")), lambda x, y: x["k"] == y["k"] and x["s"] == y["s"]),
        (
            hr.all_of(hr.equal("s"), hr.within(("a", "b"), eps=3)),
            lambda x, y: x["s"] == y["s"] and (x["a"] - y["a"]) ** 2 + (x["b"] - y["b"]) ** 2 <= 9,
        ),
        (
            hr.all_of(hr.intersects(("a", "c")), hr.compare("k", "!=", "k")),
            lambda x, y: x["a"] <= y["c"] and y["a"] <= x["c"] and x["k"] != y["k"],
        ),
        (
            hr.all_of(hr.band("k", below=0, above=1), hr.within(("a", "b"), eps=4, metric="manhattan")),
            lambda x, y: y["k"] <= x["k"] <= y["k"] + 1 and abs(x["a"] - y["a"]) + abs(x["b"] - y["b"]) <= 4,
        ),
    ],
)
def test_oracle_conditions_with_more_to_ask(condition: Condition, holds: Any) -> None:
    rng = np.random.default_rng(1)

    def some(n: int) -> pa.RecordBatch:
        a, b = rng.integers(0, 20, (2, n))
        columns = {"k": rng.integers(0, 4, n), "a": a, "b": b, "c": a + rng.integers(0, 4, n)}
        return pa.record_batch(columns | {"s": pa.array([f"name {i}" for i in rng.integers(0, 4, n)])})

    left, right = some(80), some(70)
    wanted = Counter(
        (i, j) for i, x in enumerate(left.to_pylist()) for j, y in enumerate(right.to_pylist()) if holds(x, y)
    )
    op = ProgressiveJoin(condition, memory="1MiB", capacity=40)
    assert through(op, left, right, 11) == wanted
    assert op.stats.flushes > 0 and 20 < len(wanted) < 2000
