"""Hashes, and the shards they give."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernels.hashing import hash_ints, hash_strings, shards_of, stabilise
from headrace.relation.columns import address
from tests.support.kernel_arrays import BYTE_STRINGS, RELAXED, longs, strings

WORD = (1 << 64) - 1


def mix(x: int) -> int:
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & WORD
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & WORD
    return x ^ (x >> 31)


def hash_of(value: bytes) -> int:
    h = (len(value) * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) & WORD
    whole = len(value) // 8 * 8
    for i in range(0, whole, 8):
        h = mix(h ^ int.from_bytes(value[i : i + 8], "little"))
    return mix(h ^ int.from_bytes(value[whole:], "little") ^ 0xD6E8FEB86659FD93)


def hashes_of_ints(values) -> np.ndarray:
    out = np.empty(len(values), np.uint64)
    hash_ints(longs(values), out)
    return out


def hashes_of_strings(values, before=b"") -> np.ndarray:
    data, offsets = strings(values, before)
    out = np.empty(len(values), np.uint64)
    hash_strings(address(data), offsets, out)
    return out


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
@RELAXED
def test_oracle_hash_of_ints(values):
    expected = [mix(((v & WORD) + 0x9E3779B97F4A7C15) & WORD) for v in values]
    assert hashes_of_ints(values).tolist() == expected


@given(st.lists(BYTE_STRINGS, max_size=20), st.binary(max_size=3))
@RELAXED
def test_oracle_hash_of_strings(values, before):
    """Relations on disk depend on it: a hash that changes loses keys to other shards."""
    assert hashes_of_strings(values, before).tolist() == [hash_of(v) for v in values]


def test_strings_that_look_alike_hash_apart():
    values = [b"\0" * n for n in range(40)] + [b"a" * n for n in range(1, 40)]
    assert len(set(hashes_of_strings(values).tolist())) == len(values)


@pytest.mark.parametrize("shards", [1, 2, 3, 7, 64, 1000])
def test_oracle_shards_are_the_high_half_scaled(shards):
    edges = [0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 1]
    hashes = np.concatenate([np.array(edges, np.uint64), hashes_of_ints(range(1000))])
    out = np.empty(hashes.size, np.int32)
    shards_of(hashes, shards, out)
    assert out.tolist() == [(int(h) >> 32) * shards >> 32 for h in hashes]
    assert out.min() >= 0
    assert out.max() == shards - 1


@pytest.mark.parametrize("shards", [2, 3, 7, 64])
@pytest.mark.parametrize("step", [1, -1, 2**16, 2**32, 10**9 + 7])
def test_shards_are_even_whatever_the_step_between_keys(shards, step):
    n = 64_000
    out = np.empty(n, np.int32)
    shards_of(hashes_of_ints(range(0, n * step, step)), shards, out)
    counts = np.bincount(out, minlength=shards)
    expected = n / shards
    # six standard deviations of a binomial
    assert np.abs(counts - expected).max() < 6 * np.sqrt(expected), counts.tolist()


@given(st.lists(st.integers(-3, 3), max_size=40))
@RELAXED
def test_oracle_stabilise(values):
    keys = longs(values)
    order = np.argsort(keys)
    distinct = stabilise(keys, order)
    assert order.tolist() == sorted(range(len(values)), key=values.__getitem__)
    assert distinct == len(set(values))


def test_stabilise_undoes_the_worst_order():
    keys = longs([5] * 100 + [2] * 100)
    order = np.argsort(keys, kind="stable")
    order = np.concatenate([order[:100][::-1], order[100:][::-1]])
    assert stabilise(keys, order) == 2
    assert order.tolist() == [*range(100, 200), *range(100)]
