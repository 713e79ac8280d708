"""Totals and ratios of a population that a simple random sample was drawn from, with confidence intervals.

Of N tuples n are in the sample, drawn without replacement, every set with the same probability; tuple u has the value y(u).
Then N/n * sum of y over the sample is an unbiased estimate of the total, and N^2 * (1 - n/N) * s^2 / n, with the sample
variance s^2 of y, one of its variance. Totals of independent samples add, and so do their variances. A ratio of two totals is
linearised: its error is about that of the total of y - ratio * x, divided by the total of x.

Reference: Cochran, "Sampling Techniques", ch. 2 and 6.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from headrace.arrays import Float64s

_EXPANDED_FROM = 3.0  # degrees of freedom from which on the expansion of Student's t is right to three digits


@dataclass(frozen=True, slots=True)
class Stratum:
    """What is known of a population from a sample of it: the mean of each amount of its tuples, and how amounts vary."""

    population: float
    """the number of tuples that the sample was drawn from"""
    drawn: int
    """the number of tuples in the sample"""
    means: Float64s
    """[amount]"""
    spread: Float64s
    """[amount, amount], the variances and covariances; infinite if one tuple was drawn"""

    @classmethod
    def of(cls, population: float, values: Float64s) -> Stratum:
        """The stratum of a sample's values, [tuple, amount], or [tuple] where there is one amount."""
        values = values[:, np.newaxis] if values.ndim == 1 else values
        n, width = values.shape
        size = max(population, n)
        if n < 2:
            spread = np.full((width, width), math.inf)
        else:
            around = values - values.mean(axis=0)
            spread = around.T @ around / (n - 1)
        return cls(size, n, values.mean(axis=0) if n else np.full(width, math.nan), spread)

    @classmethod
    def nothing(cls, population: float, drawn: int, width: int) -> Stratum:
        """A stratum none of whose tuples counts for anything."""
        return cls(population, drawn, np.zeros(width), np.zeros((width, width)))

    def total(self, amount: int = 0) -> float:
        """The estimate of the population's total of an amount; NaN if nothing was drawn from something."""
        return float(self.population * self.means[amount]) if self.population else 0.0

    def variance(self, weights: Float64s | None = None) -> float:
        """The estimate of the variance of the total of weighted amounts, or of the first; infinite for one tuple of several."""
        n, size = self.drawn, self.population
        if n >= size:
            return 0.0
        if n < 2:
            return math.inf
        spread = self.spread[0, 0] if weights is None else weights @ self.spread @ weights
        return float(size**2 * (1 - n / size) * max(0.0, spread) / n)


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimate with its confidence interval."""

    estimate: float
    low: float
    high: float


def estimate_total(strata: Sequence[Stratum], confidence: float, amount: int = 0) -> Estimate:
    """Estimate the total of an amount over populations with independent samples."""
    if not strata:
        return Estimate(0.0, 0.0, 0.0)
    weights = np.zeros(strata[0].means.size)
    weights[amount] = 1.0
    return _interval(sum(stratum.total(amount) for stratum in strata), strata, weights, confidence)


def estimate_ratio(strata: Sequence[Stratum], confidence: float, above: int, below: int) -> Estimate:
    """Estimate the ratio of the totals of two amounts; NaN if the lower one is 0."""
    total = sum(stratum.total(below) for stratum in strata)
    if not total or math.isnan(total):
        return Estimate(math.nan, math.nan, math.nan)
    ratio = sum(stratum.total(above) for stratum in strata) / total
    weights = np.zeros(strata[0].means.size)
    weights[above], weights[below] = 1 / abs(total), -ratio / abs(total)
    return _interval(ratio, strata, weights, confidence)


def _interval(estimate: float, strata: Sequence[Stratum], weights: Float64s, confidence: float) -> Estimate:
    """The interval of an estimate whose error is that of the total of weighted amounts."""
    variances = [stratum.variance(weights) for stratum in strata]
    variance = sum(variances)
    if not variance:
        return Estimate(estimate, estimate, estimate)
    if not math.isfinite(variance) or math.isnan(estimate):
        return Estimate(estimate, -math.inf, math.inf)
    # Satterthwaite: the degrees of freedom of a sum of variances
    spread = sum(v**2 / (s.drawn - 1) for v, s in zip(variances, strata, strict=True) if v)
    margin = student_t(confidence, variance**2 / spread) * math.sqrt(variance)
    return Estimate(estimate, estimate - margin, estimate + margin)


def student_t(confidence: float, freedom: float) -> float:
    """The number that Student's t stays below in absolute value with a probability.

    Example:
        >>> [round(student_t(0.95, freedom), 2) for freedom in (1, 2, 5, 30, 1e9)]
        [12.71, 4.3, 2.57, 2.04, 1.96]
    """
    p = (1 + confidence) / 2
    if freedom < 2:
        return math.tan(math.pi * (p - 0.5))
    if freedom < _EXPANDED_FROM:
        return (2 * p - 1) * math.sqrt(2 / (4 * p * (1 - p)))
    z, v = NormalDist().inv_cdf(p), freedom
    terms = (
        (z**3 + z) / 4 / v,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96 / v**2,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384 / v**3,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160 / v**4,
    )
    return z + sum(terms)
