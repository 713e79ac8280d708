"""HYBRIDJOIN: the stream tuple that has waited longest names the pages to load, through the index. [XHJ] §3"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from headrace.clock import Clock
from headrace.errors import BadInput, choice
from headrace.relation import Relation
from headrace.relation.columns import Longs
from headrace.relation.keys import Ints
from headrace.relation.reader import PageReader
from headrace.semistream.base import How, On, Order
from headrace.semistream.hash_queue import POINTER_BYTES
from headrace.semistream.hybrid.hybrid_cost import HybridCost
from headrace.semistream.mesh.meshjoin import DEFAULT_BUFFER, Tuning
from headrace.semistream.waiting_join import LEAST_WINDOW, WaitingJoin

_DEFAULT_SHARE = 0.25  # of the memory, for a disk buffer of the default size


class HybridJoin(WaitingJoin):
    """Load the partition that the oldest waiting tuple needs; every tuple that matches it leaves at once.

        Q  oldest --key--> index --place--> R --k pages--> [disk buffer] --probe--> [H: h_S tuples] <--w, as many as left-- S

    Choose it for a relation whose keys are unique and a stream that leaves parts of it alone: no page is read that no tuple
    needs. Each read still serves only the tuples that happen to wait for the same k pages.

    Parameters
    ----------
    relation
        Its keys are unique: a tuple that has met one match is done.
    on, memory, how, columns, suffix, clock, order
        See WaitingJoin.
    k
        Pages of the disk buffer, a partition of R. Tuned by default.
    tuning
        "optimal": the k with the best service rate by the cost model. "default": a fixed buffer of 0.93 MB ([DEF]), a quarter of
        the memory at most.
    skew
        The Zipf exponent of the stream, for tuning.
    count_index
        Whether the index is part of the memory. The text leaves it out of M; False does so too, to compare with its figures.

    Example
    -------
    >>> import pyarrow as pa, tempfile, headrace as hr
    >>> from headrace.semistream import HybridJoin
    >>> lookup = pa.table({"id": [1, 2, 3], "skey": [100, 110, 120]})
    >>> rel = hr.Relation.create(tempfile.mkdtemp() + "/lookup", lookup, key="id")
    >>> op = HybridJoin(rel, on="id", memory="1MiB")
    >>> pa.Table.from_batches(op.run([pa.record_batch({"id": [2, 7, 2]})])).to_pydict()
    {'id': [2, 2], 'skey': [110, 110]}

    References
    ----------
    [XHJ] §3, §4.2 (Algorithm 1 without its first inner loop), §4.3.

    Deviations: as printed, a tuple whose key is not in R stays in Q for ever, and its partition is loaded again and again once
    it is the oldest. Here the oldest tuple leaves when its partition has been loaded, matched or not, and tuples that the
    index proves to have no page leave without a read when they are the oldest. Every tuple counts as a miss.
    """

    unique_keys = True

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
        tuning: Tuning = "optimal",
        skew: float = 1.0,
        count_index: bool = True,
    ) -> None:
        self.tuning: Tuning = choice("tuning", tuning, ("optimal", "default"))  # type: ignore[assignment]
        if k is not None and k < 1:
            raise BadInput(f"k={k} is not a number of pages; give 1 or more")
        if not 0 <= skew < np.inf:
            raise BadInput(f"skew={skew} is not a Zipf exponent; give 0 (uniform) or more")
        if not relation.unique:
            raise BadInput(
                f"{type(self).__name__} needs unique keys, and {relation.path} has keys with up to"
                f" {relation.describe()['max_frequency']:,} rows; use AdaptiveJoin or MeshJoin for it"
            )
        self.k, self.skew, self.count_index = k, skew, count_index
        self._met: list[Ints] = []  # slots that the pages being probed matched
        super().__init__(relation, on, memory, how=how, columns=columns, suffix=suffix, clock=clock, order=order)
        if count_index:
            self._reserve("index", relation.index_bytes)
        self._rest = self._places  # pages that are loaded when they are needed

    # -- sizes -----------------------------------------------------------------------------------------------------------

    def _least(self) -> int:
        window = LEAST_WINDOW * int(self._slot_bytes + POINTER_BYTES + 80)
        return self._index_bytes + self._least_pages * self._page_bytes + window

    @property
    def _least_pages(self) -> int:
        """Of the disk buffer."""
        return min(self.k or 1, max(1, self._places.size))

    @property
    def _index_bytes(self) -> int:
        return self.relation.index_bytes if self.count_index else 0

    def cost(self, stream_bytes: float) -> HybridCost:
        """The cost model for stream tuples of so many bytes. [XHJ] §4.3"""
        slot = self._slot_bytes - self._stream_bytes + stream_bytes
        return HybridCost.of(self.relation, slot, self._page_bytes, self.skew, type(self).__name__.lower())

    def _begin(self) -> None:
        memory = self._room - self._output_bytes - self._index_bytes
        cost = self.cost(self._stream_bytes)
        self._k, self._l = self._sizes(cost, memory)
        self._reserve("disk buffer", (self._k + self._l) * self._page_bytes)
        self._make_window(max(1, cost.h_S(memory, self._k, self._l)))
        self._disk_buffer = PageReader(self._version, self._k * self.relation.page_size, whole=True)

    def _sizes(self, cost: HybridCost, memory: int) -> tuple[int, int]:
        """k and l."""
        k = self.k or (self._default(memory) if self.tuning == "default" else cost.best(memory, l=0)[0])
        return min(k, max(1, self._places.size)), 0

    def _default(self, memory: int) -> int:
        """Pages of a disk buffer of the default size."""
        return max(1, min(DEFAULT_BUFFER, int(memory * _DEFAULT_SHARE)) // self._page_bytes)

    # -- an iteration ----------------------------------------------------------------------------------------------------

    def _wanted_now(self) -> int:
        return self._H.room  # as many as left; h_S in the beginning

    def _early(self) -> Iterator[pa.RecordBatch]:
        """What H has room for waits there and not in the stream buffer, which has no memory of its own."""
        yield from self._take_in(self._H.room)

    def _iterate(self, w: int) -> Iterator[pa.RecordBatch]:
        yield from self._take_in(w)
        oldest, absent, place = self._oldest_needs()
        yield from self._leave(absent)
        if oldest.size:
            for _, _, addresses in self._disk_buffer.read(self._partition(place), self.stats, bridge=False):
                yield from self._probe(addresses)
            met = self._matched()
            yield from self._leave(met if bool((met == oldest).any()) else np.append(met, oldest))

    def _oldest_needs(self) -> tuple[Ints, Ints, int]:
        """The slot of the oldest tuple that may have a match, older ones that the index proves to have none, and its page."""
        looked = 1
        while True:
            slots = self._H.oldest(looked)
            places = self._places_of(slots)
            some = np.flatnonzero(places >= 0)
            if some.size:
                return slots[some[:1]], slots[: some[0]], int(places[some[0]])
            if looked >= self._H.used:
                return slots[:0], slots, -1
            looked *= 4  # in steps that grow: a run of absent keys takes few looks

    def _places_of(self, slots: Ints) -> Longs:
        """Where the index says that tuples' keys are; -1 where nowhere."""
        places = np.full(slots.size, -1, np.int64)
        if slots.size:
            stream = self._stream(slots)
            keys, _ = self._version.codec.encode([stream.column(name) for name in self.stream_key])
            pairs = self._version.pairs(keys, keys.hashes(), np.arange(slots.size))
            places[pairs.key] = pairs.place
            self._spend(c_X=slots.size)
        return places

    def _partition(self, place: int) -> Longs:
        """The aligned run of k pages that a page is in."""
        first = int(np.searchsorted(self._rest, place)) // self._k * self._k
        return self._rest[first : first + self._k]

    def _found(self, slots: Ints, at: Longs, row: Ints) -> Iterator[pa.RecordBatch]:
        self._met.append(slots)
        yield from super()._found(slots, at, row)

    def _matched(self) -> Ints:
        """Slots of the tuples that met their match since the last call."""
        met = np.concatenate([np.empty(0, np.int32), *self._met])
        self._met = []
        return met
