"""Pairs of a tuple of R and the waiting stream tuples whose value lies in its range or vector lies near its own. [MESH] §3.4"""

from __future__ import annotations

import numpy as np

from headrace.kernels.jit import F64, I32, I64, boolean, float64, helper, i32, i64, int64, kernel, u8, void

EUCLIDEAN, MANHATTAN, CHEBYSHEV, COSINE = 0, 1, 2, 3
_LARGE, _SMALL = 2.0**400, 2.0**-400  # coordinates beyond these are scaled, so that squares neither overflow nor vanish
_LEAST_SQUARE, _MOST_SQUARE = 2.0**-600, 2.0**600  # sums of squares between these need no scaling
_SUM_ERROR = 2.0**-50  # times the number of coordinates: how far cosines by sums in two orders are apart, at most


@kernel(int64(I64, I64, I32, boolean, i64, i32, i32))
def expand_ranges(begin, end, order, outside, stop, number, slots):
    """Enumerate pairs (i, order[p]) with begin[i] <= p < end[i], or with `outside` all other p, until the output is full.

    Starts at stop = (i, p) and leaves there where it stopped; stop[0] is begin.size at the end. Returns how many were written.
    """
    n = 0
    i = stop[0]
    p = stop[1]
    while i < begin.size:
        a = np.int64(0) if outside else begin[i]
        b = np.int64(order.size) if outside else end[i]
        p = max(p, a)
        while p < b:
            if outside and begin[i] <= p < end[i]:
                p = end[i]
                continue
            if n == number.size:
                stop[0] = i
                stop[1] = p
                return n
            number[n] = i
            slots[n] = order[p]
            n += 1
            p += 1
        i += 1
        p = np.int64(0)
    stop[0] = i
    stop[1] = 0
    return n


@helper
def farthest(eps, metric):
    """Return the sum of squares (or differences) beyond which a distance exceeds eps for sure, whatever rounding does."""
    if metric == CHEBYSHEV or metric == COSINE:
        return np.inf
    return (eps * eps if metric == EUCLIDEAN else eps) * (1.0 + 1e-12) + 1e-300


@helper
def in_range(values, a, size):
    """Return a power of two that the vector values[a : a + size] is multiplied by, so that its squares are doubles; mostly 1."""
    most = 0.0
    for j in range(size):
        most = max(most, abs(values[a + j]))
    if _SMALL < most < _LARGE or not most < np.inf or most == 0.0:
        return 1.0
    return 2.0**-600 if most >= _LARGE else 2.0**600


@helper
def products(one, a, other, b, size):
    """Return the products u·v, u·u and v·v of two vectors. Sums have four parts each, which need not wait for each other."""
    d0, d1, d2, d3 = 0.0, 0.0, 0.0, 0.0
    x0, x1, x2, x3 = 0.0, 0.0, 0.0, 0.0
    y0, y1, y2, y3 = 0.0, 0.0, 0.0, 0.0
    whole = size - size % 4
    for j in range(0, whole, 4):
        u0, u1, u2, u3 = one[a + j], one[a + j + 1], one[a + j + 2], one[a + j + 3]
        v0, v1, v2, v3 = other[b + j], other[b + j + 1], other[b + j + 2], other[b + j + 3]
        d0 += u0 * v0
        d1 += u1 * v1
        d2 += u2 * v2
        d3 += u3 * v3
        x0 += u0 * u0
        x1 += u1 * u1
        x2 += u2 * u2
        x3 += u3 * u3
        y0 += v0 * v0
        y1 += v1 * v1
        y2 += v2 * v2
        y3 += v3 * v3
    for j in range(whole, size):
        u = one[a + j]
        v = other[b + j]
        d0 += u * v
        x0 += u * u
        y0 += v * v
    return (d0 + d1) + (d2 + d3), (x0 + x1) + (x2 + x3), (y0 + y1) + (y2 + y3)


@helper
def near_in_angle(one, a, other, b, size, eps):
    """Tell whether 1 - the cosine of two vectors is at most eps. Zeros, and what is not finite, are near nothing."""
    dot, x, y = products(one, a, other, b, size)
    if _LEAST_SQUARE < x < _MOST_SQUARE and _LEAST_SQUARE < y < _MOST_SQUARE:
        beyond = 1.0 - dot / (np.sqrt(x) * np.sqrt(y)) - eps
        if abs(beyond) > (size + 8) * _SUM_ERROR:
            return beyond < 0.0
    # What counts are sums in the order of coordinates.
    s = in_range(one, a, size)
    t = in_range(other, b, size)
    dot, x, y = 0.0, 0.0, 0.0
    for j in range(size):
        u = one[a + j] * s
        v = other[b + j] * t
        dot += u * v
        x += u * u
        y += v * v
    # A comparison with NaN, which zeros and infinities give, is false.
    return 1.0 - dot / (np.sqrt(x) * np.sqrt(y)) <= eps


@helper
def within(one, a, other, b, size, eps, metric, limit):
    """Tell whether the vectors one[a : a + size] and other[b : b + size] are at most eps apart; limit = farthest(eps, metric)."""
    if metric == COSINE:
        return near_in_angle(one, a, other, b, size, eps)
    total = 0.0
    for j in range(size):
        d = abs(one[a + j] - other[b + j])
        total += d if metric == MANHATTAN else d * d
        # A single coordinate decides where squares underflow to 0; a partial sum decides as soon as it is large enough.
        if d > eps or total > limit:
            return False
    if metric == EUCLIDEAN:
        return np.sqrt(total) <= eps
    # Two infinities have no distance: their difference is NaN.
    return total == total if metric == CHEBYSHEV else total <= eps


@kernel(void(F64, F64, int64, float64, int64, I32, I32, u8))
def near(stream, relation, size, eps, metric, number, slots, keep):
    """Set keep[k] to 0 unless vectors slots[k] of the stream and number[k] of R are at most eps apart."""
    limit = farthest(eps, metric)
    for k in range(number.size):
        if not within(
            stream, np.int64(slots[k]) * size, relation, np.int64(number[k]) * size, size, eps, metric, limit
        ):
            keep[k] = 0
