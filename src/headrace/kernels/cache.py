"""A pool of pages in memory with LRU replacement, and the enumeration of rows found in pages.

A page is known by its place, a number that is never negative. The frames of a pool are chained in the order of their last use;
`ends` is (least recently used, most recently used, frames in use), where -1 is none. `table` is a hash table with open
addressing from places to frames.
"""

from __future__ import annotations

import numpy as np

from headrace.kernels.jit import I32, I64, copy_bytes, helper, i32, i64, int64, kernel, u8, void

OLDEST, YOUNGEST, USED = 0, 1, 2  # indexes of `ends`


@helper
def _home(place: int, mask: int) -> np.int64:
    return np.int64((np.uint64(place) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)) & mask


@helper
def _slot(table, place_of, place):
    """Return the slot of a place in the table, or the free slot where it belongs."""
    mask = table.size - 1
    s = _home(place, mask)
    while table[s] >= 0 and place_of[table[s]] != place:
        s = (s + 1) & mask
    return s


@helper
def _forget(table, place_of, slot):
    """Remove an entry and close the gap: entries that a search would no longer reach move up."""
    mask = table.size - 1
    gap = slot
    s = (slot + 1) & mask
    while table[s] >= 0:
        if ((s - _home(place_of[table[s]], mask)) & mask) >= ((s - gap) & mask):
            table[gap] = table[s]
            gap = s
        s = (s + 1) & mask
    table[gap] = -1


@helper
def _unlink(older, younger, ends, f):
    if older[f] >= 0:
        younger[older[f]] = younger[f]
    else:
        ends[OLDEST] = younger[f]
    if younger[f] >= 0:
        older[younger[f]] = older[f]
    else:
        ends[YOUNGEST] = older[f]


@helper
def _link(older, younger, ends, f):
    older[f] = ends[YOUNGEST]
    younger[f] = -1
    if ends[YOUNGEST] >= 0:
        younger[ends[YOUNGEST]] = f
    else:
        ends[OLDEST] = f
    ends[YOUNGEST] = f


@kernel(int64(I64, i32, i64, i32, i32, i64, i64, i32, u8))
def lru(places, table, place_of, older, younger, ends, used_at, frame, miss):
    """Serve accesses to pages in order, from a pool that evicts the least recently used page.

    frame[i] is the frame of access i, and miss[i] tells whether the page must be read into it first; negative places are no
    accesses and get frame -1. Stops before an access that would evict a page that an earlier access of this call needs, so
    that all pages of one call are in the pool together. Returns how many were served. `used_at` is scratch, one per frame.
    """
    used_at[:] = -1
    for i in range(places.size):
        place = places[i]
        miss[i] = 0
        frame[i] = -1
        if place < 0:
            continue
        s = _slot(table, place_of, place)
        f = np.int64(table[s])
        if f >= 0:
            _unlink(older, younger, ends, f)
        else:
            if ends[USED] < place_of.size:
                f = ends[USED]
                ends[USED] += 1
            else:
                f = ends[OLDEST]
                if used_at[f] >= 0:
                    return i
                _unlink(older, younger, ends, f)
                _forget(table, place_of, _slot(table, place_of, place_of[f]))
                s = _slot(table, place_of, place)
            place_of[f] = place
            table[s] = f
            miss[i] = 1
        _link(older, younger, ends, f)
        used_at[f] = i
        frame[i] = f
    return places.size


@kernel(void(I64, I32, I64, i32))
def frames_of(places, table, place_of, frame):
    """Find the frames that pages are in, -1 for those that are not in the pool; nothing counts as an access."""
    for i in range(places.size):
        frame[i] = table[_slot(table, place_of, places[i])]


@kernel(int64(I32, I32, i64, i32, i32))
def spell_out(low, high, stop, which, row):
    """Enumerate rows low[i] to high[i] - 1 of every i as pairs (which, row) until the output is full; returns how many.

    Starts at stop = (i, rows of i that were written before) and leaves there where it stopped; stop[0] is low.size at the end.
    """
    n = 0
    i = stop[0]
    done = stop[1]
    while i < low.size:
        taken = min(high[i] - low[i] - done, which.size - n)
        for k in range(taken):
            which[n + k] = i
            row[n + k] = low[i] + done + k
        n += taken
        done += taken
        if low[i] + done < high[i]:
            break
        i += 1
        done = 0
    stop[0] = i
    stop[1] = done
    return n


@kernel(void(I64, I64, int64))
def copy_pages(sources, targets, page_size):
    """Copy pages from addresses to addresses."""
    for i in range(sources.size):
        copy_bytes(targets[i], sources[i], page_size)
