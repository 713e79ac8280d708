"""Pairs of a page and a slot against plain NumPy, and slots against a set."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernels.pairs import count_pages, cross_off, free_slots, take_slots, unpack, wanted_by_half
from headrace.semistream.page_ranges import ListedPages
from headrace.semistream.ssij.stream_buffer import LIST_BYTES, PAIR_BYTES, InvertedIndex, tuples_that_fit

PAIRS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), max_size=40)


@given(PAIRS)
def test_oracle_lists_take_the_place_of_their_pairs(given_pairs):
    packed = np.array(sorted(page << 32 | slot for page, slot in given_pairs), np.int64)
    pages = sorted({page for page, _ in given_pairs})
    assert count_pages(packed) == len(pages)
    page, start = np.empty(len(pages), np.int32), np.empty(len(pages) + 1, np.int32)
    slots = packed.view(np.int32)[: packed.size]  # the same memory
    assert unpack(packed, page, start, slots) == len(pages)
    start[-1] = packed.size
    assert page.tolist() == pages
    lists = [slots[a:b].tolist() for a, b in pairwise(start.tolist())]
    assert lists == [sorted(s for p, s in given_pairs if p == page) for page in pages]
    half = np.empty(len(pages), np.uint8)
    wanted_by_half(start, slots, half)
    assert half.tolist() == [any(s % 2 == 0 for s in some) for some in lists]
    pending = np.full(10, 100, np.int32)
    cross_off(slots, pending)
    assert pending.tolist() == [100 - sum(s == slot for _, s in given_pairs) for slot in range(10)]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=30))
def test_oracle_slots_are_given_to_one_at_a_time(steps):
    capacity = 12
    following, head, used = np.arange(1, capacity + 1, dtype=np.int32), np.zeros(1, np.int64), []
    for take, count in steps:
        if take:
            slots = np.empty(min(count, capacity - len(used)), np.int32)
            take_slots(following, head, slots)
            assert len({*used, *slots.tolist()}) == len(used) + slots.size, "a slot that is in use was given away"
            assert all(0 <= s < capacity for s in slots.tolist())
            used += slots.tolist()
        else:
            free_slots(following, head, np.array(used[:count], np.int32))
            used = used[count:]


@given(st.lists(PAIRS, max_size=4), st.integers(0, 3))
def test_oracle_an_inverted_index_in_several_steps(steps, asked):
    places = np.arange(7) * 10
    index = InvertedIndex(ListedPages(places), 400)
    whole = []
    for number, pairs in enumerate(steps):
        index.add(np.array([p * 10 for p, _ in pairs], np.int64), np.array([s for _, s in pairs], np.int32))
        whole += pairs
        if number == asked:  # what is asked in between changes nothing
            assert index.distinct == len({p for p, _ in whole})
    assert index.nbytes == PAIR_BYTES * len(whole) + LIST_BYTES * min(len(whole), 7)
    ranks, starts, slots = index.lists()
    assert index.lists()[2] is slots, "lists that were read once are the same again"
    found = [(int(p), int(s)) for p, a, b in zip(ranks, starts[:-1], starts[1:], strict=True) for s in slots[a:b]]
    assert found == sorted(whole)
    index.clear()
    assert index.pairs == index.distinct == index.nbytes == 0


@given(st.integers(0, 2000), st.integers(0, 30), st.integers(0, 20))
def test_oracle_what_fits_takes_no_more_than_there_is(room, pairs, pages):
    index = InvertedIndex(ListedPages(np.arange(pages)), 10_000)
    index.pairs = pairs
    more = index.room(room)
    assert index.size(pairs + more, pages) - index.nbytes <= room
    assert index.size(pairs + more + 1, pages) - index.nbytes > room


@pytest.mark.parametrize("each", [1.0, 2.5])
def test_tuples_that_fit_take_all_of_the_room(each):
    for room in (1e3, 1e5, 1e7):
        n = tuples_that_fit(room, 90, each, 1000)
        assert n * 90 + PAIR_BYTES * each * n + LIST_BYTES * min(each * n, 1000) == pytest.approx(room)
