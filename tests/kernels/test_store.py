"""Tuples in memory: find an entry, expand matches into results, gather from several stores."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernels.hashing import hash_ints, hash_strings
from headrace.kernels.store import (
    ANTI,
    INNER,
    LEFT,
    SEMI,
    TAIL,
    expand,
    probe_ints,
    probe_strings,
    table_insert,
    take_fixed,
    take_sizes,
    take_valid,
    take_variable,
)
from headrace.relation.columns import address
from tests.support.kernel_arrays import BYTE_STRINGS, RELAXED, ints, longs, octets, strings, to_bytes


def hashes_of(keys) -> np.ndarray:
    out = np.empty(len(keys), np.uint64)
    if keys and isinstance(keys[0], bytes):
        data, offsets = strings(keys)
        hash_strings(address(data), offsets, out)
    else:
        hash_ints(longs(keys), out)
    return out


def entries(keys):
    """Distinct keys with where their tuples are and how many; none is a key known to be absent."""
    return st.lists(
        st.tuples(keys, st.integers(0, 1000), st.integers(0, 5)),
        max_size=12,
        unique_by=lambda e: e[0],
    )


class Described:
    """Stores of entries as the kernels know them: one row of addresses each. Tables are built in two steps, as stores grow."""

    def __init__(self, stores, spare: int) -> None:
        self._arrays = []
        rows = []
        for held in stores:
            keys = [key for key, _, _ in held]
            if keys and isinstance(keys[0], bytes):
                data, offsets = strings(keys)
                offsets = offsets.astype(np.uint32)
            else:
                data, offsets = longs(keys), np.zeros(1, np.uint32)
            table, hashes, cut = np.full(len(held) + 1 + TAIL + spare, -1, np.int64), hashes_of(keys), len(held) // 2
            table_insert(table, hashes[:cut], 0)
            table_insert(table, hashes[cut:], cut)
            arrays = (table, data, offsets, ints(e[1] for e in held), ints(e[2] for e in held))
            self._arrays.append(arrays)
            rows.append([*(address(array) for array in arrays), table.size])
        self.rows = np.array(rows, np.int64)


def check_probe(found, stores, asked, before, src, pos, count):
    known = {}
    for number, held in enumerate(stores):  # the first store that has a key counts
        for key, first, many in held:
            known.setdefault(key, (number, first, many))
    hits = 0
    for u, key in enumerate(asked):
        expected = (before[u], -5, -5)  # not there, or found earlier in another source: left alone
        if before[u] < 0 and key in known:
            expected = known[key]
            hits += 1
        assert (src[u], pos[u], count[u]) == expected
    assert found == hits


@st.composite
def probes(draw, keys):
    stores, asked = draw(st.lists(entries(keys), min_size=1, max_size=3)), draw(st.lists(keys, max_size=20))
    before = draw(st.lists(st.sampled_from([-1, -1, 2]), min_size=len(asked), max_size=len(asked)))
    return stores, asked, before, draw(st.integers(0, 20))


@given(probes(st.integers(-6, 6)))
@RELAXED
def test_oracle_probe_ints(case):
    stores, asked, before, spare = case
    described = Described(stores, spare)
    src, pos, count = ints(before), ints([-5] * len(asked)), ints([-5] * len(asked))
    found = probe_ints(described.rows, hashes_of(asked), longs(asked), src, pos, count)
    check_probe(found, stores, asked, before, src, pos, count)


@given(probes(BYTE_STRINGS))
@RELAXED
def test_oracle_probe_strings(case):
    stores, asked, before, spare = case
    described = Described(stores, spare)
    asked_data, asked_offsets = strings(asked, b"??")
    src, pos, count = ints(before), ints([-5] * len(asked)), ints([-5] * len(asked))
    found = probe_strings(described.rows, hashes_of(asked), address(asked_data), asked_offsets, src, pos, count)
    check_probe(found, stores, asked, before, src, pos, count)


def test_a_table_three_quarters_full_loses_no_entry():
    hashes = hashes_of(list(range(30_000)))
    table = np.full(40_000 + TAIL, -1, np.int64)
    table_insert(table, hashes, 0)
    assert sorted((table[table >= 0] & 0xFFFFFFFF).tolist()) == list(range(30_000))
    tags = table >> 32
    assert (np.diff(tags[tags >= 0]) >= 0).all()  # in the order of their hashes


def test_keys_with_equal_hashes_are_told_apart():
    same = np.full(21, 2**64 - 1, np.uint64)
    table = np.full(21 + TAIL, -1, np.int64)
    table_insert(table, same[:20], 0)
    arrays = table, longs(range(20)), np.zeros(1, np.uint32), ints(range(100, 120)), ints([1] * 20)
    described = np.array([[*(address(array) for array in arrays), table.size]], np.int64)
    src, pos, count = ints([-1] * 21), ints([-5] * 21), ints([-5] * 21)
    assert probe_ints(described, same, longs(range(21)), src, pos, count) == 20
    assert pos.tolist() == [*range(100, 120), -5]
    assert src.tolist() == [0] * 20 + [-1]


# -- expand ----------------------------------------------------------------------------------------


def brute_expand(uid, src, pos, count, how):
    """All results in stream order: (row, source, position); semi and anti have only the row."""
    out = []
    for row, u in enumerate(uid):
        matches = count[u] if u >= 0 else 0
        if how == SEMI:
            out += [(row,)] if matches else []
        elif how == ANTI:
            out += [] if matches else [(row,)]
        elif matches:
            out += [(row, src[u], pos[u] + k) for k in range(matches)]
        elif how == LEFT:
            out.append((row, -1, 0))
    return out


@st.composite
def joins(draw):
    n = draw(st.integers(0, 5))
    each = st.lists(st.integers(0, 6), min_size=n, max_size=n)
    count = draw(st.lists(st.sampled_from([0, 1, 1, 2, 7]), min_size=n, max_size=n))
    uid = draw(st.lists(st.integers(-1, n - 1), max_size=12))
    return uid, draw(each), draw(each), count


@pytest.mark.parametrize("how", [INNER, LEFT, SEMI, ANTI], ids=["inner", "left", "semi", "anti"])
@given(case=joins(), rooms=st.lists(st.integers(1, 9), min_size=1, max_size=5))
@RELAXED
def test_oracle_expand_in_pieces_of_any_size(how, case, rooms):
    uid, src, pos, count = case
    expected = brute_expand(uid, src, pos, count, how)
    results, stop, turn = [], longs([0, 0]), 0
    while True:
        room = rooms[turn % len(rooms)]
        turn += 1
        row, source, position = ints([-5] * room), ints([-5] * room), ints([-5] * room)
        n = expand(ints(uid), ints(src), ints(pos), ints(count), how, stop[0], stop[1], stop, row, source, position)
        columns = [row] if how in (SEMI, ANTI) else [row, source, position]
        results += list(zip(*(c[:n].tolist() for c in columns), strict=True))
        assert all((c[n:] == -5).all() for c in (row, source, position))
        if stop[0] >= len(uid):
            break
        assert n == room, "stopped with room left"
        assert turn < 1000
    assert len(results) == len(expected)
    assert results == expected
    assert stop.tolist() == [len(uid), 0]


# -- take ------------------------------------------------------------------------------------------


@st.composite
def gathers(draw, values):
    """Some stores of values, which may be null, and tuples to take; -1 is a row without a match."""
    stores = draw(
        st.lists(
            st.lists(st.tuples(values, st.booleans()), min_size=1, max_size=6),
            min_size=1,
            max_size=3,
        )
    )
    with_nulls = draw(st.lists(st.booleans(), min_size=len(stores), max_size=len(stores)))
    place = st.integers(0, len(stores) - 1).flatmap(lambda s: st.tuples(st.just(s), st.integers(0, len(stores[s]) - 1)))
    return stores, with_nulls, draw(st.lists(st.one_of(place, st.just((-1, 0))), max_size=20))


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
@given(data=st.data())
@RELAXED
def test_oracle_take_fixed_and_valid(width, data):
    stores, with_nulls, taken = data.draw(gathers(st.binary(min_size=width, max_size=width)))
    values = [np.frombuffer(b"".join(v for v, _ in store), np.uint8) for store in stores]
    valid = [octets(ok for _, ok in store) for store in stores]
    src, pos = ints(s for s, _ in taken), ints(p for _, p in taken)
    out = np.full(len(taken) * width + 1, 7, np.uint8)
    take_fixed(longs(map(address, values)), src, pos, width, address(out))
    zero = bytes(width)
    assert out[:-1].tobytes() == b"".join(stores[s][p][0] if s >= 0 else zero for s, p in taken)
    assert out[-1] == 7
    here = np.full(len(taken), 9, np.uint8)
    base = longs(address(v) if some else 0 for v, some in zip(valid, with_nulls, strict=True))
    nulls = take_valid(base, src, pos, here)
    expected = [int(s >= 0 and (stores[s][p][1] or not with_nulls[s])) for s, p in taken]
    assert here.tolist() == expected
    assert nulls == expected.count(0)


@given(gathers(BYTE_STRINGS))
@RELAXED
def test_oracle_take_variable(case):
    stores, _, taken = case
    parts = [strings([v for v, _ in store]) for store in stores]
    data, offsets = [d for d, _ in parts], [o.astype(np.uint32) for _, o in parts]
    src, pos = ints(s for s, _ in taken), ints(p for _, p in taken)
    out_offsets = np.full(len(taken) + 1, -9, np.int64)
    total = take_sizes(longs(map(address, offsets)), src, pos, out_offsets)
    expected = [stores[s][p][0] if s >= 0 else b"" for s, p in taken]
    assert total == sum(map(len, expected))
    assert np.diff(out_offsets).tolist() == [len(v) for v in expected]
    out = np.full(total + 1, 7, np.uint8)
    take_variable(longs(map(address, offsets)), longs(map(address, data)), src, pos, out_offsets, address(out))
    assert to_bytes(out, out_offsets) == expected
    assert out[-1] == 7
