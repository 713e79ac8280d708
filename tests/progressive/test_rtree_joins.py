"""Five joins of boxes: every pair that meets, once, however the sides come in."""

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import example, given, settings

from headrace.progressive.rtree import ALGORITHMS, Disk2008
from reproduction.spatial_sets import clustered

coordinates = st.integers(0, 8)
box = st.tuples(coordinates, coordinates, st.integers(0, 3), st.integers(0, 3)).map(
    lambda b: (b[0], b[1], b[0] + b[2], b[1] + b[3])
)
arrivals = st.lists(st.tuples(st.sampled_from(["left", "right"]), st.lists(box, max_size=25)), max_size=12)
names = pytest.mark.parametrize("name", ALGORITHMS)


def brute(left, right):
    left, right = (np.array(boxes, float).reshape(-1, 4) for boxes in (left, right))
    meet = (left[:, None, :2] <= right[None, :, 2:]).all(2) & (left[:, None, 2:] >= right[None, :, :2]).all(2)
    return sorted(map(tuple, np.argwhere(meet).tolist()))


def pairs(batches):
    return [pair for batch in batches for pair in zip(*batch.to_pydict().values(), strict=True)]


def run(join, batches):
    found = [pair for side, boxes in batches for pair in pairs(join.insert(side, boxes))]
    return found + pairs(join.finish())


@names
@given(batches=arrivals, page_rows=st.integers(4, 9), frames=st.integers(9, 14), rows=st.integers(1, 40))
@example(batches=[], page_rows=4, frames=9, rows=1)
@example(batches=[("left", [(0, 0, 1, 1)] * 60)], page_rows=4, frames=9, rows=1)
@example(batches=[("left", [(2, 2, 2, 2)] * 30), ("right", [(2, 2, 2, 2)] * 31)], page_rows=4, frames=9, rows=3)
@settings(max_examples=60, deadline=None)
def test_oracle_every_pair_once(name, batches, page_rows, frames, rows):
    disk = Disk2008(page_size=20 * page_rows)
    join = ALGORITHMS[name](frames * disk.page_size, disk=disk, rows=rows)
    found = run(join, batches)
    sides = {side: [b for s, boxes in batches if s == side for b in boxes] for side in ("left", "right")}
    assert sorted(found) == brute(**sides)
    assert join.stats.results == len(found)
    assert join.stats.tuples_in == len(sides["left"]) + len(sides["right"])


@names
@pytest.mark.parametrize("sizes", [(0, 50), (3, 12), (3, 300), (12, 300), (60, 300), (300, 300)])
def test_oracle_trees_of_different_heights(name, sizes):
    rng = np.random.default_rng(sizes)
    small, large = (np.hstack([low, low + 2]) for low in (rng.integers(0, 30, (n, 2)) for n in sizes))
    for left, right in ((small, large), (large, small)):
        disk = Disk2008(page_size=80)
        join = ALGORITHMS[name](20 * disk.page_size, disk=disk, rows=10)
        assert sorted(run(join, [("left", left), ("right", right)])) == brute(left, right)


@names
def test_boxes_that_touch_contain_and_are_points(name):
    left = [(0, 0, 10, 10), (20, 20, 30, 30), (5, 5, 5, 5)]
    right = [
        (10, 10, 12, 12),  # touches a corner of the first
        (10.001, 0, 12, 10),  # passes it by
        (-1, -1, 40, 40),  # contains all
        (22, 22, 23, 23),  # lies within the second
        (5, 5, 5, 5),  # the same point
        (30, 0, 31, 20),  # touches a corner of the second
    ]
    found = run(ALGORITHMS[name](), [("left", left), ("right", right)])
    assert sorted(found) == [(0, 0), (0, 2), (0, 4), (1, 2), (1, 3), (1, 5), (2, 2), (2, 4)]


@names
def test_differential_against_shapely(name):
    left, right = clustered(4_000, 5)
    tree = shapely.STRtree(shapely.box(*right.T))
    expected = sorted(map(tuple, tree.query(shapely.box(*left.T), predicate="intersects").T.tolist()))
    join = ALGORITHMS[name](16 * 4096, rows=100)
    batches = [(s, b[i : i + 300]) for i in range(0, 4_000, 300) for s, b in (("left", left), ("right", right))]
    assert sorted(run(join, batches)) == expected and len(expected) > 1_000


@names
def test_arrow_and_arrays_are_the_same(name):
    boxes = np.array([[0, 0, 2, 2], [1, 1, 3, 3], [9, 9, 9, 9]])
    arrow = pa.record_batch(dict(zip(("xmin", "ymin", "xmax", "ymax"), boxes.T, strict=True)))
    expected = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 2)]
    assert sorted(run(ALGORITHMS[name](), [("left", arrow), ("right", boxes)])) == expected
    assert sorted(run(ALGORITHMS[name](), [("left", pa.table(arrow)), ("right", boxes.tolist())])) == expected


@names
def test_results_come_before_the_end_but_for_the_static_join(name):
    left, right = clustered(4_000, 5)
    join = ALGORITHMS[name](16 * 4096)
    early = 0
    for i in range(0, 4_000, 204):
        early += len(pairs(join.insert("left", left[i : i + 204]))) + len(
            pairs(join.insert("right", right[i : i + 204]))
        )
    late = len(pairs(join.finish()))
    assert (early == 0) if name == "static" else (early > late)
    assert (late == 0) if name == "dynamic" else (late > 0)


@names
def test_input_is_not_changed_and_results_are_not_shared(name):
    boxes = np.random.default_rng(3).random((500, 4))
    boxes[:, 2:] += boxes[:, :2]
    before = boxes.copy()
    join = ALGORITHMS[name](rows=300)
    batches = [*join.insert("left", boxes), *join.insert("right", boxes)]
    copies = [batch.to_pydict() for batch in batches]
    batches += join.finish()
    assert np.array_equal(boxes, before)
    assert [batch.to_pydict() for batch in batches[: len(copies)]] == copies
