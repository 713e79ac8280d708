"""The multi-way join, tuple by tuple: probes in an order that is learned, and products of matches, some at a time. [PQP] Alg. 5

The memory of each stream has an index as in kernels.cells. As their number is known at run time only, kernels take the addresses
of heads, cells and links, one of each stream; a stream that has not seen a tuple has no bucket.
"""

from __future__ import annotations

import numpy as np

from headrace.kernels.chains import bucket
from headrace.kernels.jit import (
    I32,
    I64,
    U64,
    f64,
    float64,
    helper,
    i32,
    i64,
    int64,
    kernel,
    load_u32,
    load_u64,
)

FIXED, RATE, PARTIAL = range(3)  # how the order of probes is found: given, by hits a probe, by partial results
NEVER = np.int64(1 << 62)  # the departure of a tuple that is in memory still


@helper
def _slot_from(cells, after, code, s):
    """The first slot with this code from slot s on along its chain; -1 if there is none."""
    while s >= 0 and load_u64(cells + 8 * s) != code:
        s = np.int64(np.int32(load_u32(after + 4 * s)))
    return s


@helper
def _first_slot(heads, cells, after, buckets, code):
    """The first slot with this code in the memory of a stream; -1 if there is none."""
    if buckets == 0:
        return np.int64(-1)
    return _slot_from(cells, after, code, np.int64(np.int32(load_u32(heads + 4 * bucket(code, buckets)))))


@helper
def _sort(order, score):
    """Put streams in ascending order of their scores, equal ones by number. They are nearly in order."""
    for i in range(1, order.size):
        t = order[i]
        j = i
        while j > 0 and (score[order[j - 1]] > score[t] or (score[order[j - 1]] == score[t] and order[j - 1] > t)):
            order[j] = order[j - 1]
            j -= 1
        order[j] = t


@kernel(int64(int64, U64, I64, I64, I64, I64, int64, float64, i64, f64, f64, f64, i64, i64, i32, i32))
def probe(
    own, codes, heads, cells, after, buckets, kind, keep, order, score, hits, tried, probes, partial, rows, firsts
):
    """Probe the other streams with arriving tuples of stream `own`, in the order that each finds. Returns how many are complete.

    A probe asks one stream for a slot with the tuple's code; the first that has none ends the tuple. rows[k] is the number of
    the k-th complete tuple, and firsts[k * n + t] its first slot in stream t. `order` has the streams in the order of probes
    and `score` what they are sorted by. `probes` and `partial` count for good. `hits` and `tried` fade: with RATE hits[t] and
    tried[t] by `keep` at each probe of t, with PARTIAL hits, which has the partial results, by `keep` at each arrival.
    """
    n = order.size
    complete = 0
    for i in range(codes.size):
        if kind == PARTIAL:
            for t in range(n):
                hits[t] *= keep
                score[t] = hits[t]
        if kind != FIXED:
            _sort(order, score)
        done = 1
        for at in range(n):
            t = order[at]
            if t == own:
                continue
            s = _first_slot(heads[t], cells[t], after[t], buckets[t], codes[i])
            probes[t] += 1
            if kind == RATE:
                hits[t] = keep * hits[t] + (1.0 if s >= 0 else 0.0)
                tried[t] = keep * tried[t] + 1.0
                score[t] = (hits[t] + 1.0) / (tried[t] + 2.0)
            if s < 0:
                break
            firsts[complete * n + t] = s
            done += 1
            if done < n:
                partial[t] += 1
                if kind == PARTIAL:
                    hits[t] += 1.0
        if done == n:
            rows[complete] = i
            complete += 1
    return complete


@kernel(int64(int64, int64, U64, I32, I32, I64, I64, i64, i32, i32, i32))
def products(own, count, codes, rows, firsts, cells, after, state, at, number, slots):
    """Write products of the matches of complete tuples, as many as there is room for. Returns how many were written.

    Product m joins row number[m] with slot slots[t * number.size + m] of each other stream t. It goes on from
    state = (complete tuple, whether its products have begun) with the slots `at`; state[0] == count when all were written.
    """
    n = at.size
    most = number.size
    m = 0
    k = state[0]
    begun = state[1]
    while k < count:
        if not begun:
            for t in range(n):
                at[t] = firsts[k * n + t]
        while True:
            if m == most:
                state[0] = k
                state[1] = 1
                return m
            number[m] = rows[k]
            for t in range(n):
                slots[t * most + m] = at[t]
            m += 1
            t = n - 1
            while t >= 0:
                if t != own:
                    following = np.int64(np.int32(load_u32(after[t] + 4 * np.int64(at[t]))))
                    s = _slot_from(cells[t], after[t], codes[rows[k]], following)
                    if s >= 0:
                        at[t] = s
                        break
                    at[t] = firsts[k * n + t]
                t -= 1
            if t < 0:
                break
        begun = 0
        k += 1
    state[0] = k
    state[1] = 0
    return m


@helper
def _bounds(g, n, groups, first, last, arrived, departed, least, latest):
    """The least departure and the latest arrival of streams t and after it in a group, for each t."""
    least[n] = NEVER
    latest[n] = np.int64(-1)
    for t in range(n - 1, -1, -1):
        d = least[t + 1]
        a = latest[t + 1]
        for row in range(first[t * groups + g], last[t * groups + g]):
            d = min(d, departed[row])
            a = max(a, arrived[row])
        least[t] = d
        latest[t] = a


@kernel(int64(int64, I64, I64, I64, I64, i64, i64, i64, i64))
def owed(n, first, last, arrived, departed, state, at, bounds, rows):
    """Write the n-tuples of rows on disk that memory has not joined, as many as there is room for. Returns how many.

    Rows of all streams lie one after the other in `arrived` and `departed`. Group g has the rows first[t * groups + g] to
    last[t * groups + g] of stream t. An n-tuple is owed if the least of its departures is before the latest of its arrivals.
    Branches without such are not entered: `bounds` has these two numbers of the streams that were chosen already (2 rows of
    n + 1), and of those still to come (2 rows of n + 1). It goes on from state = (group, whether it has begun) with the
    rows `at`; state[0] is the number of groups when all were written. Row t of n-tuple m is rows[t * room + m].
    """
    groups = first.size // n
    room = rows.size // n
    w = n + 1
    chosen_least = bounds[0:w]
    chosen_latest = bounds[w : 2 * w]
    least = bounds[2 * w : 3 * w]
    latest = bounds[3 * w : 4 * w]
    m = 0
    g = state[0]
    begun = state[1]
    while g < groups:
        if begun:
            t = n - 1
        else:
            _bounds(g, n, groups, first, last, arrived, departed, least, latest)
            chosen_least[0] = NEVER
            chosen_latest[0] = np.int64(-1)
            t = np.int64(0)
            at[0] = first[g]
        while t >= 0:
            row = at[t]
            if row == last[t * groups + g]:
                t -= 1
                if t >= 0:
                    at[t] += 1
                continue
            d = min(chosen_least[t], departed[row])
            a = max(chosen_latest[t], arrived[row])
            if min(d, least[t + 1]) > max(a, latest[t + 1]):
                at[t] += 1
            elif t < n - 1:
                t += 1
                chosen_least[t] = d
                chosen_latest[t] = a
                at[t] = first[t * groups + g]
            elif m == room:
                state[0] = g
                state[1] = 1
                return m
            else:
                for stream in range(n):
                    rows[stream * room + m] = at[stream]
                m += 1
                at[t] += 1
        begun = 0
        g += 1
    state[0] = g
    state[1] = 0
    return m
