"""Popularity: the distribution of a stream's requests over keys or pages, which models of caches need."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.arrays import Float64s
from headrace.errors import BadInput

_ALONE = 512  # most popular items, which are kept one by one; the others are grouped
_STEP = 1.02  # growth of the groups: within a group, Zipf's law changes by some percent at most
_SIMULATED = 1 << 21  # most keys that are scattered over pages one by one; of more, a sample represents all
_SEED = 20080101  # arbitrary; fixed, so that predictions can be repeated


@dataclass(frozen=True)
class Popularity:
    """A distribution over items (keys or pages) in groups, most popular first: count[i] items have probability p[i] each.

    Example
    -------
    >>> keys = Popularity.zipf(1000, 1.0)
    >>> round(keys.top(10), 2), round(Popularity.zipf(1000, 0.0).top(10), 2)
    (0.39, 0.01)
    """

    count: Float64s
    p: Float64s

    @classmethod
    def zipf(cls, things: int, exponent: float) -> Popularity:
        """Make a Zipf distribution: the probability of the i-th most popular item is proportional to 1 / i ** exponent."""
        if exponent < 0 or not np.isfinite(exponent):
            raise BadInput(f"skew={exponent!r} is not the exponent of a Zipf distribution; give 0 (even) or more")
        edges = [float(i) for i in range(1, min(_ALONE, things) + 2)]
        while edges[-1] <= things:
            edges.append(min(things + 1.0, float(int(edges[-1] * _STEP) + 1)))
        first, end = np.array(edges[:-1]), np.array(edges[1:])
        count = end - first
        # Single items have exact terms; the sum over a group is approximated by an integral.
        low, high = first - 0.5, end - 0.5
        if exponent == 1:
            mass = np.log(high / low)
        else:
            mass = (high ** (1 - exponent) - low ** (1 - exponent)) / (1 - exponent)
        mass = np.where(count == 1, first**-exponent, mass)
        return cls(count, mass / mass.sum() / count)

    @classmethod
    def of(cls, given: Float64s, each: float = 1.0) -> Popularity:
        """Make a distribution from probabilities in any order; each value stands for `each` items."""
        falling = -np.sort(-given)
        edges = cls.zipf(falling.size, 0.0).count.astype(np.int64)
        starts = np.cumsum(edges) - edges
        mass = np.asarray(np.add.reduceat(falling, starts) * each, np.float64)
        count = np.asarray(edges * each, np.float64)
        p = mass / mass.sum() / count
        return cls(count, p)

    @property
    def things(self) -> float:
        """The number of items."""
        return float(self.count.sum())

    def top(self, things: float) -> float:
        """Return the share of requests for the `things` most popular items."""
        if things <= 0:
            return 0.0
        count, mass = np.cumsum(self.count), np.cumsum(self.count * self.p)
        return float(np.interp(things, np.append(0, count), np.append(0, mass)))

    def without_top(self, things: float) -> Popularity:
        """Return the distribution of requests for all but the `things` most popular items."""
        before = np.cumsum(self.count) - self.count
        left = np.clip(before + self.count - max(0.0, things), 0, self.count)
        some = left > 1e-9
        if not some.any():
            return Popularity(self.count[-1:], 1 / self.count[-1:])
        mass = float((left * self.p)[some].sum())
        return Popularity(left[some], self.p[some] / mass)

    def distinct(self, draws: float) -> float:
        """Return the expected number of distinct items among so many requests."""
        return float((self.count * -np.expm1(-draws * self.p)).sum())

    def lru(self, size: float) -> float:
        """Return the hit ratio of an LRU cache of `size` items, by Che's approximation.

        An item stays in the cache as long as it takes to see `size` distinct items, and that time is taken as constant.
        """
        return float((self.count * self.p * self.kept_by_recency(size)).sum())

    def kept_by_recency(self, size: float) -> Float64s:
        """Return the probability that an item of each group is in an LRU cache of `size` items; see `lru`."""
        if size >= self.things:
            return np.ones(self.p.size)
        if size < 1:
            return np.zeros(self.p.size)
        low, high = 0.0, 1.0
        while self.distinct(high) < size:
            low, high = high, 2 * high
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self.distinct(middle) < size else (low, middle)
        kept: Float64s = -np.expm1(-high * self.p)
        return kept

    def kept_by_count(self, size: float, draws: float) -> Float64s:
        """Return the probability that an item of each group is among the `size` most requested ones after so many requests.

        Counts are Poisson variables: the more requests, the less the counts deviate from the probabilities.
        """
        if size >= self.things:
            return np.ones(self.p.size)
        if size <= 0 or draws <= 0:
            return np.zeros(self.p.size)
        expected = draws * self.p
        low, high = 1e-3, float(expected.max()) + 10 * float(expected.max()) ** 0.5 + 10
        for _ in range(24):
            middle = (low + high) / 2
            low, high = (middle, high) if (self.count * _at_least(middle, expected)).sum() > size else (low, middle)
        return _at_least(high, expected)

    def mixed(self, share: float, things: float) -> Popularity:
        """Return the distribution when a share of the requests is uniform over `things` items, as absent keys are over pages."""
        if share <= 0:
            return self
        return Popularity(self.count, (1 - share) * self.p + share / things)

    def grouped(self, per_group: float, *, scattered: bool) -> Popularity:
        """Return the popularity of groups of items, such as pages of keys.

        If `scattered`, popular items are spread at random; otherwise the most popular items share groups.
        """
        if per_group <= 1:
            return Popularity(self.count / per_group, self.p * per_group)
        if not scattered:
            groups = self.things / per_group
            # Interpolate the cumulated share of requests at the edges of the groups.
            edges = np.append(0, np.cumsum(Popularity.zipf(max(1, round(groups)), 0.0).count))
            edges = edges * groups / edges[-1]
            share = np.interp(
                edges * per_group, np.append(0, np.cumsum(self.count)), np.append(0, np.cumsum(self.count * self.p))
            )
            count = np.diff(edges)
            return Popularity(count, np.diff(share) / count)
        return self._scattered(per_group)

    def _scattered(self, per_group: float) -> Popularity:
        """Assign items to groups at random, with a fixed seed; of many items, a sample represents all."""
        edges = np.append(0, np.cumsum(self.count))
        mass = np.append(0, np.cumsum(self.count * self.p))
        size = round(per_group)
        groups = max(1, min(round(self.things), _SIMULATED) // size)
        p = np.diff(np.interp(np.linspace(0, edges[-1], groups * size + 1), edges, mass))
        dealt = np.random.default_rng(_SEED).permutation(p).reshape(groups, size).sum(axis=1)
        return Popularity.of(dealt, self.things / per_group / groups)


def _at_least(times: float, expected: Float64s) -> Float64s:
    """Return the probability that a Poisson count is at least `times`, by the approximation of Wilson and Hilferty."""
    ninth = 1 / (9 * times)
    z = ((expected / times) ** (1 / 3) - (1 - ninth)) / ninth**0.5
    chance: Float64s = 1 / (1 + np.exp(np.clip(-1.5976 * z - 0.07056 * z**3, -700, 700)))
    return chance


def fitted_zipf(things: int, tuples: int, distinct: int) -> float:
    """Return the exponent, from 0 to 2, at which so many tuples have so many distinct keys on average.

    Example
    -------
    >>> keys = Popularity.zipf(100_000, 0.8)
    >>> round(fitted_zipf(100_000, 20_000, round(keys.distinct(20_000))), 2)
    0.8
    """
    low, high = 0.0, 2.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if Popularity.zipf(things, middle).distinct(tuples) > distinct else (low, middle)
    return (low + high) / 2
