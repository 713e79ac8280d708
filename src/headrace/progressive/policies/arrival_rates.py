"""Flush policies that foretell what will arrive. [PQP] §2.1

A tuple is worth keeping if tuples that match it are likely to come. These two look at what came, and take for granted that the
tuples of a partition match each other alike; RRPJ, which looks at results, need not.
"""

from __future__ import annotations

import numpy as np

from headrace.errors import BadInput
from headrace.progressive.grids.partitioning import Doubles
from headrace.progressive.policies.flush import FlushPolicy, Ledger
from headrace.relation.keys import Hashes, Ints


class RPJ(FlushPolicy):
    """The partitions go whose opposite is least likely to get the next tuple. [PQP] §2.1, eq. 5.1; Tao et al. 2005

    p(side, partition) is the partition's share of all that came to its side, times the side's share of what came lately: of the
    last arrivals, about as many as memory holds. The same formula over the cells of a grid is the naive extension to boxes of
    §5.1.2 and to vectors of §6.1.3: it knows nothing of the neighbours that a vector's matches may lie in.

    Deviation: the original counts what came lately by intervals of time. Since the last flush would not do: it may be one tuple.
    """

    def __init__(self, share: float | int = 0.1) -> None:
        super().__init__(share)
        self._lately = np.zeros((2, 1))

    def _scores(self, ledger: Ledger) -> Doubles:
        keep = max(0.0, 1 - ledger.fresh.sum() / max(1, ledger.held.sum()))
        self._lately = keep * self._lately + ledger.fresh.sum(axis=1, keepdims=True)
        of_side = self._lately / max(1.0, self._lately.sum())
        within = ledger.arrived / np.maximum(1, ledger.arrived.sum(axis=1, keepdims=True))
        chance: Doubles = within * of_side
        return chance[::-1]


class LA(FlushPolicy):
    """As RPJ, with reference locality: what came a moment ago is likely to come again. [PQP] §2.1; Li et al. 2006

    The next tuple repeats the partition of one of the last h arrivals with probability 1 - b, each of them alike, and follows
    the long-term popularity of partitions with probability b.

    Parameters
    ----------
    share
        See FlushPolicy.
    h
        Arrivals that count as a moment ago, of both sides together.
    b
        From 0, locality alone, to 1, popularity alone.

    Deviations: of partitions and not of single values, whose popularity would take a counter for each that ever came; all a_i are
    equal, where the original fits each of them; a batch is taken as it comes, so h should be larger than a batch.
    """

    def __init__(self, share: float | int = 0.1, h: int = 1000, b: float = 0.5) -> None:
        super().__init__(share)
        if h < 1:
            raise BadInput(f"h={h!r} is not a number of arrivals; give 1 or more")
        if not 0 <= b <= 1:
            raise BadInput(f"b={b!r} is not a probability; give one from 0 to 1")
        self.h = h
        self.b = b
        self._last = np.empty((2, 0), np.int32)  # sides and partitions, the latest last

    def arrive(self, side: int, cells: Hashes, partitions: Ints) -> None:
        """Remember the last h."""
        new = np.stack([np.full(partitions.size, side, np.int32), partitions])
        self._last = np.concatenate([self._last, new], axis=1)[:, -self.h :]

    def _scores(self, ledger: Ledger) -> Doubles:
        popularity = ledger.arrived / max(1, int(ledger.arrived.sum()))
        places = np.ravel_multi_index(tuple(self._last), ledger.arrived.shape)
        lately = np.bincount(places, minlength=ledger.arrived.size).reshape(ledger.arrived.shape)
        chance = self.b * popularity + (1 - self.b) * lately / max(1, self._last.shape[1])
        return chance[::-1]
