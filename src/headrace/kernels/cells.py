"""A hash multi-map from cells to slots: the index of one side of a progressive join. [PQP] §3.1.1

A cell is a 64-bit code: the hash of a key, or a tile of a grid. A tuple has a slot in every cell it belongs to. The slots of one
bucket are a doubly linked list, so that a slot is removed in constant time wherever it is: heads[bucket] is the first slot,
after[s] and before[s] are the neighbours of slot s, and codes[s] is its cell; -1 is none. `ends` is (first free slot, slots ever
used, slots in use); free slots, which are linked by `after`, are used again before new ones are touched.
"""

from __future__ import annotations

import numpy as np

from headrace.kernels.chains import bucket, slot_from
from headrace.kernels.jit import F64, I32, U8, U64, i32, i64, int64, kernel, u64, void

FREE, TOUCHED, USED = 0, 1, 2  # the positions of these numbers in `ends`


@kernel(void(i32, u64, i32, i32, i64, U64, i32))
def insert(heads, codes, before, after, ends, new, slots):
    """Add a slot to each of the cells `new`; slots[i] becomes its number. There must be room."""
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
    """Remove slots from their cells."""
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
    """Write the slots in use whose partition is wanted; returns how many there are."""
    n = 0
    for s in range(touched):
        if partition[s] >= 0 and wanted[partition[s]]:
            slots[n] = s
            n += 1
    return n


# Every match kernel has this signature, so that the join need not know which one it calls: the index (heads, codes, after), the
# coordinates of its slots (held), the cells to probe (wanted), the row that each belongs to (rows), the coordinates of rows
# (values), the kernel's parameters (limits), where to go on (stop), and the output: pairs of a position in `wanted` and a slot.
MATCH = int64(I32, U64, I32, F64, U64, I32, F64, F64, i64, i32, i32)


@kernel(MATCH)
def match_codes(heads, codes, after, held, wanted, rows, values, limits, stop, number, slots):
    """Find pairs (i, slot) with wanted[i] == codes[slot]. Returns how many were written; it stops when the output is full.

    It goes on from stop = (i, slot), or from the first slot of wanted[i] if the slot is -1, and leaves there where it stopped;
    stop[0] == wanted.size when all pairs were written.
    """
    n = 0
    i = stop[0]
    s = stop[1]
    fresh = s < 0
    while i < wanted.size:
        code = wanted[i]
        if fresh:
            s = np.int64(heads[bucket(code, heads.size)])
        while True:
            s = slot_from(codes, after, code, s)
            if s < 0:
                break
            if n == slots.size:
                stop[0] = i
                stop[1] = s
                return n
            number[n] = i
            slots[n] = s
            n += 1
            s = np.int64(after[s])
        fresh = True
        i += 1
    stop[0] = i
    stop[1] = -1
    return n
