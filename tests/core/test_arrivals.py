"""Arrivals: nothing lost, exact to the microsecond, and bursty at every scale."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.arrivals import Arrivals


@given(st.integers(1, 5000), st.floats(0.05, 100), st.integers(0, 2**32 - 1))
def test_property_time_of_and_by_are_inverse(total, seconds, seed):
    arrivals = Arrivals(total, seconds, seed)
    assert arrivals.counts.sum() == total
    assert arrivals.counts.min() >= 0
    assert (arrivals.by(-1), arrivals.by(0), arrivals.by(arrivals.duration)) == (0, 0, total)
    times = arrivals.time_of(np.arange(total))
    assert (np.diff(times) >= 0).all()
    for number in {0, total // 2, total - 1}:
        at = int(times[number])
        assert arrivals.by(at) >= number + 1
        assert arrivals.by(at - 1) <= number
    assert abs(arrivals.duration / 1e6 - seconds) <= 0.001 * seconds + 0.001


def test_by_never_goes_back():
    arrivals = Arrivals(10_000, 5, 3)
    counts = [arrivals.by(t) for t in range(0, arrivals.duration + 1, 997)]
    assert counts == sorted(counts)


def test_every_seed_has_its_own_bursts():
    assert not np.array_equal(Arrivals(10_000, 10, 1).counts, Arrivals(10_000, 10, 2).counts)
    assert np.array_equal(Arrivals(10_000, 10, 1).counts, Arrivals(10_000, 10, 1).counts)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_self_similar_as_the_b_model_says(seed):
    """The entropy of the counts grows by the same amount with every level: that of the bias."""
    arrivals = Arrivals(10**9, 51.2, seed)
    counts, bias = arrivals.counts.astype(float), arrivals.bias
    assert len(counts) == 1024
    of_a_split = -bias * np.log2(bias) - (1 - bias) * np.log2(1 - bias)
    while len(counts) > 1:
        share = counts[counts > 0] / counts.sum()
        entropy = -(share * np.log2(share)).sum()
        assert entropy == pytest.approx(of_a_split * np.log2(len(counts)), rel=0.01)
        assert counts.max() / counts.mean() == pytest.approx((2 * bias) ** np.log2(len(counts)), rel=0.01)
        counts = counts.reshape(-1, 2).sum(axis=1)


def test_without_bias_it_is_smooth():
    counts = Arrivals(10**7, 51.2, 1, bias=0.5).counts
    assert counts.max() / counts.mean() < 1.01
