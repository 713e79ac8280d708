"""The memory of an approximate join: join values with the tuples of both sides that are held, and heaps of values. [PQP] ch. 8

A value has an entry e, found by its 64-bit code in a chained hash table; entries that are not used are linked by `chain`. The
tuples of one value and side are a doubly linked list of slots in the order in which they came. Each side has a min-heap of the
values that it holds tuples of, ordered by the count of partners and then by a random tag. Counts of partners only grow, so a
count that was true earlier is never too large: the heap keeps such counts, and `lowest` brings the top up to date.

    code --> entry --> left tuples  o-o-o      slots of the left side, by partition a queue too
                   +-> right tuples o-o        slots of the right side
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from headrace.arrays import Int32s, Int64s, UInt32s, UInt64s
from headrace.kernels.chains import bucket, slot_from
from headrace.kernels.count_sketch import add_sketched, sketched
from headrace.kernels.hashing import mix
from headrace.kernels.jit import helper, i32, i64, kernel, u64, void

# Positions in `numbers`. Those of a pair of sides are followed by that of the right side.
FREE_ENTRY, TOUCHED, VALUES, DOMAIN, COUNTING, PLACING, SCANNING, FLUSHES, LITERAL, OVERFLOW = range(10)
ARRIVED, HELD, SIZE, SPARE, LEAST_SPARE, HEAPED, SCANNED, LAID_OUT = range(10, 26, 2)
NUMBERS = 26
NO_COUNTS, EXACT_COUNTS, SKETCHED_COUNTS = range(3)  # numbers[COUNTING]: how the arrivals of values are counted
FIRST, LAST, KEPT, AT = range(4)  # positions in `lists`: first and last slot, number of slots, index in the heap
STORED = 2  # counts[STORED + side] is the count in the heap; counts[side] the arrivals
OWNER, BEFORE, AFTER, LATER, ROW, PLACE = range(6)  # positions in `slots`
SLOT_FIELDS = 6
PART_HELD, PART_ARRIVED, PART_RESULTS, PART_FIRST, PART_LAST, PART_OFFSET = range(6)  # positions in `parts`
PART_FIELDS = 6


class JoinValues(NamedTuple):
    """The arrays."""

    numbers: Int64s
    heads: Int32s
    """for each bucket of the hash table, its first entry"""
    codes: UInt64s
    chain: Int32s
    part: Int32s
    """the partition of a value"""
    lists: Int32s
    """[side, field, entry]"""
    counts: Int64s
    """[side or STORED + side, entry]"""
    tags: UInt64s
    """[side, entry]"""
    heap: Int32s
    """[side, index]: entries"""
    slots: Int32s
    """[side, field, slot]; the field PLACE has slots by position, or the stack of free slots"""
    parts: Int64s
    """[side, field, partition]"""
    sketch: UInt32s
    """[side, counter]"""


def _array(kind: types.Type, dimensions: int) -> types.Array:
    return types.Array(kind, dimensions, "C")


JOIN_VALUES = types.NamedTuple(
    (
        i64,
        i32,
        u64,
        i32,
        i32,
        _array(types.int32, 3),
        _array(types.int64, 2),
        _array(types.uint64, 2),
        _array(types.int32, 2),
        _array(types.int32, 3),
        _array(types.int64, 3),
        _array(types.uint32, 2),
    ),
    JoinValues,
)


# -- entries ---------------------------------------------------------------------------------------------------------------


@helper
def entry_of(m, code):
    """The entry of a value; -1 if it has none."""
    return slot_from(m.codes, m.chain, code, np.int64(m.heads[bucket(code, m.heads.size)]))


@helper
def open_entry(m, code, part):
    """Make the entry of a value."""
    e = m.numbers[FREE_ENTRY]
    if e >= 0:
        m.numbers[FREE_ENTRY] = m.chain[e]
    else:
        e = m.numbers[TOUCHED]
        m.numbers[TOUCHED] += 1
    b = bucket(code, m.heads.size)
    m.codes[e] = code
    m.chain[e] = m.heads[b]
    m.heads[b] = e
    m.part[e] = part
    for side in range(2):
        m.lists[side, FIRST, e] = -1
        m.lists[side, LAST, e] = -1
        m.lists[side, KEPT, e] = 0
        m.counts[side, e] = 0
    m.numbers[VALUES] += 1
    return e


@helper
def _close_entry(m, e):
    """Give back the entry of a value of which nothing is held or counted."""
    b = bucket(m.codes[e], m.heads.size)
    at = np.int64(m.heads[b])
    if at == e:
        m.heads[b] = m.chain[e]
    else:
        while m.chain[at] != e:
            at = np.int64(m.chain[at])
        m.chain[at] = m.chain[e]
    m.chain[e] = m.numbers[FREE_ENTRY]
    m.numbers[FREE_ENTRY] = e
    m.numbers[VALUES] -= 1


@helper
def count_arrival(m, side, code, e):
    """Count a tuple of a value, which has an entry if counts are exact."""
    if m.numbers[COUNTING] == EXACT_COUNTS:
        m.counts[side, e] += 1
    elif m.numbers[COUNTING] == SKETCHED_COUNTS:
        add_sketched(m.sketch[side], code, 1)


@helper
def arrivals_of(m, side, e):
    """The number of tuples of a value that have come on a side."""
    return m.counts[side, e] if m.numbers[COUNTING] == EXACT_COUNTS else sketched(m.sketch[side], m.codes[e])


# -- heaps -----------------------------------------------------------------------------------------------------------------


@helper
def _less(stored, tags, a, b):
    """Whether value a leaves before value b."""
    return stored[a] < stored[b] or (stored[a] == stored[b] and tags[a] < tags[b])


@helper
def _sift_up(heap, at, stored, tags, i):
    """Move the value at index i of the heap towards the top, to where it belongs."""
    e = heap[i]
    while i > 0:
        up = (i - 1) >> 1
        if not _less(stored, tags, e, heap[up]):
            break
        heap[i] = heap[up]
        at[heap[i]] = i
        i = up
    heap[i] = e
    at[e] = i


@helper
def _sift_down(heap, at, stored, tags, i, n):
    """Move the value at index i of a heap of n values away from the top, to where it belongs."""
    e = heap[i]
    while True:
        down = 2 * i + 1
        if down >= n:
            break
        if down + 1 < n and _less(stored, tags, heap[down + 1], heap[down]):
            down += 1
        if not _less(stored, tags, heap[down], e):
            break
        heap[i] = heap[down]
        at[heap[i]] = i
        i = down
    heap[i] = e
    at[e] = i


@helper
def _push(m, side, e, word):
    """Put a value into the heap."""
    m.counts[STORED + side, e] = arrivals_of(m, 1 - side, e)
    m.tags[side, e] = mix(word)  # the word itself decides whether a tuple is sampled, and must not decide about ties
    i = m.numbers[HEAPED + side]
    m.numbers[HEAPED + side] += 1
    m.heap[side, i] = e
    _sift_up(m.heap[side], m.lists[side, AT], m.counts[STORED + side], m.tags[side], i)


@helper
def _pull(m, side, e):
    """Take a value out of the heap."""
    at = m.lists[side, AT]
    heap = m.heap[side]
    i = np.int64(at[e])
    m.numbers[HEAPED + side] -= 1
    last = m.numbers[HEAPED + side]
    if i < last:
        moved = heap[last]
        heap[i] = moved
        _sift_down(heap, at, m.counts[STORED + side], m.tags[side], i, last)
        _sift_up(heap, at, m.counts[STORED + side], m.tags[side], np.int64(at[moved]))


@helper
def lowest(m, side):
    """The value of a side with the fewest partners so far, of those with equally many the one with the lowest tag."""
    while True:
        e = np.int64(m.heap[side, 0])
        now = arrivals_of(m, 1 - side, e)
        if now == m.counts[STORED + side, e]:
            return e
        m.counts[STORED + side, e] = now
        n = m.numbers[HEAPED + side]
        _sift_down(m.heap[side], m.lists[side, AT], m.counts[STORED + side], m.tags[side], np.int64(0), n)


# -- tuples ----------------------------------------------------------------------------------------------------------------


@helper
def append(m, side, s, e, row, word):
    """Let a slot hold a row of a value."""
    slots = m.slots[side]
    lists = m.lists[side]
    slots[OWNER, s] = e
    slots[ROW, s] = row
    slots[AFTER, s] = -1
    slots[BEFORE, s] = lists[LAST, e]
    if lists[LAST, e] >= 0:
        slots[AFTER, lists[LAST, e]] = s
    else:
        lists[FIRST, e] = s
    lists[LAST, e] = s
    lists[KEPT, e] += 1
    m.numbers[HELD + side] += 1
    m.parts[side, PART_HELD, m.part[e]] += 1
    if lists[KEPT, e] == 1 and m.numbers[COUNTING] != NO_COUNTS:
        _push(m, side, e, word)


@helper
def detach(m, side, s):
    """Let a slot hold nothing."""
    slots = m.slots[side]
    lists = m.lists[side]
    e = np.int64(slots[OWNER, s])
    before = slots[BEFORE, s]
    after = slots[AFTER, s]
    if before >= 0:
        slots[AFTER, before] = after
    else:
        lists[FIRST, e] = after
    if after >= 0:
        slots[BEFORE, after] = before
    else:
        lists[LAST, e] = before
    lists[KEPT, e] -= 1
    slots[OWNER, s] = -1
    slots[ROW, s] = -1
    m.numbers[HELD + side] -= 1
    m.parts[side, PART_HELD, m.part[e]] -= 1
    if lists[KEPT, e] == 0:
        if m.numbers[COUNTING] != NO_COUNTS:
            _pull(m, side, e)
        if m.numbers[COUNTING] != EXACT_COUNTS and m.lists[1 - side, KEPT, e] == 0:
            _close_entry(m, e)


@helper
def spare_slot(m, side):
    """A free slot, from the stack."""
    m.numbers[SPARE + side] -= 1
    top = m.numbers[SPARE + side]
    m.numbers[LEAST_SPARE + side] = min(m.numbers[LEAST_SPARE + side], top)
    return np.int64(m.slots[side, PLACE, top])


@helper
def discard(m, side, s):
    """Let a slot hold nothing, and put it on the stack of free slots."""
    detach(m, side, s)
    m.slots[side, PLACE, m.numbers[SPARE + side]] = s
    m.numbers[SPARE + side] += 1


@kernel(void(JOIN_VALUES))
def sketch_counts(m):
    """Move the exact counts to the sketch, in the order of first arrival, and give back entries of which nothing is held."""
    m.numbers[COUNTING] = SKETCHED_COUNTS
    for e in range(m.numbers[TOUCHED]):
        for side in range(2):
            add_sketched(m.sketch[side], m.codes[e], m.counts[side, e])
    for e in range(m.numbers[TOUCHED]):
        if m.lists[0, KEPT, e] == 0 and m.lists[1, KEPT, e] == 0:
            _close_entry(m, e)


@kernel(void(JOIN_VALUES))
def rehash(m):
    """Put all entries into empty buckets. None of them may be free."""
    for e in range(m.numbers[TOUCHED]):
        b = bucket(m.codes[e], m.heads.size)
        m.chain[e] = m.heads[b]
        m.heads[b] = e
