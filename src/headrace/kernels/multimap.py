"""H and Q: a hash multi-map of stream tuples that wait, and the queue they wait in. [MESH] §3.1, [XHJ] §3

A tuple has a slot. Slots of one bucket are chained both ways, and so are the slots of the queue, oldest first, so that a tuple
leaves from anywhere in constant time. `ends` is (oldest, youngest, first free slot, slots in use); -1 is none.
"""

from __future__ import annotations

import numpy as np

from headrace.kernels.chains import bucket, slot_from
from headrace.kernels.jit import I32, U64, i32, i64, int64, kernel, u64, void

OLDEST, YOUNGEST, FREE, USED = 0, 1, 2, 3


@kernel(void(i32, i32, i32, i32, i64))
def clear(heads, after, older, younger, ends):
    """All slots free."""
    heads[:] = -1
    older[:] = -1
    n = after.size
    for i in range(n):
        after[i] = i + 1 if i + 1 < n else -1
        younger[i] = -1
    ends[OLDEST] = -1
    ends[YOUNGEST] = -1
    ends[FREE] = 0 if n else -1
    ends[USED] = 0


@kernel(void(i32, u64, i32, i32, i32, i32, i64, U64, i32))
def insert(heads, hashes, before, after, older, younger, ends, new, slots):
    """Add tuples with these hashes to map and queue; slots[i] is where. There must be room."""
    for i in range(new.size):
        s = ends[FREE]
        ends[FREE] = after[s]
        slots[i] = s
        hashes[s] = new[i]
        b = bucket(new[i], heads.size)
        first = heads[b]
        after[s] = first
        before[s] = -1
        if first >= 0:
            before[first] = s
        heads[b] = s
        older[s] = ends[YOUNGEST]
        younger[s] = -1
        if ends[YOUNGEST] >= 0:
            younger[ends[YOUNGEST]] = s
        else:
            ends[OLDEST] = s
        ends[YOUNGEST] = s
    ends[USED] += new.size


@kernel(void(i32, u64, i32, i32, i32, i32, i64, I32))
def remove(heads, hashes, before, after, older, younger, ends, slots):
    """Take tuples out of map and queue, from wherever they are."""
    for i in range(slots.size):
        s = slots[i]
        if before[s] >= 0:
            after[before[s]] = after[s]
        else:
            heads[bucket(hashes[s], heads.size)] = after[s]
        if after[s] >= 0:
            before[after[s]] = before[s]
        if older[s] >= 0:
            younger[older[s]] = younger[s]
        else:
            ends[OLDEST] = younger[s]
        if younger[s] >= 0:
            older[younger[s]] = older[s]
        else:
            ends[YOUNGEST] = older[s]
        after[s] = ends[FREE]
        ends[FREE] = s
    ends[USED] -= slots.size


@kernel(int64(i32, i64, i32))
def oldest(younger, ends, slots):
    """The slots at the head of the queue, oldest first; returns how many there are."""
    n = 0
    s = ends[OLDEST]
    while n < slots.size and s >= 0:
        slots[n] = s
        n += 1
        s = younger[s]
    return n


@kernel(int64(i32, u64, i32, U64, i64, i32, i32))
def probe(heads, hashes, after, wanted, stop, number, slots):
    """Pairs (i, slot) with wanted[i] == hashes[slot], from stop = (i, slot to go on with or -1) until the output is full.

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
        s = slot_from(hashes, after, code, s)
        while s >= 0:
            if n == slots.size:
                stop[0] = i
                stop[1] = s
                return n
            number[n] = i
            slots[n] = s
            n += 1
            s = slot_from(hashes, after, code, np.int64(after[s]))
        fresh = True
        i += 1
    stop[0] = i
    stop[1] = -1
    return n
