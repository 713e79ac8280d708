"""R-MESHJOIN: MESHJOIN with a disk buffer that does not follow from the queue's partitions. [XHJ] §2"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from headrace.arrays import Bools, Int64s
from headrace.clock import Clock
from headrace.conditions import Condition
from headrace.errors import BadInput, choice
from headrace.relation import Relation
from headrace.semistream.base import How, On, Order
from headrace.semistream.mesh.cyclic_scan import SteppedScan
from headrace.semistream.mesh.mesh_cost import PARTITIONS, RMeshCost
from headrace.semistream.mesh.mesh_plan import MeshPlan, Tuning, mesh_output
from headrace.semistream.mesh.meshjoin import checked_sizes, empty_window, too_small
from headrace.semistream.mesh.packets import Packets, go_on
from headrace.semistream.plan_facts import PlanFacts
from headrace.semistream.protocols import StreamShedder
from headrace.semistream.waiting_join import WaitingJoin
from headrace.semistream.waiting_plan import OutputPlan
from headrace.semistream.waiting_store import HashWindow


class RMeshJoin(WaitingJoin):
    """MESHJOIN that chooses the disk buffer for the disk, and the queue's partitions for the stream.

        R --b pages a read--> [disk buffer: b pages] --N_R / partitions pages an iteration--> H

    In MESHJOIN b sets both how much a read brings and how many packets Q has, N_R / b, so that a larger R means more packets or
    a larger buffer. Here the two are apart: the size of R changes neither b nor the number of packets.

    Parameters
    ----------
    relation, on, memory, how, columns, suffix, clock, order, condition, shed, w, b, tuning
        See MeshJoin.
    partitions
        Packets of the queue; at most one a page.

    References
    ----------
    [XHJ] §2, which describes it in a few lines; its own paper is not among ours.

    Deviations: how an iteration takes its pages from the buffer is our reading of those lines.
    """

    any_column = True

    def __init__(
        self,
        relation: Relation,
        on: On | None = None,
        memory: int | str = "64MiB",
        *,
        how: How = "inner",
        columns: Sequence[str] | None = None,
        suffix: str | None = "_right",
        clock: Clock | None = None,
        order: Order = "any",
        condition: Condition | None = None,
        shed: StreamShedder | None = None,
        w: int | None = None,
        b: int | None = None,
        tuning: Tuning = "default",
        partitions: int = PARTITIONS,
    ) -> None:
        if partitions < 1:
            raise BadInput(f"partitions={partitions} is not a number of packets; give 1 or more")
        self.partitions = partitions
        self.tuning: Tuning = choice("tuning", tuning, ("optimal", "default"))  # type: ignore[assignment]
        self.w, self.b = checked_sizes(w, b)
        super().__init__(
            relation,
            on,
            memory,
            how=how,
            columns=columns,
            suffix=suffix,
            clock=clock,
            order=order,
            condition=condition,
            shed=shed,
        )
        self._pages = self._probe_of(self._H)
        self._scan = SteppedScan(relation)
        self._Q = Packets()

    # -- memory ----------------------------------------------------------------------------------------------------------

    @staticmethod
    def cost_model(facts: PlanFacts, partitions: int = PARTITIONS) -> RMeshCost:
        """The cost model for these facts."""
        return RMeshCost.in_partitions(facts, partitions)

    @staticmethod
    def plan(
        facts: PlanFacts,
        limit: int,
        *,
        w: int | None = None,
        b: int | None = None,
        tuning: Tuning = "default",
        partitions: int = PARTITIONS,
    ) -> MeshPlan:
        """How it divides a memory: see MeshPlan."""
        cost = RMeshJoin.cost_model(facts, partitions)
        return MeshPlan.of(cost, facts, limit, w=w, b=b, tuning=tuning)

    def cost(self, stream_bytes: float) -> RMeshCost:
        """The cost model for stream tuples of so many bytes."""
        return self.cost_model(replace(self._facts(), stream_bytes=stream_bytes), self.partitions)

    @property
    def sizes(self) -> MeshPlan:
        """The sizes that it has; known with the first stream tuple."""
        return self._plan

    def _new_store(self) -> HashWindow:
        self._H = HashWindow(self.relation, self.condition, alone=not self.stream_key)
        return self._H

    def _output_plan(self) -> OutputPlan:
        return mesh_output(self._facts(), self._memory.room)

    def _begin(self) -> None:
        self._plan = self.plan(
            self._facts(), self._memory.room, w=self.w, b=self.b, tuning=self.tuning, partitions=self.partitions
        )
        if not self._plan.w:
            raise too_small(self, self._plan, self.b, self._memory.room)
        for part, nbytes in self._plan.parts.items():
            self._memory.hold(part, nbytes)
        self._H.resize(self._plan.tuples)
        self._scan.resize(self._plan.b)
        self._scan.step = -(-self._scan.pages // self._plan.packets)

    # -- the algorithm: [MESH] Fig. 4, with pages in steps ---------------------------------------------------------------

    def _wanted_now(self) -> int:
        return self._plan.w

    def _room_now(self) -> int:
        return self._H.room

    def _seconds_left(self) -> float:
        """A tuple that comes in now leaves after one scan, at the start of the iteration that follows."""
        plan = self._plan
        scans = 1 + self._input.rows // plan.tuples
        return self._steps.bound(scans * (plan.packets + 1), plan.cost.loop(plan.w, plan.b))

    def _iterate(self, w: int, most: int | None = None) -> Iterator[pa.RecordBatch]:
        """One iteration of Fig. 4; its pages are N_R / partitions, whatever a read brings."""
        H, Q = self._H, self._Q
        yield from self._settled()  # lines 3-6
        before = H.used
        yield from self._pages.take_in(w)  # lines 2, 7
        Q.enter(H.used - before, self._scan.pages)  # line 8
        for pages in self._scan.next_pages(self.stats, Q.most(most)):  # line 2
            yield from self._pages.probe(self._scan.reader, pages, self.stats)  # lines 9-10
            Q.saw(pages.size)

    def _settled(self) -> Iterator[pa.RecordBatch]:
        """Packets that have met every page leave."""
        yield from self._leave(self._H.oldest(self._Q.leave()))

    # -- tuples that are kept elsewhere ----------------------------------------------------------------------------------

    @property
    def scan_pages(self) -> int | None:
        """N_R: every tuple meets each page once."""
        return self._scan.pages

    def _pages_left(self) -> Int64s:
        return self._Q.pages_left()

    def _room_for(self, tuples: int) -> int:
        return min(tuples, self._H.room)

    def _go_on(self, left: int, matched: Bools) -> None:
        go_on(self._pages, self._H, self._Q, left, matched)

    def _emptied(self) -> None:
        self._Q.clear()

    # -- updates ---------------------------------------------------------------------------------------------------------

    def _move_to(self, relation: Relation) -> None:
        """Scan another version from its first page on, with sizes for as many pages as it has. Nothing is in H."""
        empty_window(self._H, self._memory)
        self._follow(relation)
        self._pages, self._scan = self._probe_of(self._H), SteppedScan(relation)
        if self._input.tuple_bytes:
            self._begin()

    # -- snapshots -------------------------------------------------------------------------------------------------------

    def _position(self) -> int:
        return self._scan.page

    def _go_to(self, position: int) -> None:
        self._scan.go_to(position)
