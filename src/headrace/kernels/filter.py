"""A split-block Bloom filter: one cache line tells that a key is certainly absent. (DESIGN D10)

A block has eight 32-bit words, and a key sets one bit in each word of its block. A block is 256 bits, so a test touches one
cache line.
"""

from __future__ import annotations

import numpy as np

from headrace.kernels.hashing import mix
from headrace.kernels.jit import I64, U64, helper, int64, kernel, u8, u32, void

# odd constants that choose the bit in each word, as in Apache Parquet's Bloom filter
_SALTS = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
WORDS = 8  # of a block
BLOCK_BYTES = 32


@helper
def _bit(low: np.uint64, word: int) -> np.uint32:
    salt = np.uint64(_SALTS[word])
    return np.uint32(1) << np.uint32(((low * salt) & np.uint64(0xFFFFFFFF)) >> np.uint64(27))


@kernel(void(u32, U64))
def filter_add(words, hashes):
    """Add keys, given by their hashes, to a filter."""
    blocks = np.uint64(words.size // WORDS)
    for i in range(hashes.size):
        h = mix(hashes[i] ^ np.uint64(0xA24BAED4963EE407))
        base = np.int64(((h >> np.uint64(32)) * blocks) >> np.uint64(32)) * WORDS
        low = h & np.uint64(0xFFFFFFFF)
        for w in range(WORDS):
            words[base + w] |= _bit(low, w)


@kernel(int64(u32, U64, I64, u8))
def filter_test(words, hashes, rows, maybe):
    """Set maybe[j] to 0 where hashes[rows[j]] is certainly absent, else to 1; returns how many may be present."""
    blocks = np.uint64(words.size // WORDS)
    kept = 0
    for j in range(rows.size):
        h = mix(hashes[rows[j]] ^ np.uint64(0xA24BAED4963EE407))
        base = np.int64(((h >> np.uint64(32)) * blocks) >> np.uint64(32)) * WORDS
        low = h & np.uint64(0xFFFFFFFF)
        missing = np.uint32(0)
        for w in range(WORDS):
            missing |= _bit(low, w) & ~words[base + w]
        maybe[j] = 1 if missing == 0 else 0
        kept += 1 if missing == 0 else 0
    return kept
