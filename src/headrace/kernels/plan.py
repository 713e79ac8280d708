"""Which neighbours to read through: read plans over a sorted set of wanted pages. [SSIJ] §IV.D

A read of n adjacent pages costs seek + n * transfer. A plan is a list of runs (first page, length) that covers
every wanted page, none longer than `longest`.
"""

from __future__ import annotations

import numpy as np

from headrace.kernels.jit import I64, f64, float64, helper, i32, i64, int64, kernel


@helper
def _runs(pages, choice, first, length):
    runs = 0
    j = 0
    while j < pages.size:
        first[runs] = pages[j]
        length[runs] = pages[choice[j]] - pages[j] + 1
        runs += 1
        j = np.int64(choice[j]) + 1
    return runs


@kernel(int64(I64, float64, float64, int64, f64, i32, i64, i64))
def plan_optimal(pages, seek, transfer, longest, cost, choice, first, length):
    """The dynamic programme of [SSIJ] §IV.D: least total cost. Returns the number of runs.

    cost[j] is the least cost of reading pages[j:]; choice[j] the last index covered by the run that starts at j.
    Scratch: cost has one more element than pages, choice as many; first and length receive the runs.

    A run that ends before a wanted neighbour it could have bridged for less than a seek can never be better than
    one that goes on, unless the limit stops it; the loop still tries every end, as the paper does, but leaves
    at the first gap that no plan would bridge.
    """
    n = pages.size
    cost[n] = 0.0
    for j in range(n - 1, -1, -1):
        best = seek + transfer + cost[j + 1]
        end = j
        for k in range(j + 1, n):
            span = pages[k] - pages[j] + 1
            if span > longest or (pages[k] - pages[k - 1] - 1) * transfer > seek:
                break
            total = seek + transfer * span + cost[k + 1]
            # On a tie the longer run wins: fewer requests for the same time.
            if total <= best:
                best = total
                end = k
        cost[j] = best
        choice[j] = end
    return _runs(pages, choice, first, length)


@kernel(int64(I64, int64, int64, i32, i64, i64))
def plan_greedy(pages, gap, longest, choice, first, length):
    """Seeger et al.'s greedy plan: extend a run while the gap is at most `gap` unwanted pages."""
    n = pages.size
    j = 0
    while j < n:
        end = j
        while end + 1 < n and pages[end + 1] - pages[end] - 1 <= gap and pages[end + 1] - pages[j] + 1 <= longest:
            end += 1
        choice[j] = end
        j = end + 1
    return _runs(pages, choice, first, length)
