"""AMESHJOIN: MESHJOIN whose w and b change while it runs. [MESH] §3.3, Fig. 6"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from headrace.arrays import Bools, Int64s
from headrace.clock import Clock
from headrace.conditions import Condition
from headrace.errors import BadInput
from headrace.relation import Relation
from headrace.semistream.base import How, On, Order
from headrace.semistream.hash_queue import POINTER_BYTES
from headrace.semistream.mesh.cyclic_scan import CyclicScan
from headrace.semistream.mesh.mesh_cost import MeshCost
from headrace.semistream.mesh.mesh_plan import MeshPlan, mesh_output
from headrace.semistream.mesh.meshjoin import empty_window
from headrace.semistream.mesh.packets import Packets, go_on
from headrace.semistream.plan_facts import PlanFacts
from headrace.semistream.protocols import StreamShedder
from headrace.semistream.waiting_join import WaitingJoin
from headrace.semistream.waiting_plan import LEAST_WINDOW, OutputPlan, page_bytes, slot_bytes
from headrace.semistream.waiting_store import HashWindow

_KEPT = 0.9  # weight of an arrival in the rate, beside that of the next one: some ten arrivals count
_IDLE = 0.03  # share of its time that a join waits for the stream at least if it keeps up: by its headroom it is 0.09
_EMA = 0.3  # weight of the newest iteration in what iterations take beyond the model
_HEADROOM = 1.1  # the rate to keep up with is so many times the one observed
_SPARE, _LEAST_USE = (
    4,
    0.65,
)  # a window grows by a quarter more than it must, and shrinks when it is used less than this

Tuner = Callable[["AMeshJoin"], tuple[int, int]]


class ArrivalRate:
    """The rate of a stream that comes in batches: the tuples of the last arrivals by the time that they took.

    Between two arrivals there may be many iterations, or none: what counts is the time from one arrival to the next. A stream
    that is silent for longer than before its last arrival has become slower. One that is there before the join has done with its
    last arrival is faster than it seems: what comes is then what the join takes in, and it is taken to be twice as fast.
    """

    def __init__(self) -> None:
        self.last = 0  # tuples of the last arrival
        self._tuples = self._seconds = 0.0  # of the last arrivals, older ones for less
        self._seen: tuple[float, int] | None = None  # when tuples last came, and how many had come by then
        self._gap = 0.0  # seconds before that
        self._waited = 0.0  # seconds that the join had waited by then

    def note(self, now: float, offered: int, waited: float | None) -> float:
        """Tuples a second, with so many offered by now; 0 while nothing is known.

        `waited`: seconds that the stream has let the join wait in all; None where tuples are offered whenever they come.
        """
        if self._seen is None:
            self._seen, self.last = (now, offered), offered
        then, before = self._seen
        if offered > before:
            if now > then:
                self._gap, self.last = now - then, 0
                behind = waited is not None and waited - self._waited < _IDLE * self._gap
                self._waited = waited or 0.0
                seconds = self._gap / 2 if behind else self._gap
                self._tuples, self._seconds = _KEPT * self._tuples, _KEPT * self._seconds + seconds
            self._tuples += offered - before
            self.last += offered - before
            self._seen = now, offered
        silence = max(0.0, now - self._seen[0] - self._gap)
        return self._tuples / (self._seconds + silence) if self._seconds else 0.0


class RateTuner:
    """Watches the arrival rate and chooses the least memory that keeps up with it. [MESH] §3.3, online tuning

    A backlog beyond the last arrival counts as rate too: it is to be worked off within one scan of R. What the maximum of memory
    cannot keep up with gets all of it.

    Where iterations take longer than the cost model says, the difference is added to every iteration of the model: on a fast disk
    most of it is what an iteration takes however few its tuples are.
    """

    def __init__(self) -> None:
        self.extra = 0.0  # seconds that an iteration takes beyond the cost model
        self._arrivals = ArrivalRate()

    def __call__(self, op: AMeshJoin) -> tuple[int, int]:
        """w and b for the next iteration."""
        rate, cost = self._arrivals.note(op.clock.now(), op.offered, op.waited), op.cost()
        if op.last is not None:
            w, b, seconds = op.last
            self.extra = max(0.0, self.extra + _EMA * (seconds - cost.loop(w, b) - self.extra))
        most = cost.best_b(op.most_memory)
        if not rate:
            return max(1, cost.w(op.most_memory, most)), most
        rate += max(0, op.backlog - self._arrivals.last) / (cost.loop(0, most) * -(-cost.pages // most))
        try:
            w, b, memory = replace(cost, overhead=cost.overhead + self.extra).least(_HEADROOM * rate)
        except BadInput:  # no memory would do
            memory = op.most_memory + 1.0
        if memory > op.most_memory:
            return max(1, cost.w(op.most_memory, most)), most
        return max(1, w), b


class AMeshJoin(WaitingJoin):
    """MESHJOIN for a stream whose rate changes: each iteration has its own w and b.

        Q  (packet, start page) (packet, start page) ...      a packet leaves after the page before its start page

    Choose it over MeshJoin when memory is wanted elsewhere while the stream is slow: `budget` is its maximum, and it holds the
    least that keeps up.

    Parameters
    ----------
    relation, on, memory, how, columns, suffix, clock, order, shed
        See WaitingJoin. `memory` is the most it may take; tuples are shed when no w and b within it keep up ([MESH] §4).
    condition
        See MeshJoin.
    tuner
        Called before each iteration with the operator, gives (w, b). RateTuner by default.

    Example
    -------
    >>> import pyarrow as pa, tempfile, headrace as hr
    >>> from headrace.semistream import AMeshJoin
    >>> lookup = pa.table({"id": [1, 2, 3], "skey": [100, 110, 120]})
    >>> rel = hr.Relation.create(tempfile.mkdtemp() + "/lookup", lookup, key="id")
    >>> op = AMeshJoin(rel, on="id", memory="1MiB", tuner=lambda op: (2, 1))
    >>> pa.Table.from_batches(op.run([pa.record_batch({"id": [2, 1, 2]})])).sort_by("skey").to_pydict()
    {'id': [1, 2, 2], 'skey': [100, 110, 110]}

    References
    ----------
    [MESH] §3.3, Fig. 6, Example 3.1.

    Deviations: Theorem 3.2 asks for a service rate of at most the arrival rate; keeping up needs at least that, which is what the
    tuner aims at. Pages between two departures are joined together and not one by one: no packet comes or goes between them. An
    iteration that goes past the last page reads in two requests.
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
        tuner: Tuner | None = None,
    ) -> None:
        self.tuner: Tuner = tuner or RateTuner()
        self._known: tuple[pa.Schema, PlanFacts] | None = None  # facts of the stream with this schema
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
        self._next = (0, 0)  # w and b of the next iteration, once they are asked for
        self.last: tuple[int, int, float] | None = None
        """tuples and pages of the last iteration, and the seconds it took"""

    @property
    def most_memory(self) -> int:
        """Bytes for disk buffer, stream buffer, H and Q at most."""
        return self._memory.room - self._memory.held("output")

    @property
    def offered(self) -> int:
        """Stream tuples that were ever offered."""
        return self._input.offered

    @property
    def waited(self) -> float | None:
        """Seconds that the stream let it wait, where a driver says so: see `run`."""
        return self._steps.waited

    @property
    def backlog(self) -> int:
        """Stream tuples offered that are not in H yet."""
        return self._input.rows

    @property
    def packets(self) -> list[tuple[int, int]]:
        """Q: tuples and start page of each packet, oldest first."""
        return [(tuples, (self._scan.page + left) % self._scan.pages) for tuples, left in self._Q]

    @property
    def page(self) -> int:
        """currPage: the next page to be read."""
        return self._scan.page

    # -- the algorithm: [MESH] Fig. 6 ------------------------------------------------------------------------------------

    def _iterate(self, w: int, most: int | None = None) -> Iterator[pa.RecordBatch]:
        """One iteration of Fig. 6, lines 3 to 14."""
        self._wanted_now()
        b, self._next = self._next[1], (0, 0)  # line 3
        b = b if most is None else min(b, most)
        begun, offered = self.clock.now(), self._input.rows
        self._resize(w, b)
        before, currPage, N_R = self._H.used, self._scan.page, self._scan.pages
        yield from self._pages.take_in(w)  # line 5
        self._Q.enter(self._H.used - before, N_R)  # line 6
        if not N_R:
            yield from self._leave(self._H.oldest(self._Q.leave()))
            return
        wrapped = max(0, currPage + b - N_R)
        for places in (self._scan.places[currPage : currPage + b], self._scan.places[:wrapped]):  # line 4
            for pages in self._scan.read(places, self.stats):
                yield from self._join_pages(pages)
        self.last = offered - self._input.rows, b, self.clock.now() - begun

    def _join_pages(self, pages: Int64s) -> Iterator[pa.RecordBatch]:
        """Lines 7 to 14 for pages from currPage on; a packet leaves before its start page comes again."""
        N_R, reader, done = self._scan.pages, self._scan.reader, 0
        while (left := self._Q.next_leaves) is not None and left <= pages.size - done:
            yield from self._pages.probe(reader, pages[done : done + left], self.stats)  # line 8
            done += left
            self._Q.saw(left)
            yield from self._leave(self._H.oldest(self._Q.leave()))  # lines 9-12
            self._scan.page = (self._scan.page + left) % N_R  # line 13
        yield from self._pages.probe(reader, pages[done:], self.stats)
        self._Q.saw(pages.size - done)
        self._scan.page = (self._scan.page + pages.size - done) % N_R

    def offer(self, batch: pa.RecordBatch) -> None:
        """Hand over stream tuples. The tuner is asked again: w that was chosen before them may be more than the stream brings."""
        super().offer(batch)
        self._next = (0, 0)

    def _wanted_now(self) -> int:
        if not self._next[0]:
            self._next = self._fitted(*self.tuner(self))
        return self._next[0]

    def _most_wanted(self) -> int:
        """Tuples of an iteration with all of the memory: a smaller w grows before anything is shed."""
        cost = self.cost()
        return max(self._wanted_now(), cost.w(self.most_memory, cost.best_b(self.most_memory)))

    def _seconds_left(self) -> float:
        """A tuple that comes in now leaves when the page comes again that it met first."""
        w, b = self._wanted_now(), self._next[1]
        return self._steps.bound(-(-self._scan.pages // b), self.cost().loop(w, b))

    def _room_now(self) -> int:
        self._wanted_now()
        return self._fitted(self._input.rows or 1, self._next[1])[0]

    # -- memory ----------------------------------------------------------------------------------------------------------

    @staticmethod
    def cost_model(facts: PlanFacts) -> MeshCost:
        """The cost model for these facts. [MESH] §3.2"""
        return MeshCost.of(facts)

    @staticmethod
    def plan(facts: PlanFacts, limit: int) -> MeshPlan:
        """How it divides all of a memory, which it holds while the stream is fast: see MeshPlan."""
        return MeshPlan.of(AMeshJoin.cost_model(facts), facts, limit, tuning="optimal")

    def cost(self) -> MeshCost:
        """The cost model for the stream at hand. [MESH] §3.2"""
        return self.cost_model(self._facts())

    def _facts(self, ahead: Relation | None = None) -> PlanFacts:
        """As WaitingJoin has it, but gathered once a stream: each iteration asks for it. What reads cost may change."""
        if ahead is not None:
            return super()._facts(ahead)
        if self._known is None or self._known[0] is not self._input.schema:
            self._known = self._input.schema, super()._facts()
        facts, disk, page = self._known[1], self.relation.disk, self.relation.page_size
        (seek, transfer), scan_seek = disk.costs(page, alone=True), disk.scan_costs(page)[0]
        if (seek, transfer, scan_seek) == (facts.seek, facts.transfer, facts.scan_seek):
            return facts
        return replace(facts, seek=seek, transfer=transfer, scan_seek=scan_seek)

    def _new_store(self) -> HashWindow:
        self._H = HashWindow(self.relation, self.condition, alone=not self.stream_key)
        return self._H

    def _output_plan(self) -> OutputPlan:
        return mesh_output(self._facts(), self._memory.room)

    def _begin(self) -> None:
        self._make_window(LEAST_WINDOW)

    def _make_window(self, tuples: int) -> None:
        """Let H and Q have room for so many tuples; those that wait stay."""
        self._memory.hold("hash table", int(tuples * slot_bytes(self._facts())))
        self._memory.hold("queue", tuples * POINTER_BYTES)
        self._H.resize(tuples)

    def _fitted(self, w: int, b: int) -> tuple[int, int]:
        """As much of (w, b) as the maximum of memory has room for beside the tuples that wait."""
        if w < 1 or b < 1:
            raise BadInput(f"the tuner gave w={w}, b={b}; both must be 1 or more")
        facts = self._facts()
        page, each, v_S = page_bytes(facts), slot_bytes(facts) + POINTER_BYTES, facts.stream_bytes
        spare = self.most_memory - (self._H.used + 1) * each - v_S
        b = max(1, min(b, self._scan.pages, int(spare / page)))
        fits = int((spare - b * page) / (each + v_S))
        return max(1, min(w, fits)), b

    def _resize(self, w: int, b: int) -> None:
        """Hold what this iteration needs, and no more."""
        facts, memory = self._facts(), self._memory
        disk_buffer, stream_buffer = b * page_bytes(facts), int(w * facts.stream_bytes)
        capacity, each = max(LEAST_WINDOW, self._H.used + w), slot_bytes(facts) + POINTER_BYTES
        room = self.most_memory - disk_buffer - stream_buffer
        fits = self._H.capacity * each <= room
        if not (fits and _LEAST_USE * self._H.capacity <= capacity <= self._H.capacity):
            # Some more than now, so that a window that grows is not copied in every iteration.
            most = max(capacity, min(capacity + capacity // _SPARE, int(room / each)))
            memory.hold("disk buffer", 0)
            memory.hold("stream buffer", 0)
            self._make_window(most)
        if self._scan.b != b:
            self._scan.resize(b)
        memory.hold("stream buffer", 0)
        memory.hold("disk buffer", disk_buffer)
        memory.hold("stream buffer", stream_buffer)

    # -- updates ---------------------------------------------------------------------------------------------------------

    def _move_to(self, relation: Relation) -> None:
        """Scan another version from its first page on; the tuner is asked for sizes that suit it. Nothing is in H."""
        self._known, self._next, self.last = None, (0, 0), None
        empty_window(self._H, self._memory)
        self._follow(relation)
        self._pages, self._scan = self._probe_of(self._H), CyclicScan(relation)
        if self._input.tuple_bytes:
            self._begin()

    # -- tuples that are kept elsewhere ----------------------------------------------------------------------------------

    @property
    def scan_pages(self) -> int | None:
        """N_R: every tuple meets each page once."""
        return self._scan.pages

    def _pages_left(self) -> Int64s:
        return self._Q.pages_left()

    def _room_for(self, tuples: int) -> int:
        facts = self._facts()
        each = slot_bytes(facts) + POINTER_BYTES
        spare = self.most_memory - self._H.used * each - page_bytes(facts)
        tuples = max(0 if self._H.used else 1, min(tuples, int(spare / (each + facts.stream_bytes))))
        if tuples:
            self._resize(tuples, 1)
        return tuples

    def _go_on(self, left: int, matched: Bools) -> None:
        go_on(self._pages, self._H, self._Q, left, matched)

    def _emptied(self) -> None:
        self._Q.clear()

    # -- snapshots -------------------------------------------------------------------------------------------------------

    def _position(self) -> int:
        return self._scan.page

    def _go_to(self, position: int) -> None:
        self._scan.go_to(position)
