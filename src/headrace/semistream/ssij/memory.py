"""What SSIJ holds while it runs: SB, II, CR and the read buffer, and how the first three share memory. [SSIJ] §IV.A"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from math import inf

import numpy as np

from headrace.arrays import Int32s, Int64s
from headrace.errors import MemoryRefused
from headrace.metrics import JoinStats
from headrace.relation import Relation
from headrace.relation.disk import PlanKind
from headrace.relation.paged_index import open_index
from headrace.relation.reader import PageReader, Version
from headrace.semistream.input_buffer import InputBuffer
from headrace.semistream.page_ranges import FilePages, all_places
from headrace.semistream.plan_facts import PlanFacts
from headrace.semistream.reservations import Reservations
from headrace.semistream.snapshot import Arrays
from headrace.semistream.ssij.balance import Balance, sharing
from headrace.semistream.ssij.memory_plan import SSIJPlan, ssij_index
from headrace.semistream.ssij.page_cache import FRAME_BYTES, PageCache, Policy
from headrace.semistream.ssij.stream_buffer import PAIR_BYTES, SLOT_BYTES, InvertedIndex, StreamBuffer
from headrace.semistream.waiting_plan import OutputPlan
from headrace.units import format_size


class SSIJMemory:
    """SB, II, CR and the read buffer of one SSIJ, within its reservations.

    Parameters
    ----------
    relation, ranges
        R, and the stream's columns that name a range of keys, if there are such.
    memory, stream, stats
        The operator's reservations, its input buffer, IB, and what returns its counters.
    SB_thresh, split, cache, read_plan
        See SSIJ.
    """

    plan: SSIJPlan  # there from the first stream tuple on, and so are the version with its index, and the reader
    version: Version
    reader: PageReader

    def __init__(
        self,
        *,
        relation: Relation,
        ranges: tuple[str, str] | None,
        memory: Reservations,
        stream: InputBuffer,
        stats: Callable[[], JoinStats],
        SB_thresh: int | None,
        split: float | None,
        cache: Policy,
        read_plan: PlanKind,
    ) -> None:
        self.relation = relation
        self.places = FilePages(relation.opened)
        self.SB = StreamBuffer(relation.codec, ranges)
        self.II = InvertedIndex(self.places)
        self.CR = PageCache(relation.page_size, 0)
        self.balance = Balance()
        self.lent = False  # whether the tuples in IB are of a batch that belongs to the caller
        self._memory, self._IB, self._stats = memory, stream, stats
        self._SB_thresh, self._split, self._cache, self._read_plan = SB_thresh, split, cache, read_plan
        self._ordered_tuples = inf
        self.SB_now = 0  # tuples that start a join phase
        self._moving = 0  # bytes that SB's columns, II and CR share
        self._searched = False  # whether results are being made from pages of CR, which must stay where they are
        self._unbooked = False  # whether room was asked for meanwhile

    # -- sizes -----------------------------------------------------------------------------------------------------------

    def begin(self, plan: SSIJPlan, ordered_tuples: float) -> None:
        """Make all parts by a plan.

        Parameters
        ----------
        ordered_tuples
            Tuples that may wait at most because their results are held in stream order; inf where they are not.
        """
        self.plan, self._ordered_tuples = plan, ordered_tuples
        for part, nbytes in plan.parts.items():
            self._memory.hold(part, nbytes)
        left = plan.left - self._memory.held("SB")
        # Frames for more pages than the relation has: a later version may have more.
        self.CR = PageCache(plan.facts.page_size, max(0, left // plan.frame_bytes), self._cache)
        self._open()
        self._size_buffer()

    def _open(self) -> None:
        """Have the index as the plan says, and a read buffer."""
        self.version = open_index(self.relation.opened, self.plan.index, self._stats)
        self.reader = self._new_reader()

    def _new_reader(self) -> PageReader:
        plan = self.plan
        size = plan.scan * plan.halves * plan.facts.page_size
        version, whole = self.relation.opened, plan.halves == 1
        return PageReader(version, size, whole=whole, plan=self._read_plan, longest=plan.scan)

    def _size_buffer(self) -> None:
        """Give SB, which is empty, room for as many tuples as start a join phase, and an online phase."""
        plan = self.plan
        self._memory.hold("SB", 0)
        share = self.balance.share if self._split is None else 1 - self._split
        room = share * (plan.left - plan.IB_slot_bytes)
        room = min(room, plan.tuple_bytes(self.SB_now) * self._ordered_tuples)
        self.SB_now = self._SB_thresh or max(1, int(plan.tuples(room)))
        slots = self.SB_now + plan.IB
        most = int(plan.tuples(plan.left)) - plan.IB
        if self._SB_thresh and self.SB_now > max(1, most):
            raise MemoryRefused(
                f"SB_thresh={self.SB_now} does not fit memory={format_size(self._memory.budget.limit)}: a waiting tuple takes"
                f" {plan.tuple_bytes(self.SB_now):.0f} bytes; give {max(1, most)} or fewer, more memory, or leave it out"
            )
        self.SB.resize(slots)
        self._moving = max(0, plan.left - slots * SLOT_BYTES)
        self.II = InvertedIndex(self.places, self._moving // PAIR_BYTES)
        self.book()
        self._memory.hold("SB", slots * SLOT_BYTES)

    def resize(self) -> None:
        """Let SB have the size that the balance has come to, where nothing is in it."""
        if not self.SB.used and self.SB_now != self._SB_thresh and self._split is None:
            self._size_buffer()

    def follow(self, relation: Relation, facts: PlanFacts, output: OutputPlan, ordered_tuples: float) -> None:
        """Hold what another version of the relation needs. Nothing is in SB; pages that the version does not have leave CR."""
        self.move_to(relation)
        index = ssij_index(facts, self.plan.limit)
        self.plan = replace(self.plan, facts=facts, output=output, index=index)
        self._ordered_tuples = ordered_tuples
        self._memory.hold("index", index.nbytes)
        vars(self).pop("version", None)  # what it holds of the old index goes before the new one is there
        self._open()
        self._size_buffer()

    def make_room(self, parts: dict[str, int]) -> None:
        """Reserve what parts take with another version of the relation; SB, which is empty, and CR give way."""
        frame = self.CR.page_size + FRAME_BYTES
        self._memory.hold("SB", 0)
        missing = sum(parts.values()) - self._memory.held(*parts) - self._memory.budget.left
        if missing > 0:
            self.CR.shrink(max(0, self.CR.used - -(-missing // frame)))
            self._memory.hold("CR", self.CR.frames * frame)
        self._memory.hold_all(parts)

    def move_to(self, relation: Relation) -> None:
        """Go over to another version of the relation; pages that it does not have leave CR."""
        old, new, self.places = self.relation.opened, relation.opened, FilePages(relation.opened)
        # A list of all pages would be as large as the index. Without it, pages stay in CR that no index leads to: of no use, they
        # are the first to give way.
        listed = self.CR.used > 0 and not self.plan.index.paged
        self.CR.follow(old, new, all_places(relation) if listed else new.places_of(old, self.CR.places))
        self.relation = relation

    def read_plans(self, P_u: Int32s) -> Iterator[tuple[int, Int64s]]:
        """Pages to plan together, and how many came before: without the last run, which may go on in the next plan.

        P_u has the ranks of pages among all places.
        """
        start, plan = 0, self.plan
        while start < P_u.size:
            places = self.places[P_u[start : start + plan.planned]]
            if start + places.size < P_u.size:
                disk, page = self.relation.disk, self.relation.page_size
                first, _ = disk.runs(places, page, plan.scan, plan=self._read_plan)
                if first.size > 1:
                    places = places[: int(np.searchsorted(places, first[-1]))]
            yield start, places
            start += places.size

    def load_cache(self, arrays: Arrays, stats: JoinStats) -> None:
        """Read the pages into CR again that it had when a snapshot was taken, with their counters."""
        places = arrays["places"]
        self.book(places.size)
        with closing(self.reader.read(places, stats)) as rounds:
            for a, b, addresses in rounds:
                self.CR.put(places[a:b], addresses, np.zeros(b - a, np.int64))
        self.CR.load(arrays)

    # -- what moves ------------------------------------------------------------------------------------------------------

    @property
    def waiting_bytes(self) -> int:
        """Bytes of SB and II as they are."""
        return int(self.SB.held_rows * self.plan.column_bytes) + self.SB.key_bytes + self.II.nbytes

    @property
    def waiting_room(self) -> int:
        """Bytes that SB and II may have: all that moves, or what a fixed split leaves."""
        return self._moving if self._split is None else int((1 - self._split) * self._moving)

    def has_room_for(self, count: int) -> bool:
        """Whether so many tuples more, with one page each, have room in SB and II."""
        more = int(count * self.plan.column_bytes) + self.II.size(self.II.pairs + count, self.places.size)
        return self.SB.room >= count and self.waiting_bytes + more - self.II.nbytes <= self.waiting_room

    @property
    def backlog_room(self) -> int:
        """Stream tuples that IB may have, with the memory that CR would give up for them."""
        free = max(0, self.waiting_room - self.waiting_bytes)
        return self.plan.IB + int(free / max(1.0, self.plan.facts.stream_bytes))

    @property
    def _beside_CR(self) -> int:
        """Bytes of SB and II, and of what IB holds beyond its own room, as far as it may."""
        beyond = 0 if self.lent else int(max(0, self._IB.rows - self.plan.IB) * self.plan.facts.stream_bytes)
        return min(self.waiting_bytes + beyond, self.waiting_room)

    @property
    def CR_capacity(self) -> int:
        """Pages that CR may have beside SB, II and IB as they are."""
        free = self._moving - self._beside_CR if self._split is None else int(self._split * self._moving)
        return max(0, min(free // (self.CR.page_size + FRAME_BYTES), self.places.size, self.CR.most))

    def book(self, pages: int = 0) -> None:
        """Reserve what the parts hold now; CR gives way. `pages`: CR is about to have so many."""
        waiting, capacity, frame = self._beside_CR, self.CR_capacity, self.CR.page_size + FRAME_BYTES
        if self.CR.frames > capacity and not self._searched:
            self.CR.shrink(capacity)
        frames = max(self.CR.frames, pages)
        if self._searched:  # tuples that came meanwhile get their room when the pages have been searched
            self._unbooked = True
            waiting = min(waiting, self._moving - frames * frame)
        self._memory.hold_all({"CR": frames * frame, "SB and II": waiting})

    @contextmanager
    def searched(self) -> Iterator[None]:
        """Results are made from pages of CR: none leaves, or goes to another frame, whatever comes meanwhile."""
        self._searched = True
        try:
            yield
        finally:
            self._searched = False
            if self._unbooked:
                self._unbooked = False
                self.book()

    def weigh(self, ranks: Int32s, starts: Int32s, slots: Int32s) -> None:
        """Let the last pass tell whether SB or CR should have more memory. Its lists are those of II."""
        if self._SB_thresh is None and self._split is None:
            plan, disk, page = self.plan, self.relation.disk, self.relation.page_size
            shared = sharing(disk, page, plan.scan, self._read_plan, self.places, ranks, starts, slots, plan.planned)
            # Where nothing is cached, the page that most tuples wait for tells what one would serve.
            tail = self.CR.tail if self.CR.used else float((starts[1:] - starts[:-1]).max())
            each = plan.tuple_bytes(self.SB_now)
            self.balance.move(tail, plan.frame_bytes, slots.size, each, self.SB.used, shared)
