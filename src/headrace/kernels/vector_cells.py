"""Kernels for cells of vectors in many dimensions: the nearest of some sites, the sites in reach, and sketches that are near.

A site is a vector a with a number b, and the score of a vector x at it is a·x + b. Scores come as single-precision products of
matrices, which are fast, and differ a little with the number of rows that are multiplied together. A vector's own cell must not:
so where the error of a score could decide, it is computed again here, in doubles and in the order of coordinates.

Cell `number` < sites is that of a site. Behind these come groups, group g with all cells of number % groups == g, and then the
cell of vectors that are too far from the origin to have scores. A code has the number in both halves.
"""

from __future__ import annotations

import numpy as np

from headrace.kernels.cells import MATCH
from headrace.kernels.chains import bucket, slot_from
from headrace.kernels.jit import F32, F64, I32, boolean, f32, f64, float64, helper, i32, int64, kernel, u8, u64, void
from headrace.kernels.ranges import in_range

SKETCH = 32  # single-precision numbers of a sketch: coordinates, and a last one for their error
FAR = 1e17  # from the origin: beyond it scores may exceed the range of single precision
_BLOCK = 256  # slots of a cell that rows are compared with together: their sketches fit the processor's cache
_FEW = 16  # a block is compared in more coordinates while more than 1/16 of it is near
_BEST = 16  # sites that each cell in reach is compared with
NOWHERE = -1  # the site of a vector that matches nothing
AWAY = -2  # the site of a vector that is FAR


@kernel(void(F64, F64, boolean, u8, f64, f32, f64))
def prepare_vectors(values, centre, unit, valid, exact, rounded, norms):
    """Move vectors so that the centre is the origin, or scale them to length 1; compute their lengths.

    valid[i] becomes 0 where a vector has no direction, and so no length of 1.
    """
    d = centre.size
    for i in range(valid.size):
        a = i * d
        scale = 1.0
        if unit:
            scale = in_range(values, a, d)
            total = 0.0
            for j in range(d):
                x = values[a + j] * scale
                total += x * x
            if not 0.0 < total < np.inf:
                valid[i] = 0
                total = 1.0
            total = np.sqrt(total)
        length = 0.0
        for j in range(d):
            x = values[a + j]
            if unit:
                x = x * scale / total
            x -= centre[j]
            if not valid[i]:
                x = 0.0
            exact[a + j] = x
            length += x * x
        norms[i] = np.sqrt(length)
        for j in range(d):
            rounded[a + j] = exact[a + j] if norms[i] <= 4.0 * FAR else 0.0


@helper
def exact_score(exact, a, sites, site, d, bias):
    """The score of a vector at a site, in doubles."""
    total = 0.0
    for j in range(d):
        total += exact[a + j] * np.float64(sites[site * d + j])
    return total + bias[site]


@kernel(void(F32, int64, F64, F32, F64, F64, float64, u8, i32, f64))
def nearest_sites(scores, stride, exact, sites, bias, norms, error, valid, site, best):
    """Find the site with the highest score of each vector, the first of several; best[i] is that score.

    `error` times a vector's length bounds the error of its scores, of which there are `stride` a vector, those of sites first.
    """
    m = bias.size
    d = sites.size // m
    for i in range(valid.size):
        site[i] = NOWHERE
        if not valid[i]:
            continue
        if norms[i] > FAR:
            site[i] = AWAY
            continue
        top = -np.inf
        for j in range(m):
            top = max(top, np.float64(scores[i * stride + j]) + bias[j])
        least = top - 2.0 * error * norms[i]
        best[i] = -np.inf
        for j in range(m):
            if np.float64(scores[i * stride + j]) + bias[j] >= least:
                score = exact_score(exact, i * d, sites, j, d, bias)
                if score > best[i]:
                    best[i] = score
                    site[i] = j


@helper
def code_of_cell(number):
    """The code of a cell: its number in both halves."""
    return (np.uint64(number) << np.uint64(32)) | np.uint64(number)


@kernel(int64(I32, int64, int64, i32, u64))
def own_cells(site, sites, groups, rows, codes):
    """Write two cells of each vector, that of its site and the site's group. Returns how many cells there are."""
    n = 0
    for i in range(site.size):
        if site[i] == NOWHERE:
            continue
        if site[i] == AWAY:
            rows[n] = i
            codes[n] = code_of_cell(sites + groups)
            n += 1
            continue
        rows[n] = i
        codes[n] = code_of_cell(site[i])
        rows[n + 1] = i
        codes[n + 1] = code_of_cell(sites + site[i] % groups)
        n += 2
    return n


@helper
def write_cells(found, count, sites, groups, most, i, n, rows, codes):
    """Write the cells of the sites found[:count] of row i, or their groups if they are more than `most`; returns the new n."""
    if count <= most:
        for k in range(count):
            if n < rows.size:
                rows[n] = i
                codes[n] = code_of_cell(found[k])
            n += 1
        return n
    touched = np.zeros(groups, np.uint8)
    for k in range(count):
        touched[found[k] % groups] = 1
    for g in range(groups):
        if touched[g]:
            if n < rows.size:
                rows[n] = i
                codes[n] = code_of_cell(sites + g)
            n += 1
    return n


@helper
def write_away(norm, radius, sites, groups, i, n, rows, codes):
    """Write the cell of far vectors for row i if a vector there may be within the radius; returns the new n."""
    if norm > FAR - 2.0 * radius:
        if n < rows.size:
            rows[n] = i
            codes[n] = code_of_cell(sites + groups)
        n += 1
    return n


@kernel(int64(F32, int64, F64, F64, float64, I32, F32, float64, int64, int64, i32, u64))
def cells_within(scores, stride, bias, norms, error, site, gaps, radius, groups, most, rows, codes):
    """Write the cells that may hold a vector within a radius of each vector, as many as fit. Returns how many there are in all.

    gaps[i, j] is the distance of two sites. In the cell of i no score is higher than at i. A vector within the radius has scores
    that differ by (a_i - a_j)·x, so by gaps[i, j] * radius at most: where it is not enough, the cell of i is out of reach.
    """
    n = 0
    m = bias.size
    found = np.empty(m, np.int64)
    best = np.empty(_BEST, np.int64)
    for i in range(site.size):
        if site[i] == NOWHERE:
            continue
        n = write_away(norms[i], radius, m, groups, i, n, rows, codes)
        if norms[i] > FAR + 2.0 * radius:
            continue
        slack = 2.0 * error * norms[i]
        count = 0
        near = np.int64(site[i])
        if near < 0:  # a far vector has no scores: all cells may be in reach
            for j in range(m):
                found[j] = j
            n = write_cells(found, m, m, groups, most, i, n, rows, codes)
            continue
        top = np.float64(scores[i * stride + near]) + bias[near]
        bests = 0
        for j in range(m):
            score = np.float64(scores[i * stride + j]) + bias[j]
            if score >= top - radius * np.float64(gaps[j * m + near]) - slack:
                found[count] = j
                count += 1
                k = bests
                while k > 0 and score > np.float64(scores[i * stride + best[k - 1]]) + bias[best[k - 1]]:
                    if k < _BEST:
                        best[k] = best[k - 1]
                    k -= 1
                if k < _BEST:
                    best[k] = j
                    bests = min(bests + 1, _BEST)
        left = 0
        for k in range(count):
            j = found[k]
            score = np.float64(scores[i * stride + j]) + bias[j] + slack
            reached = True
            for q in range(bests):
                other = best[q]
                if np.float64(scores[i * stride + other]) + bias[other] > score + radius * np.float64(
                    gaps[j * m + other]
                ):
                    reached = False
                    break
            if reached:
                found[left] = j
                left += 1
        n = write_cells(found, left, m, groups, most, i, n, rows, codes)
    return n


@kernel(int64(F32, int64, F64, F32, F64, F64, float64, I32, F64, F64, float64, int64, int64, i32, u64))
def cells_below_best(
    scores, stride, exact, sites, bias, norms, error, site, best, margins, radius, groups, most, rows, codes
):
    """Write the cells whose scores are at most margins[i] below the best, as many as fit. Returns how many there are in all."""
    n = 0
    m = bias.size
    d = sites.size // m
    found = np.empty(m, np.int64)
    for i in range(site.size):
        if site[i] == NOWHERE:
            continue
        n = write_away(norms[i], radius, m, groups, i, n, rows, codes)
        if norms[i] > FAR + 2.0 * radius:
            continue
        count = 0
        least = best[i] - margins[i]
        slack = error * norms[i]
        for j in range(m):
            score = np.float64(scores[i * stride + j]) + bias[j]
            if site[i] >= 0 and score < least + slack:
                if score < least - slack or exact_score(exact, i * d, sites, j, d, bias) < least:
                    continue
            found[count] = j
            count += 1
        n = write_cells(found, count, m, groups, most, i, n, rows, codes)
    return n


@helper
def farther(block, k, values, b, first, total, most):
    """Tell whether the squared distance of two sketches exceeds `most`; `total` is that of the first coordinates."""
    for j in range(first, SKETCH - 1):
        u = block[j, k] - values[b + j]
        total += u * u
        if total > most:
            return True
    return total > most


@helper
def gather_sketches(codes, after, code, held, s, found, block):
    """Collect the next slots with this code from slot s on, with their sketches: block[j, k] is coordinate j of slot found[k].

    So the distances of one sketch from all of them are computed side by side. Returns how many slots there are, and the slot to
    go on from.
    """
    n = 0
    while n < _BLOCK:
        s = slot_from(codes, after, code, s)
        if s < 0:
            break
        found[n] = s
        for j in range(SKETCH):
            block[j, n] = held[SKETCH * s + j]
        n += 1
        s = np.int64(after[s])
    return n, s


@helper
def add_distances(values, b, block, first, last, n, totals):
    """Add the squared distances of a sketch from n others in some coordinates."""
    for j in range(first, last):
        x = values[b + j]
        row = block[j]
        for k in range(n):
            u = row[k] - x
            totals[k] += u * u


@helper
def count_near(errors, own, n, totals):
    """Count the squared distances that do not exceed what is near."""
    near = np.int32(0)
    for k in range(n):
        most = own + errors[k]
        near += np.int32(0) if totals[k] > most * most else np.int32(1)
    return near


@helper
def distances(values, b, block, n, own, totals, close):
    """Compute the squared distances of a sketch from n others, in a few coordinates first, and in more while many are near.

    Returns in how many coordinates, and how many are near: close[:near].
    """
    for k in range(n):
        totals[k] = np.float32(0.0)
    first = 0
    while True:
        last = min(first + 8, SKETCH - 1)
        add_distances(values, b, block, first, last, n, totals)
        first = last
        near = count_near(block[SKETCH - 1], own, n, totals)
        if near * _FEW < n or first == SKETCH - 1:
            break
    if near:
        near = 0
        errors = block[SKETCH - 1]
        for k in range(n):
            most = own + errors[k]
            close[near] = k  # without a branch, which could not be predicted
            near += np.int32(0) if totals[k] > most * most else np.int32(1)
    return first, near


@kernel(MATCH)
def match_sketches(heads, codes, after, held, wanted, rows, values, limits, stop, number, slots):
    """Find pairs (i, slot) in cell wanted[i] whose sketches are near enough. `limits` is the largest distance of two sketches.

    Rows that want one cell should follow each other: they are compared with a block of its slots at a time. A sketch that is not
    finite is near everything. It stops and goes on as cells.match_codes does, but stop[1] is a slot, at which a block begins, and
    in its upper half the place in the block.
    """
    n = 0
    held32 = held.view(np.float32)
    values32 = values.view(np.float32)
    found = np.empty(_BLOCK, np.int64)
    block = np.empty((SKETCH, _BLOCK), np.float32)
    totals = np.empty(_BLOCK, np.float32)
    close = np.empty(_BLOCK, np.int32)
    i = stop[0]
    while i < wanted.size:
        code = wanted[i]
        end = i + 1
        while end < wanted.size and wanted[end] == code:
            end += 1
        place = np.int64(0)
        if stop[1] >= 0:
            s = stop[1] & 0xFFFFFFFF
            place = stop[1] >> 32
            stop[1] = -1
        else:
            s = np.int64(heads[bucket(code, heads.size)])
        while s >= 0:
            begin = s
            count, s = gather_sketches(codes, after, code, held32, s, found, block)
            row = i + place // _BLOCK
            k = place % _BLOCK
            while row < end and count:
                b = SKETCH * np.int64(rows[row])
                own = np.float32(limits[0]) + values32[b + SKETCH - 1]
                first, near = distances(values32, b, block, count, own, totals, close)
                while k < near:
                    at = close[k]
                    most = own + block[SKETCH - 1, at]
                    if not farther(block, at, values32, b, first, totals[at], most * most):
                        if n == slots.size:
                            stop[0] = i
                            stop[1] = (((row - i) * _BLOCK + k) << 32) | begin
                            return n
                        number[n] = row
                        slots[n] = found[at]
                        n += 1
                    k += 1
                k = 0
                row += 1
            place = 0
        i = end
    stop[0] = i
    stop[1] = -1
    return n
