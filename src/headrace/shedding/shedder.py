"""Shedder: load shedding in one process, which keeps as many tuples of each interval as the join can take. [MESH] §4, Fig. 7b"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.arrays import Bools, UInt64s
from headrace.errors import BadInput, choice
from headrace.shedding.frequencies import KeyFrequencies
from headrace.shedding.row_hashes import row_hashes
from headrace.shedding.strategies import STRATEGIES, Strategy

Rate = float | Callable[[], float]


def effective_rate(arrival: float, service: float) -> float:
    """Return the stream tuples per second that reach the join: the lower of both rates. [MESH] Fig. 7b"""
    return min(arrival, service)


@dataclass
class ShedStats:
    """Counters of what was kept so far. Results are estimated by f_R."""

    tuples_in: int = 0
    kept: int = 0
    results: float = 0.0
    results_kept: float = 0.0

    @property
    def share(self) -> float:
        """The share of the tuples that was kept."""
        return self.kept / self.tuples_in if self.tuples_in else 1.0

    @property
    def results_share(self) -> float:
        """The estimated share of the results that was kept."""
        return self.results_kept / self.results if self.results else 1.0


class Shedder:
    """Divides the tuples of each interval into those to join now and those to store and join later.

        stream λ ──> [ interval: λ c_loop tuples ] ──> w = μ c_loop kept ──> join
                                                  └──> the rest ──> store, joined later

    Parameters
    ----------
    strategy
        keep, sample, topw or cluster, or a Strategy; see `strategy_for`.
    frequencies
        Estimates f_R of the relation.
    on
        Stream columns of the key, in the order of the relation's key.
    service_rate
        For `divide`: tuples per second that the join can take, μ: a number, or a function that returns the current one, from
        a cost model say: ``lambda: predict("meshjoin", facts, memory).rate``. A join that sheds by itself (`shed=`) needs none.
    store
        For a join that sheds by itself: called with the tuples that are not kept. They are lost unless it stores them.
    seed
        Seed of the random choices.

    Example
    -------
    >>> import tempfile, headrace as hr
    >>> table = pa.table({"k": [7, 7, 7, 8], "x": [1, 2, 3, 4]})
    >>> relation = hr.Relation.create(tempfile.mkdtemp() + "/r", table, key="k")
    >>> shedder = Shedder("topw", KeyFrequencies(relation), on=["k"], service_rate=100.0)
    >>> kept, rest = shedder.divide(pa.record_batch({"k": [8, 7, 9, 7]}), seconds=0.02)
    >>> kept.column("k").to_pylist(), rest.column("k").to_pylist(), shedder.stats.results_share
    ([7, 7], [8, 9], 0.857...)
    """

    def __init__(
        self,
        strategy: str | Strategy,
        frequencies: KeyFrequencies,
        on: Sequence[str],
        service_rate: Rate | None = None,
        seed: int = 0,
        store: Callable[[pa.RecordBatch], object] | None = None,
    ) -> None:
        if service_rate is None and store is None:
            raise BadInput(
                "a Shedder needs service_rate= to divide intervals, or store= for the tuples that a join with shed= does not take"
            )
        if not isinstance(strategy, Strategy):
            strategy = STRATEGIES[choice("strategy", strategy, STRATEGIES)]
        self.strategy = strategy
        self.frequencies = frequencies
        self.on = tuple(on)
        self.service_rate = service_rate
        self.seed = seed
        self.store = store
        self.stats = ShedStats()
        self._credit = 0.0  # fraction of a tuple not used in earlier intervals, so that μ is met in the long run

    @property
    def nbytes(self) -> int:
        """Bytes of what is known of frequencies."""
        return self.frequencies.nbytes

    def divide(self, interval: pa.RecordBatch, seconds: float) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Return the tuples of an interval that are kept, and those that are not, both in the order they came."""
        rate = self.service_rate() if callable(self.service_rate) else self.service_rate
        if rate is None or not rate > 0 or not seconds > 0:
            raise BadInput(f"service_rate={rate}, seconds={seconds}: both must be above 0 for anything to be joined")
        room = rate * seconds + self._credit
        w = max(1, int(room))
        self._credit = min(1.0, max(0.0, room - w))
        mask = self.keep(interval, w)
        return interval.filter(pa.array(mask)), interval.filter(pa.array(~mask))

    def keep(self, interval: pa.RecordBatch, w: int) -> Bools:
        """Tell which w tuples of an interval are kept, and count them."""
        f = self.frequencies.of([interval.column(name) for name in self.on])
        mask: Bools = np.ones(interval.num_rows, np.bool_)
        if interval.num_rows > w:
            mask = self.strategy.keep(f, self._words(interval), w)
        self.stats.tuples_in += interval.num_rows
        self.stats.kept += int(np.count_nonzero(mask))
        self.stats.results += float(f.sum())
        self.stats.results_kept += float(f[mask].sum())
        return mask

    def put_aside(self, rest: pa.RecordBatch) -> None:
        """Hand tuples that are not kept to `store`."""
        if self.store is None:
            raise BadInput(
                f"{rest.num_rows:,} tuples come faster than they can be joined, and the Shedder has no store= for them; give one"
            )
        self.store(rest)

    def _words(self, interval: pa.RecordBatch) -> UInt64s:
        """Return the words that order ties: positions in the stream or, for random samples, hashes of content and position."""
        places = np.arange(interval.num_rows, dtype=np.uint64)
        if self.strategy.objective == "max-subset":
            return places
        numbers = (
            np.uint64(self.stats.tuples_in) + places
        )  # equal rows get different hashes, so that each is chosen by itself
        return row_hashes(interval.append_column("\0number", pa.array(numbers)), self.seed)
