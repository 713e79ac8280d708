"""The pool of pages against an ordered dictionary."""

from collections import OrderedDict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernels.cache import frames_of, lru

CALLS = st.lists(st.lists(st.integers(0, 30), max_size=12), max_size=8)


@given(CALLS, st.integers(1, 9))
def test_oracle_an_lru_pool_and_where_its_pages_are(calls, frames):
    table = np.full(1 << (2 * frames - 1).bit_length(), -1, np.int32)
    place_of, ends = np.full(frames, -1, np.int64), np.array([-1, -1, 0])
    older, younger = np.full(frames, -1, np.int32), np.full(frames, -1, np.int32)
    scratch, oracle = np.empty(frames, np.int64), OrderedDict()
    for call in calls:
        places = np.array(call, np.int64)
        frame, miss = np.empty(places.size, np.int32), np.empty(places.size, np.uint8)
        served = lru(places, table, place_of, older, younger, ends, scratch, frame, miss)
        assert served == places.size or len(set(call[: served + 1])) > frames
        for i, place in enumerate(call[:served]):
            assert miss[i] == (place not in oracle)
            oracle[place] = None
            oracle.move_to_end(place)
            if len(oracle) > frames:
                oracle.popitem(last=False)
        every, where = np.arange(31), np.empty(31, np.int32)
        frames_of(every, table, place_of, where)
        assert set(every[where >= 0].tolist()) == set(oracle)
        assert all(place_of[where[place]] == place for place in oracle)
