"""The hash table of a relation that is held whole: a key, or its hash, lies in the slot beside the place of its tuples.

A slot is two words: the key (of a byte string, its hash), and the number of the key's first tuple in the high half with how many
tuples it has in the low half. A slot of no tuples is empty, so that memory of zeros is an empty table. The slots of a block of
keys are asked for before the first of them is looked at: the cache misses of a block overlap.
"""

from __future__ import annotations

import numpy as np

from headrace.kernels.hashing import mix
from headrace.kernels.jit import (
    I64,
    U8,
    U64,
    compare_bytes,
    helper,
    i32,
    i64,
    int64,
    kernel,
    load_u32,
    prefetch,
)

_BLOCK = 64  # keys whose slots are asked for together: as many lines as a core can wait for at a time, and more
_MANY = 0xFFFFFFFF  # the low half of a slot's second word


@helper
def _home(h: np.uint64, slots: int) -> np.int64:
    """Return the slot where a search starts: the high half of the hash, scaled to the size of the table."""
    return np.int64(((h >> np.uint64(32)) * np.uint64(slots)) >> np.uint64(32))


@helper
def _hash(key: np.int64) -> np.uint64:
    """Hash an integer as `hashing.hash_ints` does."""
    return mix(np.uint64(key) + np.uint64(0x9E3779B97F4A7C15))


@helper
def _enter(slots, s, head, number, used):
    """Note tuple `number` in the slot that its key belongs to; returns the keys in the table, or -1 as `enter_ints` does."""
    place = slots[2 * s + 1]
    many = place & _MANY
    if many == 0:
        if used + 1 >= slots.size // 2:
            return -1
        slots[2 * s] = head
        slots[2 * s + 1] = (number << 32) | 1
        return used + 1
    if (place >> 32) + many != number:
        return -1
    slots[2 * s + 1] = place + 1
    return used


@helper
def _answer(slots, s, known, i, pos, count):
    """Write what a slot says of key i, nothing unless the key is known, which a null is not; returns whether it has tuples."""
    place = slots[2 * s + 1]
    many = place & _MANY if known else 0
    pos[i] = place >> 32
    count[i] = many
    return many > 0


@kernel(int64(i64, I64, int64, int64))
def enter_ints(slots, keys, first, used):
    """Enter tuples from number `first` on, whose keys come together; returns the distinct keys in the table then.

    Returns -1 if the tuples of a key do not come together, or the table, which has `used` keys, would be full.
    """
    n = slots.size // 2
    for i in range(keys.size):
        s = _home(_hash(keys[i]), n)
        while slots[2 * s + 1] & _MANY and slots[2 * s] != keys[i]:
            s = s + 1 if s + 1 < n else 0
        used = _enter(slots, s, keys[i], first + i, used)
        if used < 0:
            return -1
    return used


@helper
def _same(offsets: int, data: int, tuple_: int, other: int, length: int) -> bool:
    """Tell whether the key of a tuple equals a byte string; `offsets` and `data` are addresses of the keys of all tuples."""
    start = np.int64(load_u32(offsets + 4 * tuple_))
    end = np.int64(load_u32(offsets + 4 * tuple_ + 4))
    return compare_bytes(data + start, end - start, other, length) == 0


@kernel(int64(i64, U64, int64, int64, int64, int64))
def enter_strings(slots, hashes, offsets, data, first, used):
    """Enter tuples from number `first` on with keys of these hashes, as `enter_ints` does for integers."""
    n = slots.size // 2
    for i in range(hashes.size):
        start = np.int64(load_u32(offsets + 4 * (first + i)))
        length = np.int64(load_u32(offsets + 4 * (first + i) + 4)) - start
        tag = np.int64(hashes[i])
        s = _home(hashes[i], n)
        while slots[2 * s + 1] & _MANY and not (
            slots[2 * s] == tag and _same(offsets, data, slots[2 * s + 1] >> 32, data + start, length)
        ):
            s = s + 1 if s + 1 < n else 0
        used = _enter(slots, s, tag, first + i, used)
        if used < 0:
            return -1
    return used


@kernel(int64(I64, int64, I64, U8, i32, i32))
def probe_ints(slots, address, keys, valid, pos, count):
    """Look up integers: the first tuple and the number of tuples of each, 0 where it has none; returns how many have some.

    `address` is that of the slots; `valid` is empty if no key is null.
    """
    n = slots.size // 2
    check = valid.size > 0
    home = np.empty(_BLOCK, np.int64)
    found = 0
    for begin in range(0, keys.size, _BLOCK):
        size = min(_BLOCK, keys.size - begin)
        for j in range(size):
            home[j] = _home(_hash(keys[begin + j]), n)
            prefetch(address + 16 * home[j])
        for j in range(size):
            i = begin + j
            s = home[j]
            key = keys[i]
            while slots[2 * s] != key and slots[2 * s + 1] & _MANY:
                s = s + 1 if s + 1 < n else 0
            found += _answer(slots, s, not check or valid[i] != 0, i, pos, count)
    return found


@kernel(int64(I64, int64, int64, int64, U64, int64, I64, U8, i32, i32))
def probe_strings(slots, address, entry_offsets, entry_data, hashes, data, offsets, valid, pos, count):
    """Look up byte strings at the address `data`, as `probe_ints` does integers; keys of tuples lie at the `entry` addresses."""
    n = slots.size // 2
    check = valid.size > 0
    found = 0
    for begin in range(0, hashes.size, _BLOCK):
        size = min(_BLOCK, hashes.size - begin)
        for j in range(size):
            prefetch(address + 16 * _home(hashes[begin + j], n))
        for j in range(size):
            i = begin + j
            s = _home(hashes[i], n)
            tag = np.int64(hashes[i])
            key = data + offsets[i]
            length = offsets[i + 1] - offsets[i]
            while slots[2 * s + 1] & _MANY and not (
                slots[2 * s] == tag and _same(entry_offsets, entry_data, slots[2 * s + 1] >> 32, key, length)
            ):
                s = s + 1 if s + 1 < n else 0
            found += _answer(slots, s, not check or valid[i] != 0, i, pos, count)
    return found
