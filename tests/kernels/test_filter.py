"""The filter for absent keys: never wrong about a key that is there."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernels.filter import BLOCK_BYTES, WORDS, filter_add, filter_test
from headrace.kernels.hashing import hash_ints
from tests.support.kernel_arrays import RELAXED, fit, longs


def new(keys: int, bits: int = 12) -> np.ndarray:
    return np.zeros(max(1, -(-keys * bits // (8 * BLOCK_BYTES))) * WORDS, np.uint32)


def hashes_of(values) -> np.ndarray:
    out = np.empty(len(values), np.uint64)
    hash_ints(longs(values), out)
    return out


def test_of(words, hashes, rows=None):
    rows = fit(filter_test, 2, range(hashes.size) if rows is None else rows)
    maybe = np.full(rows.size, 9, np.uint8)
    kept = filter_test(words, hashes, rows, maybe)
    assert set(maybe.tolist()) <= {0, 1}
    assert kept == int(maybe.sum())
    return maybe


test_of.__test__ = False


@given(st.lists(st.integers(0, 2**64 - 1), max_size=60), st.integers(1, 4), st.data())
@RELAXED
def test_oracle_no_false_negatives(hashes, blocks, data):
    words = np.zeros(blocks * WORDS, np.uint32)
    added = np.array(hashes, np.uint64)
    cut = data.draw(st.integers(0, len(hashes)))
    filter_add(words, added[:cut])
    filter_add(words, added[cut:])
    assert test_of(words, added).all()


def test_no_false_negatives_in_half_a_million_keys():
    hashes = hashes_of(range(500_000))
    words = new(hashes.size)
    filter_add(words, hashes)
    assert test_of(words, hashes).all()


@pytest.mark.parametrize("keys", [100, 10_000, 300_000])
def test_false_positives_at_twelve_bits_a_key(keys):
    words = new(keys)
    filter_add(words, hashes_of(range(keys)))
    absent = hashes_of(range(10**9, 10**9 + 200_000))
    assert test_of(words, absent).mean() < 0.015


def test_an_empty_filter_knows_nothing():
    assert not test_of(new(0), hashes_of(range(1000))).any()


def test_adding_again_changes_nothing():
    hashes = hashes_of(range(1000))
    words = new(1000)
    filter_add(words, hashes)
    before = words.copy()
    filter_add(words, hashes)
    assert (words == before).all()


def test_one_bit_in_each_word_of_one_block():
    words = new(1000)
    filter_add(words, hashes_of([42]))
    blocks = words.reshape(-1, WORDS)
    touched = np.flatnonzero(blocks.any(axis=1))
    assert touched.size == 1
    assert [int(w).bit_count() for w in blocks[touched[0]]] == [1] * WORDS


def test_rows_choose_the_hashes():
    hashes = hashes_of(range(100))
    words = new(50)
    filter_add(words, hashes[:50])
    every = test_of(words, hashes)
    rows = [99, 0, 0, 73, 49, 50]
    assert test_of(words, hashes, rows).tolist() == every[rows].tolist()
    assert test_of(words, hashes, []).size == 0
