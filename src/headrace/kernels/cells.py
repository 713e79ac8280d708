"""A hash multi-map from cells to tuples: the memory part of a progressive join's side. [PQP] §3.1.1

A cell is a 64-bit code: the hash of a key, or a tile of a grid. A tuple has a slot in every cell it belongs to; slots of one
bucket are chained both ways, so that a tuple leaves from anywhere in constant time. `ends` is (first free slot, slots ever used,
slots in use); slots are used again before new ones are touched. -1 is none.
"""

from __future__ import annotations

import numpy as np

from headrace.kernels.chains import bucket, seek
from headrace.kernels.jit import F64, I32, U8, U64, i32, i64, int64, kernel, u64, void

FREE, TOUCHED, USED = 0, 1, 2


@kernel(void(i32, u64, i32, i32, i64, U64, i32))
def insert(heads, codes, before, after, ends, new, slots):
    """Add tuples to these cells; slots[i] is where. There must be room."""
    for i in range(new.size):
        s = ends[FREE]
        if s >= 0:
            ends[FREE] = after[s]
        else:
            s = ends[TOUCHED]
            ends[TOUCHED] += 1
        slots[i] = s
        codes[s] = new[i]
        b = bucket(new[i], heads.size)
        first = heads[b]
        after[s] = first
        before[s] = -1
        if first >= 0:
            before[first] = s
        heads[b] = s
    ends[USED] += new.size


@kernel(void(i32, u64, i32, i32, i64, I32))
def remove(heads, codes, before, after, ends, slots):
    """Take tuples out of their cells."""
    for i in range(slots.size):
        s = slots[i]
        if before[s] >= 0:
            after[before[s]] = after[s]
        else:
            heads[bucket(codes[s], heads.size)] = after[s]
        if after[s] >= 0:
            before[after[s]] = before[s]
        after[s] = ends[FREE]
        ends[FREE] = s
    ends[USED] -= slots.size


@kernel(int64(I32, int64, U8, i32))
def in_partitions(partition, touched, wanted, slots):
    """The slots in use whose partition is wanted; returns how many there are."""
    n = 0
    for s in range(touched):
        if partition[s] >= 0 and wanted[partition[s]]:
            slots[n] = s
            n += 1
    return n


# Every match kernel has this form, so that the driver need not know which it calls: an index (heads, codes, after), what its
# slots compare by (held), cells to look in (wanted), the row of each (rows), what rows compare by (values), limits, stop, pairs.
MATCH = int64(I32, U64, I32, F64, U64, I32, F64, F64, i64, i32, i32)


@kernel(MATCH)
def match_codes(heads, codes, after, held, wanted, rows, values, limits, stop, number, slots):
    """Pairs (i, slot) with wanted[i] == codes[slot], from stop = (i, slot to go on with or -1) until the output is full.

    Returns how many; stop[0] == wanted.size when all are out.
    """
    n = 0
    i = stop[0]
    s = stop[1]
    fresh = s < 0
    while i < wanted.size:
        code = wanted[i]
        if fresh:
            s = np.int64(heads[bucket(code, heads.size)])
        s = seek(codes, after, code, s)
        while s >= 0:
            if n == slots.size:
                stop[0] = i
                stop[1] = s
                return n
            number[n] = i
            slots[n] = s
            n += 1
            s = seek(codes, after, code, np.int64(after[s]))
        fresh = True
        i += 1
    stop[0] = i
    stop[1] = -1
    return n
