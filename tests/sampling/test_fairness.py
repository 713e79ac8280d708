"""How fair samples are: bounds of binomial and chi-square distributions, with fixed seeds; and samplers that must fail them."""

import numpy as np
import pytest

import headrace as hr
from headrace.sampling import Chain, Expire, FairWindow, Reservoir, WinRes
from tests.support.sample_streams import FAR, chi_square, numbers, stream

W, K, SEEDS, N = 50, 10, 300, 170
BY_TIME = hr.time(f"{W}ms", on="t")
ROWS = stream(N)


def ages(make, n=N, seeds=SEEDS):
    """How often tuples of each age, 0 to W - 1, are in the samples of many seeds."""
    counts = np.zeros(n, np.int64)
    for seed in range(seeds):
        s = make(seed)
        s.insert(ROWS.slice(0, n))
        counts += np.bincount(numbers(s), minlength=n)
    return counts[::-1]


class Broken(FairWindow):
    """Fair, but for the tags of every tenth tuple, which are too small by two fifths."""

    def _draw(self, arriving):
        tags = super()._draw(arriving)
        tags[::10] = tags[::10] // np.uint64(10) * np.uint64(6)
        return tags


@pytest.mark.parametrize(
    ("make", "drawn"),
    [
        (lambda seed: FairWindow(K, window=hr.rows(W), seed=seed), K),
        (lambda seed: FairWindow(K, window=BY_TIME, seed=seed), K),
        (lambda seed: Expire(K, window=hr.rows(W), seed=seed), K),
        (lambda seed: Chain(K, window=hr.rows(W), seed=seed), W),
        (lambda seed: Chain(K, window=BY_TIME, seed=seed), W),
    ],
    ids=["fair", "fair by time", "expire", "chain", "chain by time"],
)
def test_every_tuple_of_the_window_is_as_likely_as_any(make, drawn):
    counts = ages(make)
    assert counts.sum() == K * SEEDS and not counts[W:].any()
    assert abs(chi_square(counts[:W], drawn, W)) < FAR


def test_a_reservoir_is_fair_over_the_whole_stream():
    counts = ages(lambda seed: Reservoir(K, seed=seed))
    assert abs(chi_square(counts, K, N)) < FAR


def test_the_first_window_is_fair_too():
    """While the window fills, Expire draws from 1..n; with the 1..|W| of the printed algorithm this fails."""
    for make in (
        lambda seed: Expire(K, window=hr.rows(W), seed=seed),
        lambda seed: Expire(K, window=BY_TIME, seed=seed),
    ):
        counts = ages(make, n=45)
        assert abs(chi_square(counts, K, 45)) < FAR
    counts = ages(lambda seed: Chain(K, window=hr.rows(W), seed=seed), n=45)  # drawn with replacement
    assert abs(chi_square(counts, 45, 45)) < FAR


def test_a_broken_sampler_is_found_out():
    counts = ages(lambda seed: Broken(K, window=hr.rows(W), seed=seed))
    assert chi_square(counts[:W], K, W) > FAR


def test_winres_leans_to_recent_tuples():
    """Of |S| = 0.2 |W| the youngest tenth of the window has 14% and the oldest 7%; drawing from 1..n leans less."""
    counts = ages(lambda seed: WinRes(K, window=hr.rows(W), seed=seed))[:W]
    assert chi_square(counts, K, W) > FAR
    share = counts.reshape(10, -1).sum(axis=1) / counts.sum()
    error = 3 * np.sqrt(0.1 * 0.9 / counts.sum())
    assert share[0] == pytest.approx(0.144, abs=error) and share[-1] == pytest.approx(0.066, abs=error)
    longer = ages(lambda seed: WinRes(K, window=hr.rows(W), seed=seed, draw="stream"))[:W]
    assert longer[:5].sum() / longer.sum() < share[0]


def test_pairs_of_a_fair_sample_are_as_likely_as_any():
    """Tuples |W| / 2 apart and neighbours are in the sample together k (k - 1) / (W (W - 1)) of the time."""
    together = {1: 0, W // 2: 0}
    for seed in range(SEEDS):
        s = FairWindow(K, window=hr.rows(W), seed=seed)
        s.insert(ROWS)
        held = set(numbers(s))
        for apart in together:
            together[apart] += sum(x + apart in held for x in held)
    for apart, count in together.items():
        expected = SEEDS * (W - apart) * K * (K - 1) / (W * (W - 1))
        assert abs(count - expected) < 4 * np.sqrt(expected)


def test_expire_is_periodic_and_fair_is_not():
    """Of a stream whose period divides |W|, Expire sees the same phases in all windows to come."""
    seen = {Expire: [], FairWindow: []}
    for sampler, phases in seen.items():
        s = sampler(K, window=hr.rows(W), seed=3)
        for at in range(0, 10 * W, W):
            s.insert(stream(W, start=at))
            phases.append({x % W for x in numbers(s)})
    assert all(phases == seen[Expire][0] for phases in seen[Expire])
    assert len(set().union(*seen[FairWindow])) > 3 * K


def test_samples_of_two_streams_are_independent():
    """Samples with one seed and two stream numbers have as many tuples in common as chance would have it."""
    common = 0
    for seed in range(SEEDS):
        samples = [FairWindow(K, window=hr.rows(W), seed=seed, stream=i) for i in (0, 1)]
        for s in samples:
            s.insert(ROWS)
        common += len(set(numbers(samples[0])) & set(numbers(samples[1])))
    expected = SEEDS * K * K / W
    assert abs(common - expected) < 4 * np.sqrt(expected)
