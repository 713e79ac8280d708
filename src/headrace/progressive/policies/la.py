"""LA's flush policy: the probability of a value's next arrival, with reference locality."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from headrace.arrays import Float64s, Int32s, Int64s, UInt64s
from headrace.errors import BadInput
from headrace.kernels.locality import count_repeats
from headrace.progressive.policies.base import TupleFlushPolicy
from headrace.progressive.policies.stats import PartitionStats, TupleStats
from headrace.splitmix import mix

_COUNTERS = (
    4096  # of a side's popularity, 32 KiB: values that share one are taken for equally popular, by half as much each
)
_ERRORS = 3.0  # standard errors that a repeat rate must lie above chance to be taken for locality
_MOST_LAGS = (
    256  # a flush solves h equations: with 256 in 0.8 MiB; far beyond that it would take all memory and minutes
)
_LAG_BYTES = 1024  # bytes that solving takes for each equation, beside the matrix
_LATELY = 1000  # arrivals of both sides: older ones hardly count for which side comes next


class LA(TupleFlushPolicy):
    """Flushes the tuples whose value is least likely to arrive next on the other side. A value that came lately may come again.

    Choose it where arrivals repeat what came a moment ago. A stream's next value repeats the one i arrivals ago with probability
    a_i, for i up to h, and is drawn by the long-term popularity P of values with probability b, where b and all a_i add up to 1.
    So the next value is t with probability b P(t) plus the sum of the a_i for which the value i arrivals ago was t; for later
    arrivals, whatever is not known yet has its expected value. The sum over the other side's next h arrivals, times the other
    side's share of the latest arrivals, is the score of a tuple with value t: the results that it is expected to bring, its
    marginal utility. A value that repeats every 20 arrivals is due in a while, and the next arrival alone would not show it.

    The a_i are fitted to each stream. If r_k is how often a value equals the one k arrivals before it, less what chance gives,
    then r_k is the sum of `a_i r_|k-i|`: the Yule-Walker equations of a discrete autoregressive process, solved at each flush.

    Parameters
    ----------
    share, seed
        See FlushPolicy.
    h
        The number of latest arrivals of a stream that may repeat, up to 256.
    b
        The weight of long-term popularity, from 0 (locality alone) to 1 (popularity alone); fitted if None.

    Reference: [PQP] §2.1; Li et al. 2006 (reference locality); Jacobs and Lewis 1978 (the process and its equations).

    Deviations: the text does not say how far ahead utility looks, since the tuples of its source leave with a window; here it is
    as far as locality reaches. A value is a cell, which for boxes and vectors is a tile of the grid; popularity is counted in a
    table of fixed size by the hash of a value, since a counter for each value that ever arrived would not be bounded.
    """

    two_sided = True

    def __init__(self, share: float | int = 0.1, h: int = 64, b: float | None = None, seed: int = 0) -> None:
        super().__init__(share, seed)
        if not 1 <= h <= _MOST_LAGS:
            raise BadInput(f"h={h!r} is not a number of arrivals that may repeat; give one from 1 to {_MOST_LAGS}")
        if b is not None and not 0 <= b <= 1:
            raise BadInput(f"b={b!r} is not a probability; give one from 0 to 1, or None")
        self.h = h
        self.b = b
        self._last: list[UInt64s] = [np.empty(0, np.uint64), np.empty(0, np.uint64)]  # h values a side, the latest last
        self._popularity = np.zeros((2, _COUNTERS), np.int64)
        self._repeats, self._chances = np.zeros((2, h), np.int64), np.zeros((2, h), np.int64)
        self._lately = np.zeros(2)  # arrivals of each side, older ones discounted

    @property
    def nbytes(self) -> int:
        """Bytes of its counters, with a copy for a flush, of the latest values, and of the equations that a flush solves."""
        counters = 2 * self._popularity.nbytes + self._repeats.nbytes + self._chances.nbytes
        return counters + 2 * 8 * self.h + 8 * self.h**2 + _LAG_BYTES * self.h

    def arrive(self, side: int, cells: UInt64s, partitions: Int32s) -> None:
        """Learn the values that have arrived."""
        values = np.concatenate([self._last[side], cells])
        count_repeats(values, self._last[side].size, self._repeats[side], self._chances[side])
        self._last[side] = values[-self.h :].copy()  # and not a view that keeps the whole batch
        self._popularity[side] += np.bincount(_counter(cells), minlength=_COUNTERS)
        self._lately *= np.exp(-cells.size / _LATELY)
        self._lately[side] += cells.size

    def locality(self, side: int) -> tuple[float, Float64s]:
        """Return b and the a_i of a stream, as fitted to what has arrived so far."""
        total, popularity = max(1, int(self._popularity[side].sum())), self._popularity[side]
        # Two independent arrivals share a counter if their values are equal, or else by chance.
        shared = float((popularity * (popularity - 1)).sum()) / max(1.0, total * (total - 1.0))
        chance = min(0.999, max(0.0, (shared - 1 / _COUNTERS) / (1 - 1 / _COUNTERS)))
        chances = np.maximum(1, self._chances[side])
        rate = self._repeats[side] / chances
        sure = rate - chance > _ERRORS * np.sqrt(np.maximum(chance * (1 - chance), 1 / chances) / chances)
        r = np.where(sure, (rate - chance) / (1 - chance), 0.0)
        near = r[: self.h - 1]
        matrix = sliding_window_view(np.concatenate([near[::-1], [1.0], near]), self.h)[::-1]  # r_|k-i|, without a copy
        a = np.linalg.lstsq(matrix, r, rcond=None)[0].clip(0.0)
        b = max(0.0, 1 - float(a.sum())) if self.b is None else self.b
        whole = float(a.sum())
        return b, a * (1 - b) / whole if whole else a

    def tuple_scores(self, stats: PartitionStats, side: int, tuples: TupleStats) -> Float64s:
        """Return how often the value of each tuple is expected among the other side's next h arrivals."""
        other = 1 - side
        b, a = self.locality(other)
        drawn, repeated = expected_arrivals(a)
        scores: Float64s = (
            b * drawn * self._popularity[other][_counter(tuples.cell)] / max(1, int(self._popularity[other].sum()))
        )
        recent, place = np.unique(self._last[other][::-1], return_inverse=True)
        if recent.size:
            weight = np.bincount(place, repeated[: place.size], minlength=recent.size)
            at = np.searchsorted(recent, tuples.cell).clip(max=recent.size - 1)
            scores = scores + np.where(recent[at] == tuples.cell, weight[at], 0.0)
        of_side = self._lately[other] / max(1.0, float(self._lately.sum()))
        return np.asarray(scores * of_side)


def expected_arrivals(a: Float64s) -> tuple[float, Float64s]:
    """How often a value comes among the next h arrivals: for each draw of it, and because it came i arrivals ago.

    Returns the sum over the h arrivals of what a draw at each brings, and the expected arrivals for each i from 1 to h.
    """
    h = a.size
    again = np.zeros(
        h
    )  # the probability that an arrival repeats one that came so many arrivals before, directly or not
    again[0] = 1.0
    for late in range(1, h):
        again[late] = a[:late] @ again[late - 1 :: -1]
    # What an arrival brings within the h, itself included, if it comes as the first, second, ... of them
    brings = np.cumsum(again)[::-1]
    return float(brings.sum()), np.array([a[i:] @ brings[: h - i] for i in range(h)])


def _counter(cells: UInt64s) -> Int64s:
    """The number of each value's counter."""
    return (mix(cells) >> np.uint64(52)).astype(np.int64)
