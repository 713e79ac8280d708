"""Guttman's R-tree in arrays: insertion with the quadratic split. A node is a page, and every use of it is counted by the buffer.

A tree is four arrays. boxes[node, c, entry] is coordinate c of an entry's box (xmin, ymin, xmax, ymax), and child[node, entry] is
the child node or, in a leaf, the row; both have room for one entry more than a node may hold, the one that makes it split.
node[n] is (entries, level), where level 0 is the leaves; `tree` is the header below. The caller allocates room for new nodes.

Reference: Guttman, "R-trees: a dynamic index structure for spatial searching", SIGMOD 1984.
"""

from __future__ import annotations

import numpy as np
from numba import types

from headrace.kernels.jit import helper, i64, int64, kernel, void
from headrace.kernels.lru import touch

# The positions in `tree`; node n is page n * STRIDE + OFFSET of the buffer
ROOT, NODES, MOST, LEAST, STRIDE, OFFSET, TESTS = range(7)
HEADER = 8  # the length of `tree`
COUNT, LEVEL = range(2)  # the positions in node[n]
XMIN, YMIN, XMAX, YMAX = range(4)
TALLEST = 40  # levels at most: a node has at least two entries, so that is 2 ** 40 rows

Boxes = types.float64[:, :, ::1]
Table = types.int64[:, ::1]
Columns = types.Array(types.float64, 2, "C", readonly=True)  # (4, rows)


@helper
def page_of(tree, n):
    """The page of a node in the buffer."""
    return n * tree[STRIDE] + tree[OFFSET]


@helper
def _new_node(tree, node, level, lru, where):
    """Add an empty node; returns its number."""
    n = tree[NODES]
    tree[NODES] += 1
    node[n, COUNT] = 0
    node[n, LEVEL] = level
    touch(lru, where, page_of(tree, n), True, True)
    return n


@helper
def _enlargement(boxes, n, e, x0, y0, x1, y1):
    """The area of an entry's box, and by how much it grows to include another box."""
    a0, b0, a1, b1 = boxes[n, XMIN, e], boxes[n, YMIN, e], boxes[n, XMAX, e], boxes[n, YMAX, e]
    area = (a1 - a0) * (b1 - b0)
    return area, (max(a1, x1) - min(a0, x0)) * (max(b1, y1) - min(b0, y0)) - area


@helper
def _put(boxes, child, node, n, x0, y0, x1, y1, what):
    """Append an entry to a node."""
    e = node[n, COUNT]
    boxes[n, XMIN, e], boxes[n, YMIN, e], boxes[n, XMAX, e], boxes[n, YMAX, e] = x0, y0, x1, y1
    child[n, e] = what
    node[n, COUNT] = e + 1


@helper
def bounds(boxes, node, n):
    """The box around a node's entries."""
    x0, y0, x1, y1 = boxes[n, XMIN, 0], boxes[n, YMIN, 0], boxes[n, XMAX, 0], boxes[n, YMAX, 0]
    for e in range(1, node[n, COUNT]):
        x0, y0 = min(x0, boxes[n, XMIN, e]), min(y0, boxes[n, YMIN, e])
        x1, y1 = max(x1, boxes[n, XMAX, e]), max(y1, boxes[n, YMAX, e])
    return x0, y0, x1, y1


@helper
def _seeds(boxes, n, count):
    """PickSeeds: the two entries that would waste the most area together."""
    first, second, worst = 0, 1, -np.inf
    for i in range(count - 1):
        area, _ = _enlargement(boxes, n, i, boxes[n, XMIN, i], boxes[n, YMIN, i], boxes[n, XMAX, i], boxes[n, YMAX, i])
        for j in range(i + 1, count):
            _, grows = _enlargement(
                boxes, n, j, boxes[n, XMIN, i], boxes[n, YMIN, i], boxes[n, XMAX, i], boxes[n, YMAX, i]
            )
            if grows - area > worst:
                first, second, worst = i, j, grows - area
    return first, second


@helper
def _grow(box, boxes, n, e):
    """Enlarge a box to include an entry's box."""
    box[XMIN], box[YMIN] = min(box[XMIN], boxes[n, XMIN, e]), min(box[YMIN], boxes[n, YMIN, e])
    box[XMAX], box[YMAX] = max(box[XMAX], boxes[n, XMAX, e]), max(box[YMAX], boxes[n, YMAX, e])


@helper
def _more(box, boxes, n, e):
    """By how much the area of a box grows to include an entry's box."""
    area = (box[XMAX] - box[XMIN]) * (box[YMAX] - box[YMIN])
    width = max(box[XMAX], boxes[n, XMAX, e]) - min(box[XMIN], boxes[n, XMIN, e])
    return width * (max(box[YMAX], boxes[n, YMAX, e]) - min(box[YMIN], boxes[n, YMIN, e])) - area


@helper
def _groups(boxes, n, count, least):
    """Assign each entry of a node to group 0 or 1, by Guttman's quadratic split."""
    group = np.full(count, -1, np.int8)
    first, second = _seeds(boxes, n, count)
    around = np.empty((2, 4))
    sizes = np.ones(2, np.int64)
    for g, seed in enumerate((first, second)):
        group[seed] = g
        around[g] = boxes[n, :, seed]
    for left in range(count - 2, 0, -1):
        full = -1  # a group that needs all remaining entries to reach `least` gets them
        if sizes[0] + left <= least:
            full = 0
        elif sizes[1] + left <= least:
            full = 1
        best, best_g, most = -1, 0, -1.0
        for e in range(count):
            if group[e] >= 0:
                continue
            d0, d1 = _more(around[0], boxes, n, e), _more(around[1], boxes, n, e)
            if best < 0 or abs(d0 - d1) > most:
                best, most = e, abs(d0 - d1)
                if d0 != d1:
                    best_g = 0 if d0 < d1 else 1
                else:
                    best_g = 0 if sizes[0] <= sizes[1] else 1
        chosen = best_g if full < 0 else full
        group[best] = chosen
        sizes[chosen] += 1
        _grow(around[chosen], boxes, n, best)
    return group


@helper
def _split(tree, boxes, child, node, n, lru, where):
    """Move some entries of an overfull node to a new node; returns the new one."""
    count = node[n, COUNT]
    tree[TESTS] += count * count  # half of them to pick the seeds, half to distribute the rest
    group = _groups(boxes, n, count, tree[LEAST])
    other = _new_node(tree, node, node[n, LEVEL], lru, where)
    node[n, COUNT] = 0
    for e in range(count):
        to = n if group[e] == 0 else other
        _put(boxes, child, node, to, boxes[n, 0, e], boxes[n, 1, e], boxes[n, 2, e], boxes[n, 3, e], child[n, e])
    return other


@helper
def insert_one(tree, boxes, child, node, x0, y0, x1, y1, what, lru, where):
    """Insert an entry as Guttman does: ChooseLeaf, split nodes that are overfull, AdjustTree."""
    path = np.empty(TALLEST, np.int64)
    taken = np.empty(TALLEST, np.int64)  # the entry by which the path leaves each node
    depth = 0
    n = tree[ROOT]
    while node[n, LEVEL] > 0:
        touch(lru, where, page_of(tree, n), False, False)
        best, least, smallest = 0, np.inf, np.inf
        for e in range(node[n, COUNT]):
            area, grows = _enlargement(boxes, n, e, x0, y0, x1, y1)
            if grows < least or (grows == least and area < smallest):
                best, least, smallest = e, grows, area
        tree[TESTS] += node[n, COUNT]
        path[depth], taken[depth] = n, best
        depth += 1
        n = child[n, best]
    touch(lru, where, page_of(tree, n), True, False)
    _put(boxes, child, node, n, x0, y0, x1, y1, what)
    other = -1
    while True:
        if node[n, COUNT] > tree[MOST]:
            other = _split(tree, boxes, child, node, n, lru, where)
        else:
            other = -1
        if depth == 0:
            break
        depth -= 1
        parent, e = path[depth], taken[depth]
        p = boxes[parent, :, e]
        if other >= 0:
            b0, b1, b2, b3 = bounds(boxes, node, n)
        elif p[XMIN] <= x0 and p[YMIN] <= y0 and p[XMAX] >= x1 and p[YMAX] >= y1:
            return  # the boxes above include it too
        else:
            b0, b1, b2, b3 = min(p[XMIN], x0), min(p[YMIN], y0), max(p[XMAX], x1), max(p[YMAX], y1)
        touch(lru, where, page_of(tree, parent), True, False)
        p[XMIN], p[YMIN], p[XMAX], p[YMAX] = b0, b1, b2, b3
        if other >= 0:
            b0, b1, b2, b3 = bounds(boxes, node, other)
            _put(boxes, child, node, parent, b0, b1, b2, b3, other)
        n = parent
    if other >= 0:
        root = _new_node(tree, node, node[n, LEVEL] + 1, lru, where)
        for half in (n, other):
            b0, b1, b2, b3 = bounds(boxes, node, half)
            _put(boxes, child, node, root, b0, b1, b2, b3, half)
        tree[ROOT] = root


@kernel(void(i64, Boxes, Table, Table, Columns, int64, i64, i64))
def insert_all(tree, boxes, child, node, columns, first, lru, where):
    """Insert boxes one after the other; they are the rows `first`, `first` + 1 and so on."""
    for row in range(columns.shape[1]):
        insert_one(
            tree,
            boxes,
            child,
            node,
            columns[0, row],
            columns[1, row],
            columns[2, row],
            columns[3, row],
            first + row,
            lru,
            where,
        )
