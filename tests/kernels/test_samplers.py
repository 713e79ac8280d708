"""The kernels of samplers on the worked examples of the text, with its draws. [PQP] §9.3"""

import numpy as np
import pytest

from headrace.kernels import samplers
from tests.support.sample_streams import below, word_for

D = np.array([1, 5, 2, 3, 18, 9, 6, 10])  # the stream of the text's examples
ANY = 0  # a draw that is not made


class Slots:
    """The state of a sampler of so many positions, and what the positions hold."""

    def __init__(self, size, window=None):
        self.window = window
        self.numbers = np.zeros(samplers.NUMBERS, np.int64)
        self.numbers[samplers.OLDEST] = 0 if window is None else samplers.NEVER
        self.place, self.free = np.arange(size), np.arange(size)[::-1].copy()
        self.heap, self.at, self.seq, self.until = (np.zeros(size, np.int64) for _ in range(4))

    def insert(self, kernel, rho, bounds):
        """Take in as many tuples as there are draws; tuple i draws rho[i] of 1..bounds[i]."""
        n0 = int(self.numbers[samplers.ARRIVED])
        words = np.array([word_for(r, b) if r else 0 for r, b in zip(rho, bounds, strict=True)], np.uint64)
        clock = np.arange(n0 + 1, n0 + words.size + 1)
        taken = np.empty(words.size, np.int64)
        if self.window is None:
            kernel(self.numbers, self.place, self.seq, self.until, words, clock, taken)
        else:
            gone = np.empty(words.size + self.seq.size, np.int32)
            self.numbers[samplers.GONE] = 0
            state = self.numbers, self.place, self.free, self.heap, self.at, self.seq, self.until, gone
            kernel(*state, words, clock, clock + self.window, np.array(bounds), taken)
        return D[self.seq[self.seq > 0] - 1].tolist()


def test_fifo_as_in_the_text():
    s = Slots(2)
    assert s.insert(samplers.fifo, [ANY, ANY], [1, 2]) == [1, 5]
    assert sorted(s.insert(samplers.fifo, [2], [3])) == [2, 5]
    assert sorted(s.insert(samplers.fifo, [3], [4])) == [2, 5]  # rho > |S|: discarded


def test_reservoir_replaces_the_rho_th():
    s = Slots(2)
    assert s.insert(samplers.reservoir, [ANY, ANY, 2], [1, 2, 3]) == [1, 2]
    assert s.insert(samplers.reservoir, [3, 1], [4, 5]) == [18, 2]


def test_expire_as_in_the_text():
    s = Slots(2, window=3)
    certain = 1
    assert s.insert(samplers.expire, [ANY, ANY], [1, 2]) == [1, 5]
    assert s.insert(samplers.expire, [2], [3]) == [1, 2]
    assert s.insert(samplers.expire, [ANY], [certain]) == [3, 2]
    assert s.insert(samplers.expire, [ANY], [certain]) == [3, 2]
    assert s.insert(samplers.expire, [ANY], [certain]) == [3, 9]
    assert s.insert(samplers.expire, [ANY], [certain]) == [6, 9]


def test_winres_as_in_the_text():
    s = Slots(2, window=5)
    assert s.insert(samplers.winres, [ANY, ANY, 3, 4, 2], [1, 2, 3, 4, 5]) == [1, 18]
    assert s.insert(samplers.winres, [ANY], [6]) == [9, 18]
    assert s.insert(samplers.winres, [7], [7]) == [9, 18]


@pytest.mark.parametrize("bound", [1, 2, 3, 1000, 2**31, 2**32 + 7, 2**40 + 1])
def test_draws_are_even_over_their_range(bound):
    words = [0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 1, 0x9E3779B97F4A7C15]
    assert [samplers.below(np.uint64(w), bound) for w in words] == [below(w, bound) for w in words]


def test_live_tuples_of_a_window_by_time_are_counted():
    rng = np.random.default_rng(3)
    times = np.maximum(0, np.cumsum(rng.integers(0, 9, 5_000)) + rng.integers(-300, 300, 5_000))
    times[3_000:] += 1_000_000  # a silence longer than the ring of steps
    now = np.maximum.accumulate(times)
    length, width = 10_000, 10
    counts, steps = np.zeros(1026, np.int64), np.array([(now[0] - length + 1) // width, 0])
    live = np.empty(times.size, np.int64)
    samplers.live_counts(counts, steps, width, length, times, now, live)
    true = np.array([np.count_nonzero(times[: i + 1] > now[i] - length) for i in range(times.size)])
    assert np.abs(live - true).max() <= np.bincount(times // width).max()  # of one step, and no more
    assert (live == true).mean() > 0.5
