"""Cells of a grid without bounds: the cell of x is floor(x / width) in each dimension, and its code is a hash of these numbers.

A code is the hash of a block of 8 cells in each dimension, followed by the cell's place in the block. Cells of one block have
different codes, but two blocks may have the same hash by chance; headrace.progressive.grids.unbounded says why that does no harm.
"""

from __future__ import annotations

import numpy as np

from headrace.kernels.cells import MATCH
from headrace.kernels.chains import bucket, slot_from
from headrace.kernels.hashing import mix
from headrace.kernels.jit import F64, U8, helper, i32, int64, kernel, u64

_FAR = 2.0**52  # cells from the origin: beyond it a double cannot tell neighbouring cells apart


@helper
def cell_at(x, width):
    """The cell of a coordinate. It is monotonic: a larger coordinate is never in a lower cell."""
    return np.int64(np.floor(min(max(x / width, -_FAR), _FAR)))


@helper
def cell_code(at):
    """The code of the cell with these coordinates."""
    block = np.uint64(0x9E3779B97F4A7C15)
    place = np.uint64(0)
    for j in range(at.size):
        block = mix(block ^ (np.uint64(at[j] >> 3) + np.uint64(0x632BE59BD9B4E019)))
        place = (place << np.uint64(3)) | np.uint64(at[j] & 7)
    return (block << np.uint64(3 * at.size)) | place


@kernel(int64(F64, F64, U8, int64, F64, int64, i32, u64))
def cover_cells(low, high, valid, size, widths, most, rows, codes):
    """Write the codes of the cells between the two corners of each valid row.

    Corners have `size` coordinates, of which the first widths.size count. As many codes as fit are written. Returns how many
    there are in all, or -1 - i if row i has more than `most` cells.
    """
    n = 0
    g = widths.size
    first, last, at = np.empty(g, np.int64), np.empty(g, np.int64), np.empty(g, np.int64)
    for i in range(valid.size):
        if not valid[i]:
            continue
        many = 1.0
        for j in range(g):
            first[j] = cell_at(low[i * size + j], widths[j])
            last[j] = cell_at(high[i * size + j], widths[j])
            at[j] = first[j]
            many *= np.float64(last[j] - first[j] + 1)
        if many > most:
            return -1 - i
        j = 0
        while j >= 0:
            if n < rows.size:
                rows[n] = i
                codes[n] = cell_code(at)
            n += 1
            j = g - 1
            while j >= 0 and at[j] == last[j]:
                at[j] = first[j]
                j -= 1
            if j >= 0:
                at[j] += 1
    return n


@kernel(MATCH)
def match_unbounded_boxes(heads, codes, after, held, wanted, rows, values, limits, stop, number, slots):
    """Find pairs (i, slot) of boxes that intersect, in the cell of the low corner of their intersection.

    `limits` is the number of dimensions, then the widths of cells in the first of them. It stops and goes on as cells.match_codes
    does.
    """
    n = 0
    d = np.int64(limits[0])
    g = limits.size - 1
    at = np.empty(g, np.int64)
    i = stop[0]
    s = stop[1]
    fresh = s < 0
    while i < wanted.size:
        code = wanted[i]
        b = 2 * d * np.int64(rows[i])
        if fresh:
            s = np.int64(heads[bucket(code, heads.size)])
        while True:
            s = slot_from(codes, after, code, s)
            if s < 0:
                break
            a = 2 * d * s
            meet = True
            for j in range(d):
                if held[a + j] > values[b + d + j] or values[b + j] > held[a + d + j]:
                    meet = False
                    break
            if meet:
                for j in range(g):
                    at[j] = cell_at(max(held[a + j], values[b + j]), limits[1 + j])
                if cell_code(at) == code:
                    if n == slots.size:
                        stop[0] = i
                        stop[1] = s
                        return n
                    number[n] = i
                    slots[n] = s
                    n += 1
            s = np.int64(after[s])
        fresh = True
        i += 1
    stop[0] = i
    stop[1] = -1
    return n
