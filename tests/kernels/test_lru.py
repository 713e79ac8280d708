"""The LRU buffer against an ordered dictionary."""

from collections import OrderedDict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernels.lru import READS, VISITS, WRITES, empty_lru, touch_page

USES = st.lists(st.tuples(st.integers(0, 7), st.booleans()), max_size=60)


def plain(frames, uses):
    """Reads and writes; the first use of a page finds it new."""
    held, seen, reads, writes = OrderedDict(), set(), 0, 0
    for page, dirty in uses:
        if page not in held:
            if len(held) == frames:
                writes += held.popitem(last=False)[1]
            reads += page in seen
            seen.add(page)
            held[page] = False
        held[page] |= dirty
        held.move_to_end(page)
    return reads, writes


@given(frames=st.integers(1, 6), uses=USES)
def test_reads_and_writes_are_those_of_a_plain_lru(frames, uses):
    lru, where, seen = empty_lru(frames), np.full(8, -1, np.int64), set()
    for page, dirty in uses:
        touch_page(lru, where, page, dirty, page not in seen)
        seen.add(page)
    assert (lru[READS], lru[WRITES]) == plain(frames, uses)
    assert lru[VISITS] == len(uses)
    assert (where >= 0).sum() == min(frames, len(seen))
