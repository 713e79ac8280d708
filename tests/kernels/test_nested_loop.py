"""The nested loop over boxes against NumPy, stopped and continued anywhere."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernels.nested_loop import FOUND, PAIRS, PLACE, READS, TESTS, nested_loop

PAGE_ROWS = 4


def some_boxes(rng, rows):
    low = rng.integers(0, 6, (2, rows)).astype(float)
    return np.concatenate([low, low + rng.integers(0, 3, (2, rows))])


@given(seed=st.integers(0, 10_000), mine=st.integers(0, 12), stored=st.integers(0, 13), room=st.integers(PAGE_ROWS, 30))
def test_every_pair_of_the_rows_and_pages_asked_for(seed, mine, stored, room):
    rng = np.random.default_rng(seed)
    a, b = some_boxes(rng, mine), some_boxes(rng, stored + 3)  # rows beyond those stored are not looked at
    pages = np.sort(rng.integers(0, -(-stored // PAGE_ROWS), 5 if stored else 0))
    low = rng.integers(0, mine + 1, pages.size)
    high = rng.integers(low, mine + 1)
    reads = rng.integers(0, 2, pages.size)
    own, other, place = np.empty(room, np.int64), np.empty(room, np.int64), np.zeros(PLACE, np.int64)
    found, done = [], False
    while not done:
        done = nested_loop(a, b, stored, pages, low, high, reads, PAGE_ROWS, place, own, other)
        found += zip(own[: place[FOUND]].tolist(), other[: place[FOUND]].tolist(), strict=True)
        place[FOUND] = 0
    turns = [
        (range(p * PAGE_ROWS, min(p * PAGE_ROWS + PAGE_ROWS, stored)), range(x, y))
        for p, x, y in zip(pages, low, high, strict=True)
    ]
    expected = [
        (m, s)
        for theirs, rows in turns
        for m in rows
        for s in theirs
        if (a[:2, m] <= b[2:, s]).all() and (a[2:, m] >= b[:2, s]).all()
    ]
    assert found == expected
    assert place[TESTS] == sum(len(theirs) * len(rows) for theirs, rows in turns)
    assert place[PAIRS] == sum(-(-len(rows) // PAGE_ROWS) for _, rows in turns)
    assert place[READS] == reads.sum()
