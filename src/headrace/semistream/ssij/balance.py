"""How SSIJ moves memory between the tuples that wait and the pages that stay, where neither SB_thresh nor split is given."""

from __future__ import annotations

import numpy as np

from headrace.arrays import Int32s, Int64s, UInt8s
from headrace.kernels.pairs import wanted_by_half
from headrace.relation.disk import Disk, PlanKind
from headrace.semistream.page_ranges import PageRanks

_FIRST = 0.8  # share of SB before the first pass
_LEAST, _MOST = 0.02, 0.995  # shares between which it moves: neither side vanishes, or nothing could be learned of it
_STEP = 0.6  # the factor by which the odds of SB against CR move in a step; nearer to 1 where they went to and fro
_LEAST_PACE = 0.125  # of a whole step: it never stands still
_CLEARLY = 1.1  # times as much must be saved by one side as by the other for a step


class Balance:
    """The share of the memory for SB, moved after each join phase towards where the next byte saves more.

    A byte for CR saves reads of tuples that a page more would serve. A byte for SB lets more tuples share one pass of reads,
    which saves something as far as the cost of a pass grows less than the number of its tuples: nothing when each tuple needs a
    random read of its own, everything when the whole relation is scanned anyway.
    """

    def __init__(self) -> None:
        self.share = _FIRST
        self._pace = 1.0
        self._last = 0  # which way it moved: +1 towards SB

    def move(
        self, tail: float, page_bytes: float, misses: int, tuple_bytes: float, tuples: int, sharing: float
    ) -> None:
        """Move the share by what the last pass tells.

        Parameters
        ----------
        tail, page_bytes, misses
            Tuples that a page at the end of CR served, its bytes, and (tuple, page) pairs that nothing served.
        tuple_bytes, tuples, sharing
            Bytes of a tuple in SB and II, how many there were, and by how much, in percent, a pass is cheaper a tuple with 1%
            more of them.
        """
        for_CR = tail / page_bytes / max(1, misses)
        for_SB = sharing / tuple_bytes / max(1, tuples)
        way = 1 if for_SB > _CLEARLY * for_CR else -1 if for_CR > _CLEARLY * for_SB else 0
        if not way:
            return
        if self._last:  # to and fro: the best is between; on and on: it is farther
            self._pace = min(1.0, 2 * self._pace) if way == self._last else max(_LEAST_PACE, self._pace / 2)
        self._last = way
        # Odds and not shares: a step is as large either way, so that it does not overshoot where one of the two is small.
        odds = self.share / (1 - self.share) * _STEP ** (-way * self._pace)
        self.share = min(_MOST, max(_LEAST, odds / (1 + odds)))


def sharing(
    disk: Disk,
    page_size: int,
    longest: int,
    plan: PlanKind,
    places: PageRanks,
    ranks: Int32s,
    starts: Int32s,
    slots: Int32s,
    together: int = 1 << 30,
) -> float:
    """How much tuples share reads: 1 - the exponent by which the cost of a pass grows with its tuples.

    It compares the plan for all tuples with the plan for every second one. The pass is over places[ranks], with lists of slots;
    `together`: so many pages are planned at a time.
    """
    half: UInt8s = np.empty(ranks.size, np.uint8)
    wanted_by_half(starts, slots, half)
    if half.all() or not half.any():
        return float(half.all())
    seek, transfer = disk.costs(page_size)

    def cost(wanted: Int64s) -> float:
        _, length = disk.runs(wanted, page_size, longest, plan=plan)
        return float(length.size * seek + int(length.sum()) * transfer)

    whole = part = 0.0
    for a in range(0, ranks.size, together):
        some = places[ranks[a : a + together]]
        whole += cost(some)
        part += cost(some[half[a : a + together] == 1])
    return float(np.clip(1 - np.log2(whole / part), 0, 1))
