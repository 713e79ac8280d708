"""64-bit hashes of keys, which shards, filter blocks, slots of hash tables and cells of sketches derive from."""

from __future__ import annotations

import numpy as np

from headrace.kernels.jit import I64, U64, helper, i32, i64, int64, kernel, load_u8, load_u64, u64, void


@helper
def mix(x: np.uint64) -> np.uint64:
    """Apply SplitMix64's finaliser: a bijection of 64-bit words in which every input bit affects every output bit."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@helper
def hash_string(address: int, length: int) -> np.uint64:
    """Hash the bytes at an address."""
    h = np.uint64(length) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x632BE59BD9B4E019)
    i = 0
    while i + 8 <= length:
        h = mix(h ^ load_u64(address + i))
        i += 8
    tail = np.uint64(0)
    shift = np.uint64(0)
    while i < length:
        tail |= np.uint64(load_u8(address + i)) << shift
        shift += np.uint64(8)
        i += 1
    return mix(h ^ tail ^ np.uint64(0xD6E8FEB86659FD93))


@kernel(void(I64, u64))
def hash_ints(keys, out):
    """Hash 64-bit integers."""
    for i in range(keys.size):
        out[i] = mix(np.uint64(keys[i]) + np.uint64(0x9E3779B97F4A7C15))


@kernel(void(int64, I64, u64))
def hash_strings(data, offsets, out):
    """Hash the byte strings data[offsets[i] : offsets[i + 1]]; `data` is an address."""
    for i in range(out.size):
        out[i] = hash_string(data + offsets[i], offsets[i + 1] - offsets[i])


@kernel(void(U64, int64, i32))
def shards_of(hashes, shards, out):
    """Return the shard of each hash: its high half scaled to 0..shards-1, which leaves the low bits to hash tables."""
    for i in range(hashes.size):
        out[i] = np.int32(((hashes[i] >> np.uint64(32)) * np.uint64(shards)) >> np.uint64(32))


@kernel(int64(I64, i64))
def stabilise(keys, order):
    """Make an unstable argsort stable by sorting the positions of equal keys. Returns the number of distinct keys."""
    n = order.size
    distinct = 0
    i = 0
    while i < n:
        j = i + 1
        while j < n and keys[order[j]] == keys[order[i]]:
            j += 1
        if j - i > 1:
            order[i:j].sort()
        distinct += 1
        i = j
    return distinct
