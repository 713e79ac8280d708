"""The distinct keys of a batch, in order of first appearance, with their counts."""

from __future__ import annotations

import numpy as np

from headrace.kernels.jit import I64, U8, U64, compare_bytes, i32, int64, kernel


@kernel(int64(I64, U8, U64, i32, i32, i32, i32))
def unique_ints(keys, valid, hashes, table, uid, first_row, counts):
    """Number distinct keys: uid[row] is the key of a row (-1 for a null), first_row[u] and counts[u] describe key u.

    Returns the number of distinct keys. `table` is scratch, filled with -1, with a power of two above the number of rows as its
    size. `valid` is empty if no key is null.
    """
    mask = table.size - 1
    found = 0
    check = valid.size > 0
    for row in range(keys.size):
        if check and valid[row] == 0:
            uid[row] = -1
            continue
        key = keys[row]
        slot = np.int64(hashes[row]) & mask
        while True:
            u = table[slot]
            if u < 0:
                table[slot] = found
                first_row[found] = row
                counts[found] = 1
                uid[row] = found
                found += 1
                break
            if keys[first_row[u]] == key:
                counts[u] += 1
                uid[row] = u
                break
            slot = (slot + 1) & mask
    return found


@kernel(int64(int64, I64, U8, U64, i32, i32, i32, i32))
def unique_strings(data, offsets, valid, hashes, table, uid, first_row, counts):
    """Number distinct byte strings at the address `data`, as `unique_ints` does for integers."""
    mask = table.size - 1
    found = 0
    check = valid.size > 0
    for row in range(hashes.size):
        if check and valid[row] == 0:
            uid[row] = -1
            continue
        start = offsets[row]
        length = offsets[row + 1] - start
        slot = np.int64(hashes[row]) & mask
        while True:
            u = table[slot]
            if u < 0:
                table[slot] = found
                first_row[found] = row
                counts[found] = 1
                uid[row] = found
                found += 1
                break
            other = first_row[u]
            if (
                hashes[other] == hashes[row]
                and compare_bytes(data + start, length, data + offsets[other], offsets[other + 1] - offsets[other]) == 0
            ):
                counts[u] += 1
                uid[row] = u
                break
            slot = (slot + 1) & mask
    return found
