"""Repeatable random numbers: number i of a stream is a function of (seed, stream, i) alone. (DESIGN D12)

The generator is SplitMix64, which is counter-based: its i-th output is a hash of ``seed + i * GOLDEN``, so any executor
can generate any part of the stream without the part before it.

Reference: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
"""

from __future__ import annotations

import numpy as np

from headrace.arrays import Float64s, Int64s, UInt64s

GOLDEN = 0x9E3779B97F4A7C15  # 2**64 divided by the golden ratio: SplitMix64's increment
_MASK = (1 << 64) - 1  # Python's integers do not wrap around by themselves


def mix(words: UInt64s) -> UInt64s:
    """Apply SplitMix64's finaliser, a bijection of 64-bit words whose output looks random.

    Example:
        >>> hex(mix(np.array([GOLDEN], np.uint64))[0])
        '0xe220a8397b1dcdaf'
    """
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def draw(seed: int, stream: int, counters: Int64s) -> UInt64s:
    """Return the random words with the numbers `counters` of one stream of a seed. Streams are independent.

    Example:
        >>> whole = draw(7, 0, np.arange(10))
        >>> bool((draw(7, 0, np.arange(4, 10)) == whole[4:]).all())
        True
    """
    return mix((counters.astype(np.uint64) + np.uint64(1)) * np.uint64(GOLDEN) + start_of(seed, stream))


def start_of(seed: int, stream: int) -> np.uint64:
    """Return the word that a stream of a seed begins at, for kernels that draw as `draw` does."""
    return np.uint64(mix(np.array([(seed * GOLDEN + stream) & _MASK], np.uint64))[0])


def uniform_floats(words: UInt64s) -> Float64s:
    """Map random words to numbers in [0, 1), by their upper 53 bits."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def uniform_ints(words: UInt64s, bound: int) -> Int64s:
    """Map random words to integers in [0, bound), for bounds up to 2³²."""
    return ((words >> np.uint64(32)) * np.uint64(bound) >> np.uint64(32)).astype(np.int64)
