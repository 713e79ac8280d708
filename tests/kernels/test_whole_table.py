"""The hash table of a relation held whole, against a dictionary."""

import numpy as np
import pytest

from headrace.kernels.whole_table import enter_ints, enter_strings, probe_ints, probe_strings
from headrace.relation.columns import address
from headrace.relation.keys import ByteKeys

NO_NULLS = np.empty(0, np.uint8)


def places(keys: list) -> dict:
    """First tuple and number of tuples of each key, whose tuples come together."""
    found = {}
    for i, key in enumerate(keys):
        first, many = found.get(key, (i, 0))
        found[key] = first, many + 1
    return found


def probed(found: int, pos, count, wanted: list, known: dict, valid) -> None:
    for i, key in enumerate(wanted):
        first, many = known.get(key, (0, 0)) if not valid.size or valid[i] else (0, 0)
        assert count[i] == many
        assert not many or pos[i] == first
    assert found == np.count_nonzero(count)


def as_bytes(texts: list[bytes]) -> ByteKeys:
    offsets = np.concatenate([[0], np.cumsum([len(t) for t in texts])]).astype(np.int64)
    return ByteKeys(np.frombuffer(b"".join(texts) or b"\0", np.uint8).copy(), offsets)


@pytest.mark.parametrize("spare", [1, 2, 50], ids=["full", "nearly full", "roomy"])
@pytest.mark.parametrize("seed", range(6))
def test_oracle_tuples_are_found_by_their_keys(seed, spare):
    rng = np.random.default_rng(seed)
    domain = int(rng.choice([3, 40, 500]))
    # 0 is a key like any other, though an empty slot holds it; the first and the last key that there are, too.
    values = np.sort(np.concatenate([[0, -(1 << 63), (1 << 63) - 1], rng.integers(-domain, domain, 300)]))
    wanted = np.concatenate([values, rng.integers(-2 * domain, 2 * domain, 400)])
    valid = (rng.random(wanted.size) < 0.9).astype(np.uint8) if seed % 2 else NO_NULLS
    pos, count = np.empty(wanted.size, np.int32), np.empty(wanted.size, np.int32)
    known = places(values.tolist())
    slots = np.zeros(2 * (len(known) + spare), np.int64)
    half = int(np.searchsorted(values, values[150]))  # tuples of a key come together, in one call or in two
    used = enter_ints(slots, values[:half], 0, 0)
    assert enter_ints(slots, values[half:], half, used) == len(known)
    found = probe_ints(slots, address(slots), wanted, valid, pos, count)
    probed(found, pos, count, wanted.tolist(), known, valid)

    texts, asked = ([b"%d" % v * (v % 3) for v in some.tolist()] for some in (values, wanted))
    texts = sorted(texts)
    known, keys, others = places(texts), as_bytes(texts), as_bytes(asked)
    slots = np.zeros(2 * (len(known) + spare), np.int64)
    stored = keys.offsets.astype(np.uint32)
    at = address(stored), address(keys.data)
    assert enter_strings(slots, keys.hashes(), *at, 0, 0) == len(known)
    found = probe_strings(
        slots, address(slots), *at, others.hashes(), address(others.data), others.offsets, valid, pos, count
    )
    probed(found, pos, count, asked, known, valid)


def test_keys_of_the_same_hash_are_told_apart():
    keys = as_bytes([b"one", b"two", b"two"])
    same, slots = np.full(3, 7, np.uint64), np.zeros(12, np.int64)
    at = address(offsets := keys.offsets.astype(np.uint32)), address(keys.data)
    assert enter_strings(slots, same, *at, 0, 0) == 2
    asked, pos, count = as_bytes([b"two", b"six", b"one"]), np.empty(3, np.int32), np.empty(3, np.int32)
    probe_strings(slots, address(slots), *at, same, address(asked.data), asked.offsets, NO_NULLS, pos, count)
    assert count.tolist() == [2, 0, 1]
    assert pos[[0, 2]].tolist() == [1, 0]
    assert offsets.size == 4


def test_a_table_that_is_full_or_keys_that_do_not_come_together_are_refused():
    assert enter_ints(np.zeros(2 * 3, np.int64), np.array([1, 2, 3]), 0, 0) == -1
    assert enter_ints(np.zeros(2 * 9, np.int64), np.array([1, 2, 1]), 0, 0) == -1
    keys = as_bytes([b"a", b"b", b"a"])
    stored = keys.offsets.astype(np.uint32)
    for slots in (2, 9):
        table = np.zeros(2 * slots, np.int64)
        assert enter_strings(table, keys.hashes(), address(stored), address(keys.data), 0, 0) == -1
