"""The R-tree itself: its invariants after every kind of insertion, and its searches."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from headrace.errors import HeadraceError
from headrace.progressive.rtree import RTree
from headrace.progressive.rtree.disk import Buffer

TREE, BOXES, NODE = 0, 1, 3  # places of RTree.arrays: the header, the boxes of entries, (entries, level) of nodes

corner = st.integers(-20, 20)
boxes = st.lists(st.tuples(corner, corner, st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=150)


def columns(found):
    x, y, width, height = np.array(found, float).T
    return np.array([x, y, x + width, y + height])


def grown(found, most, parts=1, frames=4):
    tree = RTree(Buffer(frames), most)
    for part in np.array_split(np.arange(found.shape[1]), parts):
        tree.insert(np.ascontiguousarray(found[:, part]), int(part[0]) if part.size else 0)
    return tree


@given(found=boxes, most=st.integers(4, 12), parts=st.integers(1, 5))
@settings(max_examples=80, deadline=None)
def test_every_insertion_leaves_an_r_tree_with_every_row(found, most, parts):
    tree = grown(columns(found), most, parts)
    tree.check()
    assert sorted(tree.leaf_rows().tolist()) == list(range(len(found)))
    assert tree.entries == len(found)


@given(found=boxes, asked=boxes)
@settings(max_examples=60, deadline=None)
def test_a_search_finds_what_meets(found, asked):
    stored, query = columns(found), columns(asked)
    tree = grown(stored, 4)
    mine, rows = tree.search(query)
    meet = (query[:2, :, None] <= stored[2:, None, :]).all(0) & (query[2:, :, None] >= stored[:2, None, :]).all(0)
    assert sorted(zip(mine.tolist(), rows.tolist(), strict=True)) == sorted(map(tuple, np.argwhere(meet).tolist()))


def test_huge_and_tiny_boxes_beside_each_other():
    # Areas overflow, and differences of them are no numbers; the tree must stand nevertheless.
    rng = np.random.default_rng(1)
    low = rng.choice([-1e200, -1.0, 0.0, 1e-300, 1e200], (2, 300))
    found = np.concatenate([low, low + rng.choice([0.0, 1e-300, 1.0, 1e200], (2, 300))])
    tree = grown(found, 5)
    tree.check()
    _, rows = tree.search(found)
    meet = (found[:2, :, None] <= found[2:, None, :]).all(0) & (found[2:, :, None] >= found[:2, None, :]).all(0)
    assert rows.size == meet.sum()


def test_a_tree_grows_in_height_and_stays_balanced():
    rng = np.random.default_rng(2)
    low = rng.random((2, 5_000))
    tree = grown(np.concatenate([low, low + 0.001]), 10, frames=3)
    tree.check()
    assert 4 <= tree.height <= 6  # 10 to 4 entries a node
    assert 5_000 / 10 < tree.nodes < 5_000 / 3


def test_an_empty_tree_finds_nothing():
    tree = RTree(Buffer(2), 4)
    tree.check()
    assert tree.height == 1 and tree.search(columns([(0, 0, 1, 1)]))[0].size == 0


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda tree: tree.arrays[BOXES].__setitem__((tree.root, 0, 0), -99.0), "has box"),
        (lambda tree: tree.arrays[NODE].__setitem__((tree.root, 0), 1), "has 1 entries; 2 to 4 are allowed"),
        (lambda tree: tree.arrays[NODE].__setitem__((0, 1), 3), "is on level 3"),
        (lambda tree: tree.arrays[TREE].__setitem__(1, tree.nodes + 1), "can be reached"),
    ],
)
def test_the_check_sees_damage(spoil, message):
    tree = grown(columns([(i, i, 1, 1) for i in range(40)]), 4)
    tree.check()
    spoil(tree)
    with pytest.raises(HeadraceError, match=message):
        tree.check()
