"""Pairs of a page and a stream tuple that waits for it: put in lists, counted, crossed off; and slots for the tuples.

A pair is page << 32 | slot, so that pairs sort by page. Free slots are chained: next[slot] is another one.
"""

from __future__ import annotations

import numpy as np

from headrace.kernels.jit import I32, I64, i32, i64, int64, kernel, u8, void


@kernel(int64(I64))
def count_pages(pairs):
    """How many pages sorted pairs have."""
    n = 0
    for i in range(pairs.size):
        if i == 0 or pairs[i] >> 32 != pairs[i - 1] >> 32:
            n += 1
    return n


@kernel(int64(I64, i32, i32, i32))
def unpack(pairs, page, start, slot):
    """Sorted pairs as lists: the pages, where the list of each starts, slots. Returns how many pages.

    `slot` may be the memory of `pairs` itself: a slot is written where no pair is that is still to be read.
    """
    n = 0
    last = np.int64(-1)
    for i in range(pairs.size):
        pair = pairs[i]
        slot[i] = pair & 0xFFFFFFFF
        if pair >> 32 != last:
            last = pair >> 32
            page[n] = last
            start[n] = i
            n += 1
    return n


@kernel(void(I32, I32, u8))
def wanted_by_half(start, slot, wanted):
    """Of lists, list i from start[i] to start[i + 1]: which have a tuple in an even slot."""
    for page in range(wanted.size):
        wanted[page] = 0
        for i in range(start[page], start[page + 1]):
            if slot[i] & 1 == 0:
                wanted[page] = 1
                break


@kernel(void(I32, i32))
def cross_off(slots, pending):
    """Each of these tuples, as often as it is named, waits for one page less."""
    for i in range(slots.size):
        pending[slots[i]] -= 1


@kernel(void(i32, i64, i32))
def take_slots(next, head, slots):
    """As many free slots as `slots` has room for; head[0] is the first of those left."""
    free = head[0]
    for i in range(slots.size):
        slots[i] = free
        free = next[free]
    head[0] = free


@kernel(void(i32, i64, I32))
def free_slots(next, head, slots):
    """Slots are free again."""
    free = head[0]
    for i in range(slots.size):
        next[slots[i]] = free
        free = slots[i]
    head[0] = free
