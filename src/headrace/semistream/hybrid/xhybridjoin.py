"""X-HYBRIDJOIN: HYBRIDJOIN that keeps the most popular pages of the relation in memory. [XHJ] §4"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

import pyarrow as pa

from headrace.arrays import Int32s
from headrace.clock import Clock
from headrace.errors import BadInput, choice
from headrace.relation import Relation
from headrace.relation.paged_index import open_index
from headrace.semistream.base import How, On, Order
from headrace.semistream.hybrid.hybrid_cost import HybridCost
from headrace.semistream.hybrid.hybrid_plan import HybridPlan, hybrid_index, hybrid_output
from headrace.semistream.hybrid.hybridjoin import (
    check_hybrid,
    hold_hybrid,
    loop_comes_round,
    shrink_hybrid,
    with_oldest,
)
from headrace.semistream.hybrid.non_swappable import NonSwappable
from headrace.semistream.hybrid.partition_loader import PartitionLoader, concat_slots
from headrace.semistream.mesh.mesh_plan import Tuning
from headrace.semistream.plan_facts import PlanFacts
from headrace.semistream.protocols import StreamShedder
from headrace.semistream.waiting_join import WaitingJoin
from headrace.semistream.waiting_plan import OutputPlan
from headrace.semistream.waiting_store import HashWindow


class XHybridJoin(WaitingJoin):
    """HYBRIDJOIN with a second part of the disk buffer that is never swapped: the first pages of a relation stored by popularity.

        R  p1 ... pl --once--> [non-swappable: l pages] <--looked up by-- w new tuples <-- S
           the rest --k pages--> [swappable: k pages] --probe--> [H and Q: tuples that were not served] <--|

    Choose it for a relation stored by popularity (Relation.create(order="frequency", frequencies=...)) and a skewed stream:
    tuples of popular keys are served as they come in, and the disk works for the others.

    Parameters
    ----------
    relation
        Stored by popularity, with unique keys.
    on, memory, how, columns, suffix, clock, order, shed, measure, k, skew, count_index
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

    unique_keys = True
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
        shed: StreamShedder | None = None,
        measure: bool = False,
        k: int | None = None,
        l: int | None = None,
        tuning: Tuning = "optimal",
        skew: float = 1.0,
        count_index: bool = True,
    ) -> None:
        if l is not None and l < 0:
            raise BadInput(f"l={l} is not a number of pages; give 0 or more")
        self.tuning: Tuning = choice("tuning", tuning, ("optimal", "default"))  # type: ignore[assignment]
        self.k, self.l, self.skew, self.count_index = k, l, skew, count_index
        self._check_version(relation)
        super().__init__(
            relation,
            on,
            memory,
            how=how,
            columns=columns,
            suffix=suffix,
            clock=clock,
            order=order,
            shed=shed,
            measure=measure,
        )
        self._open_index()

    # -- memory ----------------------------------------------------------------------------------------------------------

    def _open_index(self) -> None:
        """Have the index of the relation, as a whole or in part, and what looks keys up in it."""
        index = hybrid_index(self._facts(), self._memory.room, k=self.k, l=self.l, count_index=self.count_index)
        self._memory.hold("index", index.nbytes)
        version = open_index(self.relation.opened, index, lambda: self.stats)
        self._pages = self._probe_of(self._H)
        self._swappable = PartitionLoader(self.relation, self.stream_key, self._H, version)
        self._non_swappable = NonSwappable(self.relation, version)

    @staticmethod
    def plan(
        facts: PlanFacts,
        limit: int,
        *,
        k: int | None = None,
        l: int | None = None,
        tuning: Tuning = "optimal",
        count_index: bool = True,
    ) -> HybridPlan:
        """How it divides a memory: see HybridPlan."""
        return HybridPlan.of(facts, limit, k=k, l=l, tuning=tuning, count_index=count_index)

    def cost(self, stream_bytes: float) -> HybridCost:
        """The cost model for stream tuples of so many bytes. [XHJ] §4.3"""
        facts = replace(self._facts(), stream_bytes=stream_bytes)
        index = hybrid_index(facts, self._memory.room, k=self.k, l=self.l, count_index=self.count_index)
        return HybridCost.of(facts, index.reads)

    @property
    def sizes(self) -> HybridPlan:
        """The sizes that it has; known with the first stream tuple."""
        return self._plan

    def _facts(self, ahead: Relation | None = None) -> PlanFacts:
        return replace(super()._facts(ahead), skew=self.skew)

    def _planned(self, facts: PlanFacts) -> HybridPlan:
        return self.plan(facts, self._memory.room, k=self.k, l=self.l, tuning=self.tuning, count_index=self.count_index)

    def _new_store(self) -> HashWindow:
        return HashWindow(self.relation)

    @property
    def _H(self) -> HashWindow:
        """H and Q, which are where its tuples wait."""
        return cast(HashWindow, self._waiting)

    def _output_plan(self) -> OutputPlan:
        return hybrid_output(self._facts(), self._memory.room, k=self.k, l=self.l, count_index=self.count_index)

    def _begin(self) -> None:
        self._make_buffers(self._planned(self._facts()))

    def _make_buffers(self, plan: HybridPlan) -> None:
        self._plan = plan
        hold_hybrid(self._memory, plan)
        self._H.resize(max(1, plan.h_S))
        self._non_swappable.load(plan.l, self._pages, self.stats)  # line 1
        self._swappable.resize(plan.k, without=self._non_swappable.places)

    # -- the algorithm: [XHJ] Algorithm 1 --------------------------------------------------------------------------------

    def _wanted_now(self) -> int:
        return self._H.room  # as many as left; h_S in the beginning (lines 2, 11, 20)

    def _room_now(self) -> int:
        return self._H.room

    def _early(self) -> Iterator[pa.RecordBatch]:
        """What H has room for waits there and not in the stream buffer, which has no memory of its own."""
        yield from self._pages.take_in(self._H.room, self._non_swappable.new)

    @property
    def ready(self) -> bool:
        """Whether the loop comes round: it takes the stream as it is available, and goes on while the stream lets it wait."""
        return loop_comes_round(self._H, self._input.rows, self._steps)

    def _seconds_left(self) -> float:
        """Each iteration loads a partition for the oldest tuple, and none twice for those that wait."""
        plan, partitions = self._plan, -(-self._swappable.places.size // self._plan.k)
        return self._steps.bound(min(self.waiting, partitions), plan.cost.loop(1, plan.k, plan.l))

    def _iterate(self, w: int, most: int | None = None) -> Iterator[pa.RecordBatch]:
        """One iteration of Algorithm 1, lines 4 to 23."""
        yield from self._pages.take_in(w, self._non_swappable.new)  # lines 4-7
        yield from self._look_up_new()  # lines 8-14
        oldest, absent, place = self._swappable.oldest()  # line 15
        yield from self._leave(absent)
        if oldest.size:
            met: list[Int32s] = []
            for pages in self._swappable.load(place, self.stats):  # line 16
                yield from self._pages.probe(self._swappable.reader, pages, self.stats, met)  # lines 17-19
            yield from self._leave(with_oldest(concat_slots(met), oldest))  # lines 20-21

    def _look_up_new(self) -> Iterator[pa.RecordBatch]:
        """Lines 8 to 14: serve new tuples from the non-swappable part."""
        part, met = self._non_swappable, []
        self.stats.probes += part.size
        self.relation.disk.spend({"c_H": part.size})
        for r, slots in part.served(self._results.rows):
            some, slots = self._pages.equal(part.keys, r, slots)
            if some.size:
                met.append(slots)
                yield from self._results.found(slots, part.at[some], part.row[some])
        yield from self._leave(concat_slots(met), hits=True)

    # -- updates ---------------------------------------------------------------------------------------------------------

    def _check_version(self, relation: Relation) -> None:
        if relation.order != "frequency":
            raise BadInput(
                f"XHybridJoin needs a relation stored by popularity, and {relation.path} is stored by key; make it with"
                " Relation.create(..., order='frequency', frequencies=...), or use HybridJoin"
            )
        check_hybrid(type(self).__name__, relation, self.k, self.skew)

    def _finish_begun(self) -> Iterator[pa.RecordBatch]:
        """A tuple waits until the one page that it needs is there, so those that wait have met nothing that counts."""
        return iter(())

    def _room_with(self, version: Relation) -> int:
        return max(1, self._planned(self._facts(version)).h_S)

    def _move_to(self, relation: Relation) -> None:
        """Load another version's pages, the non-swappable part too, which all that waits looks up again: the key may be there."""
        plan = self._planned(self._facts(relation)) if self._input.tuple_bytes else None
        shrink_hybrid(self._memory, self._H, plan)
        for part in ("_swappable", "_non_swappable"):
            vars(self).pop(part, None)  # what it holds of the old index goes before the new one is there
        self._follow(relation)
        self._open_index()
        if plan:
            self._make_buffers(plan)
            slots = self._H.oldest(self._H.used)
            self._non_swappable.new.append((slots, self._H.hashes(slots)))

    # -- tuples that are kept elsewhere ----------------------------------------------------------------------------------

    def _settled(self) -> Iterator[pa.RecordBatch]:
        """Tuples of popular keys leave, which needs no read."""
        yield from self._early()
        if self._non_swappable.new:
            yield from self._look_up_new()
