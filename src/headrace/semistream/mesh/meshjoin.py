"""MESHJOIN: join a stream with a relation by one shared cyclic scan. [MESH] §3.1-3.3"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from headrace.arrays import Bools, Int64s
from headrace.clock import Clock
from headrace.conditions import Condition
from headrace.errors import BadInput, MemoryRefused, choice
from headrace.relation import Relation
from headrace.semistream.base import How, On, Order
from headrace.semistream.mesh.cyclic_scan import CyclicScan
from headrace.semistream.mesh.mesh_cost import MeshCost
from headrace.semistream.mesh.mesh_plan import MeshPlan, Tuning, mesh_output
from headrace.semistream.mesh.packets import Packets, go_on
from headrace.semistream.plan_facts import PlanFacts
from headrace.semistream.protocols import StreamShedder
from headrace.semistream.reservations import Reservations
from headrace.semistream.waiting_join import WaitingJoin
from headrace.semistream.waiting_plan import OutputPlan
from headrace.semistream.waiting_store import HashWindow
from headrace.units import format_size


class MeshJoin(WaitingJoin):
    """Scan the relation round and round; every stream tuple stays for one round and so meets every page.

        R  p0 p1 p2 ... --b pages a time--> [disk buffer] --probe--> [H: the last N_R/b packets of w tuples] <--w-- S
                                                                     [Q: packets, oldest first          ]

    Choose it for a relation without an index on the join column, or for streams so fast and scattered that most pages are
    wanted anyway. It is exact for many-to-many joins, and blind to skew.

    Parameters
    ----------
    relation, memory, how, columns, suffix, clock, order, shed
        See WaitingJoin.
    on
        Any columns of the relation, its key or others: "col", ["a", "b"], or {"stream column": "relation column"}. Those of the
        relation are not in the result again; key columns that are not joined on are in it like any other.
    condition
        What pairs must satisfy besides `on`, or instead of it where `on` is None ([MESH] §3.4): any condition, of numbers, texts,
        vectors, or a function of yours. See headrace.conditions.
    w, b
        Stream tuples and pages an iteration. Without them b follows from `tuning`, and w is what the memory allows.
    tuning
        "default": a fixed disk buffer of 0.93 MB, an eighth of the memory at most; [DEF] finds it within 3% of the best one.
        "optimal": the b with the best service rate by the cost model, worth it for a small memory on a disk with short seeks.

    Example
    -------
    >>> import pyarrow as pa, tempfile, headrace as hr
    >>> from headrace.semistream import MeshJoin
    >>> lookup = pa.table({"id": [1, 2, 3], "skey": [100, 110, 120]})
    >>> rel = hr.Relation.create(tempfile.mkdtemp() + "/lookup", lookup, key="id")
    >>> op = MeshJoin(rel, on="id", memory="1MiB")
    >>> pa.Table.from_batches(op.run([pa.record_batch({"id": [2, 1, 2]})])).sort_by("skey").to_pydict()
    {'id': [1, 2, 2], 'skey': [100, 110, 110]}
    >>> op = MeshJoin(rel, on="skey", memory="1MiB")  # not the key, and no index on it
    >>> pa.Table.from_batches(op.run([pa.record_batch({"skey": [120, 7]})])).to_pydict()
    {'skey': [120], 'id': [3]}

    References
    ----------
    [MESH] §3.1 (Fig. 4), §3.2, §3.3, §3.4.

    Deviations: when the stream ends, or a batch is joined to its end, what is left enters H at once, as far as there is room,
    instead of w tuples an iteration; without it a last packet would wait for scans that no new tuple shares. The text's R does
    not change; `refresh` lets what is in H finish the scan of the old version first, one scan of R at most, in which nothing is
    taken in.
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
    ) -> None:
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
        self._scan = CyclicScan(relation)
        self._Q = Packets()

    # -- memory ----------------------------------------------------------------------------------------------------------

    @staticmethod
    def cost_model(facts: PlanFacts) -> MeshCost:
        """The cost model for these facts. [MESH] §3.2"""
        return MeshCost.of(facts)

    @staticmethod
    def plan(
        facts: PlanFacts, limit: int, *, w: int | None = None, b: int | None = None, tuning: Tuning = "default"
    ) -> MeshPlan:
        """How it divides a memory: see MeshPlan."""
        return MeshPlan.of(MeshJoin.cost_model(facts), facts, limit, w=w, b=b, tuning=tuning)

    def cost(self, stream_bytes: float) -> MeshCost:
        """The cost model for stream tuples of so many bytes. [MESH] §3.2"""
        return self.cost_model(replace(self._facts(), stream_bytes=stream_bytes))

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
        self._plan = self.plan(self._facts(), self._memory.room, w=self.w, b=self.b, tuning=self.tuning)
        if not self._plan.w:
            raise too_small(self, self._plan, self.b, self._memory.room)
        for part, nbytes in self._plan.parts.items():
            self._memory.hold(part, nbytes)
        self._H.resize(self._plan.tuples)
        self._scan.resize(self._plan.b)

    # -- the algorithm: [MESH] Fig. 4 ------------------------------------------------------------------------------------

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
        """One iteration of Fig. 4, lines 2 to 10."""
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
        self._pages, self._scan = self._probe_of(self._H), CyclicScan(relation)
        if self._input.tuple_bytes:
            self._begin()

    # -- snapshots -------------------------------------------------------------------------------------------------------

    def _position(self) -> int:
        return self._scan.page

    def _go_to(self, position: int) -> None:
        self._scan.go_to(position)


def checked_sizes(w: int | None, b: int | None) -> tuple[int | None, int | None]:
    """w and b as they were given; refuses what is not a number of tuples or pages."""
    for name, value, what in (("w", w, "tuples"), ("b", b, "pages")):
        if value is not None and value < 1:
            raise BadInput(f"{name}={value} is not a number of {what}; give 1 or more")
    return w, b


def empty_window(H: HashWindow, memory: Reservations) -> None:
    """Give back all that H, in which nothing waits, and the buffers around it hold."""
    H.resize(0)
    memory.hold_all(dict.fromkeys(("disk buffer", "stream buffer", "hash table", "queue"), 0))


def too_small(op: WaitingJoin, plan: MeshPlan, b: int | None, room: int) -> MemoryRefused:
    """The refusal of a memory in which not even one stream tuple an iteration has room."""
    whole = format_size(int(plan.least(b) * op.budget.limit / room) + 1)
    return MemoryRefused(
        f"memory={format_size(op.budget.limit)} is too small for {type(op).__name__} with {op.relation.path}: a stream"
        f" tuple for each iteration of a scan and the disk buffer need {whole}; give {whole} or more"
    )
