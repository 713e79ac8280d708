"""Compares boxes with pages of boxes, each with each. Boxes that touch intersect: the bounds belong to a box."""

from __future__ import annotations

from headrace.kernels.jit import I64, boolean, i64, int64, kernel
from headrace.kernels.rtree import XMAX, XMIN, YMAX, YMIN, Columns

# The positions in `place`: pairs found, the next k, the next row of k, pairs of pages, pairs of boxes, pages read
FOUND, NEXT, ROW, PAIRS, TESTS, READS = range(6)
PLACE = 6  # the length of `place`


@kernel(boolean(Columns, Columns, int64, I64, I64, I64, I64, int64, i64, i64, i64))
def nested_loop(mine, stored, stored_rows, pages, low, high, reads, page_rows, place, own, other):
    """Join rows low[k] to high[k] of one side with page pages[k] of the other, one k after the other. [PQP] Alg. 17, 18

    place[NEXT] and place[ROW] say where to go on; PAIRS, TESTS and READS count pairs of pages, pairs of boxes, and pages that are
    read (reads[k]). All boxes of a page count as compared with all of the rows, as in a nested loop, though rows that do not
    intersect the box around the page are skipped. Returns True when all is done, and False if the output has no room for
    the pairs of another row with a page.
    """
    while place[NEXT] < pages.size:
        k = place[NEXT]
        begin = pages[k] * page_rows
        rows = min(page_rows, stored_rows - begin)
        left, right = stored[XMIN, begin : begin + rows], stored[XMAX, begin : begin + rows]
        bottom, top = stored[YMIN, begin : begin + rows], stored[YMAX, begin : begin + rows]
        if place[FOUND] + rows > own.size:
            return False
        x_least, x_most, y_least, y_most = left.min(), right.max(), bottom.min(), top.max()
        if place[ROW] == 0:
            place[READS] += reads[k]
            place[PAIRS] += (high[k] - low[k] + page_rows - 1) // page_rows
        for b in range(low[k] + place[ROW], high[k]):
            if place[FOUND] + rows > own.size:
                place[ROW] = b - low[k]
                return False
            x0, y0, x1, y1 = mine[XMIN, b], mine[YMIN, b], mine[XMAX, b], mine[YMAX, b]
            place[TESTS] += rows
            if x0 > x_most or x1 < x_least or y0 > y_most or y1 < y_least:
                continue
            some = False  # most rows have no match in a page, and this first loop is vectorised
            for i in range(left.size):
                some = some | ((left[i] <= x1) & (right[i] >= x0) & (bottom[i] <= y1) & (top[i] >= y0))
            if some:
                for i in range(left.size):
                    if (left[i] <= x1) & (right[i] >= x0) & (bottom[i] <= y1) & (top[i] >= y0):
                        own[place[FOUND]], other[place[FOUND]] = b, begin + i
                        place[FOUND] += 1
        place[ROW] = 0
        place[NEXT] += 1
    return True
