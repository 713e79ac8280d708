"""SSIJ: gather stream tuples, read the pages they need by an optimal plan, and keep the pages that serve most. [SSIJ]"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace

import numpy as np
import pyarrow as pa

from headrace.arrays import Bools, Float64s, Int32s, Int64s
from headrace.clock import Clock
from headrace.conditions import Between
from headrace.errors import BadInput, choice
from headrace.kernels.pairs import cross_off
from headrace.relation import Relation
from headrace.relation.disk import PlanKind
from headrace.relation.keys import Keys
from headrace.semistream.base import How, On, Order
from headrace.semistream.deadlines import seconds
from headrace.semistream.page_ranges import Spans, keys_of, range_columns
from headrace.semistream.plan_facts import PlanFacts
from headrace.semistream.protocols import StreamShedder
from headrace.semistream.sizes import tuple_bytes
from headrace.semistream.snapshot import Snapshot
from headrace.semistream.ssij.memory import SSIJMemory
from headrace.semistream.ssij.memory_plan import SSIJPlan, ssij_index, ssij_output
from headrace.semistream.ssij.page_cache import Policy
from headrace.semistream.ssij.page_search import search_pages
from headrace.semistream.ssij.stream_buffer import LIST_BYTES, PAIR_BYTES, StreamBuffer
from headrace.semistream.ssij.urgency import Urgency
from headrace.semistream.waiting_join import WaitingJoin
from headrace.semistream.waiting_plan import OutputPlan
from headrace.units import parse_duration


class SSIJ(WaitingJoin):
    """Answer from cached pages at once; let the other tuples wait until many share the reads.

        S --> [IB] --online phase--> index --page cached--> join with [CR: pages, utility] --> results
                                       |  not cached                    ^ those worth most stay
                                  [SB: tuples] [II: page -> tuples] --join phase: read plan--> R

    Pending phase: wait for IB_thresh tuples. Online phase: look them up in the index together; those whose pages are all cached
    are done. Join phase, when SB_thresh tuples wait: read the pages that II names. Choose it for an indexed relation: it reads
    only what is asked for, and gains from any skew between pages.

    Parameters
    ----------
    relation, on, memory, how, columns, suffix, clock, order, shed, measure
        See WaitingJoin. order="stream" excludes deadlines, which change the order.
    IB_thresh
        Tuples of an online phase. By default what 4% of the memory has room for, 16 to 8,192.
    SB_thresh
        Tuples in SB that start a join phase. By default what four fifths of the memory have room for that index, read buffer,
        output and IB leave, at first; after each join phase it grows or shrinks towards where memory saves more (see Balance).
    max_scan
        Pages of one read request at most; also bounded by a third of the memory.
    plan
        "optimal", "greedy" or "none" (a request a page).
    cache
        "utility", or "lru" for comparison.
    split
        None: CR has what SB and II leave. Or the share of that memory that is CR's, always; 0 is no cache.
    deadline
        "10s": results of a tuple are wanted so long after it was offered. `offer` takes other ones, tuple by tuple.
    condition
        Without `on`: `hr.between(key, low, high, of="right")`, a range of keys that each stream tuple names.

    Example
    -------
    >>> import pyarrow as pa, tempfile, headrace as hr
    >>> from headrace.semistream import SSIJ
    >>> lookup = pa.table({"id": [1, 2, 3], "skey": [100, 110, 120]})
    >>> rel = hr.Relation.create(tempfile.mkdtemp() + "/lookup", lookup, key="id")
    >>> op = SSIJ(rel, on="id", memory="1MiB")
    >>> pa.Table.from_batches(op.run([pa.record_batch({"id": [2, 1, 2]})])).sort_by("skey").to_pydict()
    {'id': [1, 2, 2], 'skey': [100, 110, 110]}

    References
    ----------
    [SSIJ] §IV (Alg. 1, 2), §V.

    Deviations: pages are read into a buffer of their own and the ones to keep are copied from there to CR, so that reads may
    overlap with the join and ToRemove can leave at once. A tuple that needs more pages than II has room for meets them in several
    join phases. What is offered beyond IB_thresh counts as IB, at the cost of CR, only for tuples that came by `offer`; a batch
    being joined by `join` or `run` belongs to the caller.
    """

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
        shed: StreamShedder | None = None,
        measure: bool = False,
        IB_thresh: int | None = None,
        SB_thresh: int | None = None,
        max_scan: int = 200,
        plan: PlanKind = "optimal",
        cache: Policy = "utility",
        split: float | None = None,
        deadline: str | float | None = None,
        condition: Between | None = None,
    ) -> None:
        for name, value, what in (
            ("IB_thresh", IB_thresh, "tuples"),
            ("SB_thresh", SB_thresh, "tuples"),
            ("max_scan", max_scan, "pages"),
        ):
            if value is not None and value < 1:
                raise BadInput(f"{name}={value} is not a number of {what}; give 1 or more")
        if split is not None and not 0 <= split < 1:
            raise BadInput(
                f"split={split} is not a share of the memory for CR; give 0 to below 1, or None for a dynamic one"
            )
        self.read_plan: PlanKind = choice("plan", plan, ("optimal", "greedy", "none"))  # type: ignore[assignment]
        self.cache: Policy = choice("cache", cache, ("utility", "lru"))  # type: ignore[assignment]
        self.IB_thresh, self.SB_thresh, self.max_scan, self.split = IB_thresh, SB_thresh, max_scan, split
        range_columns(condition, on, relation)  # refuses what an index does not help with
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
            measure=measure,
        )
        self._memory.hold("index", ssij_index(self._facts(), self._memory.room).nbytes)
        self._urgency = Urgency(relation, self.clock)
        self._ending = False
        self._check_order(deadline)
        self.deadline = None if deadline is None else parse_duration(deadline, name="deadline")

    def _check_order(self, deadline: str | float | None) -> None:
        if deadline is not None and self.order == "stream":
            raise BadInput(
                f"order='stream' keeps tuples in order, and deadline={deadline!r} takes the most urgent first; choose one"
            )

    # -- the phases: [SSIJ] §IV.B ----------------------------------------------------------------------------------------

    def _iterate(self, w: int, most: int | None = None) -> Iterator[pa.RecordBatch]:
        """An online phase if IB_thresh tuples are there, and a join phase if SB_thresh tuples wait; both before a deadline."""
        parts, IB_thresh = self._parts, self._parts.plan.IB
        if self._input.rows >= IB_thresh or self._ending or self._pressed:
            yield from self._online_phase(min(self._input.rows, IB_thresh))
        at_the_end = self._ending and not self._input.rows
        if parts.SB.used >= parts.SB_now or at_the_end or self._pressed or self._results.holds_much:
            # Tuples whose deadline would pass during the join phase take part in it. [SSIJ] §IV.F
            while self._input.rows and self._urgency.must_take_part(parts):
                yield from self._online_phase(min(self._input.rows, IB_thresh))
            yield from self._join_phase()
            parts.resize()

    def _online_phase(self, count: int) -> Iterator[pa.RecordBatch]:
        """Algorithm 1."""
        if not count:
            return
        begun, parts = self.clock.now(), self._parts
        if not parts.has_room_for(count):
            yield from self._join_phase()
            parts.resize()
            each = parts.plan.column_bytes + PAIR_BYTES + LIST_BYTES
            count = max(1, min(count, int(parts.waiting_room / each)))
        SB, II = parts.SB, parts.II
        deadlines, urgent = self._urgency.IB.take(count)
        taken, numbers = self._input.take(count)[:2] if urgent is None else self._input.take_rows(urgent)
        columns = [[name] for name in self._range] if self._range else [list(self.stream_key)]
        keys, rows = keys_of(self.relation.codec, taken, columns)
        if self.stream_key and self.popularity is not None:
            self._input.count_keys(keys[0].hashes())
        self.relation.disk.spend({"c_S": count, "c_X": rows.size})
        if rows.size < count:
            yield from self._leave_at_once(taken, numbers, np.setdiff1d(np.arange(count), rows, assume_unique=True))
            taken, numbers, deadlines = taken.take(pa.array(rows)), numbers[rows], deadlines[rows]
        slots = SB.enter(taken, numbers, self.clock.now(), deadlines)
        version = parts.version
        # Lines 1-2: MB, by one pass over the index in the order of the keys
        MB = Spans.equal(version, keys[0]) if len(keys) == 1 else Spans.between(version, *keys)
        SB.pending[slots] = MB.pages(slots.size)
        yield from self._discard(slots[SB.pending[slots] == 0])
        stop: Int64s = np.zeros(2, np.int64)
        while stop[0] < MB.size:
            room = II.room(parts.waiting_room - parts.waiting_bytes)
            if room < 1 and II.pairs:
                yield from self._join_phase()
                continue
            row, places = MB.some(stop, max(1, min(parts.plan.chunk, room)))
            yield from self._meet(keys, row, slots, places)
        parts.book()  # lines 17-19: CR gives way
        self._urgency.time.online(self.clock.now() - begun)

    def _meet(self, keys: list[Keys], row: Int32s, slots: Int32s, places: Int64s) -> Iterator[pa.RecordBatch]:
        """Lines 3 to 16 for pairs of a tuple and a page: join with pages that are cached, note the others in II."""
        SB, II, CR = self._parts.SB, self._parts.II, self._parts.CR
        slot, frame = slots[row], CR.find(places)
        here = frame >= 0
        if here.any():
            CR.count(frame[here])  # line 5
            with self._parts.searched():
                yield from search_pages(
                    self._results, self.relation.disk, keys, row[here], slot[here], CR.addresses(frame[here])
                )  # line 4
            cross_off(slot[here], SB.pending)
            seen = np.unique(slot[here])
            yield from self._discard(seen[SB.pending[seen] == 0])  # lines 9-12
        if not here.all():
            new, first = np.unique(slot[~here], return_index=True)
            fresh = ~SB.waits(new)
            SB.add_keys(new[fresh], [some.take(row[~here][first[fresh]]) for some in keys])  # line 16
            self.relation.disk.spend({"c_A": int(fresh.sum())})
            II.add(places[~here], slot[~here])  # lines 13-15

    def _join_phase(self) -> Iterator[pa.RecordBatch]:
        """Algorithm 2."""
        parts = self._parts
        SB, II, CR = parts.SB, parts.II, parts.CR
        if not II.pairs:
            return
        begun = self.clock.now()
        P_u, starts, slots = II.lists()  # line 2
        keys = SB.keys()
        parts.book()
        parts.weigh(P_u, starts, slots)
        to_keep = CR.choose(starts, parts.CR_capacity)  # line 1; ToRemove leaves at once (lines 5-7)
        still = int(to_keep.sum())  # pages of ToKeep that are to come
        parts.book(CR.used + still)
        for start, places in parts.read_plans(P_u):  # line 3
            with closing(parts.reader.read(places, self.stats)) as sequences:  # lines 4, 8
                for i, j, addresses in sequences:
                    a, b = start + i, start + j
                    yield from self._meet_pages(keys, addresses, starts[a : b + 1], slots)  # lines 9-10
                    if CR.used + still > parts.CR_capacity:  # stream tuples came, which take memory from CR: §IV.C
                        to_keep[a:] = CR.choose(starts[a:], parts.CR_capacity)
                        still = int(to_keep[a:].sum())
                    parts.book(CR.used + still)
                    kept = to_keep[a:b]  # lines 11-13
                    still -= int(kept.sum())
                    CR.put(places[i:j][kept], addresses[kept], np.diff(starts[a : b + 1])[kept])
        cross_off(slots, SB.pending)
        del slots  # the memory of II
        II.clear()  # line 14
        for done in SB.done(parts.plan.chunk):  # line 17
            yield from self._free(done)
        SB.drop_removed()
        self._urgency.time.joined(P_u.size, self.clock.now() - begun)
        SB.forget()
        CR.clear_counters()  # line 18
        parts.book()

    def _meet_pages(
        self, keys: list[Keys], addresses: Int64s, starts: Int32s, slots: Int32s
    ) -> Iterator[pa.RecordBatch]:
        """Join pages in memory with the tuples in their lists: so many pairs at a time, however popular one page is."""
        chunk = self._parts.plan.chunk
        for a in range(int(starts[0]), int(starts[-1]), chunk):
            b = min(a + chunk, int(starts[-1]))
            some = np.clip(starts, a, b)
            each: Int32s = some[1:] - some[:-1]
            yield from search_pages(
                self._results,
                self.relation.disk,
                keys,
                self._parts.SB.which(slots[a:b]),
                slots[a:b],
                np.repeat(addresses, each),
            )

    def _discard(self, slots: Int32s) -> Iterator[pa.RecordBatch]:
        """Let go of tuples that an online phase is done with: those that never waited were hits."""
        waited = self._parts.SB.waits(slots)
        yield from self._leave(slots[waited])
        yield from self._leave(slots[~waited], hits=True, queued=False)

    # -- the public steps ------------------------------------------------------------------------------------------------

    def offer(self, batch: pa.RecordBatch, deadlines: str | float | Sequence[float] | None = None) -> None:
        """Hand over stream tuples.

        Parameters
        ----------
        deadlines
            How long after now their results are wanted at the latest: one for all, or seconds for each; by default `deadline`.
        """
        if deadlines is not None and self.order == "stream":
            raise BadInput("order='stream' keeps tuples in order, and deadlines take the most urgent first; choose one")
        limit = np.inf if self.deadline is None else self.deadline
        waits = np.full(batch.num_rows, limit) if deadlines is None else seconds(deadlines, batch.num_rows)
        super().offer(batch)
        if batch.num_rows:
            self._urgency.IB.add(self.clock.now() + waits)
            self._parts.book()
            self._note_memory()

    @property
    def _pressed(self) -> bool:
        return self.clock.now() >= self.due

    def _earliest(self) -> float:
        return min(self._urgency.IB.earliest, self._parts.SB.earliest)

    def _seconds_left(self) -> float:
        parts = self._parts
        return self._urgency.time.estimate(parts.II.distinct, parts.SB.used, self._input.rows)

    def _late(self, slots: Int32s, waited: Float64s) -> int:
        return self._parts.SB.late(slots, self.clock.now())

    def _keep_buffered(self, kept: Bools) -> None:
        super()._keep_buffered(kept)
        self._urgency.IB.keep(kept)
        self._parts.book()

    def _wanted_now(self) -> int:
        return max(1, self._input.rows) if self._pressed else self._parts.plan.IB

    def _room_now(self) -> int:
        return self._parts.SB.room

    def advance(self, *, quiet: bool = False) -> Iterator[pa.RecordBatch]:
        """An online and a join phase, if there are tuples for them, a deadline is near, or no more are awaited (`quiet`)."""
        self._ending = quiet
        try:
            yield from super().advance(quiet=quiet)
        finally:
            self._ending = False

    def join(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Join one batch to its end."""
        with self._running(None):
            yield from super().join(batch)

    @contextmanager
    def _running(self, deadline: str | float | None) -> Iterator[None]:
        """Tuples that wait in IB are of batches that belong to the caller."""
        self._check_order(deadline)
        self._parts.lent = True
        try:
            with super()._running(deadline):
                yield
        finally:
            self._parts.lent = False

    # -- memory: [SSIJ] §IV.A --------------------------------------------------------------------------------------------

    @staticmethod
    def plan(facts: PlanFacts, limit: int, *, IB_thresh: int | None = None) -> SSIJPlan:
        """How it divides a memory: see SSIJPlan. What SB, II and CR share moves while it runs."""
        return SSIJPlan.of(facts, limit, IB_thresh=IB_thresh)

    @property
    def sizes(self) -> SSIJPlan:
        """The sizes that it has; known with the first stream tuple."""
        return self._parts.plan

    @property
    def cached_pages(self) -> int:
        """Pages in CR."""
        return self._parts.CR.used

    @property
    def backlog_room(self) -> int:
        """Stream tuples that IB may have, with the memory that CR would give up for them. [SSIJ] §IV.A"""
        return self._parts.backlog_room if self._input.tuple_bytes else 0

    @property
    def _range(self) -> tuple[str, str] | None:
        """The stream's columns that name a range of keys."""
        return (self.condition.low, self.condition.high) if isinstance(self.condition, Between) else None

    def _new_store(self) -> StreamBuffer:
        self._parts = SSIJMemory(
            relation=self.relation,
            ranges=self._range,
            memory=self._memory,
            stream=self._input,
            stats=lambda: self.stats,
            SB_thresh=self.SB_thresh,
            split=self.split,
            cache=self.cache,
            read_plan=self.read_plan,
        )
        return self._parts.SB

    def _facts(self, ahead: Relation | None = None) -> PlanFacts:
        return replace(super()._facts(ahead), longest=self.max_scan)

    def _output_plan(self) -> OutputPlan:
        return ssij_output(self._facts(), self._memory.room)

    def _begin(self) -> None:
        plan = self.plan(self._facts(), self._memory.room, IB_thresh=self.IB_thresh)
        self._parts.begin(plan, self._ordered_tuples())
        self._urgency.begin(self.relation, self._parts.places.size, plan.scan)

    def _ordered_tuples(self) -> float:
        """Tuples that may wait: in stream order their results are held until the last of them has met its page."""
        if self.order == "any":
            return np.inf
        facts = self._facts()
        width = facts.stream_bytes + tuple_bytes(self.relation, [c for c in self._payload if c.name]) + 8
        return self._memory.ordered_room / 2 / max(1.0, facts.rows_per_key) / width

    # -- updates: [SSIJ] §IV.E -------------------------------------------------------------------------------------------

    def _check_version(self, relation: Relation) -> None:
        range_columns(self.condition, self.on, relation)

    def _finish_begun(self) -> Iterator[pa.RecordBatch]:
        """A forced join phase: no tuple has seen a part of the relation and waits for the rest."""
        if self._input.tuple_bytes:
            yield from self._join_phase()

    def _move_to(self, relation: Relation) -> None:
        """Read another version; pages that it does not have leave CR."""
        facts = self._facts(relation)
        output = self._results.output.of_version(facts)
        index = ssij_index(facts, self._memory.room)
        if self._input.tuple_bytes:
            self._parts.make_room(replace(self._parts.plan, facts=facts, output=output, index=index).parts)
        else:
            self._memory.hold_all({"output": output.nbytes, "index": index.nbytes})
        self._follow(relation, output)
        if self._input.tuple_bytes:
            self._parts.follow(relation, facts, output, self._ordered_tuples())
            self._urgency.begin(relation, self._parts.places.size, self._parts.plan.scan)
        else:
            self._parts.move_to(relation)

    # -- tuples that are kept elsewhere ----------------------------------------------------------------------------------

    def _settled(self) -> Iterator[pa.RecordBatch]:
        """A join phase if a tuple has had results from one of its pages and waits for another: all others can begin anew."""
        SB = self._parts.SB
        if SB.matched[SB.slots()].any():
            yield from self._join_phase()

    def _buffer(self, rows: pa.RecordBatch, came: Float64s) -> None:
        super()._buffer(rows, came)
        self._urgency.IB.add(came + (np.inf if self.deadline is None else self.deadline))
        self._parts.book()

    def _emptied(self) -> None:
        parts = self._parts
        parts.II.clear()
        parts.SB.forget()
        self._urgency.IB.take(self._input.rows)
        parts.book()

    # -- snapshots -------------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Sizes and the pages of CR, between two batches that were joined to their end."""
        assert not self.waiting, "take a snapshot when nothing waits"
        sizes = np.array([self._input.tuple_bytes, self._parts.balance.share])
        return self._named({"sizes": sizes} | self._parts.CR.dump())

    def restore(self, snapshot: Snapshot) -> None:
        """Go on as the operator did that the snapshot was taken of; the pages of CR are read again."""
        snapshot.check(self._named({}))
        arrays, parts = snapshot.arrays, self._parts
        self._input.tuple_bytes, parts.balance.share = (float(x) for x in arrays["sizes"])
        if not self._input.tuple_bytes:
            return
        self._begin()
        parts.load_cache(arrays, self.stats)
