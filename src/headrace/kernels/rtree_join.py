"""Searches in R-trees, and the synchronised traversal of two. They stop when the output is full, and can be continued.

A search keeps its position in arrays that the caller passes again: `place`, which is zeros at first, and a stack. It returns
whether it is finished. place[FOUND] pairs are in the output then; the caller takes them and sets that number to 0.
"""

from __future__ import annotations

from headrace.kernels.jit import boolean, helper, i64, int64, kernel
from headrace.kernels.lru import READS, WRITES, touch
from headrace.kernels.rtree import (
    COUNT,
    LEVEL,
    ROOT,
    TESTS,
    XMAX,
    XMIN,
    YMAX,
    YMIN,
    Boxes,
    Columns,
    Table,
    bounds,
    insert_one,
    page_of,
)

# The positions in `place`: pairs found, next row, depth of the stack, pairs of nodes compared, pages read and written to insert
FOUND, NEXT, DEPTH, PAIRS, BUILD_READS, BUILD_WRITES = range(6)
PLACE = 6  # the length of `place`
NODE, ENTRY, LOW, HIGH = range(
    4
)  # the positions in a level of the stack of probe_list; boxes queue[LOW:HIGH] meet the node


@helper
def _meets(boxes, n, e, x0, y0, x1, y1):
    """Whether an entry's box intersects a box."""
    return (boxes[n, XMIN, e] <= x1) & (boxes[n, XMAX, e] >= x0) & (boxes[n, YMIN, e] <= y1) & (boxes[n, YMAX, e] >= y0)


@helper
def _push(place, stack, n, m):
    """Put a pair of nodes on the stack."""
    stack[place[DEPTH], 0], stack[place[DEPTH], 1] = n, m
    place[DEPTH] += 1


@helper
def _probe_one(tree, boxes, child, node, x0, y0, x1, y1, what, lru, where, place, stack, own, other):
    """Find the entries that a box intersects. Returns False if the output is full; the stack has the nodes that are left."""
    while place[DEPTH] > 0:
        n = stack[place[DEPTH] - 1]
        if place[FOUND] + node[n, COUNT] > own.size:
            return False
        place[DEPTH] -= 1
        touch(lru, where, page_of(tree, n), False, False)
        tree[TESTS] += node[n, COUNT]
        leaf = node[n, LEVEL] == 0
        for e in range(node[n, COUNT]):
            if _meets(boxes, n, e, x0, y0, x1, y1):
                if leaf:
                    own[place[FOUND]], other[place[FOUND]] = what, child[n, e]
                    place[FOUND] += 1
                else:
                    stack[place[DEPTH]] = child[n, e]
                    place[DEPTH] += 1
    return True


@kernel(boolean(i64, Boxes, Table, Table, i64, Boxes, Table, Table, Columns, int64, i64, i64, i64, i64, i64, i64))
def insert_and_probe(
    tree, boxes, child, node, tree2, boxes2, child2, node2, columns, first, lru, where, place, stack, own, other
):
    """Insert each box into one tree and search the other with it, box by box. [PQP] Alg. 15"""
    while place[NEXT] < columns.shape[1]:
        row = place[NEXT]
        x0, y0, x1, y1 = columns[0, row], columns[1, row], columns[2, row], columns[3, row]
        if place[DEPTH] == 0:
            reads, writes = lru[READS], lru[WRITES]
            insert_one(tree, boxes, child, node, x0, y0, x1, y1, first + row, lru, where)
            place[BUILD_READS] += lru[READS] - reads
            place[BUILD_WRITES] += lru[WRITES] - writes
            stack[0] = tree2[ROOT]
            place[DEPTH] = 1
        if not _probe_one(
            tree2, boxes2, child2, node2, x0, y0, x1, y1, first + row, lru, where, place, stack, own, other
        ):
            return False
        place[NEXT] += 1
    return True


@kernel(boolean(i64, Boxes, Table, Table, Columns, int64, i64, i64, i64, Table, i64, i64, i64))
def probe_list(tree, boxes, child, node, columns, first, lru, where, place, stack, queue, own, other):
    """Find the entries that each of many boxes intersects, in one traversal: each node is compared with the boxes that meet it.

    `queue` has room for all boxes at each level of the tree. [PQP] §A.1.3
    """
    if place[DEPTH] == 0:
        for q in range(columns.shape[1]):
            queue[q] = q
        place[DEPTH] = 1
        stack[0, NODE], stack[0, ENTRY], stack[0, LOW], stack[0, HIGH] = tree[ROOT], 0, 0, columns.shape[1]
        touch(lru, where, page_of(tree, tree[ROOT]), False, False)
    while place[DEPTH] > 0:
        d = place[DEPTH] - 1
        n, e, low, high = stack[d, NODE], stack[d, ENTRY], stack[d, LOW], stack[d, HIGH]
        if e == node[n, COUNT]:
            place[DEPTH] -= 1
            continue
        leaf = node[n, LEVEL] == 0
        if leaf and place[FOUND] + high - low > own.size:
            return False
        stack[d, ENTRY] += 1
        tree[TESTS] += high - low
        end = high
        for i in range(low, high):
            q = queue[i]
            if _meets(boxes, n, e, columns[0, q], columns[1, q], columns[2, q], columns[3, q]):
                if leaf:
                    own[place[FOUND]], other[place[FOUND]] = first + q, child[n, e]
                    place[FOUND] += 1
                else:
                    queue[end] = q
                    end += 1
        if end > high:
            down = child[n, e]
            touch(lru, where, page_of(tree, down), False, False)
            stack[d + 1, NODE], stack[d + 1, ENTRY], stack[d + 1, LOW], stack[d + 1, HIGH] = down, 0, high, end
            place[DEPTH] += 1
    return True


@kernel(boolean(i64, Boxes, Table, Table, i64, Boxes, Table, Table, i64, i64, i64, Table, int64, i64, i64))
def traverse(tree, boxes, child, node, tree2, boxes2, child2, node2, lru, where, place, stack, enough, own, other):
    """Find all pairs of entries of two trees that intersect, by a depth-first traversal of pairs of nodes that do. [PQP] Alg. 14

    Of two nodes on different levels only the higher one is opened. The caller puts the two roots on the stack; the traversal
    stops when `enough` pairs were found.
    """
    while place[DEPTH] > 0:
        n, m = stack[place[DEPTH] - 1, 0], stack[place[DEPTH] - 1, 1]
        leaves = node[n, LEVEL] == 0 and node2[m, LEVEL] == 0
        if leaves and (place[FOUND] >= enough or place[FOUND] + node[n, COUNT] * node2[m, COUNT] > own.size):
            return False
        place[DEPTH] -= 1
        place[PAIRS] += 1
        touch(lru, where, page_of(tree, n), False, False)
        touch(lru, where, page_of(tree2, m), False, False)
        if node[n, LEVEL] > node2[m, LEVEL]:
            x0, y0, x1, y1 = bounds(boxes2, node2, m)
            tree[TESTS] += node[n, COUNT]
            for e in range(node[n, COUNT]):
                if _meets(boxes, n, e, x0, y0, x1, y1):
                    _push(place, stack, child[n, e], m)
        elif node[n, LEVEL] < node2[m, LEVEL]:
            x0, y0, x1, y1 = bounds(boxes, node, n)
            tree2[TESTS] += node2[m, COUNT]
            for f in range(node2[m, COUNT]):
                if _meets(boxes2, m, f, x0, y0, x1, y1):
                    _push(place, stack, n, child2[m, f])
        else:
            a0, b0, a1, b1 = bounds(boxes2, node2, m)
            tree[TESTS] += node[n, COUNT]
            for e in range(node[n, COUNT]):
                # An entry that does not intersect the other node intersects no entry of it.
                if not _meets(boxes, n, e, a0, b0, a1, b1):
                    continue
                x0, y0, x1, y1 = boxes[n, XMIN, e], boxes[n, YMIN, e], boxes[n, XMAX, e], boxes[n, YMAX, e]
                tree[TESTS] += node2[m, COUNT]
                for f in range(node2[m, COUNT]):
                    if _meets(boxes2, m, f, x0, y0, x1, y1):
                        if leaves:
                            own[place[FOUND]], other[place[FOUND]] = child[n, e], child2[m, f]
                            place[FOUND] += 1
                        else:
                            _push(place, stack, child[n, e], child2[m, f])
    return True
