"""The frequency sketch: an upper bound that forgets."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernels.hashing import hash_ints
from headrace.kernels.sketch import CEILING, sketch_add, sketch_age, sketch_estimate
from tests.support.kernel_arrays import RELAXED, ints, longs

LINE = 64


def hashes_of(values) -> np.ndarray:
    out = np.empty(len(values), np.uint64)
    hash_ints(longs(values), out)
    return out


def estimate(cells, keys) -> list[int]:
    out = np.full(len(keys), -1, np.int32)
    sketch_estimate(cells, hashes_of(keys), out)
    return out.tolist()


BATCHES = st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 300)), max_size=20), max_size=6)


@given(BATCHES, st.sampled_from([1, 2, 16]))
@RELAXED
def test_oracle_never_below_the_truth(batches, lines):
    cells, truth = np.zeros(lines * LINE, np.uint8), Counter()
    for batch in batches:
        keys = [key for key, _ in batch]
        sketch_add(cells, hashes_of(keys), ints(count for _, count in batch))
        for key, count in batch:
            truth[key] += count
        for key, seen in zip(range(31), estimate(cells, range(31)), strict=True):
            assert min(truth[key], CEILING) <= seen <= CEILING


def test_exact_where_there_is_room():
    cells = np.zeros(4096 * LINE, np.uint8)
    keys, counts = range(200), ints(1 + i % 250 for i in range(200))
    sketch_add(cells, hashes_of(keys), counts)
    assert estimate(cells, keys) == counts.tolist()


def test_mostly_right_when_a_key_has_four_cells():
    rng = np.random.default_rng(5)
    n = 50_000
    cells = np.zeros(1 << 12 << 6, np.uint8)  # about five cells a key
    counts = rng.integers(1, 20, n).astype(np.int32)
    sketch_add(cells, hashes_of(range(n)), counts)
    over = np.array(estimate(cells, range(n))) - counts
    assert over.min() >= 0
    assert over.mean() < 5


@pytest.mark.parametrize("adds", [[255], [256], [2**31 - 1], [200, 200], [255, 1, 1], [1] * 300])
def test_stops_at_the_ceiling(adds):
    cells = np.zeros(LINE, np.uint8)
    for count in adds:
        sketch_add(cells, hashes_of([7]), ints([count]))
    assert estimate(cells, [7]) == [CEILING]


def test_one_key_many_times_in_one_batch():
    cells = np.zeros(LINE, np.uint8)
    sketch_add(cells, hashes_of([3, 3, 3]), ints([5, 6, 7]))
    assert estimate(cells, [3]) == [18]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 300)), max_size=40))
@RELAXED
def test_oracle_ageing_halves(adds):
    cells = np.zeros(LINE, np.uint8)
    sketch_add(cells, hashes_of([k for k, _ in adds]), ints(c for _, c in adds))
    before, seen = cells.copy(), estimate(cells, range(31))
    sketch_age(cells)
    assert cells.tolist() == (before // 2).tolist()
    assert estimate(cells, range(31)) == [n // 2 for n in seen]


def test_what_is_not_seen_is_forgotten():
    cells = np.zeros(LINE, np.uint8)
    sketch_add(cells, hashes_of([1]), ints([1000]))
    for _ in range(8):
        sketch_age(cells)
    assert not cells.any()
