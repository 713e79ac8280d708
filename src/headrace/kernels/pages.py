"""Pages: written column by column, sealed with a checksum, searched and gathered without a Python object per page.

    0        8      12      16           24     28     32
    +--------+------+-------+------------+------+------+-------------------+---------+---------+-- - -
    |checksum| magic| shard | page number| rows | used | directory         | column 0| column 1| ...
    +--------+------+-------+------------+------+------+-------------------+---------+---------+-- - -

The directory has two u32 per column: the offsets of its null bitmap (0 if the page has no nulls) and of its data, both from
the start of the page. Column 0 is the key. Fixed-width data are packed values; variable data are rows + 1
u32 offsets followed by the bytes. Parts start on multiples of 8. The checksum covers every other byte of the page,
padding too.
"""

from __future__ import annotations

import numpy as np
from numba import types

from headrace.kernels.jit import (
    I32,
    I64,
    U8,
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
    load_u32_at,
    load_u64,
    store_i64,
    store_u8,
    store_u16,
    store_u32,
    store_u64,
    u8,
    void,
)

MAGIC = 0x47505248  # "HRPG"
# Offsets in bytes of the fields of a page's header, as in the drawing. Kernels see addresses, so there is no struct dtype.
_CHECKSUM, _MAGIC, _SHARD, _NUMBER, _ROWS, _USED = 0, 8, 12, 16, 24, 28
HEADER = 32
ENTRY = 8  # bytes of a column's entry in the directory
_DATA = 4  # offset in an entry of the u32 that leads to the data; the bitmap's comes first
VARIABLE = 0  # the "width" of strings and binary
ALIGNMENT = 8  # of every part of a page
OFFSET = 4  # bytes of an offset of a variable column, which has one more than rows

SOUND, BAD_CHECKSUM, BAD_MAGIC, BAD_PLACE, BAD_LAYOUT = 0, 1, 2, 3, 4


@helper
def _rotate(x: np.uint64, by: int) -> np.uint64:
    return (x << np.uint64(by)) | (x >> np.uint64(64 - by))


@helper
def page_checksum(page: int, size: int) -> np.uint64:
    """Hash memory in eight independent lanes of 64-bit words, which are folded at the end.

    Every step is a bijection of the lane for a fixed input and of the input for a fixed lane, so a change confined
    to one word (any damaged byte, in particular) always changes the result; wider damage escapes with odds of
    2**-64.
    """
    prime = np.uint64(0x9E3779B185EBCA87)
    a = np.uint64(0x243F6A8885A308D3)
    b = np.uint64(0x13198A2E03707344)
    c = np.uint64(0xA4093822299F31D0)
    d = np.uint64(0x082EFA98EC4E6C89)
    e = np.uint64(0x452821E638D01377)
    f = np.uint64(0xBE5466CF34E90C6C)
    g = np.uint64(0xC0AC29B7C97C50DD)
    h = np.uint64(0x3F84D5B5B5470917)
    for i in range(0, size, 64):
        at = page + i
        # The first word is the checksum itself and counts as zero.
        first = load_u64(at) if i > 0 else np.uint64(0)
        a = _rotate(a ^ first, 29) * prime
        b = _rotate(b ^ load_u64(at + 8), 29) * prime
        c = _rotate(c ^ load_u64(at + 16), 29) * prime
        d = _rotate(d ^ load_u64(at + 24), 29) * prime
        e = _rotate(e ^ load_u64(at + 32), 29) * prime
        f = _rotate(f ^ load_u64(at + 40), 29) * prime
        g = _rotate(g ^ load_u64(at + 48), 29) * prime
        h = _rotate(h ^ load_u64(at + 56), 29) * prime
    out = a
    for lane in (b, c, d, e, f, g, h):
        out = _rotate(out, 23) * prime
        out ^= lane
    out = (out ^ (out >> np.uint64(32))) * prime
    return out ^ (out >> np.uint64(29))


@kernel(int64(int64, int64, int64, I64, I64, int64, int64, i64))
def paginate(rows, fixed, nullable, variable, breaks, overhead, room, starts):
    """Cut rows into pages: starts[p] is the first row of page p, starts[pages] = rows. Returns the page count.

    A page has `room` bytes for `overhead` and its rows. A row takes `fixed` bytes, `nullable` bits, and variable[row] bytes
    (none if `variable` is empty). A page starts at every row in `breaks`. No row is refused: one that exceeds `room` alone gets
    a page of its own, and the caller has checked that it fits the page.
    """
    pages = 0
    starts[0] = 0
    row = 0
    next_break = 0
    many = variable.size > 0
    while row < rows:
        while next_break < breaks.size and breaks[next_break] <= row:
            next_break += 1
        limit = breaks[next_break] if next_break < breaks.size else rows
        taken = 0
        used = np.int64(overhead)
        while row + taken < limit:
            grown = used + fixed
            if many:
                grown += variable[row + taken]
            if grown + nullable * ((taken + 8) // 8) > room and taken > 0:
                break
            used = grown
            taken += 1
        row += taken
        pages += 1
        starts[pages] = row
    return pages


@kernel(void(int64, int64, I64, int64, int64, int64, I64, U8, i64))
def write_column(pages, page_size, starts, column, width, values, offsets, valid, cursor):
    """Append one column to every page. `values` is an address; cursor[p] is the next free byte of page p."""
    directory = HEADER + ENTRY * column
    for p in range(starts.size - 1):
        first = starts[p]
        rows = starts[p + 1] - first
        page = pages + p * page_size
        at = cursor[p]
        if valid.size > 0:
            store_u32(page + directory, np.uint32(at))
            for r in range(0, rows, 8):
                bits = 0
                for k in range(min(8, rows - r)):
                    bits |= np.int64(valid[first + r + k] != 0) << k
                store_u8(page + at + (r >> 3), np.uint8(bits))
            at = (at + ((rows + 7) >> 3) + 7) & ~7
        store_u32(page + directory + _DATA, np.uint32(at))
        if width != VARIABLE:
            copy_bytes(page + at, values + first * width, rows * width)
            at += rows * width
        else:
            base = offsets[first]
            for r in range(rows + 1):
                store_u32(page + at + 4 * r, np.uint32(offsets[first + r] - base))
            at += 4 * (rows + 1)
            size = offsets[first + rows] - base
            copy_bytes(page + at, values + base, size)
            at += size
        cursor[p] = (at + 7) & ~7


@kernel(void(int64, int64, I64, int64, int64, I64))
def seal(pages, page_size, starts, shard, first_number, cursor):
    """Write the headers and, last, the checksums."""
    for p in range(starts.size - 1):
        page = pages + p * page_size
        store_u32(page + _MAGIC, np.uint32(MAGIC))
        store_u32(page + _SHARD, np.uint32(shard))
        store_i64(page + _NUMBER, first_number + p)
        store_u32(page + _ROWS, np.uint32(starts[p + 1] - starts[p]))
        store_u32(page + _USED, np.uint32(cursor[p]))
        store_u64(page + _CHECKSUM, page_checksum(page, page_size))


@helper
def _is_inside(page: int, page_size: int, widths: np.ndarray) -> bool:
    """Tell whether the parts of a page lie one after the other in what it has in use, and its offsets ascend.

    A checksum says that the bytes are those that were written, not that they make sense: kernels that read a page take its row
    count and offsets for addresses, and would read or crash outside of it. Checked here, once a page, they need not ask again.
    Parts that do not overlap also bound the rows: no page has more than `Layout.most_rows`, which buffers are sized by.
    """
    rows = np.int64(load_u32(page + _ROWS))
    used = np.int64(load_u32(page + _USED))
    if used > page_size:
        return False
    end = np.int64(HEADER + ENTRY * widths.size)  # of the part before
    for column in range(widths.size):
        entry = page + HEADER + ENTRY * column
        bitmap = np.int64(load_u32(entry))
        data = np.int64(load_u32(entry + _DATA))
        if bitmap != 0:
            if bitmap < end:
                return False
            end = bitmap + ((rows + 7) >> 3)
        if data < end:
            return False
        if widths[column] != VARIABLE:
            end = data + rows * widths[column]
            if end > used:
                return False
            continue
        end = data + 4 * (rows + 1)
        if end > used:
            return False
        # Offsets ascend from 0 if no offset and no difference of two has the highest bit: vectorised, as it meets every row.
        high = load_u32(page + data)
        wrong = high != 0
        for r in range(rows):
            after = load_u32_at(page + data, r + 1)
            high |= np.uint32(after | np.uint32(after - load_u32_at(page + data, r)))
        end += np.int64(load_u32_at(page + data, rows))
        if wrong or high >= np.uint32(1 << 31) or end > used:
            return False
    return True


@kernel(int64(I64, int64, I64, I64, I64, I64, u8, i32))
def verify(pages, page_size, shards, numbers, widths, bit_of, checked, verdict):
    """Check the page at each address; verdict[i] is SOUND or what is wrong. Returns the number of damaged pages.

    widths has the bytes of a value of each column, the key first; 0 for a column of variable width. Of a page whose bit of
    `checked`, number bit_of[i], is set, nothing is looked at; pages that are sound get theirs set, as far as there are bits.
    """
    damaged = 0
    for i in range(pages.size):
        page = pages[i]
        byte = bit_of[i] >> 3
        bit = np.uint8(1 << (bit_of[i] & 7))
        if byte < checked.size and checked[byte] & bit:
            verdict[i] = SOUND
            continue
        if load_u64(page + _CHECKSUM) != page_checksum(page, page_size):
            verdict[i] = BAD_CHECKSUM
        elif load_u32(page + _MAGIC) != MAGIC:
            verdict[i] = BAD_MAGIC
        elif load_u32(page + _SHARD) != shards[i] or load_i64(page + _NUMBER) != numbers[i]:
            verdict[i] = BAD_PLACE
        elif not _is_inside(page, page_size, widths):
            verdict[i] = BAD_LAYOUT
        else:
            verdict[i] = SOUND
            if byte < checked.size:
                checked[byte] |= bit
            continue
        damaged += 1
    return damaged


@kernel(void(I64, i32, i64))
def page_facts(pages, rows, used):
    """Read the number of rows and of bytes in use from the headers of pages."""
    for i in range(pages.size):
        rows[i] = load_u32(pages[i] + _ROWS)
        used[i] = load_u32(pages[i] + _USED)


@kernel(int64(I64, I64, i32, i32))
def find_ints(pages, keys, low, high):
    """Find keys[i] in the page at pages[i]: rows low[i] to high[i] - 1 hold it. Returns the total number of rows."""
    total = 0
    for i in range(pages.size):
        page = pages[i]
        rows = np.int64(load_u32(page + _ROWS))
        data = page + load_u32(page + HEADER + _DATA)
        key = keys[i]
        a = 0
        b = rows
        while a < b:
            middle = (a + b) >> 1
            if load_i64(data + 8 * middle) < key:
                a = middle + 1
            else:
                b = middle
        b = a
        while b < rows and load_i64(data + 8 * b) == key:
            b += 1
        low[i] = a
        high[i] = b
        total += b - a
    return total


@kernel(int64(I64, int64, I64, I32, i32, i32))
def find_strings(pages, key_data, key_offsets, which, low, high):
    """Find byte string which[i] of (key_data, key_offsets) in the page at pages[i], as `find_ints` does for integers."""
    total = 0
    for i in range(pages.size):
        page = pages[i]
        rows = np.int64(load_u32(page + _ROWS))
        offsets = page + load_u32(page + HEADER + _DATA)
        data = offsets + 4 * (rows + 1)
        key = key_data + key_offsets[which[i]]
        length = key_offsets[which[i] + 1] - key_offsets[which[i]]
        a = 0
        b = rows
        while a < b:
            middle = (a + b) >> 1
            start = np.int64(load_u32(offsets + 4 * middle))
            end = np.int64(load_u32(offsets + 4 * middle + 4))
            if compare_bytes(data + start, end - start, key, length) < 0:
                a = middle + 1
            else:
                b = middle
        b = a
        while b < rows:
            start = np.int64(load_u32(offsets + 4 * b))
            end = np.int64(load_u32(offsets + 4 * b + 4))
            if compare_bytes(data + start, end - start, key, length) != 0:
                break
            b += 1
        low[i] = a
        high[i] = b
        total += b - a
    return total


@kernel(void(I64, int64, I64, i32))
def last_not_above(pages, column, values, row):
    """Find the last row of the page at pages[i] whose integer in a sorted column is not above values[i]; -1 if there is none."""
    for i in range(pages.size):
        page = pages[i]
        data = page + load_u32(page + HEADER + ENTRY * column + _DATA)
        a = 0
        b = np.int64(load_u32(page + _ROWS))
        while a < b:
            middle = (a + b) >> 1
            if load_i64(data + 8 * middle) <= values[i]:
                a = middle + 1
            else:
                b = middle
        row[i] = a - 1


@kernel(void(I64, I32, I32, i64, i32))
def expand_rows(pages, low, high, at, row):
    """Write one pair (page address, row) for every row from low[i] to high[i] - 1 of the page at pages[i]."""
    n = 0
    for i in range(pages.size):
        for r in range(low[i], high[i]):
            at[n] = pages[i]
            row[n] = r
            n += 1


@kernel(void(I64, I32, int64, int64, int64))
def gather_fixed(at, row, column, width, out):
    """Copy values of a fixed-width column at (page address, row) to the address `out`, packed."""
    directory = HEADER + ENTRY * column + _DATA
    for i in range(at.size):
        source = at[i] + load_u32(at[i] + directory) + np.int64(row[i]) * width
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


@kernel(int64(I64, I32, int64, int64))
def gather_valid(at, row, column, out):
    """Set byte i at the address `out` to 0 where the value is null, else to 1; returns the number of nulls."""
    nulls = 0
    directory = HEADER + ENTRY * column
    for i in range(at.size):
        bitmap = load_u32(at[i] + directory)
        bit = np.int64(1)
        if bitmap != 0:
            r = np.int64(row[i])
            bit = (np.int64(load_u8(at[i] + bitmap + (r >> 3))) >> (r & 7)) & 1
        store_u8(out + i, np.uint8(bit))
        nulls += 1 - bit
    return nulls


@kernel(int64(I64, I32, int64, int64, int64, int64, int64))
def gather_variable(at, row, column, out, room, used, offsets):
    """Append values of a variable column at out + used, and the end of each to the u32 after the one at the address `offsets`.

    Returns the end of the last, or -1 beyond `room`.
    """
    directory = HEADER + ENTRY * column + _DATA
    for i in range(at.size):
        page = at[i]
        rows = np.int64(load_u32(page + _ROWS))
        table = page + load_u32(page + directory)
        start = np.int64(load_u32(table + 4 * np.int64(row[i])))
        size = np.int64(load_u32(table + 4 * np.int64(row[i]) + 4)) - start
        if used + size > room:
            return -1
        copy_bytes(out + used, table + 4 * (rows + 1) + start, size)
        used += size
        store_u32(offsets + 4 * (i + 1), np.uint32(used))
    return used


# What `gather_columns` knows of a column, by number: its position in a page, the bytes of a value, and the addresses of its
# values, of a byte a value that tells nulls (0: there are none) and of its offsets; of variable columns also the bytes that
# there is room for, those in use, and those in use while a call goes on.
POSITION, WIDTH, VALUES, VALID, OFFSETS, ROOM, DATA_USED, _REACHED = range(8)
COLUMN_FIELDS = 8
_BLOCK = 64  # rows of which all columns are copied before those of the next: their pages are still near


@kernel(int64(I64, I32, types.int64[:, ::1], int64))
def gather_columns(at, row, columns, start):
    """Copy the tuples at (page address, row) behind `start` others; returns 0, or -1 if a variable column has no room for them.

    Then none of them counts.
    """
    for c in range(columns.shape[0]):
        columns[c, _REACHED] = columns[c, DATA_USED]
    for a in range(0, at.size, _BLOCK):
        some, rows, done = at[a : a + _BLOCK], row[a : a + _BLOCK], start + a
        for c in range(columns.shape[0]):
            position, width = columns[c, POSITION], columns[c, WIDTH]
            if columns[c, VALID] != 0:
                gather_valid(some, rows, position, columns[c, VALID] + done)
            if width != VARIABLE:
                gather_fixed(some, rows, position, width, columns[c, VALUES] + done * width)
                continue
            offsets = columns[c, OFFSETS] + 4 * done
            reached = gather_variable(
                some, rows, position, columns[c, VALUES], columns[c, ROOM], columns[c, _REACHED], offsets
            )
            if reached < 0:
                return -1
            columns[c, _REACHED] = reached
    for c in range(columns.shape[0]):
        columns[c, DATA_USED] = columns[c, _REACHED]
    return 0
