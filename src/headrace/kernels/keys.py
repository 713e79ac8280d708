"""The encoding of composite keys as byte strings whose memcmp order is the order of the tuples.

A component of fixed width is eight big-endian bytes with the sign bit flipped (sixteen for wide decimals). In a string, 0x00
is written as 0x00 0xFF, and the string ends with 0x00 0x01, so that a prefix sorts first.
"""

from __future__ import annotations

import numpy as np

from headrace.kernels.jit import I64, U64, helper, i64, int64, kernel, load_u8, load_u64, store_u8, store_u64, u64, void

_SIGN = np.uint64(1 << 63)


@helper
def swap(x: np.uint64) -> np.uint64:
    """Reverse the bytes of a word."""
    x = ((x & np.uint64(0x00FF00FF00FF00FF)) << np.uint64(8)) | ((x >> np.uint64(8)) & np.uint64(0x00FF00FF00FF00FF))
    x = ((x & np.uint64(0x0000FFFF0000FFFF)) << np.uint64(16)) | ((x >> np.uint64(16)) & np.uint64(0x0000FFFF0000FFFF))
    return (x << np.uint64(32)) | (x >> np.uint64(32))


@kernel(void(int64, I64, i64))
def string_sizes(data, offsets, sizes):
    """Add the encoded size of each string to `sizes`."""
    for i in range(sizes.size):
        extra = 2
        for at in range(offsets[i], offsets[i + 1]):
            if load_u8(data + at) == 0:
                extra += 1
        sizes[i] += offsets[i + 1] - offsets[i] + extra


@kernel(void(I64, int64, i64))
def encode_ints(values, out, cursor):
    """Append integer i to key i, whose next free byte is out + cursor[i]."""
    for i in range(values.size):
        store_u64(out + cursor[i], swap(np.uint64(values[i]) ^ _SIGN))
        cursor[i] += 8


@kernel(void(U64, int64, i64))
def encode_wide(words, out, cursor):
    """Append 128-bit integers, given as pairs of little-endian words, to keys."""
    for i in range(cursor.size):
        store_u64(out + cursor[i], swap(words[2 * i + 1] ^ _SIGN))
        store_u64(out + cursor[i] + 8, swap(words[2 * i]))
        cursor[i] += 16


@kernel(void(int64, I64, int64, i64))
def encode_strings(data, offsets, out, cursor):
    """Append escaped and terminated byte strings to keys."""
    for i in range(cursor.size):
        to = out + cursor[i]
        for at in range(offsets[i], offsets[i + 1]):
            byte = load_u8(data + at)
            store_u8(to, byte)
            to += 1
            if byte == 0:
                store_u8(to, np.uint8(255))
                to += 1
        store_u8(to, np.uint8(0))
        store_u8(to + 1, np.uint8(1))
        cursor[i] = to + 2 - out


@kernel(int64(int64, i64, I64, i64))
def decode_ints(data, cursor, ends, out):
    """Decode integer i at data + cursor[i], and advance the cursor. Returns the values decoded: fewer if a key is too short."""
    for i in range(cursor.size):
        if cursor[i] + 8 > ends[i]:
            return i
        out[i] = np.int64(swap(load_u64(data + cursor[i])) ^ _SIGN)
        cursor[i] += 8
    return cursor.size


@kernel(int64(int64, i64, I64, u64))
def decode_wide(data, cursor, ends, out):
    """Decode 128-bit integers to pairs of little-endian words, as `decode_ints` does integers."""
    for i in range(cursor.size):
        if cursor[i] + 16 > ends[i]:
            return i
        out[2 * i + 1] = swap(load_u64(data + cursor[i])) ^ _SIGN
        out[2 * i] = swap(load_u64(data + cursor[i] + 8))
        cursor[i] += 16
    return cursor.size


@kernel(int64(int64, i64, I64, int64, i64))
def decode_strings(data, cursor, ends, out, offsets):
    """Decode byte strings to the address `out`, which has room for all encoded bytes; `offsets` has where each ends there.

    Returns the values decoded: fewer if the string in key i is not terminated there.
    """
    used = 0
    for i in range(cursor.size):
        at = data + cursor[i]
        end = data + ends[i]
        while True:
            if at >= end:
                return i
            byte = load_u8(at)
            at += 1
            if byte == 0:
                after = load_u8(at) if at < end else 0
                at += 1
                if after == 1:
                    break
                if after != 255:
                    return i
            store_u8(out + used, byte)
            used += 1
        cursor[i] = at - data
        offsets[i + 1] = used
    return cursor.size


@kernel(void(int64, I64, I64, int64, i64))
def take_strings(data, offsets, which, out, out_offsets):
    """Copy string which[i] to the address out + out_offsets[i]; the caller has computed out_offsets."""
    for i in range(which.size):
        start = data + offsets[which[i]]
        to = out + out_offsets[i]
        for k in range(offsets[which[i] + 1] - offsets[which[i]]):
            store_u8(to + k, load_u8(start + k))
