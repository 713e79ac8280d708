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

from headrace.arrays import Float64s

_EXPANDED_FROM = 3.0  # degrees of freedom from which on the expansion of Student's t is right to three digits


@dataclass(frozen=True, slots=True)
class Stratum:
    """The values of the tuples of one sample, and the size of the population it was drawn from."""

    population: float
    values: Float64s
    """one for each tuple of the sample"""

    @property
    def total(self) -> float:
        """The estimate of the population's total; NaN if nothing was drawn from something."""
        if not self.values.size:
            return 0.0 if self.population == 0 else math.nan
        return float(max(self.population, self.values.size) * self.values.mean())

    @property
    def variance(self) -> float:
        """The estimate of the variance of `total`; infinite if one tuple was drawn from several."""
        n, size = self.values.size, max(self.population, self.values.size)
        if n >= size:
            return 0.0
        return math.inf if n < 2 else float(size**2 * (1 - n / size) * self.values.var(ddof=1) / n)


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimate with its confidence interval."""

    estimate: float
    low: float
    high: float


def estimate_total(strata: Sequence[Stratum], confidence: float) -> Estimate:
    """Estimate the total of populations with independent samples."""
    total = sum(stratum.total for stratum in strata)
    return _interval(total, strata, 1.0, confidence)


def estimate_ratio(above: Sequence[Stratum], below: Sequence[Stratum], confidence: float) -> Estimate:
    """Estimate the ratio of two totals of the same samples; NaN if the lower one is 0."""
    total = sum(stratum.total for stratum in below)
    if not total or math.isnan(total):
        return Estimate(math.nan, math.nan, math.nan)
    ratio = sum(stratum.total for stratum in above) / total
    residuals = [Stratum(y.population, y.values - ratio * x.values) for y, x in zip(above, below, strict=True)]
    return _interval(ratio, residuals, total, confidence)


def _interval(estimate: float, strata: Sequence[Stratum], scale: float, confidence: float) -> Estimate:
    """The interval of an estimate whose error is that of the total of the strata, divided by `scale`."""
    variances = [stratum.variance for stratum in strata]
    variance = sum(variances)
    if not variance:
        return Estimate(estimate, estimate, estimate)
    if not math.isfinite(variance) or math.isnan(estimate):
        return Estimate(estimate, -math.inf, math.inf)
    # Satterthwaite: the degrees of freedom of a sum of variances
    spread = sum(v**2 / (s.values.size - 1) for v, s in zip(variances, strata, strict=True) if v)
    margin = student_t(confidence, variance**2 / spread) * math.sqrt(variance) / abs(scale)
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
