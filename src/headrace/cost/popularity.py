"""How unevenly a stream asks for keys, and for the pages they are in: what every model with a cache needs to know."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.arrays import Float64s
from headrace.errors import BadInput

_ALONE = 512  # most popular things that are kept one by one
_STEP = 1.02  # growth of the groups after them
_SIMULATED = 1 << 21  # keys scattered over pages at most; more are stood for by their like
_SEED = 20080101


@dataclass(frozen=True)
class Popularity:
    """Things in groups, most popular first: count[i] of them are asked for with probability p[i] each.

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
        """The i-th most popular of so many things is asked for in proportion to 1 / i ** exponent."""
        if exponent < 0 or not np.isfinite(exponent):
            raise BadInput(f"skew={exponent!r} is not the exponent of a Zipf distribution; give 0 (even) or more")
        edges = [float(i) for i in range(1, min(_ALONE, things) + 2)]
        while edges[-1] <= things:
            edges.append(min(things + 1.0, float(int(edges[-1] * _STEP) + 1)))
        first, end = np.array(edges[:-1]), np.array(edges[1:])
        count = end - first
        # One by one the terms are exact; the sum over a group is an integral.
        low, high = first - 0.5, end - 0.5
        if exponent == 1:
            mass = np.log(high / low)
        else:
            mass = (high ** (1 - exponent) - low ** (1 - exponent)) / (1 - exponent)
        mass = np.where(count == 1, first**-exponent, mass)
        return cls(count, mass / mass.sum() / count)

    @classmethod
    def of(cls, given: Float64s, each: float = 1.0) -> Popularity:
        """From one probability a thing, in any order; each value stands for so many things."""
        falling = -np.sort(-given)
        edges = cls.zipf(falling.size, 0.0).count.astype(np.int64)
        starts = np.cumsum(edges) - edges
        mass = np.asarray(np.add.reduceat(falling, starts) * each, np.float64)
        count = np.asarray(edges * each, np.float64)
        p = mass / mass.sum() / count
        return cls(count, p)

    @property
    def things(self) -> float:
        """How many there are."""
        return float(self.count.sum())

    def top(self, things: float) -> float:
        """The share of the stream that asks for the most popular so many."""
        if things <= 0:
            return 0.0
        count, mass = np.cumsum(self.count), np.cumsum(self.count * self.p)
        return float(np.interp(things, np.append(0, count), np.append(0, mass)))

    def without_top(self, things: float) -> Popularity:
        """What is asked for beside the most popular so many."""
        before = np.cumsum(self.count) - self.count
        left = np.clip(before + self.count - max(0.0, things), 0, self.count)
        some = left > 1e-9
        if not some.any():
            return Popularity(self.count[-1:], 1 / self.count[-1:])
        mass = float((left * self.p)[some].sum())
        return Popularity(left[some], self.p[some] / mass)

    def distinct(self, draws: float) -> float:
        """Different things among so many tuples of the stream."""
        return float((self.count * -np.expm1(-draws * self.p)).sum())

    def lru(self, size: float) -> float:
        """Share of hits of a cache of so many things that lets the least recently used go. Che's approximation:

        a thing stays for as long as it takes to see `size` different ones, as if that time were always the same.
        """
        if size >= self.things:
            return 1.0
        if size < 1:
            return 0.0
        low, high = 0.0, 1.0
        while self.distinct(high) < size:
            low, high = high, 2 * high
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self.distinct(middle) < size else (low, middle)
        return float((self.count * self.p * -np.expm1(-high * self.p)).sum())

    def kept_by_count(self, size: float, draws: float) -> Float64s:
        """The chance of each group's things to be among the `size` that were asked for most in so many draws.

        Counts are Poisson: the more draws, the less luck has a part in them.
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
        """When so large a share of the stream asks for all `things` evenly: keys that are absent fall on any page."""
        if share <= 0:
            return self
        return Popularity(self.count, (1 - share) * self.p + share / things)

    def grouped(self, per_group: float, *, scattered: bool) -> Popularity:
        """Popularity of groups of so many things, as pages are of keys.

        In order, the most popular things are together; scattered, they lie anywhere.
        """
        if per_group <= 1:
            return Popularity(self.count / per_group, self.p * per_group)
        if not scattered:
            groups = self.things / per_group
            # Edges of groups on the curve of shares.
            edges = np.append(0, np.cumsum(Popularity.zipf(max(1, round(groups)), 0.0).count))
            edges = edges * groups / edges[-1]
            share = np.interp(
                edges * per_group, np.append(0, np.cumsum(self.count)), np.append(0, np.cumsum(self.count * self.p))
            )
            count = np.diff(edges)
            return Popularity(count, np.diff(share) / count)
        return self._scattered(per_group)

    def _scattered(self, per_group: float) -> Popularity:
        """Things dealt to groups at random, with a fixed seed; where there are many, some stand for their like."""
        edges = np.append(0, np.cumsum(self.count))
        mass = np.append(0, np.cumsum(self.count * self.p))
        size = round(per_group)
        groups = max(1, min(round(self.things), _SIMULATED) // size)
        p = np.diff(np.interp(np.linspace(0, edges[-1], groups * size + 1), edges, mass))
        dealt = np.random.default_rng(_SEED).permutation(p).reshape(groups, size).sum(axis=1)
        return Popularity.of(dealt, self.things / per_group / groups)


def _at_least(times: float, expected: Float64s) -> Float64s:
    """The chance that a Poisson count is so large: the cube root of a gamma variable is nearly normal (Wilson and Hilferty)."""
    ninth = 1 / (9 * times)
    z = ((expected / times) ** (1 / 3) - (1 - ninth)) / ninth**0.5
    chance: Float64s = 1 / (1 + np.exp(np.clip(-1.5976 * z - 0.07056 * z**3, -700, 700)))
    return chance


def fitted_zipf(things: int, tuples: int, distinct: int) -> float:
    """The exponent at which so many tuples would show so many different keys. From 0 to 2.

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
