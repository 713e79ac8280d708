"""Tuples held in memory as columns: a hash table finds the entry of a key, and gathers copy its tuples to results.

Entry e is a key with the many[e] tuples from first[e] on; an entry without tuples says that the key is absent from R. A source
is one such store. Results are gathered from several sources at once, so a column is passed as one address per source (0 if the
source has no such buffer).
"""

from __future__ import annotations

import numpy as np
from numba import types

from headrace.kernels.jit import (
    I32,
    I64,
    U64,
    compare_bytes,
    copy_bytes,
    helper,
    i32,
    i64,
    int64,
    kernel,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    load_u64,
    prefetch,
    store_u8,
    store_u16,
    store_u32,
    store_u64,
    u8,
    void,
)

INNER, LEFT, SEMI, ANTI = 0, 1, 2, 3  # kinds of join
_AHEAD = 24  # tuples whose memory is asked for before they are copied: their cache misses overlap


# A slot of a hash table is (31 bits of the hash, entry), or -1 if it is empty. Slots that follow each other are in the order of
# these bits, which are those that the home of a hash is made of: so a search for a key that is not there ends at the first larger
# one, after 2.5 slots in the mean where three quarters are in use, and not at the next free slot, after 8.5.
TAIL = (
    64  # slots behind the last home, for entries that were pushed there; a search never begins again at the first slot
)

# What a search knows of a store, by number: the addresses of its hash table, its keys, their offsets (of byte strings), and of
# the first tuple and the number of tuples of each entry; and how many slots the table has.
TABLE, KEYS, KEY_OFFSETS, FIRST, MANY, SLOTS = range(6)
STORE_FIELDS = 6


@helper
def _spread(h: np.uint64) -> np.uint64:
    """Mix a hash again, as shards and sketch use its bits."""
    return h * np.uint64(0x9E3779B97F4A7C15)


@helper
def _home(spread: np.uint64, slots: int) -> np.int64:
    """Return the slot where a search starts: the hash scaled to the size."""
    return np.int64(((spread >> np.uint64(32)) * np.uint64(slots - TAIL)) >> np.uint64(32))


@kernel(void(i64, U64, int64))
def table_insert(table, hashes, first_entry):
    """Add entries from first_entry on with these hashes. One that is pushed out at the end of the table is found no more."""
    for i in range(hashes.size):
        spread = _spread(hashes[i])
        slot = _home(spread, table.size)
        entry = (np.int64(spread >> np.uint64(33)) << 32) | (first_entry + i)
        while slot < table.size and table[slot] != -1:
            if table[slot] >> 32 > entry >> 32:
                entry, table[slot] = table[slot], entry
            slot += 1
        if slot < table.size:
            table[slot] = entry


@kernel(int64(types.int64[:, ::1], U64, I64, i32, i32, i32))
def probe_ints(stores, hashes, keys, src, pos, count):
    """Look up keys that were not found yet (src < 0) in stores, one after the other; returns how many were found."""
    found = 0
    for u in range(keys.size):
        if src[u] >= 0:
            continue
        spread = _spread(hashes[u])
        tag = spread >> np.uint64(33)
        for s in range(stores.shape[0]):
            table, slots = stores[s, TABLE], stores[s, SLOTS]
            slot = _home(spread, slots)
            while slot < slots:
                word = load_u64(table + 8 * slot)
                if word >> np.uint64(32) > tag:  # or the slot is empty
                    break
                if word >> np.uint64(32) == tag:
                    e = np.int64(word & np.uint64(0xFFFFFFFF))
                    if load_i64(stores[s, KEYS] + 8 * e) == keys[u]:
                        src[u] = s
                        pos[u] = np.int32(load_u32(stores[s, FIRST] + 4 * e))
                        count[u] = np.int32(load_u32(stores[s, MANY] + 4 * e))
                        found += 1
                        break
                slot += 1
            if src[u] >= 0:
                break
    return found


@kernel(int64(types.int64[:, ::1], U64, int64, I64, i32, i32, i32))
def probe_strings(stores, hashes, data, offsets, src, pos, count):
    """Look up byte strings as `probe_ints` does integers."""
    found = 0
    for u in range(hashes.size):
        if src[u] >= 0:
            continue
        spread = _spread(hashes[u])
        tag = spread >> np.uint64(33)
        key, length = data + offsets[u], offsets[u + 1] - offsets[u]
        for s in range(stores.shape[0]):
            table, slots = stores[s, TABLE], stores[s, SLOTS]
            slot = _home(spread, slots)
            while slot < slots:
                word = load_u64(table + 8 * slot)
                if word >> np.uint64(32) > tag:
                    break
                if word >> np.uint64(32) == tag:
                    e = np.int64(word & np.uint64(0xFFFFFFFF))
                    start = np.int64(load_u32(stores[s, KEY_OFFSETS] + 4 * e))
                    end = np.int64(load_u32(stores[s, KEY_OFFSETS] + 4 * e + 4))
                    if compare_bytes(stores[s, KEYS] + start, end - start, key, length) == 0:
                        src[u] = s
                        pos[u] = np.int32(load_u32(stores[s, FIRST] + 4 * e))
                        count[u] = np.int32(load_u32(stores[s, MANY] + 4 * e))
                        found += 1
                        break
                slot += 1
            if src[u] >= 0:
                break
    return found


@kernel(int64(I32, I32, I32, I32, int64, int64, int64, i64, i32, i32, i32))
def expand(uid, src, pos, count, how, row, within, stop, out_row, out_src, out_pos):
    """Write results from stream row `row` on, without the first `within` of its tuples, until the outputs are full.

    Returns how many were written; `stop` receives the row, and the number of its tuples, to continue from.
    """
    room = out_row.size
    n = 0
    while row < uid.size:
        u = uid[row]
        matches = count[u] if u >= 0 else 0
        if how == SEMI or how == ANTI:
            if (matches > 0) == (how == SEMI):
                if n == room:
                    break
                out_row[n] = row
                n += 1
        elif matches == 0:
            if how == LEFT:
                if n == room:
                    break
                out_row[n] = row
                out_src[n] = -1
                out_pos[n] = 0
                n += 1
        else:
            take = min(matches - within, room - n)
            for k in range(take):
                out_row[n + k] = row
                out_src[n + k] = src[u]
                out_pos[n + k] = pos[u] + within + k
            n += take
            if within + take < matches:
                within += take
                break
            within = 0
        row += 1
    stop[0] = row
    stop[1] = within
    return n


@kernel(int64(I64, I32, I32, I32, I32, I64, i64, i32, i64, i32))
def expand_pages(pages, key, low, high, rows, starts, stop, out_row, out_at, out_tuple):
    """Write pairs of a stream row and a tuple in a page until the outputs are full; returns how many.

    Pair i has the tuples low[i] to high[i] - 1 of the page at pages[i] for the key k = key[i], whose stream rows are
    rows[starts[k] : starts[k + 1]]. Starts at stop = (pair, row within the pair, tuple within the pair) and leaves there where
    it stopped; stop[0] is pages.size at the end.
    """
    room = out_row.size
    n = 0
    i = stop[0]
    r = stop[1]
    t = stop[2]
    while i < pages.size:
        k = key[i]
        many = high[i] - low[i]
        first = starts[k]
        while many > 0 and first + r < starts[k + 1]:
            while t < many:
                if n == room:
                    stop[0] = i
                    stop[1] = r
                    stop[2] = t
                    return n
                out_row[n] = rows[first + r]
                out_at[n] = pages[i]
                out_tuple[n] = low[i] + t
                n += 1
                t += 1
            t = 0
            r += 1
        r = 0
        i += 1
    stop[0] = i
    stop[1] = 0
    stop[2] = 0
    return n


@kernel(void(I64, I32, I32, int64, int64))
def take_fixed(base, src, pos, width, out):
    """Gather values of fixed width to the address `out`; zeros where src is -1."""
    n = src.size
    for i in range(n):
        if i + _AHEAD < n and src[i + _AHEAD] >= 0:
            prefetch(base[src[i + _AHEAD]] + np.int64(pos[i + _AHEAD]) * width)
        if src[i] < 0:
            if width == 16:
                store_u64(out + 16 * i, np.uint64(0))
                store_u64(out + 16 * i + 8, np.uint64(0))
            else:
                for k in range(width):
                    store_u8(out + width * i + k, np.uint8(0))
            continue
        source = base[src[i]] + np.int64(pos[i]) * width
        if width == 8:
            store_u64(out + 8 * i, load_u64(source))
        elif width == 4:
            store_u32(out + 4 * i, load_u32(source))
        elif width == 2:
            store_u16(out + 2 * i, load_u16(source))
        elif width == 1:
            store_u8(out + i, load_u8(source))
        else:
            store_u64(out + 16 * i, load_u64(source))
            store_u64(out + 16 * i + 8, load_u64(source + 8))


@kernel(int64(I64, I32, I32, u8))
def take_valid(base, src, pos, out):
    """Set out[i] to 0 for a null and where src is -1, else to 1; returns the number of nulls."""
    nulls = 0
    for i in range(src.size):
        ok = np.uint8(0)
        if src[i] >= 0:
            ok = np.uint8(1)
            if base[src[i]] != 0:
                ok = load_u8(base[src[i]] + pos[i])
        out[i] = ok
        nulls += 1 - ok
    return nulls


@kernel(int64(I64, I32, I32, i64))
def take_sizes(base, src, pos, out_offsets):
    """Compute the offsets of strings to gather, from sources with u32 offsets; returns their total size."""
    used = 0
    out_offsets[0] = 0
    n = src.size
    for i in range(n):
        if i + _AHEAD < n and src[i + _AHEAD] >= 0:
            prefetch(base[src[i + _AHEAD]] + 4 * np.int64(pos[i + _AHEAD]))
        if src[i] >= 0:
            at = base[src[i]] + 4 * np.int64(pos[i])
            used += np.int64(load_u32(at + 4)) - np.int64(load_u32(at))
        out_offsets[i + 1] = used
    return used


@kernel(void(I64, I64, I32, I32, I64, int64))
def take_variable(base_offsets, base_data, src, pos, out_offsets, out):
    """Gather strings to out + out_offsets[i], which `take_sizes` computed."""
    n = src.size
    for i in range(n):
        if i + _AHEAD < n and src[i + _AHEAD] >= 0:
            offset = base_offsets[src[i + _AHEAD]] + 4 * np.int64(pos[i + _AHEAD])
            prefetch(base_data[src[i + _AHEAD]] + np.int64(load_u32(offset)))
        size = out_offsets[i + 1] - out_offsets[i]
        if size > 0:
            at = base_offsets[src[i]] + 4 * np.int64(pos[i])
            copy_bytes(out + out_offsets[i], base_data[src[i]] + load_u32(at), size)


@kernel(void(I64, I32, I32, int64, int64))
def take_wide(base, src, pos, width, out):
    """Gather values of any fixed width; no src is -1."""
    for i in range(src.size):
        copy_bytes(out + width * i, base[src[i]] + np.int64(pos[i]) * width, width)


@kernel(void(I64, I64, I64, I64, i32, i32))
def locate(firsts, base, sizes, numbers, src, pos):
    """Find numbers in ascending lists, each starting above the end of the one before: number i is at pos[i] of list src[i]."""
    for i in range(numbers.size):
        number = numbers[i]
        low = 0
        high = firsts.size
        while high - low > 1:
            middle = (low + high) >> 1
            if firsts[middle] <= number:
                low = middle
            else:
                high = middle
        src[i] = low
        at = base[low]
        # If no number before it is missing from the list, its position is its distance from the first.
        b = min(number - firsts[low], sizes[low] - 1)
        if load_i64(at + 8 * b) != number:
            a = np.int64(0)
            while a < b:
                middle = (a + b) >> 1
                if load_i64(at + 8 * middle) < number:
                    a = middle + 1
                else:
                    b = middle
        pos[i] = b
