"""X-HYBRIDJOIN: HYBRIDJOIN that keeps the most popular pages of the relation in memory. [XHJ] §4"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.clock import Clock
from headrace.errors import BadInput
from headrace.relation import Relation
from headrace.relation.columns import Longs
from headrace.relation.keys import Hashes, Ints, Keys
from headrace.relation.reader import PageReader
from headrace.semistream.base import How, On, Order
from headrace.semistream.hybrid.hybrid_cost import HybridCost
from headrace.semistream.hybrid.hybridjoin import HybridJoin
from headrace.semistream.mesh.meshjoin import Tuning


class XHybridJoin(HybridJoin):
    """HYBRIDJOIN with a second part of the disk buffer that is never swapped: the first pages of a relation stored by popularity.

        R  p1 ... pl --once--> [non-swappable: l pages] <--looked up by-- w new tuples <-- S
           the rest --k pages--> [swappable: k pages] --probe--> [H and Q: tuples that were not served] <--|

    Choose it for a relation stored by popularity (Relation.create(order="frequency", frequencies=...)) and a skewed stream:
    tuples of popular keys are served as they come in, and the disk works for the others.

    Parameters
    ----------
    relation
        Stored by popularity, with unique keys.
    on, memory, how, columns, suffix, clock, order, k, skew, count_index
        See HybridJoin.
    l
        Pages of the non-swappable part. Tuned by default; 0 is HYBRIDJOIN.
    tuning
        "optimal": k and l with the best service rate by the cost model. "default": k as HybridJoin has it, and l = k, the
        text's rule of thumb.

    Example
    -------
    >>> import pyarrow as pa, tempfile, headrace as hr
    >>> from headrace.semistream import XHybridJoin
    >>> lookup = pa.table({"id": [1, 2, 3], "skey": [100, 110, 120]})
    >>> asked = pa.table({"id": [2], "frequency": [1000]})
    >>> rel = hr.Relation.create(
    ...     tempfile.mkdtemp() + "/lookup", lookup, key="id", order="frequency", frequencies=asked
    ... )
    >>> op = XHybridJoin(rel, on="id", memory="1MiB", l=1)
    >>> pa.Table.from_batches(op.run([pa.record_batch({"id": [2, 7, 2]})])).to_pydict()
    {'id': [2, 2], 'skey': [110, 110]}
    >>> op.stats.hits
    2

    References
    ----------
    [XHJ] §4 (Algorithm 1), §6.

    Deviations: those of HybridJoin. The text probes H with every tuple of the non-swappable part in each iteration; only tuples
    that came in since can match one, so they look it up instead. What is charged and counted is the text's: c_H for each of its
    d_N tuples. With several shards, each ordered by popularity, the l pages are the first ones of every shard, in
    proportion. Tuples that the non-swappable part serves are hits (Fig. 3d).
    """

    needs_popularity = True

    def __init__(
        self,
        relation: Relation,
        on: On,
        memory: int | str = "64MiB",
        *,
        how: How = "inner",
        columns: Sequence[str] | None = None,
        suffix: str | None = "_right",
        clock: Clock | None = None,
        order: Order = "any",
        k: int | None = None,
        l: int | None = None,
        tuning: Tuning = "optimal",
        skew: float = 1.0,
        count_index: bool = True,
    ) -> None:
        if l is not None and l < 0:
            raise BadInput(f"l={l} is not a number of pages; give 0 or more")
        if relation.order != "frequency":
            raise BadInput(
                f"XHybridJoin needs a relation stored by popularity, and {relation.path} is stored by key; make it with"
                " Relation.create(..., order='frequency', frequencies=...), or use HybridJoin"
            )
        self.l = l
        self._new: list[tuple[Ints, Hashes]] = []  # slots and hashes of tuples that came in
        super().__init__(
            relation,
            on,
            memory,
            how=how,
            columns=columns,
            suffix=suffix,
            clock=clock,
            order=order,
            k=k,
            tuning=tuning,
            skew=skew,
            count_index=count_index,
        )

    # -- sizes -----------------------------------------------------------------------------------------------------------

    @property
    def _least_pages(self) -> int:
        return super()._least_pages + min(self.l or 0, self._places.size)

    def _sizes(self, cost: HybridCost, memory: int) -> tuple[int, int]:
        if self.tuning == "default":
            k = self.k or self._default(memory)
            l = k if self.l is None else self.l
        else:
            k, l = cost.best(memory, self.k, self.l)
        pages = self._places.size
        l = min(l, pages)
        return min(k, max(1, pages - l)), l

    def _begin(self) -> None:
        super()._begin()
        first = self._most_popular(self._l)
        self._rest = np.setdiff1d(self._places, first, assume_unique=True)
        # Their addresses stay good as long as the reader does.
        self._pinned = PageReader(self._version, max(1, self._l) * self.relation.page_size, whole=True)
        addresses = [some for _, _, some in self._pinned.read(first, self.stats, bridge=False)]
        keys, at, row = self._tuples_of(np.concatenate([np.empty(0, np.int64), *addresses]))
        hashes = keys.hashes()
        by_hash = np.argsort(hashes)
        self._popular: tuple[Keys, Hashes, Longs, Ints] = (
            keys.take(by_hash),
            hashes[by_hash],
            at[by_hash],
            row[by_hash],
        )

    def _most_popular(self, pages: int) -> Longs:
        """The first pages of the relation; of each shard in proportion to its pages. Sorted."""
        shards = [self._version.places(s) for s in range(self.relation.num_shards)]
        places = np.concatenate([np.empty(0, np.int64), *shards])
        depth = np.concatenate([np.empty(0), *((np.arange(some.size) + 0.5) / max(1, some.size) for some in shards)])
        return np.sort(places[np.argsort(depth, kind="stable")[:pages]])

    # -- an iteration ----------------------------------------------------------------------------------------------------

    def _iterate(self, w: int) -> Iterator[pa.RecordBatch]:
        yield from self._take_in(w)
        yield from self._look_up_new()
        yield from super()._iterate(0)

    def _enter(self, batch: pa.RecordBatch, hashes: Any, numbers: Longs) -> None:
        slots = self._H.insert(hashes, numbers, self.clock.now())
        self._window.enter(batch, numbers, slots)
        self._new.append((slots, hashes))

    def _look_up_new(self) -> Iterator[pa.RecordBatch]:
        """Serve new tuples from the non-swappable part."""
        keys, hashes, at, row = self._popular
        self.stats.probes += hashes.size
        self._spend(c_H=hashes.size)
        new, self._new = self._new, []
        for slots, wanted in new:
            low, high = np.searchsorted(hashes, wanted), np.searchsorted(hashes, wanted, side="right")
            many = high - low  # more than one where texts share a hash
            slots = np.repeat(slots, many)
            r = (np.repeat(low - np.cumsum(many) + many, many) + np.arange(slots.size)).astype(np.int32)
            for a in range(0, r.size, self._output_rows):
                some, pairs = self._really(keys, r[a : a + self._output_rows], slots[a : a + self._output_rows])
                if some.size:
                    yield from self._found(pairs, at[some], row[some])
        yield from self._leave(self._matched(), hits=True)
