"""128-bit hashes of rows: MurmurHash3 (x64, 128 bits) of byte strings, and of the hashes of a row's columns.

The function is published and has no seed that changes with a machine or a process, so that a hash can be kept for ever. It is no
protection from somebody who looks for two texts with the same hash.
"""

from __future__ import annotations

import numpy as np

from headrace.kernels.jit import I64, U8, U64, helper, int64, kernel, load_u8, load_u64, u64, uint64, void

_C1 = np.uint64(0x87C37B91114253D5)
_C2 = np.uint64(0x4CF5AD432745937F)
_FIVE = np.uint64(5)
_NULL = np.uint64(0xFFFFFFFFFFFFFFFF)  # in the place of a hash; the hash of nothing is zero


@helper
def _turn(x, r):
    return (x << np.uint64(r)) | (x >> np.uint64(64 - r))


@helper
def _finish(x):
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> np.uint64(33))


@helper
def _word(address, count):
    """Up to eight bytes as a number."""
    word = np.uint64(0)
    for i in range(count):
        word |= np.uint64(load_u8(address + i)) << np.uint64(8 * i)
    return word


@helper
def murmur(address, length, seed):
    """The hash of the bytes at an address."""
    h1 = h2 = np.uint64(seed)
    p = address
    end = address + (length & ~15)
    while p < end:
        h1 ^= _turn(load_u64(p) * _C1, 31) * _C2
        h1 = (_turn(h1, 27) + h2) * _FIVE + np.uint64(0x52DCE729)
        h2 ^= _turn(load_u64(p + 8) * _C2, 33) * _C1
        h2 = (_turn(h2, 31) + h1) * _FIVE + np.uint64(0x38495AB5)
        p += 16
    rest = length & 15
    if rest > 8:
        h2 ^= _turn(_word(p + 8, rest - 8) * _C2, 33) * _C1
    if rest > 0:
        h1 ^= _turn(_word(p, min(rest, 8)) * _C1, 31) * _C2
    h1 ^= np.uint64(length)
    h2 ^= np.uint64(length)
    h1 += h2
    h2 += h1
    h1 = _finish(h1)
    h2 = _finish(h2)
    h1 += h2
    h2 += h1
    return h1, h2


@kernel(void(int64, I64, U8, uint64, int64, int64, u64))
def hash_values(data, offsets, valid, seed, column, columns, out):
    """Hash the bytes at data + offsets[i] up to the next offset into words 2 * column of row i; a null has a hash of its own."""
    for i in range(valid.size):
        at = 2 * (i * columns + column)
        if valid[i]:
            out[at], out[at + 1] = murmur(data + offsets[i], offsets[i + 1] - offsets[i], seed)
        else:
            out[at] = _NULL
            out[at + 1] = _NULL


@kernel(void(U64, int64, uint64, u64))
def hash_rows(words, width, seed, out):
    """Hash rows of `width` words each."""
    address = np.int64(words.ctypes.data)
    for i in range(out.size // 2):
        out[2 * i], out[2 * i + 1] = murmur(address + 8 * width * i, 8 * width, seed)
