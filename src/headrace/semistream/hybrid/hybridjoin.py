"""HYBRIDJOIN: the stream tuple that has waited longest names the pages to load, through the index. [XHJ] §3"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from headrace.arrays import Int32s
from headrace.clock import Clock
from headrace.errors import BadInput, choice
from headrace.relation import Relation
from headrace.relation.paged_index import open_index
from headrace.semistream.base import How, On, Order
from headrace.semistream.deadlines import StepTime
from headrace.semistream.hash_queue import POINTER_BYTES
from headrace.semistream.hybrid.hybrid_cost import HybridCost
from headrace.semistream.hybrid.hybrid_plan import HybridPlan, hybrid_index, hybrid_output
from headrace.semistream.hybrid.partition_loader import PartitionLoader, concat_slots
from headrace.semistream.mesh.mesh_plan import Tuning
from headrace.semistream.plan_facts import PlanFacts
from headrace.semistream.protocols import StreamShedder
from headrace.semistream.reservations import Reservations
from headrace.semistream.waiting_join import WaitingJoin
from headrace.semistream.waiting_plan import OutputPlan
from headrace.semistream.waiting_store import HashWindow

_FILLING = 64  # parts of H: with fewer tuples an iteration costs more than it serves, unless the stream is slow


class HybridJoin(WaitingJoin):
    """Load the partition that the oldest waiting tuple needs; every tuple that matches it leaves at once.

        Q  oldest --key--> index --place--> R --k pages--> [disk buffer] --probe--> [H: h_S tuples] <--w, as many as left-- S

    Choose it for a relation whose keys are unique and a stream that leaves parts of it alone: no page is read that no tuple
    needs. Each read still serves only the tuples that happen to wait for the same k pages.

    Parameters
    ----------
    relation
        Its keys are unique: a tuple that has met one match is done.
    on, memory, how, columns, suffix, clock, order, shed, measure
        See WaitingJoin.
    k
        Pages of the disk buffer, a partition of R. Tuned by default.
    tuning
        "optimal": the k with the best service rate by the cost model. "default": a fixed buffer of 0.93 MB ([DEF]), an eighth of
        the memory at most.
    skew
        The Zipf exponent of the stream, for tuning.
    count_index
        Whether the index is part of the memory. The text leaves it out of M; False does so too, to compare with its figures.
        An index that is part of it and does not fit is read in part.

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
    index proves to have no page leave without a read when they are the oldest. Every tuple counts as a miss. The text's R does
    not change; after `refresh` all that waits is joined with the new version, since a tuple meets R in one load.
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
        shed: StreamShedder | None = None,
        measure: bool = False,
        k: int | None = None,
        tuning: Tuning = "optimal",
        skew: float = 1.0,
        count_index: bool = True,
    ) -> None:
        self.tuning: Tuning = choice("tuning", tuning, ("optimal", "default"))  # type: ignore[assignment]
        check_hybrid(type(self).__name__, relation, k, skew)
        self.k, self.skew, self.count_index = k, skew, count_index
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
        index = hybrid_index(self._facts(), self._memory.room, k=self.k, l=0, count_index=self.count_index)
        self._memory.hold("index", index.nbytes)
        version = open_index(self.relation.opened, index, lambda: self.stats)
        self._pages = self._probe_of(self._H)
        self._swappable = PartitionLoader(self.relation, self.stream_key, self._H, version)

    @staticmethod
    def plan(
        facts: PlanFacts, limit: int, *, k: int | None = None, tuning: Tuning = "optimal", count_index: bool = True
    ) -> HybridPlan:
        """How it divides a memory: see HybridPlan."""
        return HybridPlan.of(facts, limit, k=k, l=0, tuning=tuning, count_index=count_index)

    def cost(self, stream_bytes: float) -> HybridCost:
        """The cost model for stream tuples of so many bytes. [XHJ] §4.3"""
        facts = replace(self._facts(), stream_bytes=stream_bytes)
        index = hybrid_index(facts, self._memory.room, k=self.k, l=0, count_index=self.count_index)
        return HybridCost.of(facts, index.reads)

    @property
    def sizes(self) -> HybridPlan:
        """The sizes that it has; known with the first stream tuple."""
        return self._plan

    def _facts(self, ahead: Relation | None = None) -> PlanFacts:
        return replace(super()._facts(ahead), skew=self.skew)

    def _planned(self, facts: PlanFacts) -> HybridPlan:
        return self.plan(facts, self._memory.room, k=self.k, tuning=self.tuning, count_index=self.count_index)

    def _new_store(self) -> HashWindow:
        self._H = HashWindow(self.relation)
        return self._H

    def _output_plan(self) -> OutputPlan:
        return hybrid_output(self._facts(), self._memory.room, k=self.k, l=0, count_index=self.count_index)

    def _begin(self) -> None:
        self._make_buffers(self._planned(self._facts()))

    def _make_buffers(self, plan: HybridPlan) -> None:
        self._plan = plan
        hold_hybrid(self._memory, plan)
        self._H.resize(max(1, plan.h_S))
        self._swappable.resize(plan.k)

    # -- the algorithm: [XHJ] Algorithm 1 without lines 1 and 8 to 14 ----------------------------------------------------

    def _wanted_now(self) -> int:
        return self._H.room  # as many as left; h_S in the beginning (lines 2, 20)

    def _room_now(self) -> int:
        return self._H.room

    def _early(self) -> Iterator[pa.RecordBatch]:
        """What H has room for waits there and not in the stream buffer, which has no memory of its own."""
        yield from self._pages.take_in(self._H.room)

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
        yield from self._pages.take_in(w)  # lines 4-7
        oldest, absent, place = self._swappable.oldest()  # line 15
        yield from self._leave(absent)
        if oldest.size:
            met: list[Int32s] = []
            for pages in self._swappable.load(place, self.stats):  # line 16
                yield from self._pages.probe(self._swappable.reader, pages, self.stats, met)  # lines 17-19
            yield from self._leave(with_oldest(concat_slots(met), oldest))  # lines 20-21

    # -- updates ---------------------------------------------------------------------------------------------------------

    def _check_version(self, relation: Relation) -> None:
        check_hybrid(type(self).__name__, relation, self.k, self.skew)

    def _finish_begun(self) -> Iterator[pa.RecordBatch]:
        """A tuple waits until the one partition that it needs is loaded, so those that wait have met nothing that counts."""
        return iter(())

    def _room_with(self, version: Relation) -> int:
        return max(1, self._planned(self._facts(version)).h_S)

    def _move_to(self, relation: Relation) -> None:
        """Load partitions of another version; what waits looks its keys up in the new index."""
        plan = self._planned(self._facts(relation)) if self._input.tuple_bytes else None
        shrink_hybrid(self._memory, self._H, plan)
        vars(self).pop("_swappable", None)  # what it holds of the old index goes before the new one is there
        self._follow(relation)
        self._open_index()
        if plan:
            self._make_buffers(plan)


def with_oldest(met: Int32s, oldest: Int32s) -> Int32s:
    """The slots of tuples that leave: those that met their match, and the oldest, matched or not."""
    return met if bool((met == oldest).any()) else np.append(met, oldest)


def loop_comes_round(H: HashWindow, buffered: int, steps: StepTime) -> bool:
    """Whether the next iteration should be done now. [XHJ] Algorithm 1, lines 3 to 7

    The algorithm's loop has no end. It takes up to as many tuples as there are free slots, and where fewer are available it goes
    on all the same. A stream that is always there fills H, since a load serves the more tuples the more wait; meanwhile there is
    an iteration whenever eight times as many tuples have come as the last one served, so that results do not wait for a full H,
    and H fills up all the same. A stream that lets the join wait gets the iterations that the loop would have done in that time.
    """
    if not H.used and not buffered:
        steps.owed = 0.0
        return False
    enough = max(1, H.capacity // _FILLING, 8 * steps.served)
    return buffered > 0 or steps.came >= enough or steps.owed > steps.last


def hold_hybrid(memory: Reservations, plan: HybridPlan) -> None:
    """Reserve what a plan says; at least one tuple, where a model would say that none has room."""
    tuples = max(1, plan.h_S)
    memory.hold("disk buffer", plan.parts["disk buffer"])
    memory.hold("hash table", int(tuples * plan.cost.slot_bytes))
    memory.hold("queue", tuples * POINTER_BYTES)


def shrink_hybrid(memory: Reservations, H: HashWindow, plan: HybridPlan | None) -> None:
    """Give back what another version of the relation may need: pages, index, output, and slots beyond those of its plan."""
    if plan:
        H.resize(min(H.capacity, max(1, plan.h_S)))
        memory.hold("hash table", int(H.capacity * plan.cost.slot_bytes))
        memory.hold("queue", H.capacity * POINTER_BYTES)
    memory.hold_all({"disk buffer": 0, "index": 0, "output": 0})


def check_hybrid(name: str, relation: Relation, k: int | None, skew: float) -> None:
    """Refuse sizes that are none, and a relation with keys that repeat."""
    if k is not None and k < 1:
        raise BadInput(f"k={k} is not a number of pages; give 1 or more")
    if not 0 <= skew < np.inf:
        raise BadInput(f"skew={skew} is not a Zipf exponent; give 0 (uniform) or more")
    if not relation.unique:
        raise BadInput(
            f"{name} needs unique keys, and {relation.path} has keys with up to"
            f" {relation.describe()['max_frequency']:,} rows; use AdaptiveJoin or MeshJoin for it"
        )
