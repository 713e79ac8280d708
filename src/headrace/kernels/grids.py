"""Tiles of a regular grid over a bounded space. [PQP] §3.1.1

In each dimension a space has `cells` cells, and a cell has 2 ** `shift` tiles. A tile's code is the number of its cell, followed
by the bits of its place in the cell: no two tiles have the same code, and a shift gives the cell back. A grid is an array of four
numbers a dimension, one kind after the other: all origins, then tiles a unit of length, cells, and shifts.

Coordinates outside the space belong to the tiles at the edge. `tile_at` is monotonic, however values are rounded. All joins by a
grid rely on this, so nothing else may compute the tile of a coordinate. The cell of a coordinate does not depend on the shift,
since multiplying by 2 is exact.
"""

from __future__ import annotations

import numpy as np

from headrace.kernels.jit import F64, I64, U8, helper, i32, int64, kernel, u64


@helper
def tile_at(x, grid, j):
    """The tile of a coordinate in dimension j."""
    d = grid.size // 4
    u = (x - grid[j]) * grid[d + j]
    if not u > 0.0:  # or NaN, of an infinite coordinate in a space wider than a double can be
        return np.int64(0)
    tiles = np.int64(grid[2 * d + j]) << np.int64(grid[3 * d + j])
    return np.int64(u) if u < tiles else tiles - 1


@helper
def code_of(tiles, grid):
    """The code of the tile with these coordinates."""
    d = grid.size // 4
    cell = np.int64(0)
    inside = np.int64(0)
    bits = np.int64(0)
    for j in range(d):
        shift = np.int64(grid[3 * d + j])
        cell = cell * np.int64(grid[2 * d + j]) + (tiles[j] >> shift)
        inside = (inside << shift) | (tiles[j] & ((np.int64(1) << shift) - 1))
        bits += shift
    return np.uint64((cell << bits) | inside)


@helper
def tiles_in(code, grid, tiles):
    """Write the coordinates of the tile with this code."""
    d = grid.size // 4
    bits = np.int64(0)
    for j in range(d):
        bits += np.int64(grid[3 * d + j])
    cell = np.int64(code >> np.uint64(bits))
    inside = np.int64(code)
    for step in range(d):
        j = d - 1 - step
        shift = np.int64(grid[3 * d + j])
        cells = np.int64(grid[2 * d + j])
        tiles[j] = ((cell % cells) << shift) | (inside & ((np.int64(1) << shift) - 1))
        cell //= cells
        inside >>= shift


@kernel(int64(F64, U8, int64, I64, F64, i32, u64))
def home_tiles(values, valid, width, axes, grid, rows, codes):
    """Write the code of the tile that each valid vector lies in. Returns how many there are."""
    n = 0
    at = np.empty(axes.size, np.int64)
    for i in range(valid.size):
        if valid[i]:
            for j in range(axes.size):
                at[j] = tile_at(values[i * width + axes[j]], grid, j)
            rows[n] = i
            codes[n] = code_of(at, grid)
            n += 1
    return n
