"""The fence-key index against pages searched one by one."""

from bisect import bisect_left
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernels.index import equal_strings, locate_ints, locate_strings, same_as_before
from headrace.kernels.jit import compare_bytes
from headrace.relation.columns import address
from tests.support.kernel_arrays import BYTE_STRINGS, RELAXED, fit, longs, octets, space, strings


def paged(keys):
    """Sorted keys cut into pages at random places; a key may fill several pages."""
    return st.lists(keys, max_size=30).flatmap(
        lambda some: st.sets(st.integers(1, max(1, len(some) - 1))).map(
            lambda cuts: cut(sorted(some), sorted(c for c in cuts if c < len(some)))
        )
    )


def cut(keys, cuts):
    bounds = [0, *cuts, len(keys)]
    return [keys[a:b] for a, b in pairwise(bounds) if b > a]


def continues_of(pages):
    return octets(p > 0 and pages[p - 1][-1] == page[0] for p, page in enumerate(pages))


def brute(pages, key):
    """First and last page with the key; for an absent one the page that would hold it, or -1."""
    holding = [p for p, page in enumerate(pages) if key in page]
    if holding:
        assert holding == list(range(holding[0], holding[-1] + 1))
        return holding[0], holding[-1]
    before = sum(page[0] < key for page in pages) - 1
    return before, before


def outputs(n):
    return space(locate_ints, 3, n), space(locate_ints, 4, n)


@given(paged(st.integers(-5, 5)), st.lists(st.integers(-7, 7), max_size=20).map(sorted))
@RELAXED
def test_oracle_locate_ints(pages, keys):
    low, high = outputs(len(keys))
    locate_ints(longs(p[0] for p in pages), continues_of(pages), longs(keys), low, high)
    expected = [brute(pages, key) for key in keys]
    assert list(zip(low.tolist(), high.tolist(), strict=True)) == expected


@given(paged(BYTE_STRINGS), st.lists(BYTE_STRINGS, max_size=20).map(sorted), st.binary(max_size=3))
@RELAXED
def test_oracle_locate_strings(pages, keys, before):
    fence, fence_offsets = strings([p[0] for p in pages], before)
    data, offsets = strings(keys, before)
    low, high = outputs(len(keys))
    locate_strings(address(fence), fence_offsets, continues_of(pages), address(data), offsets, low, high)
    expected = [brute(pages, key) for key in keys]
    assert list(zip(low.tolist(), high.tolist(), strict=True)) == expected


def test_oracle_locate_in_a_large_index():
    """Gallops of every length, over a fence with runs of one key."""
    rng = np.random.default_rng(3)
    fence = np.sort(rng.integers(0, 3000, 5000))
    continues = octets(i > 0 and fence[i] == fence[i - 1] for i in range(fence.size))
    for n in (1, 2, 50, 5000):
        keys = np.sort(rng.integers(-5, 3005, n))
        low, high = outputs(n)
        locate_ints(fence, continues, keys, low, high)
        left = np.searchsorted(fence, keys, side="left")
        right = np.searchsorted(fence, keys, side="right")
        assert (high == right - 1).all()
        assert (low == np.where(right > left, left, left - 1)).all()


def test_the_ends_of_the_key_range():
    ends = [-(2**63), -1, 0, 2**63 - 1]
    low, high = outputs(4)
    locate_ints(longs(ends), octets([0] * 4), longs(ends), low, high)
    assert low.tolist() == high.tolist() == [0, 1, 2, 3]


def test_an_empty_index_holds_nothing():
    low, high = outputs(2)
    locate_ints(longs([]), octets([]), longs([1, 2]), low, high)
    assert low.tolist() == high.tolist() == [-1, -1]
    fence, fence_offsets = strings([])
    data, offsets = strings([b"", b"x"])
    low, high = outputs(2)
    locate_strings(address(fence), fence_offsets, octets([]), address(data), offsets, low, high)
    assert low.tolist() == high.tolist() == [-1, -1]


@given(st.lists(BYTE_STRINGS, max_size=30), st.binary(max_size=3))
@RELAXED
def test_oracle_same_as_before(values, before):
    data, offsets = strings(values, before)
    out = np.full(len(values), 9, np.uint8)
    same_as_before(address(data), offsets, out)
    assert out.tolist() == [int(i > 0 and values[i] == values[i - 1]) for i in range(len(values))]


@given(st.lists(BYTE_STRINGS, max_size=20), st.lists(BYTE_STRINGS, min_size=1, max_size=8), st.data())
@RELAXED
def test_oracle_equal_strings(values, others, data):
    at = data.draw(st.lists(st.integers(-1, len(others) - 1), min_size=len(values), max_size=len(values)))
    mine, my_offsets = strings(values)
    theirs, their_offsets = strings(others, b"xy")
    out = np.full(len(values), 9, np.uint8)
    equal_strings(address(mine), my_offsets, address(theirs), their_offsets, fit(equal_strings, 4, at), out)
    assert out.tolist() == [int(a >= 0 and v == others[a]) for v, a in zip(values, at, strict=True)]


@given(BYTE_STRINGS, BYTE_STRINGS)
@RELAXED
def test_oracle_compare_bytes(a, b):
    x, y = np.frombuffer(a + b"\x7f", np.uint8), np.frombuffer(b + b"\x80", np.uint8)
    assert compare_bytes(address(x), len(a), address(y), len(b)) == (a > b) - (a < b)


def test_bisect_agrees_with_the_gallop():
    fence = list(range(0, 1000, 10))
    keys = list(range(-5, 1005))
    low, high = outputs(len(keys))
    locate_ints(longs(fence), octets([0] * 100), longs(keys), low, high)
    expected = [bisect_left(fence, key) - (0 if key in fence else 1) if key >= 0 else -1 for key in keys]
    assert low.tolist() == high.tolist() == expected
