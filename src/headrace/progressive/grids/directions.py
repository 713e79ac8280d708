"""Random directions that are the same on every machine, and how far scores and sketches of near vectors may differ by chance.

A direction has independent normal coordinates. Its product with a vector of length r is normal with deviation r, whatever the
vector: so what follows holds for every pair of vectors, in expectation over the seed. (DESIGN D12)
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from headrace.arrays import Float64s
from headrace.splitmix import draw, uniform_floats

_GRAIN = (
    2.0**12
)  # coordinates are rounded to 1 / 4096: libraries differ in the last bit of a logarithm, and tasks must agree
_SIMULATIONS = 40  # times 1 / miss: simulated pairs, at least _LEAST_SIMULATIONS
_LEAST_SIMULATIONS = 8192
_AT_ONCE = 1 << 19  # simulated numbers
_STREAM = 0x5EED  # of simulations, apart from those of directions


def normals(seed: int, stream: int, first: int, count: int) -> Float64s:
    """Normal numbers `first` and on of a stream of a seed, by the method of Box and Muller."""
    at = np.arange(first, first + count, dtype=np.int64)
    one = uniform_floats(draw(seed, 2 * stream, at))
    two = uniform_floats(draw(seed, 2 * stream + 1, at))
    made: Float64s = np.sqrt(-2.0 * np.log(1.0 - one)) * np.cos(2.0 * np.pi * two)
    return made


def directions(seed: int, stream: int, count: int, dims: int) -> Float64s:
    """So many directions, one a row."""
    made: Float64s = np.rint(normals(seed, stream, 0, count * dims) * _GRAIN) / _GRAIN
    return made.reshape(count, dims)


@lru_cache(maxsize=16)
def score_margins(count: int, miss: float) -> tuple[Float64s, Float64s]:
    """How far the best direction of x may be below the best one of y, for two vectors at an angle, but for a part of pairs.

    x is kept with the direction on which it is longest, of `count`. Divided by the length of the part of y that is orthogonal to
    x, the scores of y are t u + g: u are those of x / |x|, g are independent, and t is the cotangent of the angle. The margin is
    exceeded by max(t u + g) - (t u + g at the largest u) with a probability of at most `miss`. It is found by simulation, with
    two standard deviations to spare. Returns some t in ascending order, and a margin for each; it falls with t.
    """
    slopes = np.concatenate([[0.0], 2.0 ** np.arange(-2.0, 7.01, 0.25)])
    pairs = max(_LEAST_SIMULATIONS, math.ceil(_SIMULATIONS / miss))
    gaps = np.empty((slopes.size, pairs), np.float32)
    step = max(1, _AT_ONCE // count)
    for at in range(0, pairs, step):
        some = min(step, pairs - at)
        u = normals(_STREAM, 0, at * count, some * count).astype(np.float32).reshape(some, count)
        g = normals(_STREAM, 1, at * count, some * count).astype(np.float32).reshape(some, count)
        own = np.arange(some), u.argmax(axis=1)
        u -= u[own][:, None]
        g -= g[own][:, None]
        for k, slope in enumerate(slopes):
            gaps[k, at : at + some] = (np.float32(slope) * u + g).max(axis=1)
    beyond = max(0, math.floor(pairs * miss - 2.0 * math.sqrt(pairs * miss)))
    gaps.sort(axis=1)
    margins = np.ceil(gaps[:, pairs - 1 - beyond].astype(np.float64) * _GRAIN) / _GRAIN
    return slopes, np.maximum.accumulate(margins[::-1])[::-1]


def chi_bound(count: int, miss: float) -> float:
    """The length that a vector of `count` normal coordinates exceeds with a probability of `miss`."""
    low, high = 0.0, 4.0 * (count + 10.0 - 2.0 * math.log(miss))
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _chi_square_tail(middle, count) > miss else (low, middle)
    return math.sqrt(high)


def _chi_square_tail(x: float, count: int) -> float:
    """The probability that the squares of so many normal numbers add up to more than x."""
    tail, k = (math.erfc(math.sqrt(x / 2)), 1) if count % 2 else (math.exp(-x / 2), 2)
    while k < count:
        tail += math.exp(k / 2 * math.log(x / 2) - x / 2 - math.lgamma(k / 2 + 1)) if x > 0 else 0.0
        k += 2
    return tail
