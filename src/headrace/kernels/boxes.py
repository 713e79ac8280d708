"""Boxes against boxes, each with each. Boxes that touch meet: the bounds belong to a box."""

from __future__ import annotations

from headrace.kernels.jit import I64, boolean, i64, int64, kernel
from headrace.kernels.rtree import XMAX, XMIN, YMAX, YMIN, Columns

FOUND, NEXT, ROW, PAIRS, TESTS, READS = range(6)  # of `place`
PLACE = 6
_AT_ONCE = 64  # boxes looked at together: most of such groups have no match, and the test of a group is vectorised


@kernel(boolean(Columns, Columns, int64, I64, I64, I64, I64, int64, i64, i64, i64))
def nested_loop(mine, stored, stored_rows, pages, low, high, reads, page_rows, place, own, other):
    """Join rows low[k] to high[k] of one side with page pages[k] of the other, one k after the other. [PQP] Alg. 17, 18

    place[NEXT] and place[ROW] say where to go on; PAIRS, TESTS and READS count pairs of pages, pairs of boxes and pages that are
    read (reads[k]). Returns whether all is done; if not, the output has too little room for another row of the page.
    """
    left, bottom, right, top = mine[XMIN], mine[YMIN], mine[XMAX], mine[YMAX]
    while place[NEXT] < pages.size:
        k = place[NEXT]
        start, stop = low[k], high[k]
        begin = pages[k] * page_rows
        rows = min(page_rows, stored_rows - begin)
        if place[ROW] == 0:
            place[READS] += reads[k]
            place[PAIRS] += (stop - start + page_rows - 1) // page_rows
        while place[ROW] < rows:
            if place[FOUND] + stop - start > own.size:
                return False
            s = begin + place[ROW]
            x0, y0, x1, y1 = stored[XMIN, s], stored[YMIN, s], stored[XMAX, s], stored[YMAX, s]
            for group in range(start, stop, _AT_ONCE):
                end = min(group + _AT_ONCE, stop)
                some = 0
                for b in range(group, end):
                    some |= (left[b] <= x1) & (right[b] >= x0) & (bottom[b] <= y1) & (top[b] >= y0)
                if some:
                    for b in range(group, end):
                        if left[b] <= x1 and right[b] >= x0 and bottom[b] <= y1 and top[b] >= y0:
                            own[place[FOUND]], other[place[FOUND]] = b, s
                            place[FOUND] += 1
            place[TESTS] += stop - start
            place[ROW] += 1
        place[ROW] = 0
        place[NEXT] += 1
    return True
