"""Strategies against sorting by hand; the sample is fair; Table 2."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BadInput
from headrace.shedding import ALL, STRATEGIES, ClusterSampling, Cut, KeepW, SampleW, TopW, strategy_for
from headrace.splitmix import draw

FREQUENCIES = st.lists(st.integers(0, 3), min_size=1, max_size=12)
WORDS = st.integers(0, 3)


def words_of(n: int, seed: int = 0):
    return draw(seed, 0, np.arange(n))


@given(FREQUENCIES, st.integers(1, 13), st.sampled_from(sorted(STRATEGIES)), st.integers(0, 5))
def test_oracle_the_w_best_are_kept(f, w, name, seed):
    f = np.array(f, float)
    words = words_of(f.size, seed)
    strategy = STRATEGIES[name]
    scores = strategy.scores(f, words)
    best = sorted(range(f.size), key=lambda i: (-scores[i], int(words[i])))[:w]
    assert np.flatnonzero(strategy.keep(f, words, w)).tolist() == sorted(best)


@given(FREQUENCIES, st.data())
def test_equal_tuples_share_their_fate_and_at_least_w_are_kept(f, data):
    f = np.array(f, float)
    words = np.array(data.draw(st.lists(WORDS, min_size=f.size, max_size=f.size)), np.uint64)
    w = data.draw(st.integers(1, f.size))
    for strategy in STRATEGIES.values():
        kept = strategy.keep(f, words, w)
        assert kept.sum() >= w
        fate = {}
        for pair, k in zip(zip(f, words, strict=True), kept, strict=True):
            assert fate.setdefault(pair, k) == k


def test_a_cut_decides_for_tuples_it_was_not_made_from():
    f, words = np.repeat([1.0, 2, 3, 4], 250), words_of(1000)
    cut = TopW().cut(f[::2], words[::2], 250)
    assert abs(cut.kept(f, words).sum() - 500) < 5
    assert ALL.kept(np.zeros(3), np.array([2**64 - 1] * 3, np.uint64)).all()
    assert Cut(0.0, 2**64 - 1).kept(np.zeros(1), np.array([2**64 - 1], np.uint64)).all()


def test_samples_are_fair():
    n, w, rounds = 100, 20, 2000
    f = np.tile([1.0, 2.0], n // 2)
    even, weighted = np.zeros(n), np.zeros(n)
    for seed in range(rounds):
        words = words_of(n, seed)
        even += SampleW().keep(f, words, w)
        weighted += ClusterSampling().keep(f, words, w)
    assert np.abs(even / rounds - w / n).max() < 0.035
    ratio = weighted[1::2].sum() / weighted[::2].sum()
    assert 1.9 < ratio < 2.1  # in proportion to f_R, up to the error of a fixed size


def test_cluster_sampling_estimates_the_whole_join():
    rng = np.random.default_rng(5)
    f, value = rng.integers(1, 50, 4000).astype(float), rng.random(4000)
    strategy, found = ClusterSampling(), []
    for seed in range(60):
        words = words_of(4000, seed)
        cut = strategy.cut(f, words, 800)
        kept = cut.kept(strategy.scores(f, words), words)
        found.append(strategy.estimate((f * value)[kept], f[kept], cut))
    assert np.mean(found) == pytest.approx((f * value).sum(), rel=0.01)


def test_table_2():
    assert isinstance(strategy_for(unique=True), KeepW)
    assert isinstance(strategy_for(unique=True, objective="random-sample"), SampleW)
    assert isinstance(strategy_for(unique=False), TopW)
    assert isinstance(strategy_for(unique=False, objective="random-sample"), ClusterSampling)
    with pytest.raises(BadInput, match="max-subset, random-sample"):
        strategy_for(unique=True, objective="most")
    with pytest.raises(BadInput, match="w=0 keeps nothing"):
        TopW().keep(np.ones(2), words_of(2), 0)
