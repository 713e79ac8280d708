"""The offline optimum against the table of [MESH] Fig. 9, against trying everything, and against TOPW."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BadInput
from headrace.shedding import TopW, opt_offline_shed

STREAM = st.lists(st.integers(0, 5), max_size=12)
SMALL = st.integers(1, 4)


def recurrence(f, w, c_loop, request) -> float:
    """optloss(0, request, 0) as the text has it."""

    @cache
    def loss(i, lt, sb):
        if sb == w and i >= lt:
            return loss(i, i + c_loop, 0)
        if i == len(f):
            return 0
        if sb == w:
            return loss(i + 1, lt, w) + f[i]
        return min(loss(i + 1, lt, sb + 1), loss(i + 1, lt, sb) + f[i])

    return loss(0, request, 0)


def possible(kept, w, c_loop, asked=0) -> bool:
    """Whether a buffer of w tuples can take all of these, handed over as soon as it is full and asked for."""
    held = 0
    for i, keep in enumerate(kept):
        if held == w and i >= asked:
            asked, held = i + c_loop, 0
        if keep:
            if held == w:
                return False
            held += 1
    return True


@given(STREAM, SMALL, st.integers(1, 6), st.integers(0, 9))
def test_oracle_the_loss_is_that_of_the_recurrence(f, w, c_loop, request):
    found = opt_offline_shed(np.array(f, float), w, c_loop, request)
    assert found.loss == recurrence(tuple(f), w, c_loop, request)
    assert found.loss == sum(f) - np.array(f, float)[found.kept].sum()
    assert possible(found.kept, w, c_loop, request)


@given(st.lists(st.integers(0, 3), max_size=8), st.integers(1, 3), st.integers(1, 5))
def test_oracle_no_choice_that_is_possible_loses_less(f, w, c_loop):
    least = min(
        sum(x for i, x in enumerate(f) if not chosen >> i & 1)
        for chosen in range(1 << len(f))
        if possible([chosen >> i & 1 for i in range(len(f))], w, c_loop)
    )
    assert opt_offline_shed(np.array(f, float), w, c_loop).loss == least


@given(STREAM, SMALL, st.integers(0, 4))
def test_topw_is_never_better(f, w, more):
    f, c_loop = np.array(f, float), w + more
    words = np.arange(f.size, dtype=np.uint64)
    lost = 0.0
    for at in range(0, f.size, c_loop):
        part = slice(at, at + c_loop)
        lost += f[part][~TopW().keep(f[part], words[part], w)].sum()
    assert lost >= opt_offline_shed(f, w, c_loop, request=c_loop).loss >= opt_offline_shed(f, w, c_loop).loss


def test_what_makes_no_sense_is_refused():
    with pytest.raises(BadInput, match="w=0"):
        opt_offline_shed(np.ones(3), 0, 4)
    with pytest.raises(BadInput, match="-1"):
        opt_offline_shed(np.array([1.0, -1]), 1, 4)
    assert opt_offline_shed(np.array([]), 2, 4).loss == 0
