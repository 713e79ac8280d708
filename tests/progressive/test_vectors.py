"""Grids over vectors: every pair within eps, once. [PQP] ch. 6"""

from __future__ import annotations

import math
from collections import Counter
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.conditions import METRICS as ALL_METRICS
from headrace.errors import BadInput, UnsupportedType
from headrace.kernels.vectors import neighbour_cells, reach_tiles
from headrace.predicates import Residual
from headrace.progressive import ProgressiveJoin, VectorGrid
from headrace.progressive.grids.grid import Grid
from headrace.progressive.grids.vectors import ExpectedTiles
from tests.support.progressive_pairs import pairs, refuses, through

METRICS = [metric for metric in ALL_METRICS if metric != "cosine"]  # a grid divides places, not angles
_coordinate = st.one_of(
    st.integers(-2, 9).map(float), st.sampled_from([0.1, 0.2, 0.30000000000000004, 0.7, 2.5, 7.4999999])
)
_odd = st.sampled_from([None, math.nan, math.inf, -math.inf, 1e300])


@st.composite
def _vectors(draw: Any, size: int, most: int = 12) -> list[list[float | None]]:
    out = []
    for _ in range(draw(st.integers(0, most))):
        vector: list[float | None] = [draw(_coordinate) for _ in range(size)]
        if draw(st.integers(0, 9)) == 0:
            vector[draw(st.integers(0, size - 1))] = draw(_odd)
        out.append(vector)
    return out


def lists(vectors: list[Any], size: int) -> pa.RecordBatch:
    return pa.record_batch({"v": pa.array(vectors, pa.list_(pa.float64(), size))})


def columns(vectors: list[Any], size: int) -> pa.RecordBatch:
    return pa.record_batch({f"c{j}": pa.array([v[j] for v in vectors], pa.float64()) for j in range(size)})


def brute(left: list[Any], right: list[Any], eps: float, metric: str) -> Counter[Any]:
    """In the order of coordinates, as everything here sums."""

    def near(a: list[Any], b: list[Any]) -> bool:
        if any(v is None or not math.isfinite(v) for v in (*a, *b)):
            return False
        total = most = 0.0
        for x, y in zip(a, b, strict=True):
            d = abs(x - y)
            most, total = max(most, d), total + (d * d if metric == "euclidean" else d)
        far = {"euclidean": math.sqrt(total), "manhattan": total, "chebyshev": most}[metric]
        return far <= eps

    return Counter((i, j) for i, a in enumerate(left) for j, b in enumerate(right) if near(a, b))


@given(
    data=st.data(), size=st.integers(1, 4), metric=st.sampled_from(METRICS), eps=st.sampled_from([0.1, 0.5, 1.0, 5, 40])
)
def test_oracle_each_pair_once(data: Any, size: int, metric: Any, eps: float) -> None:
    left, right = data.draw(_vectors(size)), data.draw(_vectors(size))
    space = data.draw(
        st.sampled_from([None, [0] * size + [8] * size, [0.1] * size + [0.4] * size, [-9e9] * size + [1e3] * size])
    )
    cells, tiles = data.draw(st.sampled_from([1, 2, 4, 7])), data.draw(st.sampled_from([1, 30, 10_000]))
    condition = hr.within("v", eps=eps, metric=metric, right=[f"c{j}" for j in range(size)] if size > 1 else "v")
    grid = VectorGrid(condition, space, cells, max_tiles=tiles)
    other = columns(right, size) if size > 1 else lists(right, size)
    assert pairs(grid, lists(left, size), other) == brute(left, right, eps, metric)


@given(
    data=st.data(),
    metric=st.sampled_from(METRICS),
    cut=st.integers(1, 12),
    capacity=st.integers(1, 30),
    flush=st.sampled_from(["xjoin", "rrpj", "rrpj-f"]),
)
@settings(max_examples=40)
def test_oracle_through_the_driver(data: Any, metric: Any, cut: int, capacity: int, flush: str) -> None:
    left, right = data.draw(_vectors(2, 30)), data.draw(_vectors(2, 30))
    near = hr.within(("c0", "c1"), eps=1, metric=metric)
    op = ProgressiveJoin(
        near, memory="1MiB", flush=flush, partitioning=VectorGrid(near, (0, 0, 8, 8)), capacity=capacity
    )
    assert through(op, columns(left, 2), columns(right, 2), cut) == brute(left, right, 1, metric)


def test_oracle_many_vectors_in_little_memory() -> None:
    rng = np.random.default_rng(4)
    centres = rng.random((20, 9))
    left, right = (np.clip(centres[rng.integers(0, 20, n)] + rng.normal(0, 0.05, (n, 9)), 0, 1) for n in (2000, 1500))
    op = ProgressiveJoin(hr.within("v", eps=0.15), memory="512KiB")
    found = through(op, lists(left.tolist(), 9), lists(right.tolist(), 9), 500)
    far = np.sqrt(((left[:, None] - right[None]) ** 2).sum(axis=2))
    assert not (np.abs(far - 0.15) < 1e-12).any()
    assert found == Counter(zip(*(w.tolist() for w in np.nonzero(far <= 0.15)), strict=True))
    assert op.stats.flushes > 0 and len(found) > 1000


@pytest.mark.parametrize("metric", METRICS)
def test_vectors_exactly_at_eps_match(metric: Any) -> None:
    at, step = [[0.0, 0.0]], [[3.0, 4.0]]
    eps = {"euclidean": 5.0, "manhattan": 7.0, "chebyshev": 4.0}[metric]
    for distance, wanted in ((eps, 1), (np.nextafter(eps, 0), 0)):
        near = hr.within(("c0", "c1"), eps=float(distance), metric=metric)
        for space in ((0, 0, 3, 4), (-100, -100, 100, 100), (3, 4, 5, 6), (-2, -2, -1, -1)):
            assert len(pairs(VectorGrid(near, space), columns(at, 2), columns(step, 2))) == wanted


def test_differential_with_the_residual_at_the_edge() -> None:
    """The same distances as the semi-stream joins compute, to the last bit."""
    rng = np.random.default_rng(0)
    left, right = (rng.random((60, 5)) * 10.0 ** rng.integers(-3, 9, (60, 1)) for _ in range(2))
    for metric in METRICS:
        i, j = 7, 11
        d = np.abs(left[i] - right[j])
        eps = float({"euclidean": np.sqrt((d * d).sum()), "manhattan": d.sum(), "chebyshev": d.max()}[metric])
        near = hr.within(tuple(f"c{k}" for k in range(5)), eps=eps, metric=metric)
        a, b = columns(left.tolist(), 5), columns(right.tolist(), 5)
        one, two = np.meshgrid(np.arange(60), np.arange(60), indexing="ij")
        keep = Residual(near, a.schema, b.schema).keep(a.take(one.ravel()), b.take(two.ravel()))
        assert set(pairs(VectorGrid(near), a, b)) == set(
            zip(one.ravel()[keep].tolist(), two.ravel()[keep].tolist(), strict=True)
        )


@pytest.mark.parametrize("metric", [0, 1, 2])
def test_reach_and_kappa_against_numpy(metric: int) -> None:
    rng = np.random.default_rng(metric)
    eps = 0.3
    grid = Grid(np.array([0.0, -1.0, 2.0]), np.array([1.0, 3.0, 4.0]), np.full(3, 4), np.array([1, 2, 0]))
    axes = np.array([0, 1, 3])
    vectors = rng.random((40, 5)) * [1.2, 5, 9, 2.4, 1] + [-0.1, -1.5, 0, 1.8, 0]
    tiles, shape = grid.cells << grid.shift, grid.cells << grid.shift
    width = (grid.high - grid.low) / tiles
    index = np.stack(np.unravel_index(np.arange(np.prod(shape)), shape), axis=1)
    low, high = grid.low + index * width, grid.low + (index + 1) * width
    low, high = np.where(index == 0, -np.inf, low), np.where(index == tiles - 1, np.inf, high)
    rows, codes = np.empty(40_000, np.int32), np.empty(40_000, np.uint64)
    n = reach_tiles(vectors.reshape(-1), np.ones(40, np.uint8), 5, axes, grid.numbers(), eps, metric, rows, codes)
    found = list(zip(rows[:n].tolist(), (codes[:n] >> np.uint64(grid.bits)).tolist(), codes[:n].tolist(), strict=True))

    def distance(gaps: Any) -> Any:
        return [np.sqrt((gaps**2).sum(axis=-1)), gaps.sum(axis=-1), gaps.max(axis=-1)][metric]

    for i, vector in enumerate(vectors[:, axes]):
        far = distance(np.maximum(0, np.maximum(low - vector, vector - high)))
        assert not (np.abs(far - eps) < 1e-9).any()
        cell = np.ravel_multi_index(tuple((index[far <= eps] >> grid.shift).T), grid.cells)
        assert sorted(c for row, c, _ in found if row == i) == sorted(cell.tolist())
    assert len(set(found)) == n
    cells = np.stack(np.unravel_index(np.arange(64), (4, 4, 4)), axis=1)
    gaps = np.maximum(0, np.abs(cells[:, None] - cells[None]) - 1) * grid.widths
    for p in (0, 21, 63):
        seen = np.zeros(64, np.uint8)
        neighbour_cells(np.array([p], np.int32), grid.cells, grid.widths, np.full(3, 1e-12), eps, metric, seen)
        assert (seen == (distance(gaps[p]) <= eps)).all()


@pytest.mark.parametrize("metric", METRICS)
def test_expected_tiles_are_what_vectors_probe(metric: Any) -> None:
    rng = np.random.default_rng(0)
    ratios, expected = (0.3, 0.8, 1.2), ExpectedTiles(metric)
    for ratio in ratios:
        expected = expected.with_dimension(ratio)
    cells, eps = np.full(3, 64), 1.0
    grid = Grid(np.zeros(3), 64 * eps / np.array(ratios), cells, np.zeros(3, np.int64))
    inner = grid.widths * (8 + 48 * rng.random((20_000, 3)))
    n = reach_tiles(
        inner.reshape(-1),
        np.ones(20_000, np.uint8),
        3,
        np.arange(3),
        grid.numbers(),
        eps,
        METRICS.index(metric),
        np.empty(0, np.int32),
        np.empty(0, np.uint64),
    )
    assert n / 20_000 == pytest.approx(expected.average, rel=0.02)


def test_a_grid_has_as_many_dimensions_as_keep_probes_in_bounds() -> None:
    near = hr.within("v", eps=0.1)
    rng = np.random.default_rng(0)
    wide = rng.random((2000, 9)) * np.array([1, 1, 0.01, 1, 1, 1, 0.01, 1, 1])
    rows = lists(wide.tolist(), 9)
    grid = VectorGrid(near)
    grid.bind(0, rows.schema)
    reading = grid.read(0, rows)
    estimate, reach = grid.cells_per_row, grid.reach(0, reading)
    assert len(grid.axes) > 4 and set(grid.axes.tolist()).isdisjoint({2, 6})  # those are narrow
    assert reach.row.size / 2000 == grid.cells_per_row < estimate <= 256 and grid.partitions == 256
    close = VectorGrid(hr.within("v", eps=5.0))
    close.bind(0, rows.schema)
    assert close.reach(0, close.read(0, rows)).row.size / 2000 < 256
    assert VectorGrid(near, space=[0] * 2 + [1] * 2).partitions == 16


def test_a_space_is_declared_or_seen() -> None:
    rows = columns([[0.5, 0.5], [9.0, 0.5], [None, 99.0], [-5.0, -5.0]], 2)
    near = hr.within(("c0", "c1"), eps=0.1)
    grid = VectorGrid(near, (0, 0, 1, 1))
    grid.bind(0, rows.schema)
    assert grid.read(0, rows).outside == 2
    empty = VectorGrid(near)
    empty.bind(0, rows.schema)
    reading = empty.read(0, rows.slice(2, 1))
    assert empty.grid is None and not empty.home(0, reading).row.size and not empty.reach(0, reading).row.size
    one = VectorGrid(near)  # a single vector has no width
    assert pairs(one, rows.slice(0, 1), rows.slice(0, 2)) == {(0, 0): 1}


def test_integers_and_decimals_are_coordinates() -> None:
    rows = pa.record_batch(
        {"a": pa.array([1, 4], pa.int8()), "b": pa.array([Decimal("2.50"), None], pa.decimal128(9, 2))}
    )
    others = pa.record_batch({"w": pa.array([[1.0, 3.0], [2.0, 2.5]], pa.list_(pa.float32(), 2))})
    assert pairs(VectorGrid(hr.within(("a", "b"), eps=0.5, right="w")), rows, others) == {(0, 0): 1}
    assert pairs(VectorGrid(hr.within("w", eps=0.5, right=("a", "b"))), others.slice(0, 1), rows) == {(0, 0): 1}


def test_what_is_refused_by_name() -> None:
    near = hr.within("v", eps=1)

    def bind(condition: Any, *sides: pa.RecordBatch, **options: Any) -> None:
        grid = VectorGrid(condition, **options)
        for side, batch in enumerate(sides):
            grid.bind(side, batch.schema)

    refuses(
        "the right vector v has 3 coordinates, and the left vector v has 2; name as many",
        lambda: bind(near, lists([], 2), lists([], 3)),
    )
    refuses("the left side has no column 'v'", lambda: bind(near, columns([], 2)))
    strings = pa.record_batch({"v": pa.array(["a"])})
    refuses("left column 'v' has type string", lambda: bind(near, strings), UnsupportedType)
    refuses("is of angles, and a grid of places", lambda: VectorGrid(hr.within("v", eps=1, metric="cosine")))
    ragged = pa.record_batch({"v": pa.array([[1.0]], pa.list_(pa.float64()))})
    refuses("left column 'v' has type list<.*cannot be compared", lambda: bind(near, ragged), UnsupportedType)
    days = pa.record_batch({"v": pa.array([date(2024, 1, 1)])})
    refuses("left column 'v' of type date32.* is no coordinate; expected numbers", lambda: bind(near, days))
    refuses("space=.* is not a space of 2 dimensions", lambda: bind(near, lists([], 2), space=(0, 0, 0, 1, 1, 1)))
    refuses("cells=0 is not a number of cells", lambda: VectorGrid(near, cells=0))
    refuses("dimensions=0 is not a number above 0", lambda: VectorGrid(near, dimensions=0))
    refuses("max_tiles=1.5 is not a number above 0", lambda: VectorGrid(near, max_tiles=1.5))  # type: ignore[arg-type]
    refuses(
        "is .* cells; give at most", lambda: VectorGrid(hr.within([f"c{j}" for j in range(40)], eps=1), dimensions=40)
    )
    refuses("eps=0 is not a distance above 0", lambda: hr.within("v", eps=0), BadInput)
