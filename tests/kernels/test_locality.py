"""Repeats of a stream's values, against plain NumPy."""

import numpy as np
import pytest

from headrace.kernels.locality import count_repeats


@pytest.mark.parametrize("first", [0, 1, 5, 40])
def test_oracle_repeats_at_each_distance(first: int) -> None:
    values = np.random.default_rng(first).integers(0, 4, 40).astype(np.uint64)
    repeats, chances = np.zeros(7, np.int64), np.zeros(7, np.int64)
    count_repeats(values, first, repeats, chances)
    later = np.arange(first, 40)
    for k in range(1, 8):
        there = later[later >= k]
        assert chances[k - 1] == there.size
        assert repeats[k - 1] == (values[there] == values[there - k]).sum()
