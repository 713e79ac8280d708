"""The approximate joins of [PQP] ch. 8, tuple by tuple: probe the other side, count, decide who is dropped, insert.

Each side has slots of its own. An arriving tuple takes a slot of its own side, so the slots of the other side keep their rows
until the batch is over, and pairs (row, slot) stay valid even if the tuple of the slot is dropped meanwhile.
"""

from __future__ import annotations

import numpy as np

from headrace.kernels.hashing import mix
from headrace.kernels.jit import I32, U8, U64, helper, i32, i64, int64, kernel, uint64
from headrace.kernels.join_values import (
    AFTER,
    ARRIVED,
    COUNTING,
    DOMAIN,
    EXACT_COUNTS,
    FIRST,
    FLUSHES,
    HELD,
    JOIN_VALUES,
    KEPT,
    LAID_OUT,
    LATER,
    LITERAL,
    OVERFLOW,
    OWNER,
    PART_ARRIVED,
    PART_FIRST,
    PART_HELD,
    PART_LAST,
    PART_OFFSET,
    PART_RESULTS,
    PLACE,
    PLACING,
    SCANNED,
    SCANNING,
    SIZE,
    STORED,
    VALUES,
    append,
    count_arrival,
    detach,
    discard,
    entry_of,
    lowest,
    open_entry,
    spare_slot,
)
from headrace.kernels.samplers import below

# numbers[PLACING]: where an arriving tuple goes when memory is full
KEEP_ALL, OWN_SIDE, OWN_STRATUM, LOWEST_OF_BOTH, FLUSH = range(5)
# numbers[SCANNING]: the tuples that the text's algorithm compares an arriving tuple with
SCAN_SIDE, SCAN_MEMORY, SCAN_PARTITION = range(3)
BEGIN = -2  # stop[1]: the tuple has not been looked at yet
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # SplitMix64's increment, as in headrace.splitmix


@helper
def _count_scanned(m, side, part):
    if m.numbers[SCANNING] == SCAN_PARTITION:
        m.numbers[SCANNED + side] += m.parts[1 - side, PART_HELD, part]
    elif m.numbers[SCANNING] == SCAN_SIDE:
        m.numbers[SCANNED + side] += m.numbers[HELD + 1 - side]
    else:
        m.numbers[SCANNED + side] += m.numbers[HELD] + m.numbers[HELD + 1]


# -- strata ----------------------------------------------------------------------------------------------------------------


@helper
def _place_in_stratum(m, side, part, p):
    """Alg. 7: the position that a tuple of a stratum takes, given rho - 1; -1 if it is dropped."""
    if not m.numbers[LAID_OUT + side]:
        _lay_out(m, side)
    size = m.parts[side, PART_HELD, part]
    if size > 0:
        return m.parts[side, PART_OFFSET, part] + (p + 1) % size
    if m.numbers[LITERAL]:
        return np.int64(-1)
    return _open_stratum(m, side, part, p)


@helper
def _lay_out(m, side):
    """Order the positions by stratum, and within one by arrival: stratum h begins at its PART_OFFSET."""
    parts = m.parts[side]
    place = m.slots[side, PLACE]
    size = m.numbers[SIZE + side]
    old = place[:size].copy()
    at = np.int64(0)
    for h in range(parts.shape[1]):
        parts[PART_OFFSET, h] = at
        at += parts[PART_HELD, h]
    following = parts[PART_OFFSET].copy()
    for i in range(size):
        h = m.part[m.slots[side, OWNER, old[i]]]
        place[following[h]] = old[i]
        following[h] += 1
    m.numbers[LAID_OUT + side] = 1


@helper
def _open_stratum(m, side, part, p):
    """Give an empty stratum position p of another one. Returns the position, which has the tuple that is to be dropped.

    Strata between the two move by one position: a tuple of each goes from one of its ends to the other.
    """
    offset = m.parts[side, PART_OFFSET]
    place = m.slots[side, PLACE]
    victim = place[p]
    owner = np.int64(m.part[m.slots[side, OWNER, victim]])
    if owner < part:
        hole = offset[owner + 1] - 1
        place[p] = place[hole]
        for h in range(owner + 1, part):
            offset[h] -= 1
            end = offset[h + 1] - 1
            place[hole] = place[end]
            hole = end
        offset[part] -= 1
    else:
        hole = offset[owner]
        place[p] = place[hole]
        for h in range(owner, part, -1):
            offset[h] += 1
            if h - 1 > part:
                place[hole] = place[offset[h - 1]]
                hole = offset[h - 1]
    place[hole] = victim
    return hole


# -- priorities and flushes ------------------------------------------------------------------------------------------------


@helper
def _drop_lowest(m):
    """Drop the tuple with the lowest partner probability of both sides: the oldest of its value."""
    victim = np.int64(0)
    if m.numbers[HELD] == 0:
        victim = np.int64(1)
    elif m.numbers[HELD + 1] > 0:
        a = lowest(m, 0)
        b = lowest(m, 1)
        x = m.counts[STORED, a] / max(np.int64(1), m.numbers[ARRIVED + 1])
        y = m.counts[STORED + 1, b] / max(np.int64(1), m.numbers[ARRIVED])
        if y < x or (y == x and m.tags[1, b] < m.tags[0, a]):
            victim = np.int64(1)
    e = lowest(m, victim)
    discard(m, victim, np.int64(m.lists[victim, FIRST, e]))


@helper
def _queue(m, side, part, s):
    """Put a slot at the end of the queue of its partition."""
    parts = m.parts[side]
    later = m.slots[side, LATER]
    later[s] = -1
    if parts[PART_HELD, part] == 1:
        parts[PART_FIRST, part] = s
    else:
        later[parts[PART_LAST, part]] = s
    parts[PART_LAST, part] = s


@helper
def _flush(m, wanted, seed):
    """RRPJ: drop so many tuples of the partitions with the fewest results a tuple, the oldest of each first."""
    start = mix(seed * GOLDEN + np.uint64(m.numbers[FLUSHES]))
    k = m.parts.shape[2]
    m.numbers[FLUSHES] += 1
    left = min(wanted, m.numbers[HELD] + m.numbers[HELD + 1])
    while left > 0:
        best = -1
        low = 0.0
        low_tag = np.uint64(0)
        for q in range(2 * k):
            side = q // k
            h = q - side * k
            if m.parts[side, PART_HELD, h] == 0:
                continue
            score = m.parts[side, PART_RESULTS, h] / max(np.int64(1), m.parts[side, PART_ARRIVED, h])
            tag = mix(np.uint64(q + 1) * GOLDEN + start)
            if best < 0 or score < low or (score == low and tag < low_tag):
                best = q
                low = score
                low_tag = tag
        side = best // k
        h = best - side * k
        while left > 0 and m.parts[side, PART_HELD, h] > 0:
            s = m.parts[side, PART_FIRST, h]
            m.parts[side, PART_FIRST, h] = m.slots[side, LATER, s]
            discard(m, side, s)
            left -= 1


# -- arrivals --------------------------------------------------------------------------------------------------------------


@helper
def _slot_for(m, side, part, word, sampled, flushed, seed):
    """The slot for an arriving tuple, which is free then; -1 if the tuple is dropped."""
    placing = m.numbers[PLACING]
    held = m.numbers[HELD + side]
    size = m.numbers[SIZE + side]
    place = m.slots[side, PLACE]
    if placing == FLUSH or placing == LOWEST_OF_BOTH:
        if m.numbers[HELD] + m.numbers[HELD + 1] >= size:
            if placing == FLUSH:
                _flush(m, flushed, seed)
            else:
                _drop_lowest(m)
        return spare_slot(m, side)
    if placing == KEEP_ALL or held < size:
        return np.int64(place[held])
    if not sampled:
        s = np.int64(m.lists[side, FIRST, lowest(m, side)])
        detach(m, side, s)
        return s
    p = below(word, m.numbers[ARRIVED + side])  # rho - 1
    if p >= size:
        return np.int64(-1)
    if placing == OWN_STRATUM:
        p = _place_in_stratum(m, side, part, p)
        if p < 0:
            return np.int64(-1)
    s = np.int64(place[p])
    detach(m, side, s)
    return s


@kernel(int64(JOIN_VALUES, int64, U64, I32, U64, U8, int64, uint64, i32, i64, i64, i32, i32))
def take_in(m, side, codes, parts, words, sampled, flushed, seed, taken, matches, stop, rows, slots):
    """Take in tuples of a side. Returns the number of pairs (row, slot of the other side) that were written.

    It goes on from stop = (row, slot to be joined next), and leaves there where it stopped: the output is full, or
    numbers[OVERFLOW] is set, since there are more values than can be counted exactly. taken[i] is the slot of row i, -1 if it
    was dropped; a later row may have the same slot. `sampled` says of each row whether it is placed by sampling or by
    priority, and a flush removes `flushed` tuples. If there is room in `matches`, pairs are counted there and not written.
    """
    other = 1 - side
    n = 0
    i = stop[0]
    s = stop[1]
    while i < codes.size:
        e = entry_of(m, codes[i])
        if s == BEGIN:
            if e < 0 and m.numbers[COUNTING] == EXACT_COUNTS and m.numbers[VALUES] == m.numbers[DOMAIN]:
                m.numbers[OVERFLOW] = 1
                break
            _count_scanned(m, side, parts[i])
            s = np.int64(m.lists[other, FIRST, e]) if e >= 0 else np.int64(-1)
            if matches.size:
                matches[i] = m.lists[other, KEPT, e] if e >= 0 else 0
                s = np.int64(-1)
        while s >= 0 and n < rows.size:
            rows[n] = i
            slots[n] = s
            n += 1
            s = np.int64(m.slots[other, AFTER, s])
        if s >= 0:
            break
        m.numbers[ARRIVED + side] += 1
        m.parts[side, PART_ARRIVED, parts[i]] += 1
        if e >= 0:
            m.parts[other, PART_RESULTS, parts[i]] += m.lists[other, KEPT, e]
        elif m.numbers[COUNTING] == EXACT_COUNTS:
            e = open_entry(m, codes[i], parts[i])
        count_arrival(m, side, codes[i], e)
        taken[i] = _slot_for(m, side, np.int64(parts[i]), words[i], sampled[i], flushed, seed)
        if taken[i] >= 0:
            e = entry_of(m, codes[i])  # again, since the tuple that was dropped may have been the last of this value
            if e < 0:
                e = open_entry(m, codes[i], parts[i])
            append(m, side, np.int64(taken[i]), e, i, words[i])
            if m.numbers[PLACING] == FLUSH:
                _queue(m, side, np.int64(parts[i]), np.int64(taken[i]))
        s = np.int64(BEGIN)
        i += 1
    stop[0] = i
    stop[1] = s
    return n


# -- less memory -----------------------------------------------------------------------------------------------------------


@kernel(int64(JOIN_VALUES, int64, int64, i32))
def drop_lowest(m, side, count, dropped):
    """Drop so many tuples of a side with the fewest partners, without giving their slots to the stack. Returns how many."""
    for i in range(count):
        s = np.int64(m.lists[side, FIRST, lowest(m, side)])
        detach(m, side, s)
        dropped[i] = s
    return count


@kernel(int64(JOIN_VALUES, int64, I32))
def drop_slots(m, side, dropped):
    """Drop the tuples of slots, without giving these to the stack. Returns how many."""
    for i in range(dropped.size):
        detach(m, side, np.int64(dropped[i]))
    return dropped.size


@kernel(int64(JOIN_VALUES, int64, uint64, int64))
def drop_of_both(m, count, seed, flush):
    """Drop so many tuples of both sides together, as when memory is full. Returns how many."""
    if flush:
        _flush(m, count, seed)
    else:
        for _ in range(count):
            _drop_lowest(m)
    return count
