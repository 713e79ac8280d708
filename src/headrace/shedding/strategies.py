"""Which stream tuples of an interval are kept when it has more than the join can take. [MESH] §4.1, Table 2

A strategy gives every tuple a score. The w tuples with the highest scores are kept, among equal ones those with the smallest
words. What divides them is a `Cut`, two numbers: whoever has it tells for every tuple by itself whether it is kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np

from headrace.arrays import Bools, Float64s, UInt64s
from headrace.errors import BadInput, choice
from headrace.splitmix import mix, uniform_floats

Mask = Bools
Objective = Literal["max-subset", "random-sample"]

_ROUND = np.uint64(0x5851F42D4C957F2D)  # words that order ties and words that give chances are not the same


@dataclass(frozen=True)
class Cut:
    """Kept is what scores above `level`, and at `level` what has a word of at most `word`.

    Example
    -------
    >>> Cut(2.0, 5).kept(np.array([3.0, 2.0, 2.0]), np.array([9, 5, 6], np.uint64)).tolist()
    [True, True, False]
    """

    level: float
    word: int

    def kept(self, scores: Float64s, words: UInt64s) -> Bools:
        """Whether each tuple is kept, by its score and its word."""
        mask: Bools = (scores > self.level) | ((scores == self.level) & (words <= np.uint64(self.word)))
        return mask


ALL = Cut(-1.0, 0)  # scores are 0 or more


class Strategy(ABC):
    """A way to choose; one method, the score."""

    name: str
    objective: Objective
    by_frequency: bool
    """whether it needs f_R"""

    @abstractmethod
    def scores(self, f: Float64s, words: UInt64s) -> Float64s:
        """The score of each tuple, 0 or more.

        Parameters
        ----------
        f
            f_R: how many tuples of R each joins with.
        words
            A word for each: its place in the stream, a hash of its content, or chance.
        """

    def cut(self, f: Float64s, words: UInt64s, w: int) -> Cut:
        """What divides the w tuples to keep from the others; exactly w, if no two words are equal."""
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
        """Which tuples of an interval are kept, w of them."""
        return self.cut(f, words, w).kept(self.scores(f, words), words)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class KeepW(Strategy):
    """Any w tuples: those with the smallest words. Every tuple lost is one result lost, so no choice loses less.

    For many-to-one joins. With the places in the stream as words, the first w are kept.

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
        """All alike."""
        return np.zeros(f.size)


class SampleW(Strategy):
    """A uniform sample of w tuples, without replacement; of a many-to-one join the results are a uniform sample too.

    Reference: [MESH] §4.1, Sample w.
    """

    name = "sample"
    objective: Objective = "random-sample"
    by_frequency = False

    def scores(self, f: Float64s, words: UInt64s) -> Float64s:
        """Chance alone."""
        return uniform_floats(mix(words ^ _ROUND))


class TopW(Strategy):
    """The w tuples that join with the most tuples of R. For many-to-many joins, where results lost should be few.

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
        """f_R itself."""
        return f


class ClusterSampling(Strategy):
    """A sample of w tuples in which one that joins with twice as many tuples of R is twice as likely.

    For many-to-many joins: the results are no uniform sample, but since the chance of each tuple is known, aggregates over the
    whole join can be estimated (`estimate`).

    Reference: [MESH] §4.1, Cluster Sampling after Das, Gehrke, Riedewald, "Approximate join processing over data streams",
    SIGMOD 2003; the fixed size by Ohlsson, "Sequential Poisson sampling", J. Official Statistics 14, 1998.

    Deviations: exactly w tuples are kept, so that chances are in proportion to f_R up to an error that falls with w. A tuple
    with no match has no chance before all others are kept.
    """

    name = "cluster"
    objective: Objective = "random-sample"
    by_frequency = True

    def scores(self, f: Float64s, words: UInt64s) -> Float64s:
        """f_R / u with u uniform in (0, 1]: above a level c with probability min(1, f_R / c)."""
        return f / (1.0 - uniform_floats(mix(words ^ _ROUND)))

    def chances(self, f: Float64s, cut: Cut) -> Float64s:
        """How likely each tuple was to be kept."""
        if cut.level <= 0:
            return np.ones(f.size)
        return np.minimum(1.0, f / cut.level)

    def estimate(self, values: Float64s, f: Float64s, cut: Cut) -> float:
        """The sum over the whole interval of a value per tuple, from the values of the kept ones (Horvitz-Thompson)."""
        return float(np.sum(values / self.chances(f, cut)))


#: By the names that `enrich(shed=...)` knows them by.
STRATEGIES: dict[str, Strategy] = {s.name: s for s in (KeepW(), SampleW(), TopW(), ClusterSampling())}


def strategy_for(unique: bool, objective: Objective = "max-subset") -> Strategy:
    """The strategy for a kind of join and an objective. [MESH] Table 2

    Parameters
    ----------
    unique
        Whether a stream tuple joins with one tuple of R at most (many-to-one): `Relation.unique`.
    objective
        "max-subset": as many results as possible. "random-sample": results that stand for all of them.

    Example
    -------
    >>> strategy_for(unique=True), strategy_for(unique=False, objective="random-sample")
    (KeepW(), ClusterSampling())
    """
    choice("objective", objective, ("max-subset", "random-sample"))
    if objective == "max-subset":
        return STRATEGIES["keep" if unique else "topw"]
    return STRATEGIES["sample" if unique else "cluster"]
