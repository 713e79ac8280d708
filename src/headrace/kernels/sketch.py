"""A count-min sketch with ageing, which estimates how often a key was seen recently. A counter is one byte."""

from __future__ import annotations

import numpy as np

from headrace.kernels.hashing import mix
from headrace.kernels.jit import I32, U64, helper, i32, kernel, u8, void

ROWS = 4  # counters of a key
CEILING = 255  # largest count of a one-byte counter


@helper
def _cell(h, row, mask):
    # The four counters of a key lie in one 64-byte cache line, so that a key costs one cache miss and not four.
    line = np.int64(h >> np.uint64(20)) & mask
    inside = np.int64(h >> np.uint64(4 * row)) & 15
    return line * 64 + row * 16 + inside


@kernel(void(u8, U64, I32))
def sketch_add(cells, hashes, counts):
    """Add counts by conservative update: only the smallest of a key's counters grow, up to the ceiling."""
    mask = cells.size // 64 - 1
    for i in range(hashes.size):
        h = mix(hashes[i])
        low = CEILING
        for row in range(ROWS):
            low = min(low, cells[_cell(h, row, mask)])
        grown = min(CEILING, low + counts[i])
        for row in range(ROWS):
            at = _cell(h, row, mask)
            if cells[at] < grown:
                cells[at] = grown


@kernel(void(u8, U64, i32))
def sketch_estimate(cells, hashes, out):
    """Estimate the counts of keys, given by their hashes."""
    mask = cells.size // 64 - 1
    for i in range(hashes.size):
        h = mix(hashes[i])
        low = CEILING
        for row in range(ROWS):
            low = min(low, cells[_cell(h, row, mask)])
        out[i] = low


@kernel(void(u8))
def sketch_age(cells):
    """Halve every counter, so that old occurrences count less."""
    for i in range(cells.size):
        cells[i] >>= 1
