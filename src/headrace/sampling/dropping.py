"""Dropping: who leaves when the memory of an approximate join is full. [PQP] §8.3"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.errors import BadInput, choice, shown
from headrace.kernels import approximate_join as k
from headrace.kernels.approximate_join import FLUSH, LOWEST_OF_BOTH

Allocation = Literal["fixed", "variable"]
Replacement = Literal["stratum", "anywhere"]


@dataclass(frozen=True, slots=True)
class Dropping:
    """Who is dropped when memory is full."""

    placing: int
    """one of the constants of kernels.approximate_join: KEEP_ALL, OWN_SIDE, ..."""
    scanning: int
    """the tuples that the text's algorithm compares an arriving one with: SCAN_SIDE, SCAN_MEMORY or SCAN_PARTITION"""
    sampled: float
    """the probability that an arriving tuple is placed by sampling, and not by priority"""
    counts: bool
    """whether the arrivals of values are counted, for priorities"""
    literal: bool = False
    """whether a tuple whose stratum is empty is dropped"""
    share: float = 0.0
    """the part of memory that a flush drops"""

    @property
    def pool(self) -> bool:
        """Whether both sides share the slots."""
        return self.placing in (FLUSH, LOWEST_OF_BOTH)


def dropping_for(
    method: str, allocation: str, replacement: str, literal: bool, quality: float | None, share: float
) -> Dropping:
    """Who is dropped, by the arguments of a join. Refuses those that the method does not have."""
    choice("allocation", allocation, ("fixed", "variable"))
    choice("replacement", replacement, ("stratum", "anywhere"))
    prob = method in ("prob", "probhash")
    if allocation == "variable" and not prob:
        raise BadInput(f"allocation='variable' is for prob and probhash; {method} does not choose among both sides")
    if replacement == "anywhere" and method != "rajhash":
        raise BadInput(f"replacement='anywhere' is for rajhash; {method} has no strata")
    if literal and (method != "rajhash" or replacement == "anywhere"):
        raise BadInput(
            "literal=True is for rajhash with replacement='stratum': it says what is done with an empty stratum"
        )
    if (quality is not None) != (method == "mixture"):
        raise BadInput(
            f"quality={shown(quality)} and method={method!r}: give quality=, from 0 (as prob) to 1 (as raj), with"
            " method='mixture', and with no other"
        )
    if quality is not None and (
        isinstance(quality, bool) or not isinstance(quality, int | float) or not 0 <= quality <= 1
    ):
        raise BadInput(f"quality={shown(quality)} is not between 0 and 1; 0 is as prob, 1 as raj")
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise BadInput(f"share={shown(share)} is not a part of memory; give more than 0, and 1 at most")
    if method == "exact":
        return Dropping(k.KEEP_ALL, k.SCAN_PARTITION, 0.0, False)
    if method == "rrpj":
        return Dropping(k.FLUSH, k.SCAN_PARTITION, 0.0, False, share=share)
    if prob:
        placing, whole = (k.OWN_SIDE, k.SCAN_SIDE) if allocation == "fixed" else (k.LOWEST_OF_BOTH, k.SCAN_MEMORY)
        return Dropping(placing, whole if method == "prob" else k.SCAN_PARTITION, 0.0, True)
    if method == "rajhash":
        placing = k.OWN_STRATUM if replacement == "stratum" else k.OWN_SIDE
        return Dropping(placing, k.SCAN_PARTITION, 1.0, False, literal)
    return Dropping(k.OWN_SIDE, k.SCAN_SIDE, 1.0 if quality is None else float(quality), quality is not None)
