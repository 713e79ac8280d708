"""Chance by counter: the published generator, whatever part is asked for."""

import numpy as np
import pytest

from headrace.splitmix import GOLDEN, draw, mix, uniform_floats, uniform_ints

MASK = (1 << 64) - 1


def splitmix(state: int) -> int:
    """SplitMix64 as published, one number at a time."""
    z = (state + GOLDEN) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def test_oracle_splitmix64():
    states = [0, 1, 2**63, MASK - 5]
    words = np.array([(s + GOLDEN) & MASK for s in states], np.uint64)
    assert mix(words).tolist() == [splitmix(s) for s in states]


def test_any_split_gives_the_same_words():
    whole = draw(3, 1, np.arange(1000))
    parts = [draw(3, 1, np.arange(a, b)) for a, b in [(0, 1), (1, 400), (400, 1000)]]
    assert np.array_equal(whole, np.concatenate(parts))
    assert np.array_equal(draw(3, 1, np.arange(1000)[::-1]), whole[::-1])


def test_seeds_and_streams_are_different():
    words = {(s, t): draw(s, t, np.arange(100)).tobytes() for s in range(4) for t in range(4)}
    assert len(set(words.values())) == 16


@pytest.mark.parametrize("bound", [1, 7, 400, 2**32])
def test_below_is_uniform_and_in_range(bound):
    values = uniform_ints(draw(1, 0, np.arange(100_000)), bound)
    assert values.min() >= 0
    assert values.max() < bound
    assert abs(values.mean() - (bound - 1) / 2) <= bound * 0.01


def test_unit_is_below_one():
    assert uniform_floats(np.array([0, MASK], np.uint64)).tolist() == [0.0, 1 - 2**-53]
