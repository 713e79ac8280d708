"""Kernels for boxes: the tiles of a grid that a box touches, and the pairs of boxes that intersect, each found once. [PQP] §5.1

A box of d dimensions is 2 d numbers, the low corner and then the high one.
"""

from __future__ import annotations

import numpy as np

from headrace.kernels.cells import MATCH
from headrace.kernels.chains import bucket, slot_from
from headrace.kernels.grids import code_of, tile_at, tiles_in
from headrace.kernels.jit import F64, U8, i32, int64, kernel, u64


@kernel(int64(F64, U8, F64, i32, u64))
def cover_tiles(values, valid, grid, rows, codes):
    """Write the code of every tile that each valid box touches, as many as fit. Returns how many there are in all."""
    n = 0
    d = grid.size // 4
    low = np.empty(d, np.int64)
    high = np.empty(d, np.int64)
    at = np.empty(d, np.int64)
    for i in range(valid.size):
        if not valid[i]:
            continue
        for j in range(d):
            low[j] = tile_at(values[2 * d * i + j], grid, j)
            high[j] = tile_at(values[2 * d * i + d + j], grid, j)
            at[j] = low[j]
        j = 0
        while j >= 0:
            if n < rows.size:
                rows[n] = i
                codes[n] = code_of(at, grid)
            n += 1
            j = d - 1
            while j >= 0 and at[j] == high[j]:
                at[j] = low[j]
                j -= 1
            if j >= 0:
                at[j] += 1
    return n


@kernel(MATCH)
def match_boxes(heads, codes, after, held, wanted, rows, values, limits, stop, number, slots):
    """Find pairs (i, slot) of boxes that intersect, in the tile of the low corner of their intersection. `limits` is the grid.

    Both boxes are in that tile, since both contain that corner and `tile_at` is monotonic. In each dimension the corner is the
    larger of two low edges, so its tile is the larger of two tiles: it is this one if either box begins in this one. It stops and
    goes on as cells.match_codes does.
    """
    n = 0
    d = limits.size // 4
    tiles = np.empty(d, np.int64)
    begins = np.empty(d, np.bool_)
    i = stop[0]
    s = stop[1]
    fresh = s < 0
    while i < wanted.size:
        code = wanted[i]
        b = 2 * d * np.int64(rows[i])
        if fresh:
            s = np.int64(heads[bucket(code, heads.size)])
        tiles_in(code, limits, tiles)
        for j in range(d):
            begins[j] = tile_at(values[b + j], limits, j) == tiles[j]
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
                if not begins[j] and tile_at(held[a + j], limits, j) != tiles[j]:
                    meet = False
                    break
            if meet:
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
