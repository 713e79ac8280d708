"""Pairs of streams of keys, boxes and vectors, with the condition that joins them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

import headrace as hr
from headrace.conditions import Condition


@dataclass(frozen=True)
class Streams:
    """Two tables that arrive in batches in turn, the join condition, and the same condition in SQL."""

    left: pa.Table
    right: pa.Table
    condition: Condition
    sql: str

    def batches(self, rows: int) -> Iterator[tuple[str, pa.RecordBatch]]:
        sides = [("left", self.left.to_batches(rows)), ("right", self.right.to_batches(rows))]
        for pair in zip(*[[(name, batch) for batch in some] for name, some in sides], strict=True):
            yield from pair


def keys(rows: int, seed: int) -> Streams:
    """Make streams with integer keys and a few columns; a tuple has one match on average."""
    rng, n = np.random.default_rng(seed), rows // 2
    left = pa.table({"k": rng.integers(0, n, n), "a": rng.integers(0, 1 << 40, n), "x": rng.random(n)})
    right = pa.table({"k": rng.integers(0, n, n), "b": rng.integers(0, 1 << 40, n), "y": rng.random(n)})
    return Streams(left, right, hr.equal("k"), "l.k = r.k")


def boxes(rows: int, seed: int) -> Streams:
    """Make streams of clustered boxes in a unit square; a box intersects a few of the other side."""
    rng, n = np.random.default_rng(seed), rows // 2
    sides = []
    for name in ("left", "right"):
        centre = rng.random((200, 2))[rng.integers(0, 200, n)] + rng.normal(0, 0.02, (n, 2))
        size = rng.random((n, 2)) / np.sqrt(n)
        low, high = centre - size / 2, centre + size / 2
        columns = {"xmin": low[:, 0], "ymin": low[:, 1], "xmax": high[:, 0], "ymax": high[:, 1]}
        sides.append(pa.table({**columns, name: np.arange(n)}))
    return Streams(
        *sides,
        hr.intersects(("xmin", "ymin", "xmax", "ymax")),
        "l.xmin <= r.xmax and r.xmin <= l.xmax and l.ymin <= r.ymax and r.ymin <= l.ymax",
    )


def vectors(rows: int, seed: int) -> Streams:
    """Make streams of points in three dimensions; a point has one match on average."""
    rng, n = np.random.default_rng(seed), rows // 2
    sides = [pa.table({**{c: rng.random(n) for c in "xyz"}, name: np.arange(n)}) for name in ("left", "right")]
    eps = float((3 / (4 * np.pi * n)) ** (1 / 3))  # one match a tuple
    return Streams(
        *sides,
        hr.within(("x", "y", "z"), eps=eps),
        f"(l.x-r.x)*(l.x-r.x) + (l.y-r.y)*(l.y-r.y) + (l.z-r.z)*(l.z-r.z) <= {eps!r}*{eps!r}",
    )


MAKERS = {"keys": keys, "boxes": boxes, "vectors": vectors}
