"""Distinct keys of a batch, in order of first appearance."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernels.hashing import hash_ints, hash_strings
from headrace.kernels.unique import unique_ints, unique_strings
from headrace.relation.columns import address
from tests.support.kernel_arrays import BYTE_STRINGS, RELAXED, ints, longs, octets, strings


def scratch(rows: int) -> tuple[np.ndarray, ...]:
    table = np.full(1 << max(1, rows).bit_length(), -1, np.int32)
    return table, np.full(rows, -7, np.int32), np.full(rows, -7, np.int32), ints([-7] * rows)


def brute(values, valid):
    """uid of every row, first row and count of every distinct key."""
    number, uid, first, counts = {}, [], [], []
    for row, value in enumerate(values):
        if valid and not valid[row]:
            uid.append(-1)
            continue
        if value not in number:
            number[value] = len(number)
            first.append(row)
            counts.append(0)
        uid.append(number[value])
        counts[number[value]] += 1
    return uid, first, counts


def check(found, spaces, values, valid):
    _, uid, first, counts = spaces
    expected_uid, expected_first, expected_counts = brute(values, valid)
    assert found == len(expected_first)
    assert uid.tolist() == expected_uid
    assert first[:found].tolist() == expected_first
    assert counts[:found].tolist() == expected_counts
    assert sum(expected_counts) == (sum(valid) if valid else len(values))


def with_validity(values):
    return values.flatmap(
        lambda v: st.tuples(
            st.just(v),
            st.one_of(st.just([]), st.lists(st.booleans(), min_size=len(v), max_size=len(v))),
        )
    )


@given(with_validity(st.lists(st.integers(-4, 4), max_size=40)))
@RELAXED
def test_oracle_unique_ints(case):
    values, valid = case
    keys, hashes, spaces = longs(values), np.empty(len(values), np.uint64), scratch(len(values))
    hash_ints(keys, hashes)
    check(unique_ints(keys, octets(valid), hashes, *spaces), spaces, values, valid)


@given(with_validity(st.lists(BYTE_STRINGS, max_size=40)), st.binary(max_size=3))
@RELAXED
def test_oracle_unique_strings(case, before):
    values, valid = case
    data, offsets = strings(values, before)
    hashes, spaces = np.empty(len(values), np.uint64), scratch(len(values))
    hash_strings(address(data), offsets, hashes)
    found = unique_strings(address(data), offsets, octets(valid), hashes, *spaces)
    check(found, spaces, values, valid)


def test_keys_whose_hashes_all_collide():
    values = [*range(50), *range(25)]
    spaces = scratch(len(values))
    found = unique_ints(longs(values), octets([]), np.full(len(values), 2**63 + 5, np.uint64), *spaces)
    check(found, spaces, values, [])


def test_strings_whose_hashes_all_collide():
    values = [b"x" * (i % 50) for i in range(75)]
    data, offsets = strings(values)
    spaces = scratch(len(values))
    hashes = np.full(len(values), 2**64 - 1, np.uint64)
    found = unique_strings(address(data), offsets, octets([]), hashes, *spaces)
    check(found, spaces, values, [])
