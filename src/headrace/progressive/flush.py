"""Which tuples go to disk when memory is full. [PQP] §3.1.2

A policy gives every partition in memory (or every tuple) a score; the driver flushes those with the lowest, until enough are
gone. It sees the ledger and nothing else, so the same policy serves keys, boxes and vectors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from headrace.errors import BadInput, choice
from headrace.progressive.partitioning import Doubles
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
        raise NotImplementedError


class XJoin(FlushPolicy):
    """The largest partition goes, whole. [PQP] §2.1, Urhan and Franklin 1999"""

    whole = True

    def _scores(self, ledger: Ledger) -> Doubles:
        return -ledger.held.astype(np.float64)


class RRPJ(FlushPolicy):
    """The partitions with the fewest results a tuple go: Th = R / N. [PQP] §3.2.1, eq. 3.3"""

    def _scores(self, ledger: Ledger) -> Doubles:
        return ledger.results / np.maximum(1, ledger.held)


POLICIES: dict[str, type[FlushPolicy]] = {"xjoin": XJoin, "rrpj": RRPJ}


def policy_of(flush: str | FlushPolicy) -> FlushPolicy:
    """A policy by its name, or as it is."""
    if isinstance(flush, FlushPolicy):
        return flush
    return POLICIES[choice("flush", flush, tuple(POLICIES))]()
