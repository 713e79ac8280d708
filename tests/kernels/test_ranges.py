"""Pairs by range and by distance against plain loops."""

from random import Random

import numpy as np
import pytest

from headrace.kernels.ranges import expand_ranges, near
from tests.support.kernel_arrays import ints, longs


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("outside", [False, True])
def test_oracle_pairs_come_complete_whatever_the_output_takes(seed, outside):
    random = Random(seed)
    size = random.choice([0, 1, 8])
    order = ints(random.sample(range(100), size))
    ends = [sorted((random.randint(0, size), random.randint(0, size))) for _ in range(random.choice([0, 1, 12]))]
    begin, end = longs(a for a, _ in ends), longs(b for _, b in ends)
    stop, got, room = np.zeros(2, np.int64), [], random.choice([1, 3, 1000])
    while stop[0] < begin.size:
        number, slots = np.empty(room, np.int32), np.empty(room, np.int32)
        n = expand_ranges(begin, end, order, outside, stop, number, slots)
        assert n == room or stop[0] == begin.size
        got += list(zip(number[:n].tolist(), slots[:n].tolist(), strict=True))
    wanted = [(i, int(order[p])) for i, (a, b) in enumerate(ends) for p in range(size) if (a <= p < b) != outside]
    assert got == wanted


@pytest.mark.parametrize("metric", [0, 1, 2])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_oracle_distances(metric, size):
    rng = np.random.default_rng(size)
    stream, relation = rng.random((30, size)).round(1), rng.random((20, size)).round(1)
    number, slots = rng.integers(0, 20, 300).astype(np.int32), rng.integers(0, 30, 300).astype(np.int32)
    before = (rng.random(300) < 0.8).astype(np.uint8)
    keep = before.copy()
    near(stream.reshape(-1), relation.reshape(-1), size, 0.5, metric, number, slots, keep)
    order = [2, 1, np.inf][metric]
    far = np.linalg.norm(stream[slots] - relation[number], ord=order, axis=1)
    clear = np.abs(far - 0.5) > 1e-12  # a sum in another order may fall on the other side
    assert (keep == (before & (far <= 0.5)))[clear].all()
    assert 0 < keep.sum() < 300


def test_squares_too_small_for_a_double_do_not_make_far_points_near():
    keep = np.ones(1, np.uint8)
    near(np.array([0.0, 1e-190]), np.zeros(2), 2, 1e-200, 0, ints([0]), ints([0]), keep)
    assert keep[0] == 0


@pytest.mark.parametrize("metric", [0, 1, 2])
def test_infinities_have_no_distance(metric):
    keep = np.ones(2, np.uint8)
    vectors = np.array([np.inf, 0.0, 0.0, -np.inf])
    near(vectors, vectors, 2, 1.0, metric, ints([0, 1]), ints([0, 1]), keep)
    assert keep.tolist() == [0, 0]
