"""Strategies that choose which stream tuples of an interval are kept when the join cannot take all. [MESH] §4.1, Table 2

A strategy gives every tuple a score, and every tuple has a 64-bit word (a hash or its position) that orders equal scores. The w
tuples with the highest scores are kept, among equal ones those with the smallest words. A `Cut` is the threshold between them:
two numbers, by which each task decides about its tuples alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np

from headrace.arrays import Bools, Float64s, UInt64s
from headrace.errors import BadInput, choice
from headrace.splitmix import mix, uniform_floats

Objective = Literal["max-subset", "random-sample"]

_SALT = np.uint64(0x5851F42D4C957F2D)  # makes random scores independent of the words that order ties


@dataclass(frozen=True)
class Cut:
    """A threshold: tuples that score above `level` are kept, and those at `level` with a word of at most `word`.

    Example
    -------
    >>> Cut(2.0, 5).kept(np.array([3.0, 2.0, 2.0]), np.array([9, 5, 6], np.uint64)).tolist()
    [True, True, False]
    """

    level: float
    word: int

    def kept(self, scores: Float64s, words: UInt64s) -> Bools:
        """Tell which tuples are kept, by their scores and words."""
        mask: Bools = (scores > self.level) | ((scores == self.level) & (words <= np.uint64(self.word)))
        return mask


#: The cut that keeps everything, as scores are 0 or more.
ALL = Cut(-1.0, 0)


class Strategy(ABC):
    """A way to choose tuples. A subclass has one method, `scores`."""

    name: str
    objective: Objective
    by_frequency: bool
    """whether scores depend on f_R"""

    @abstractmethod
    def scores(self, f: Float64s, words: UInt64s) -> Float64s:
        """Return the score of each tuple, 0 or more.

        Parameters
        ----------
        f
            f_R: how many tuples of R each joins with.
        words
            A 64-bit word of each tuple: its position in the stream, a hash of its content, or a random number.
        """

    def cut(self, f: Float64s, words: UInt64s, w: int) -> Cut:
        """Return the cut that keeps w tuples; exactly w, if no two words are equal."""
        if w < 1:
            raise BadInput(f"w={w} keeps nothing; a join that goes on takes 1 tuple or more in each interval")
        if w >= f.size:
            return ALL
        scores = self.scores(f, words)
        level = np.partition(scores, f.size - w)[f.size - w]
        rest = w - int(np.count_nonzero(scores > level))
        tied = words[scores == level]
        return Cut(float(level), int(np.partition(tied, rest - 1)[rest - 1]))

    def keep(self, f: Float64s, words: UInt64s, w: int) -> Bools:
        """Tell which w tuples of an interval are kept."""
        return self.cut(f, words, w).kept(self.scores(f, words), words)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class KeepW(Strategy):
    """Keeps any w tuples: those with the smallest words. For many-to-one joins.

    Every tuple lost is one result lost, so no choice loses less. With positions in the stream as words, the first w are kept.

    Example
    -------
    >>> KeepW().keep(np.ones(4), np.arange(4, dtype=np.uint64), 2).tolist()
    [True, True, False, False]

    Reference: [MESH] §4.1, Keep w.
    """

    name = "keep"
    objective: Objective = "max-subset"
    by_frequency = False

    def scores(self, f: Float64s, words: UInt64s) -> Float64s:
        """Give all tuples the same score."""
        return np.zeros(f.size)


class SampleW(Strategy):
    """Keeps a uniform sample of w tuples, without replacement. The results of a many-to-one join are a uniform sample too.

    Reference: [MESH] §4.1, Sample w.
    """

    name = "sample"
    objective: Objective = "random-sample"
    by_frequency = False

    def scores(self, f: Float64s, words: UInt64s) -> Float64s:
        """Draw scores at random."""
        return uniform_floats(mix(words ^ _SALT))


class TopW(Strategy):
    """Keeps the w tuples that join with the most tuples of R. For many-to-many joins, to lose as few results as possible.

    Example
    -------
    >>> TopW().keep(np.array([1.0, 4.0, 0.0, 4.0]), np.arange(4, dtype=np.uint64), 2).tolist()
    [False, True, False, True]

    Reference: [MESH] §4.2, TOPW.

    Deviations: the paper keeps a heap of w tuples while they arrive; here an interval is chosen from at its end, with the same
    outcome.
    """

    name = "topw"
    objective: Objective = "max-subset"
    by_frequency = True

    def scores(self, f: Float64s, words: UInt64s) -> Float64s:
        """Return f_R itself."""
        return f


class ClusterSampling(Strategy):
    """Keeps a sample of w tuples in which the probability of a tuple is proportional to f_R.

    For many-to-many joins. The results are no uniform sample, but since the probability of each tuple is known, aggregates over
    the whole join can be estimated (`estimate`).

    Reference: [MESH] §4.1, Cluster Sampling after Srivastava and Widom, "Memory-limited execution of windowed stream joins",
    VLDB 2004; the fixed size by Ohlsson, "Sequential Poisson sampling", J. Official Statistics 14, 1998.

    Deviations: exactly w tuples are kept, so probabilities are proportional to f_R up to an error that falls with w. A tuple
    without a match is kept only when all others are.
    """

    name = "cluster"
    objective: Objective = "random-sample"
    by_frequency = True

    def scores(self, f: Float64s, words: UInt64s) -> Float64s:
        """Return f_R / u with u uniform in (0, 1], which exceeds a level c with probability min(1, f_R / c)."""
        return f / (1.0 - uniform_floats(mix(words ^ _SALT)))

    def chances(self, f: Float64s, cut: Cut) -> Float64s:
        """Return the probability that each tuple was kept."""
        if cut.level <= 0:
            return np.ones(f.size)
        return np.minimum(1.0, f / cut.level)

    def estimate(self, values: Float64s, f: Float64s, cut: Cut) -> float:
        """Estimate the sum of a value over all tuples of the interval from the kept ones (Horvitz-Thompson)."""
        return float(np.sum(values / self.chances(f, cut)))


#: The strategies by their names in `enrich(shed=...)`.
STRATEGIES: dict[str, Strategy] = {s.name: s for s in (KeepW(), SampleW(), TopW(), ClusterSampling())}


def strategy_for(unique: bool, objective: Objective = "max-subset") -> Strategy:
    """Return the strategy for a kind of join and an objective. [MESH] Table 2

    Parameters
    ----------
    unique
        Whether a stream tuple joins with at most one tuple of R (many-to-one): `Relation.unique`.
    objective
        "max-subset" for as many results as possible, "random-sample" for results that represent all.

    Example
    -------
    >>> strategy_for(unique=True), strategy_for(unique=False, objective="random-sample")
    (KeepW(), ClusterSampling())
    """
    choice("objective", objective, ("max-subset", "random-sample"))
    if objective == "max-subset":
        return STRATEGIES["keep" if unique else "topw"]
    return STRATEGIES["sample" if unique else "cluster"]
