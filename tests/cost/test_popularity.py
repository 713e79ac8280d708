"""Popularity in groups against plain sums over every key, and against caches that are run."""

from collections import OrderedDict

import numpy as np
import pytest

from headrace.cost.popularity import Popularity, fitted_zipf
from headrace.errors import BadInput

KEYS = 20_000


def plain(exponent):
    p = np.arange(1.0, KEYS + 1) ** -exponent
    return p / p.sum()


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 1.4])
def test_shares_and_distinct_keys_are_the_sums(exponent):
    grouped, p = Popularity.zipf(KEYS, exponent), plain(exponent)
    assert grouped.things == KEYS
    for n in (1, 10, 700, 5000):
        assert grouped.top(n) == pytest.approx(p[:n].sum(), rel=1e-3)
        assert grouped.distinct(n) == pytest.approx((-np.expm1(-n * p)).sum(), rel=1e-3)
    rest = grouped.without_top(700)
    assert rest.things == KEYS - 700
    assert rest.distinct(1000) == pytest.approx((-np.expm1(-1000 * p[700:] / p[700:].sum())).sum(), rel=1e-3)


@pytest.mark.parametrize("exponent", [0.0, 0.8, 1.2])
def test_lru_is_what_a_cache_that_is_run_hits(exponent):
    rng = np.random.default_rng(7)
    cache: OrderedDict[int, None] = OrderedDict()
    hits = 0
    keys = rng.choice(KEYS, 60_000, p=plain(exponent))
    for i, key in enumerate(keys.tolist()):
        hits += i >= 20_000 and key in cache
        cache[key] = None
        cache.move_to_end(key)
        if len(cache) > 1000:
            cache.popitem(last=False)
    assert Popularity.zipf(KEYS, exponent).lru(1000) == pytest.approx(hits / 40_000, abs=0.015)


def test_a_cache_of_everything_or_of_nothing():
    keys = Popularity.zipf(100, 1.0)
    assert keys.lru(100) == 1.0
    assert keys.lru(0) == 0.0
    assert keys.top(0) == 0.0
    assert keys.top(1000) == pytest.approx(1.0)
    assert keys.without_top(100).things > 0  # something to divide by, and nothing asks for it
    assert list(keys.kept_by_count(0, 100)) == [0] * keys.p.size
    assert list(keys.kept_by_count(100, 100)) == [1] * keys.p.size


def test_the_most_counted_are_kept_as_when_counted():
    p, rng = plain(0.8), np.random.default_rng(3)
    served = []
    for _ in range(10):
        counts = rng.multinomial(5000, p)
        kept = np.argsort(-counts, kind="stable")[:500]  # on a tie the more popular: a little lucky
        served.append(p[kept].sum())
    groups = Popularity.zipf(KEYS, 0.8)
    kept = groups.kept_by_count(500, 5000)
    assert (groups.count * kept).sum() == pytest.approx(500, rel=0.01)
    assert (groups.count * groups.p * kept).sum() == pytest.approx(np.mean(served), rel=0.06)


def test_pages_of_keys_side_by_side_and_scattered():
    keys, p = Popularity.zipf(KEYS, 1.0), plain(1.0)
    together = keys.grouped(50, scattered=False)
    by_page = p.reshape(-1, 50).sum(axis=1)
    assert together.things == pytest.approx(400)
    assert together.top(20) == pytest.approx(by_page[:20].sum(), rel=0.01)
    dealt = -np.sort(-np.random.default_rng(0).permutation(p).reshape(-1, 50).sum(axis=1))
    scattered = keys.grouped(50, scattered=True)
    assert scattered.top(20) == pytest.approx(dealt[:20].sum(), rel=0.1)
    assert scattered.top(20) < together.top(20)


def test_more_keys_than_are_simulated_are_stood_for_by_their_like():
    pages = Popularity.zipf(10_000_000, 0.9).grouped(64, scattered=True)
    assert pages.things == pytest.approx(10_000_000 / 64)
    assert (pages.count * pages.p).sum() == pytest.approx(1.0)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_the_exponent_is_found_from_what_a_sample_shows(exponent):
    sample = np.random.default_rng(5).choice(KEYS, 8000, p=plain(exponent))
    assert fitted_zipf(KEYS, 8000, np.unique(sample).size) == pytest.approx(exponent, abs=0.15)


@pytest.mark.parametrize("exponent", [-0.1, float("nan"), float("inf")])
def test_a_wrong_exponent_is_refused(exponent):
    with pytest.raises(BadInput, match="skew="):
        Popularity.zipf(10, exponent)
