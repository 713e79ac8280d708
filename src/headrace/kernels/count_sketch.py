"""A count-min sketch of 4-byte counters with conservative update: how often a key came, never too few. [Cormode 2005]

The counters are ROWS rows of equal length, a power of two; a key has one counter in each row.
"""

from __future__ import annotations

import numpy as np

from headrace.kernels.hashing import mix
from headrace.kernels.jit import helper

ROWS = 4  # counters of a key
COUNTER_BYTES = 4
CEILING = np.int64(2**32 - 1)  # the largest count of a 4-byte counter


@helper
def _place(cells, code, row):
    """The counter of a key in a row. Two hashes give all rows (Kirsch and Mitzenmacher 2006)."""
    first = mix(code)
    step = mix(first)
    width = cells.size // ROWS
    return row * width + np.int64((first + np.uint64(row) * step) & np.uint64(width - 1))


@helper
def sketched(cells, code):
    """The estimated count of a key."""
    low = CEILING
    for row in range(ROWS):
        low = min(low, np.int64(cells[_place(cells, code, row)]))
    return low


@helper
def add_sketched(cells, code, count):
    """Add to the count of a key: only the smallest of its counters grow."""
    grown = min(CEILING, sketched(cells, code) + count)
    for row in range(ROWS):
        at = _place(cells, code, row)
        if np.int64(cells[at]) < grown:
            cells[at] = grown
