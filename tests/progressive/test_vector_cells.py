"""Cells of vectors in many dimensions: every pair within eps once, or a stated part of them."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.conditions import METRICS
from headrace.errors import UnsupportedType
from headrace.predicates import Residual
from headrace.progressive import ProgressiveJoin, VectorGrid, VectorLsh, VectorPivots
from headrace.progressive.grids.directions import chi_bound, directions, score_margins
from headrace.progressive.grids.partitioning_for import partitioning_for, unbounded_partitioning_for
from tests.support.progressive_pairs import refuses, through

_number = st.sampled_from([0.0, 0.0, 1.0, -1.0, 2.0, 0.1, 0.30000000000000004, None, math.nan, math.inf])


def lists(vectors: Any, size: int, type_: pa.DataType | None = None) -> pa.RecordBatch:
    return pa.record_batch({"v": pa.array(list(vectors), pa.list_(type_ or pa.float64(), size))})


def brute(condition: Any, left: pa.RecordBatch, right: pa.RecordBatch) -> Counter[Any]:
    """All pairs that the condition, as joins with a relation test it, holds for."""
    one, two = np.meshgrid(np.arange(left.num_rows), np.arange(right.num_rows), indexing="ij")
    keep = Residual(condition, left.schema, right.schema).keep(left.take(one.ravel()), right.take(two.ravel()))
    finite = [
        np.array(
            [v is not None and all(x is not None and math.isfinite(x) for x in v) for v in rows["v"].to_pylist()], bool
        )
        for rows in (left, right)
    ]
    keep &= finite[0][one.ravel()] & finite[1][two.ravel()]
    return Counter(zip(one.ravel()[keep].tolist(), two.ravel()[keep].tolist(), strict=True))


def clustered(seed: int, n: int, d: int, near: float) -> tuple[Any, Any]:
    """Vectors in ten clusters, of which half of the right ones are copies of left ones, moved by up to `near`."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(10, d))
    left, right = (centres[rng.integers(0, 10, n)] + 0.3 * rng.normal(size=(n, d)) for _ in range(2))
    step = rng.normal(size=(n // 2, d))
    step *= near * rng.random((n // 2, 1)) / np.linalg.norm(step, axis=1, keepdims=True)
    right[: n // 2] = left[: n // 2] + step
    return left, right


@given(
    left=st.lists(st.tuples(_number, _number, _number), max_size=14),
    right=st.lists(st.tuples(_number, _number, _number), max_size=14),
    metric=st.sampled_from(METRICS),
    eps=st.sampled_from([0.1, 1.0, 2.0, 1e-9]),
    pivots=st.integers(1, 5),
    cut=st.integers(1, 14),
    capacity=st.integers(4, 40),
)
@settings(max_examples=60)
def test_oracle_each_pair_once_in_a_tiny_domain(
    left: Any, right: Any, metric: Any, eps: float, pivots: int, cut: int, capacity: int
) -> None:
    near = hr.within("v", eps=eps, metric=metric)
    one, two = lists(left, 3), lists(right, 3)
    op = ProgressiveJoin(near, memory="1MiB", partitioning=VectorPivots(near, pivots), capacity=capacity)
    assert through(op, one, two, cut) == brute(near, one, two)


@pytest.mark.parametrize("size", [1, 2, 31, 32, 33, 256, 1024])
@pytest.mark.parametrize("type_", [pa.float32(), pa.float64()], ids=str)
def test_oracle_of_all_sizes_with_a_pair_exactly_at_eps(size: int, type_: Any) -> None:
    left, right = clustered(size, 60, size, 0.2)
    one, two = lists(left.tolist(), size, type_), lists(right.tolist(), size, type_)
    x, y = (np.array(rows["v"].to_pylist()[7]) for rows in (one, two))
    dot = a = b = total = 0.0
    for u, v in zip(x.tolist(), y.tolist(), strict=True):
        dot, a, b, total = dot + u * v, a + u * u, b + v * v, total + (u - v) * (u - v)
    for metric, at in (("cosine", 1 - dot / (math.sqrt(a) * math.sqrt(b))), ("euclidean", math.sqrt(total))):
        for eps, found in ((at, 1), (np.nextafter(at, 0), 0)):
            if eps <= 0:
                continue
            near = hr.within("v", eps=float(eps), metric=metric)  # type: ignore[arg-type]
            got = through(ProgressiveJoin(near, memory="4MiB", partitioning=VectorPivots(near, 8)), one, two, 40)
            assert got == brute(near, one, two) and got[7, 7] == found


@pytest.mark.parametrize(("scale", "offset"), [(1e-30, 0), (1e-12, 1), (1, 1e6), (1e18, 0), (1e300, 0), (1e-170, 0)])
@pytest.mark.parametrize("metric", ["euclidean", "cosine", "chebyshev"])
def test_oracle_whatever_the_scale(scale: float, offset: float, metric: Any) -> None:
    """Products that single precision cannot hold, or that vanish in it, lose no pair."""
    left, right = (lists((scale * x + offset).tolist(), 8) for x in clustered(3, 50, 8, 0.4))
    mixed = pa.concat_batches([right, lists([[0.0] * 8, [1e17] * 8, [0.99e17] * 8, None], 8)])
    far = pa.concat_batches([left, lists([[0.0] * 8, [1.01e17] * 8, [1e17] * 8], 8)])
    for eps in (1e-3, 0.5) if metric == "cosine" else (0.4 * scale, 5e16):
        near = hr.within("v", eps=eps, metric=metric)
        op = ProgressiveJoin(near, memory="2MiB", partitioning=VectorPivots(near, 16))
        assert through(op, far, mixed, 20) == brute(near, far, mixed)


def test_oracle_many_vectors_in_little_memory() -> None:
    left, right = (lists(x.astype(np.float32).tolist(), 64, pa.float32()) for x in clustered(1, 500, 64, 1.2))
    for recall in (1, 0.95):
        near = hr.within("v", eps=1.0, dims=64, recall=recall)
        op = ProgressiveJoin(near, memory="640KiB")
        found, wanted = through(op, left, right, 125), brute(near, left, right)
        assert op.stats.flushes > 0 and len(wanted) > 150 and max(found.values()) == 1
        assert found == wanted if recall == 1 else set(found) <= set(wanted) and len(found) > 0.94 * len(wanted)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("recall", [0.7, 0.99])
@pytest.mark.parametrize("divided", [VectorLsh, VectorPivots])
def test_the_stated_recall_of_pairs_exactly_at_eps(divided: Any, metric: Any, recall: float) -> None:
    """The worst pairs are those at eps; over seeds at least `recall` of them are found."""
    rng, d, n, seeds = np.random.default_rng(5), 48, 500, 6
    left = rng.normal(size=(n, d))
    left /= np.linalg.norm(left, axis=1, keepdims=True)
    step = rng.normal(size=(n, d))
    step -= (step * left).sum(axis=1, keepdims=True) * left
    step /= np.linalg.norm(step, axis=1, keepdims=True)
    turn = math.acos(0.95)
    right = math.cos(turn) * left + math.sin(turn) * step if metric == "cosine" else left + 0.3 * step
    one, two = lists(left.tolist(), d), lists(right.tolist(), d)
    found = 0
    for seed in range(seeds):
        near = hr.within("v", eps=(0.05 if metric == "cosine" else 0.3) + 1e-9, metric=metric, recall=recall, seed=seed)
        got = through(ProgressiveJoin(near, memory="8MiB", partitioning=divided(near, 64)), one, two, 250)
        found += sum(got[i, i] for i in range(n))
    spread = math.sqrt(recall * (1 - recall) * n * seeds)
    assert recall * n * seeds - 4 * spread < found < n * seeds


def test_the_same_pairs_are_found_whatever_the_batches_and_the_memory() -> None:
    left, right = (lists(x.tolist(), 40) for x in clustered(2, 400, 40, 1.5))
    near = hr.within("v", eps=1.2, recall=0.6, seed=3)
    runs = []
    for memory, cut in (("16MiB", 400), ("16MiB", 33), ("512KiB", 90)):
        lsh = VectorLsh(near, 16, centred=False)
        runs.append(through(ProgressiveJoin(near, memory=memory, partitioning=lsh), left, right, cut))
    assert runs[0] == runs[1] == runs[2] and 0.5 < len(runs[0]) / len(brute(near, left, right)) < 1


def test_clusters_are_told_apart_and_vectors_without_structure_are_not() -> None:
    left, right = clustered(4, 600, 128, 0.5)
    wide = np.random.default_rng(0).normal(size=(2, 300, 128))
    for sides, eps, least, most in (((left, right), 1.0, 0.0, 0.2), (wide, 10.0, 0.9, 1.0)):
        pivots, cells = VectorPivots(hr.within("v", eps=eps), 64), []
        for side, vectors in enumerate(sides):
            pivots.bind(side, lists([], 128).schema)
            cells.append(pivots.home(side, pivots.read(side, lists(vectors.tolist(), 128))).cell)
        met = sum(int((cells[0] == cell).sum()) * int((cells[1] == cell).sum()) for cell in np.unique(cells[1]))
        assert least <= met / len(sides[0]) / len(sides[1]) <= most  # the part of all pairs that meet in a cell


def test_margins_and_bounds_are_what_simulations_and_tables_say() -> None:
    assert chi_bound(31, 0.01) ** 2 == pytest.approx(52.19, abs=0.01)
    assert chi_bound(2, 0.05) ** 2 == pytest.approx(5.991, abs=0.001)
    made = directions(1, 0, 200, 300)
    assert (
        abs(made.mean()) < 0.01
        and made.std() == pytest.approx(1, abs=0.01)
        and (made == directions(1, 0, 200, 300)).all()
    )
    slopes, margins = score_margins(32, 0.1)
    rng = np.random.default_rng(0)
    u, g = rng.normal(size=(2, 20_000, 32))
    own = np.arange(20_000), u.argmax(axis=1)
    for slope, margin in zip(slopes[::9], margins[::9], strict=True):
        y = slope * u + g
        missed = (y.max(axis=1) - y[own] > margin).mean()
        assert missed < 0.1 and (missed > 0.07 or slope > 16)  # of nearly parallel vectors fewer have another direction
    assert (np.diff(margins) <= 0).all()


def test_a_condition_chooses_its_cells() -> None:
    def made(divide: Any, *options: Any, **said: Any) -> Any:
        return type(divide(hr.within("v", eps=0.1, **said), *options)[0])

    assert made(partitioning_for) is VectorGrid and made(partitioning_for, dims=3) is VectorGrid
    assert made(partitioning_for, dims=384) is made(partitioning_for, metric="cosine") is VectorPivots
    assert made(partitioning_for, recall=0.9) is VectorLsh
    assert made(unbounded_partitioning_for, 8, None, [[1.0, 2.0]], dims=2, recall=0.9) is VectorPivots
    assert made(unbounded_partitioning_for, 8, None, [[1.0, 2.0]], dims=2) is VectorPivots
    assert made(unbounded_partitioning_for, 8, None, metric="cosine", dims=2) is VectorPivots


def test_what_is_refused_by_name() -> None:
    near = hr.within("v", eps=0.1, metric="cosine", dims=3)
    refuses("recall=0.9999 is neither 1 nor", lambda: hr.within("v", eps=1, recall=0.9999))
    refuses("dims=0 is not a number of coordinates", lambda: hr.within("v", eps=1, dims=0))
    refuses("dims=3 and 2 columns", lambda: hr.within(("a", "b"), eps=1, dims=3))
    refuses("asks for all pairs", lambda: VectorLsh(near))
    refuses("pivot 1 is a vector of zeros", lambda: VectorPivots(near, [[1, 2, 3], [0, 0, 0]]))
    refuses("pivots are an array of shape", lambda: VectorPivots(near, [1.0]))
    refuses("pivots=.* are no vectors", lambda: VectorPivots(near, "many"))
    refuses("cells=3 is for boxes and vectors", lambda: partitioning_for(near, cells=3))
    boxes = hr.intersects(("low", "high"))
    refuses("pivots are for within", lambda: unbounded_partitioning_for(boxes, 8, None, [[1.0]]))
    ragged = pa.record_batch({"v": pa.array([[1.0, 2.0, 3.0], None, [1.0]], pa.list_(pa.float64()))})
    op = ProgressiveJoin(near, memory="1MiB")
    refuses("a list of left column 'v' has 1 coordinates, and dims=3", lambda: op.insert("left", ragged))
    assert list(op.insert("left", ragged.slice(0, 2))) == []
    assert sum(out.num_rows for out in op.insert("right", ragged.slice(0, 2))) == 1
    bare = ProgressiveJoin(hr.within("v", eps=0.1, metric="cosine"), memory="1MiB")
    refuses("give within\\(..., dims=...\\)", lambda: bare.insert("left", ragged), UnsupportedType)
    given = ProgressiveJoin(near, memory="1MiB", partitioning=VectorPivots(near, [[1.0, 2.0]]))
    refuses("pivots have 2 coordinates, and the vectors 3", lambda: list(given.insert("left", ragged.slice(0, 2))))
