"""Totals and ratios: over all samples that could be drawn, estimates and variances are right in the mean."""

import math
from itertools import combinations, product

import numpy as np
import pytest

from headrace.sampling.intervals import Stratum, estimate_ratio, estimate_total, student_t

LEFT, RIGHT = np.array([3.0, 0.0, 7.0, 1.0, 4.0, 4.0]), np.array([10.0, 2.0, 0.0, 5.0, 9.0])


def samples(values, n):
    return [Stratum.of(values.size, values[list(drawn)]) for drawn in combinations(range(values.size), n)]


def test_totals_and_variances_are_unbiased_over_all_samples():
    for values, n in ((LEFT, 3), (RIGHT, 2), (RIGHT, 4)):
        drawn = samples(values, n)
        totals = [stratum.total() for stratum in drawn]
        assert np.mean(totals) == pytest.approx(values.sum())
        assert np.mean([stratum.variance() for stratum in drawn]) == pytest.approx(np.var(totals))


def test_totals_and_variances_of_both_sides_add():
    both = list(product(samples(LEFT, 3), samples(RIGHT, 3)))
    found = [estimate_total(pair, 0.95) for pair in both]
    assert np.mean([one.estimate for one in found]) == pytest.approx(LEFT.sum() + RIGHT.sum())
    a, b = Stratum.of(6, np.array([1.0, 2.0, 6.0])), Stratum.of(100, np.array([1.0, 3.0]))
    # by hand: s^2 is 7 and 2, so variances are 36 * 1/2 * 7 / 3 = 42 and 10,000 * 0.98 * 2 / 2 = 9,800; totals 18 and 200
    alone = estimate_total([a], 0.95)
    assert (alone.estimate, alone.high - 18) == (18.0, pytest.approx(student_t(0.95, 2) * math.sqrt(42)))
    one = estimate_total([a, b], 0.95)
    freedom = 9842**2 / (42**2 / 2 + 9800**2 / 1)
    assert one.estimate == 218.0
    assert one.high - 218 == pytest.approx(student_t(0.95, freedom) * math.sqrt(9842)) == 218 - one.low


def test_a_ratio_has_the_error_of_its_residuals():
    both = Stratum.of(50, np.array([[2.0, 1.0, 0.0], [5.0, 2.0, 0.0], [5.0, 3.0, 0.0]]))
    found = estimate_ratio([both], 0.9, 0, 1)
    residuals = np.array([0.0, 1.0, -1.0])
    error = math.sqrt(50**2 * (1 - 3 / 50) * residuals.var(ddof=1) / 3) / 100
    assert found.estimate == 2.0 and found.high - 2 == pytest.approx(student_t(0.9, 2) * error)
    assert math.isnan(estimate_ratio([both], 0.9, 0, 2).estimate)


def test_what_is_known_whole_has_no_error_and_one_of_many_says_nothing():
    assert estimate_total([Stratum.of(3, np.array([1.0, 2.0, 3.0]))], 0.95).low == 6.0
    assert estimate_total([Stratum.of(5, np.array([1.0]))], 0.95).high == math.inf
    assert math.isnan(estimate_total([Stratum.of(5, np.empty(0))], 0.95).estimate)
    assert estimate_total([Stratum.of(0, np.empty(0))], 0.95).estimate == 0.0


@pytest.mark.parametrize(
    ("freedom", "exact"), [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (10, 2.228), (60, 2.000)]
)
def test_student_t_is_that_of_the_tables(freedom, exact):
    assert student_t(0.95, freedom) == pytest.approx(exact, rel=0.01)
