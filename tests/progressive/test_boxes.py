"""Grids over boxes: every pair that intersects, once. [PQP] ch. 5"""

from __future__ import annotations

import math
from collections import Counter
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import UnsupportedType
from headrace.kernels.boxes import cover_tiles
from headrace.predicates import Residual
from headrace.progressive import BoxGrid, ProgressiveJoin
from headrace.progressive.grids.partitioning import Partitioning
from tests.support.progressive_pairs import pairs, refuses, through

NAMES = ("x0", "y0", "x1", "y1")
TOUCH = hr.intersects(NAMES)

_edge = st.one_of(
    st.integers(-3, 12).map(float), st.sampled_from([0.1, 0.3, 2.5, 3.3333333333333335, -math.inf, math.inf])
)
_odd = st.sampled_from([None, math.nan])


@st.composite
def _boxes(draw: Any, most: int = 12, odd: bool = True) -> list[list[float | None]]:
    out = []
    for _ in range(draw(st.integers(0, most))):
        xs, ys = sorted(draw(st.tuples(_edge, _edge))), sorted(draw(st.tuples(_edge, _edge)))
        box: list[float | None] = [xs[0], ys[0], xs[1], ys[1]]
        if odd and draw(st.integers(0, 9)) == 0:
            box[draw(st.integers(0, 3))] = draw(_odd)
        out.append(box)
    return out


def batch(boxes: list[list[Any]], type_: pa.DataType | None = None) -> pa.RecordBatch:
    columns = {name: pa.array([box[i] for box in boxes], type_ or pa.float64()) for i, name in enumerate(NAMES)}
    return pa.record_batch(columns)


def brute(left: list[list[Any]], right: list[list[Any]]) -> Counter[Any]:
    d = 2

    def odd(box: list[Any]) -> bool:
        return any(v is None or v != v for v in box)

    return Counter(
        (i, j)
        for i, a in enumerate(left)
        for j, b in enumerate(right)
        if not odd(a) and not odd(b) and all(a[k] <= b[d + k] and b[k] <= a[d + k] for k in range(d))
    )


@given(
    left=_boxes(),
    right=_boxes(),
    space=st.sampled_from([None, (0, 0, 10, 10), (0.1, -1, 3.4, 2), (-100, 5, 100, 6)]),
    cells=st.sampled_from([1, 3, 10, (1, 7), (4, 2)]),
    tiles=st.sampled_from([None, 1, 2, 8]),
)
def test_oracle_each_pair_in_one_tile(left: Any, right: Any, space: Any, cells: Any, tiles: Any) -> None:
    found = pairs(BoxGrid(TOUCH, space, cells, tiles), batch(left), batch(right))
    assert found == brute(left, right)


@given(
    left=_boxes(30),
    right=_boxes(30),
    cut=st.integers(1, 12),
    capacity=st.integers(1, 60),
    mapping=st.sampled_from(["round-robin", "hash"]),
    partitions=st.sampled_from([None, 1, 5]),
    flush=st.sampled_from(["xjoin", "rrpj"]),
)
@settings(max_examples=40)
def test_oracle_through_the_driver(
    left: Any, right: Any, cut: int, capacity: int, mapping: Any, partitions: Any, flush: str
) -> None:
    grid = BoxGrid(TOUCH, (0, 0, 10, 10), 4, 2, partitions, mapping)
    op = ProgressiveJoin(TOUCH, memory="1MiB", flush=flush, partitioning=grid, capacity=capacity)
    assert through(op, batch(left), batch(right), cut) == brute(left, right)


def test_oracle_many_boxes_in_little_memory() -> None:
    rng = np.random.default_rng(5)

    def some(n: int) -> pa.RecordBatch:
        low = rng.random((n, 2)) * 100
        high = low + rng.exponential(1.0, (n, 2)) * (rng.random((n, 1)) < 0.9)
        return pa.record_batch(dict(zip(NAMES, np.hstack([low, high]).T, strict=True)))

    left, right = some(2500), some(2000)
    op = ProgressiveJoin(TOUCH, memory="512KiB")
    found = through(op, left, right, 700)
    a, b = (np.stack([np.asarray(rows[name]) for name in NAMES], axis=1)[:, None] for rows in (left, right))
    meet = ((a[..., :2] <= b[..., 2:].swapaxes(0, 1)) & (b[..., :2].swapaxes(0, 1) <= a[..., 2:])).all(axis=2)
    assert found == Counter(zip(*(w.tolist() for w in np.nonzero(meet)), strict=True))
    assert op.stats.flushes > 0 and len(found) > 1000
    assert isinstance(op.partitioning, BoxGrid) and op.partitioning.grid is not None
    assert op.partitioning.grid.bits >= 4  # small boxes: tiles smaller than cells


EDGE = 2**53


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.int64(), [EDGE, EDGE + 1, EDGE + 2, EDGE + 3, -EDGE - 1, 2**63 - 1, 2**63 - 2, -(2**63), 0]),
        (pa.int32(), [0, 1, 2, 2**31 - 1, -5]),
        (pa.decimal128(18, 2), [Decimal(v) / 100 for v in (10**17, 10**17 + 1, 10**17 + 2, 0, 10, 30)]),
        (pa.timestamp("ns"), [np.datetime64(2**62 + v, "ns") for v in (0, 1, 2, 3)]),
        (pa.timestamp("us"), [datetime(2024, 1, 1) + timedelta(microseconds=v) for v in (0, 1, 2, 3)]),
        (pa.float32(), [0.0, -0.0, 0.1, 0.2, 1e30]),
    ],
    ids=str,
)
def test_oracle_values_that_no_double_tells_apart(type_: pa.DataType, values: list[Any]) -> None:
    rng = np.random.default_rng(2)
    ranked = pa.array(values, type_)
    order = np.argsort([sorted(values).index(v) for v in values], kind="stable")
    ranked = ranked.take(pa.array(order))

    def some(n: int) -> pa.RecordBatch:
        a, b = rng.integers(0, len(values), (2, n, 2))
        low, high = np.minimum(a, b), np.maximum(a, b)
        at = [low[:, 0], low[:, 1], high[:, 0], high[:, 1]]
        return pa.record_batch({name: ranked.take(pa.array(i)) for name, i in zip(NAMES, at, strict=True)})

    left, right = some(40), some(40)
    grid = BoxGrid(TOUCH, cells=3)
    found = pairs(grid, left, right)
    assert max(found.values()) == 1
    i, j = np.meshgrid(np.arange(40), np.arange(40), indexing="ij")
    keep = Residual(TOUCH, left.schema, right.schema).keep(left.take(i.ravel()), right.take(j.ravel()))
    wanted = set(zip(i.ravel()[keep].tolist(), j.ravel()[keep].tolist(), strict=True))
    assert 0 < len(wanted) < 1600 and wanted <= set(found)
    if grid.exact:
        assert wanted == set(found)
    op = ProgressiveJoin(TOUCH, memory="1MiB", partitioning=BoxGrid(TOUCH, cells=3))
    assert through(op, left, right, 9) == Counter(wanted)


@pytest.mark.parametrize(
    ("one", "other", "type_", "other_type"),
    [
        (1294639275203533000, 1294639275203533, pa.timestamp("ns"), pa.timestamp("us")),
        (9269786713763870, 926978671376387000, pa.decimal128(18, 2), pa.decimal128(18, 4)),
        (EDGE + 1, EDGE + 1, pa.int64(), pa.decimal128(18, 0)),
    ],
    ids=str,
)
def test_equal_corners_of_two_types_touch(one: int, other: int, type_: pa.DataType, other_type: pa.DataType) -> None:
    def interval(low: int, high: int, type_: pa.DataType) -> pa.RecordBatch:
        exact = [Decimal(v).scaleb(-type_.scale) for v in (low, high)] if pa.types.is_decimal(type_) else [low, high]
        return pa.record_batch(
            {
                name: pa.array([v], pa.int64() if isinstance(v, int) else type_).cast(type_)
                for name, v in zip(("a", "b"), exact, strict=True)
            }
        )

    touch, first, second = hr.intersects(("a", "b")), (one, type_), (other, other_type)
    for (end, ends), (start, starts) in ((first, second), (second, first)):
        below, above = interval(end - 1000, end, ends), interval(start, start + 1000, starts)
        apart = interval(end - 1000, end - 1, ends)
        for left, right in ((below, above), (above, below)):
            assert pairs(BoxGrid(touch, cells=3), left, right) == {(0, 0): 1}
        for left, wanted in ((below, {(0, 0): 1}), (apart, {})):
            op = ProgressiveJoin(touch, memory="1MiB", partitioning=BoxGrid(touch, cells=3))
            assert through(op, left, above, 1) == wanted


def test_oracle_a_box_over_all_that_comes_late() -> None:
    rng = np.random.default_rng(3)
    low = rng.random((400, 2))
    small = np.hstack([low, low + 0.001])
    late = np.vstack([small, [[-1, -1, 2, 2], [0.2, -5, 0.3, 5]]])
    op = ProgressiveJoin(TOUCH, memory="1MiB")
    found = through(op, batch(late.tolist()), batch(small.tolist()), 150)
    assert found == brute(late.tolist(), small.tolist())
    assert sum(i == 400 for i, _ in found) == 400


def test_intervals_and_boxes_of_three_dimensions() -> None:
    rng = np.random.default_rng(0)
    for d in (1, 3):
        names = tuple(f"a{j}" for j in range(2 * d))
        sides = []
        for _ in range(2):
            a, b = rng.integers(0, 20, (2, 50, d)).astype(float)
            columns = np.hstack([np.minimum(a, b), np.minimum(a, b) + np.abs(a - b) % 4]).T
            sides.append(pa.record_batch(dict(zip(names, columns, strict=True))))
        x, y = (np.stack([np.asarray(c) for c in side.columns], axis=1) for side in sides)
        meet = ((x[:, None, :d] <= y[None, :, d:]) & (y[None, :, :d] <= x[:, None, d:])).all(axis=2)
        assert pairs(BoxGrid(hr.intersects(names)), *sides) == Counter(
            zip(*(w.tolist() for w in np.nonzero(meet)), strict=True)
        )


def test_a_box_is_in_every_tile_it_touches() -> None:
    grid = BoxGrid(TOUCH, (0, 0, 10, 10), 10, 1)
    grid.bind(0, batch([]).schema)
    reading = grid.read(
        0, batch([[1.5, 2, 3, 2.5], [5, 5, 5, 5], [-9, -9, 99, 99], [20, 3, 30, 3.5], [99, 1, 99, math.nan]])
    )
    home = grid.home(0, reading)
    tiles = [sorted(home.cell[home.row == i].tolist()) for i in range(4)]
    assert tiles[0] == [12, 22, 32] and tiles[1] == [55] and tiles[2] == list(range(100)) and tiles[3] == [93]
    assert reading.outside == 2
    codes = np.empty(3, np.uint64)  # no room for all: it says how many there are
    values = np.array([0.0, 0, 9, 9])
    assert cover_tiles(values, np.ones(1, np.uint8), grid.limits, np.empty(3, np.int32), codes) == 100
    assert codes.tolist() == [0, 1, 2]


def test_tiles_are_dealt_to_partitions() -> None:
    dealt = BoxGrid(TOUCH, (0, 0, 3, 3), 3, 1, partitions=4)
    tiles = np.arange(9, dtype=np.uint64)
    assert dealt.partition_of(tiles).tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0]  # [PQP] Fig. 5.2
    hashed = BoxGrid(TOUCH, (0, 0, 30, 30), 30, 2, partitions=4, mapping="hash").partition_of(
        np.arange(3600, dtype=np.uint64)
    )
    assert np.bincount(hashed).min() > 600 and (hashed.reshape(-1, 4) == hashed[::4, None]).all()
    assert BoxGrid(TOUCH, (0, 0, 3, 3), 3, 4).partition_of(tiles * np.uint64(16)).tolist() == list(range(9))


def test_a_cell_is_the_same_however_it_is_cut() -> None:
    rng = np.random.default_rng(1)
    low = rng.random((500, 2)) * 7
    low[:100] = (np.arange(100) * 0.07)[:, None]  # on the borders, or beside them by a rounding
    rows = batch(np.hstack([low, low]).tolist())
    seen = []
    for tiles in (1, 2, 16):
        grid = BoxGrid(TOUCH, (0, 0, 7, 7), 100, tiles)
        grid.bind(0, rows.schema)
        seen.append(grid.partition_of(grid.home(0, grid.read(0, rows)).cell).tolist())
    assert seen[0] == seen[1] == seen[2]


def test_far_off_boxes_do_not_spoil_the_space_of_the_first_batch() -> None:
    rng = np.random.default_rng(1)
    low = rng.random((1000, 2))
    low[7] = 1e12
    grid = BoxGrid(TOUCH)
    rows = batch(np.hstack([low, low + 0.01]).tolist())
    grid.bind(0, rows.schema)
    reading = grid.read(0, rows)
    assert grid.grid is not None and (grid.grid.high < 2).all() and (grid.grid.low >= 0).all()
    assert reading.outside == 1


def test_what_is_refused_by_name() -> None:
    def read(rows: pa.RecordBatch, side: int = 0) -> Partitioning:
        grid = BoxGrid(TOUCH)
        grid.bind(side, rows.schema)
        grid.read(side, rows)
        return grid

    refuses(
        r"a box of the right side is inverted: y0 is above y1 in \(x0=0.0, y0=5.0, x1=1.0, y1=4.0\); name the low corner first",
        lambda: read(batch([[0, 0, 1, 1], [0, 5, 1, 4]]), 1),
    )
    refuses("is inverted: x0 is above x1", lambda: read(batch([[EDGE + 1, 0, EDGE, 1]], pa.int64())))
    refuses("the left side has no column 'y1'", lambda: read(pa.record_batch({n: [1.0] for n in NAMES[:3]})))
    refuses("left column 'x0' has type string", lambda: read(batch([["a"] * 4], pa.string())), UnsupportedType)
    mixed = batch([[1.0] * 4]).set_column(0, "x0", pa.array([datetime(2024, 1, 1)]))
    refuses(
        "left column 'x1' of type double is a number, and the boxes have a time in dimension 0", lambda: read(mixed)
    )
    refuses("space=.* is not a space of 2 dimensions; give 4 numbers", lambda: BoxGrid(TOUCH, space=(0, 1)))
    refuses("goes from 1.0 to 0.0 in dimension 1; give a high corner above", lambda: BoxGrid(TOUCH, space=(0, 1, 1, 0)))
    refuses("space=.*inf.* is not a space", lambda: BoxGrid(TOUCH, space=(0, 1, 1, math.inf)))
    refuses("cells=0 is not a number of cells", lambda: BoxGrid(TOUCH, cells=0))
    refuses(r"cells=\(1, 2, 3\) is not a number of cells in each of 2", lambda: BoxGrid(TOUCH, cells=(1, 2, 3)))
    refuses("cells=100000 is 10000000000 cells; give at most", lambda: BoxGrid(TOUCH, cells=100_000))
    refuses("tiles=3 does not halve a cell", lambda: BoxGrid(TOUCH, tiles=3))
    refuses("partitions=200 of 100 cells; give 1 to 100", lambda: BoxGrid(TOUCH, partitions=200))
    refuses(
        "mapping='z-order' is not supported; choose one of round-robin, hash", lambda: BoxGrid(TOUCH, mapping="z-order")
    )  # type: ignore[arg-type]
