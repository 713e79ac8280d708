"""Read plans for a sorted set of wanted pages, which decide where to read through unwanted neighbours. [SSIJ] §IV.D

A read of n adjacent pages costs seek + n * transfer. A plan is a list of runs (first page, length) that covers every wanted
page; no run is longer than `longest`.
"""

from __future__ import annotations

import numpy as np

from headrace.kernels.jit import I64, f64, float64, helper, i32, i64, int64, kernel


@helper
def _runs(pages, choice, first, length):
    """Write the runs that `choice` describes, where choice[j] is the last index of the run that starts at index j."""
    runs = 0
    j = 0
    while j < pages.size:
        first[runs] = pages[j]
        length[runs] = pages[choice[j]] - pages[j] + 1
        runs += 1
        j = np.int64(choice[j]) + 1
    return runs


@kernel(int64(I64, float64, float64, int64, f64, i32, i32, i64, i64))
def plan_optimal(pages, seek, transfer, longest, cost, choice, window, first, length):
    """Find the plan of least total cost by the dynamic programme of [SSIJ] §IV.D. Returns the number of runs.

    cost[j] is the least cost of reading pages[j:]; choice[j] the last index covered by the run that starts at j.
    Scratch: cost has one more element than pages, choice and window as many; first and length receive the runs.

    Deviation: the paper tries every end of every run, O(pages * longest). The cost of a run that starts at j and ends at k
    is seek + transfer * (pages[k] - pages[j] + 1) + cost[k + 1]: apart from j it depends on k alone, and the ends in reach
    only move down as j does. So the best end is a sliding minimum, kept in `window`, and the whole is O(pages).
    """
    n = pages.size
    cost[n] = 0.0
    head = tail = 0  # window[head:tail] are ends in reach, the farthest first; each is cheaper than all nearer ones
    for j in range(n - 1, -1, -1):
        # The sum takes distances and not places, because places of high shards are so large that the rest would be lost in
        # rounding. On a tie the farther end stays: fewer requests for the same time.
        while tail > head:
            last = window[tail - 1]
            if transfer * (pages[last] - pages[j]) + cost[last + 1] <= cost[j + 1]:
                break
            tail -= 1
        window[tail] = j
        tail += 1
        while pages[window[head]] - pages[j] + 1 > longest:
            head += 1
        end = window[head]
        choice[j] = end
        cost[j] = seek + transfer * (pages[end] - pages[j] + 1) + cost[end + 1]
    return _runs(pages, choice, first, length)


@kernel(int64(I64, int64, int64, i32, i64, i64))
def plan_greedy(pages, gap, longest, choice, first, length):
    """Make the greedy plan of Seeger et al.: extend a run while the gap is at most `gap` unwanted pages."""
    n = pages.size
    j = 0
    while j < n:
        end = j
        while end + 1 < n and pages[end + 1] - pages[end] - 1 <= gap and pages[end + 1] - pages[j] + 1 <= longest:
            end += 1
        choice[j] = end
        j = end + 1
    return _runs(pages, choice, first, length)
