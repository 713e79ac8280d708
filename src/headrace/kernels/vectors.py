"""Kernels for vectors: the tiles within eps of a vector, the neighbours kappa of a cell, and pairs within eps. [PQP] §6.1

A grid need not have all dimensions of the vectors; `axes` are those it has. A distance in fewer dimensions is not larger, so no
pair within eps is missed.
"""

from __future__ import annotations

import numpy as np

from headrace.kernels.cells import MATCH
from headrace.kernels.chains import bucket, slot_from
from headrace.kernels.grids import tile_at
from headrace.kernels.jit import F64, I32, I64, U8, float64, helper, i32, int64, kernel, u8, u64, void
from headrace.kernels.ranges import CHEBYSHEV, EUCLIDEAN, farthest, within

_ULP = 2.0**-52  # the relative distance of neighbouring doubles


@helper
def share(gap, metric):
    """What a gap in one dimension adds to the sum that ranges.farthest bounds: its square, itself, or 0 for Chebyshev."""
    if metric == CHEBYSHEV or not gap > 0.0:
        return 0.0
    return gap * gap if metric == EUCLIDEAN else gap


@kernel(int64(F64, U8, int64, I64, F64, float64, int64, i32, u64))
def reach_tiles(values, valid, width, axes, grid, eps, metric, rows, codes):
    """Write the code of every tile within eps of each valid vector, as many as fit. Returns how many there are in all.

    It is a depth-first search over the dimensions, which skips all tiles whose first coordinates are too far away already.
    """
    n = 0
    d = axes.size
    most = farthest(eps, metric)
    low, high, own, at = np.empty(d, np.int64), np.empty(d, np.int64), np.empty(d, np.int64), np.empty(d, np.int64)
    far = np.zeros(d + 1, np.float64)
    cell, inside = np.zeros(d + 1, np.int64), np.zeros(d + 1, np.int64)
    bits = np.int64(0)
    for j in range(d):
        bits += np.int64(grid[3 * d + j])
    for i in range(valid.size):
        if not valid[i]:
            continue
        for j in range(d):
            x = values[i * width + axes[j]]
            slack = 4.0 * _ULP * (abs(x) + eps)
            low[j] = tile_at(x - eps - slack, grid, j)
            own[j] = tile_at(x, grid, j)
            high[j] = tile_at(x + eps + slack, grid, j)
        j = 0
        at[0] = low[0]
        while j >= 0:
            if at[j] > high[j]:
                j -= 1
                if j >= 0:
                    at[j] += 1
                continue
            x = values[i * width + axes[j]]
            gap = 0.0
            if at[j] != own[j]:  # the distance to the tile's nearer edge, or a little less because of rounding
                edge = np.float64(at[j] if at[j] > own[j] else at[j] + 1) / grid[d + j]
                gap = abs(grid[j] + edge - x) - 8.0 * _ULP * (abs(grid[j]) + edge + abs(x))
            far[j + 1] = far[j] + share(gap, metric)
            if far[j + 1] > most:
                at[j] += 1
                continue
            shift = np.int64(grid[3 * d + j])
            cell[j + 1] = cell[j] * np.int64(grid[2 * d + j]) + (at[j] >> shift)
            inside[j + 1] = (inside[j] << shift) | (at[j] & ((np.int64(1) << shift) - 1))
            if j + 1 < d:
                j += 1
                at[j] = low[j]
                continue
            if n < rows.size:
                rows[n] = i
                codes[n] = np.uint64((cell[d] << bits) | inside[d])
            n += 1
            at[j] += 1
    return n


@kernel(void(I32, I64, F64, F64, float64, int64, u8))
def neighbour_cells(numbers, cells, widths, slack, eps, metric, found):
    """Compute kappa: found[q] becomes 1 for every cell q that is within eps of one of the cells `numbers`."""
    d = cells.size
    most = farthest(eps, metric)
    own, high, at = np.empty(d, np.int64), np.empty(d, np.int64), np.empty(d, np.int64)
    low, far, cell = np.empty(d, np.int64), np.zeros(d + 1, np.float64), np.zeros(d + 1, np.int64)
    for k in range(numbers.size):
        rest = np.int64(numbers[k])
        for step in range(d):
            j = d - 1 - step
            own[j] = rest % cells[j]
            rest //= cells[j]
            # At most floor((eps + slack) / width) cells lie between; all cells do where widths are too small to divide by.
            between = (eps + slack[j]) / widths[j] + 1.0
            away = np.int64(between) if between < cells[j] else cells[j]
            low[j] = max(np.int64(0), own[j] - away)
            high[j] = min(cells[j] - 1, own[j] + away)
        j = 0
        at[0] = low[0]
        while j >= 0:
            if at[j] > high[j]:
                j -= 1
                if j >= 0:
                    at[j] += 1
                continue
            gap = (abs(at[j] - own[j]) - 1) * widths[j] - slack[j]
            far[j + 1] = far[j] + share(gap, metric)
            if far[j + 1] > most:
                at[j] += 1
                continue
            cell[j + 1] = cell[j] * cells[j] + at[j]
            if j + 1 < d:
                j += 1
                at[j] = low[j]
                continue
            found[cell[d]] = 1
            at[j] += 1


@kernel(MATCH)
def match_vectors(heads, codes, after, held, wanted, rows, values, limits, stop, number, slots):
    """Find pairs (i, slot) of vectors in tile wanted[i] that are within eps. `limits` is eps, the metric, and the dimensions.

    It stops and goes on as cells.match_codes does.
    """
    n = 0
    eps = limits[0]
    metric = np.int64(limits[1])
    size = np.int64(limits[2])
    limit = farthest(eps, metric)
    i = stop[0]
    s = stop[1]
    fresh = s < 0
    while i < wanted.size:
        code = wanted[i]
        b = size * np.int64(rows[i])
        if fresh:
            s = np.int64(heads[bucket(code, heads.size)])
        while True:
            s = slot_from(codes, after, code, s)
            if s < 0:
                break
            if within(held, size * s, values, b, size, eps, metric, limit):
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
