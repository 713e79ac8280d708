"""Which tuples go to disk when memory is full. [PQP] §3.1.2

A policy gives every partition in memory (or every tuple) a score; the driver flushes those with the lowest, until enough are
gone. It sees the ledger and nothing else, so the same policy serves keys, boxes and vectors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from headrace.errors import BadInput
from headrace.progressive.grids.partitioning import Doubles
from headrace.relation.columns import Longs
from headrace.relation.keys import Hashes, Ints

Counts = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(slots=True)
class Ledger:
    """What a policy may know. Arrays are [side, partition]; a result is credited to the partition that was probed."""

    held: Counts
    """N_i: tuples in memory"""
    arrived: Counts
    """tuples that came, since the beginning"""
    fresh: Counts
    """tuples that came since the last flush"""
    results: Counts
    """R_i: results from probes against it, since the beginning"""
    recent: Counts
    """results from probes against it since the last flush"""
    flushes: int = 0

    @classmethod
    def empty(cls, partitions: int) -> Ledger:
        """Of a join that has seen nothing."""
        held, arrived, fresh, results, recent = (np.zeros((2, partitions), np.int64) for _ in range(5))
        return cls(held, arrived, fresh, results, recent)


@dataclass(frozen=True, slots=True)
class Resident:
    """The tuples of one side that are in memory, for a policy that chooses among tuples. Arrays are by tuple."""

    partition: Ints
    cell: Hashes
    arrived: Longs
    """stamps; a later tuple has a larger one"""
    results: Ints
    """results that each took part in while in memory, as the one that was probed"""


class FlushPolicy(ABC):
    """Chooses what leaves memory.

    Parameters
    ----------
    share
        Part of the tuples in memory that is flushed at a time, above 0 and at most 1; or how many, as a whole number.
    """

    per_tuple: ClassVar[bool] = False
    """whether tuples are scored, and not partitions"""
    pairs: ClassVar[bool] = False
    """whether both sides of a partition leave together"""
    whole: ClassVar[bool] = False
    """whether partitions leave as a whole, even if that is more than was asked for"""

    def __init__(self, share: float | int = 0.1) -> None:
        fits = isinstance(share, int | float) and not isinstance(share, bool)
        if not fits or share <= 0 or (isinstance(share, float) and share > 1):
            raise BadInput(
                f"share={share!r} is not a part of memory; give one above 0 and at most 1, or a number of tuples"
            )
        self.share = share

    def wanted(self, held: int) -> int:
        """How many tuples to flush when so many are held."""
        if isinstance(self.share, int):
            return min(self.share, held)
        return min(held, max(1, round(self.share * held)))

    def arrive(self, side: int, cells: Hashes, partitions: Ints) -> None:  # noqa: B027
        """Tuples came. Most policies need no more than the ledger says."""

    def scores(self, ledger: Ledger) -> Doubles:
        """A score of each partition, [side, partition]; the lowest is flushed first. Asked once a flush."""
        scores = self._scores(ledger)
        assert scores.shape == ledger.held.shape and not np.isnan(scores).any(), f"{type(self).__name__}: bad scores"
        return scores

    @abstractmethod
    def _scores(self, ledger: Ledger) -> Doubles:
        """The same: the choice."""

    def tuple_scores(self, ledger: Ledger, side: int, resident: Resident) -> Doubles:
        """A score of each tuple of a side. For per_tuple policies."""
        raise BadInput(f"{type(self).__name__} is said to score tuples (per_tuple), and has no tuple_scores; write it")


class XJoin(FlushPolicy):
    """The largest partition goes, whole. [PQP] §2.1, Urhan and Franklin 1999"""

    whole = True

    def _scores(self, ledger: Ledger) -> Doubles:
        return -ledger.held.astype(np.float64)


class HMJ(FlushPolicy):
    """Both sides of a partition go together: the pair with the most tuples that leaves the sides of memory even. [PQP] §2.1

    What leaves was joined completely while it was there, so the disk parts of a flush owe each other nothing.

    Reference: Mokbel, Lu and Aref, Hash-Merge Join, 2004. Deviations: no threshold for the size of a pair; a pair that has more
    of the side with fewer tuples is taken only after all others.
    """

    pairs = True

    def _scores(self, ledger: Ledger) -> Doubles:
        both = ledger.held.sum(axis=0)
        more = int(np.argmax(ledger.held.sum(axis=1)))
        lopsided = ledger.held[more] < ledger.held[1 - more]
        scores = np.where(lopsided, 0.0, -both.sum()) - both
        return np.stack([scores, scores])


class AllFlush(FlushPolicy):
    """Everything goes. The simplest policy, and with the longest segments on disk."""

    def __init__(self, share: float | int = 1.0) -> None:
        super().__init__(share)

    def _scores(self, ledger: Ledger) -> Doubles:
        return np.zeros(ledger.held.shape)


class Random(FlushPolicy):
    """Partitions in an order drawn anew for each flush: the baseline of [PQP] §6.2.

    Parameters
    ----------
    share
        See FlushPolicy.
    seed
        Of the draws; the same seed gives the same choices.
    """

    def __init__(self, share: float | int = 0.1, seed: int = 0) -> None:
        super().__init__(share)
        self.seed = seed
        self._draw = np.random.default_rng(seed)

    def _scores(self, ledger: Ledger) -> Doubles:
        return np.asarray(self._draw.random(ledger.held.shape))


class RRPJ(FlushPolicy):
    """The partitions with the fewest results a tuple go: Th = R / N. [PQP] §3.2.1, eq. 3.3

    N counts the tuples that came, not those in memory. The text says both ("tuples in partition i", and their sum "that have
    arrived"); only the first is a rate. R is never reset, so over tuples in memory a partition that was just flushed, useless as
    it may be, has the highest value of all and is kept the next time. Measured: `docs/reference/flush-policies.md`.
    """

    def _scores(self, ledger: Ledger) -> Doubles:
        return np.divide(ledger.results, np.maximum(1, ledger.arrived))


class AmortisedRRPJ(RRPJ):
    """RRPJ that forgets: results of earlier flushes count sigma, sigma^2, ... [PQP] §3.2.2, eq. 3.4

    Choose it when what arrives changes over time, and you know how fast.

    Parameters
    ----------
    share
        See FlushPolicy.
    sigma
        From 0, only results since the last flush count, to 1, which is RRPJ.
    """

    def __init__(self, share: float | int = 0.1, sigma: float = 0.2) -> None:
        super().__init__(share)
        if not 0 <= sigma <= 1:
            raise BadInput(f"sigma={sigma!r} is not a weight of the past; give one from 0 to 1")
        self.sigma = sigma
        self._results: Doubles = np.zeros((2, 1))

    def _scores(self, ledger: Ledger) -> Doubles:
        self._results = (self.sigma * self._results + ledger.recent).astype(np.float64)
        return self._results / np.maximum(1, ledger.arrived)


class RRPJF(RRPJ):
    """RRPJ for each tuple: those with the fewest results go, the oldest of them first. [PQP] §5.1.2

    Choose it when tuples of one partition differ much, as boxes of many sizes do. It costs a counter a tuple.
    """

    per_tuple = True

    def tuple_scores(self, ledger: Ledger, side: int, resident: Resident) -> Doubles:
        """Results; N is 1."""
        return resident.results.astype(np.float64)
