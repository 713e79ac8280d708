"""Read plans against every plan there is."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernels.plan import plan_greedy, plan_optimal
from tests.support.kernel_arrays import RELAXED, longs

PAGES = st.lists(st.integers(0, 40), unique=True, max_size=9).map(sorted)
COST = st.integers(0, 12)  # whole numbers, so that sums are exact and equal costs are equal
LONGEST = st.integers(1, 45)


def optimal(pages, seek, transfer, longest) -> list[tuple[int, int]]:
    n = len(pages)
    first, length = np.empty(n, np.int64), np.empty(n, np.int64)
    choice, window = np.empty(n, np.int32), np.empty(n, np.int32)
    runs = plan_optimal(longs(pages), seek, transfer, longest, np.empty(n + 1), choice, window, first, length)
    return list(zip(first[:runs].tolist(), length[:runs].tolist(), strict=True))


def greedy(pages, gap, longest) -> list[tuple[int, int]]:
    n = len(pages)
    first, length, choice = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int32)
    runs = plan_greedy(longs(pages), gap, longest, choice, first, length)
    return list(zip(first[:runs].tolist(), length[:runs].tolist(), strict=True))


def cost(runs, seek, transfer) -> float:
    return sum(seek + transfer * length for _, length in runs)


def all_plans(pages, longest):
    """Every way to cut the wanted pages into runs."""
    for cuts in product([False, True], repeat=max(0, len(pages) - 1)):
        groups, start = [], 0
        for i, cut in enumerate(cuts):
            if cut:
                groups.append(pages[start : i + 1])
                start = i + 1
        if pages:
            groups.append(pages[start:])
        runs = [(group[0], group[-1] - group[0] + 1) for group in groups]
        if all(length <= longest for _, length in runs):
            yield runs


def check(runs, pages, longest):
    covered = [page for first, length in runs for page in range(first, first + length)]
    assert set(pages) <= set(covered)
    assert len(covered) == len(set(covered)), "a page is read twice"
    assert all(1 <= length <= longest for _, length in runs)
    assert all(a + n <= b for (a, n), (b, _) in pairwise(runs)), "runs are not in order"
    wanted = set(pages)
    assert all(first in wanted and first + n - 1 in wanted for first, n in runs), "starts or ends on a gap"


@given(PAGES, COST, COST, LONGEST)
@RELAXED
def test_oracle_optimal_is_the_cheapest_of_all(pages, seek, transfer, longest):
    runs = optimal(pages, seek, transfer, longest)
    check(runs, pages, longest)
    assert cost(runs, seek, transfer) == min(cost(plan, seek, transfer) for plan in all_plans(pages, longest))


@given(PAGES, COST, COST, LONGEST, st.integers(0, 12))
@RELAXED
def test_differential_greedy_is_a_plan_and_never_cheaper(pages, seek, transfer, longest, gap):
    runs = greedy(pages, gap, longest)
    check(runs, pages, longest)
    assert cost(runs, seek, transfer) >= cost(optimal(pages, seek, transfer, longest), seek, transfer)
    wanted = set(pages)
    for (a, n), (b, _) in pairwise(runs):
        assert b - (a + n) > gap or b - a + 1 > longest, "a run ended without need"
    for first, length in runs:
        inside = [page for page in range(first, first + length) if page in wanted]
        assert all(q - p - 1 <= gap for p, q in pairwise(inside)), "bridged too far"


def test_greedy_without_a_gap_reads_nothing_unwanted():
    pages = [0, 1, 2, 5, 6, 9]
    assert greedy(pages, 0, 100) == [(0, 3), (5, 2), (9, 1)]
    assert greedy(pages, 0, 2) == [(0, 2), (2, 1), (5, 2), (9, 1)]
    assert greedy(pages, 0, 1) == [(page, 1) for page in pages]


def test_optimal_bridges_what_is_cheaper_than_a_seek():
    assert optimal([0, 4], 2.0, 1.0, 100) == [(0, 1), (4, 1)]  # three to read through, two to seek
    assert optimal([0, 4], 4.0, 1.0, 100) == [(0, 5)]
    assert optimal([0, 4], 3.0, 1.0, 100) == [(0, 5)], "of two equal plans the one with fewer requests"


def test_the_limit_makes_greedy_worse():
    """A full first run leaves a short rest far away; the optimum cuts elsewhere."""
    pages, seek, transfer, longest = [0, 3, 4, 5], 4.0, 1.0, 5
    assert cost(optimal(pages, seek, transfer, longest), seek, transfer) < cost(
        greedy(pages, 4, longest), seek, transfer
    )


def test_no_pages_no_reads():
    assert optimal([], 1.0, 1.0, 5) == greedy([], 1, 5) == []


def test_far_apart_places_are_never_bridged():
    """Places carry shard and file in their high bits."""
    pages = [0, 1, 1 << 32, (1 << 32) + 1, 5 << 48]
    assert optimal(pages, 1e9, 1e-9, 200) == [(0, 2), (1 << 32, 2), (5 << 48, 1)]


@pytest.mark.parametrize("shard", [0, 1, 7, 100, 1000, 30_000])
@given(PAGES, LONGEST)
@RELAXED
def test_oracle_optimal_in_every_shard(shard, pages, longest):
    """Places of a high shard are large numbers: a plan must not drown in their rounding."""
    seek, transfer = 9e-6, 2.4e-6  # what an SSD was measured to take
    start = shard << 48
    runs = [(first - start, n) for first, n in optimal([start + p for p in pages], seek, transfer, longest)]
    check(runs, pages, longest)
    least = min(cost(plan, seek, transfer) for plan in all_plans(pages, longest))
    assert cost(runs, seek, transfer) == pytest.approx(least, rel=1e-9)


def test_oracle_large_sets_agree_with_a_plain_dynamic_programme():
    rng = np.random.default_rng(11)
    for _ in range(20):
        pages = sorted(rng.choice(3000, 400, replace=False).tolist())
        seek, transfer = int(rng.integers(1, 20)), int(rng.integers(1, 5))
        longest = int(rng.integers(1, 60))
        best = [0] * (len(pages) + 1)
        for j in reversed(range(len(pages))):
            best[j] = min(
                seek + transfer * (pages[k] - pages[j] + 1) + best[k + 1]
                for k in range(j, len(pages))
                if pages[k] - pages[j] + 1 <= longest
            )
        runs = optimal(pages, seek, transfer, longest)
        check(runs, pages, longest)
        assert cost(runs, seek, transfer) == best[0], (seek, transfer, longest, pages)
