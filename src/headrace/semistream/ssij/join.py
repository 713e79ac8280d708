"""SSIJ: gather stream tuples, read the pages they need by an optimal plan, and keep the pages that serve most. [SSIJ]"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing

import numpy as np
import pyarrow as pa

from headrace.clock import Clock
from headrace.conditions import Between
from headrace.errors import BadInput, choice
from headrace.kernels.cache import spell_out
from headrace.kernels.pairs import cross_off
from headrace.relation import Relation
from headrace.relation.columns import Longs
from headrace.relation.disk import PlanKind
from headrace.relation.keys import Ints, Keys
from headrace.semistream.base import How, On, Order
from headrace.semistream.deadlines import seconds
from headrace.semistream.page_ranges import Spans, keys_of, range_columns
from headrace.semistream.ssij.memory import SSIJMemory
from headrace.semistream.ssij.page_cache import Policy
from headrace.semistream.ssij.stream_buffer import LIST_BYTES, PAIR_BYTES, Times
from headrace.units import parse_duration


class SSIJ(SSIJMemory):
    """Answer from cached pages at once; let the other tuples wait until many share the reads.

        S --> [IB] --online phase--> index --page cached--> join with [CR: pages, utility] --> results
                                       |  not cached                    ^ those worth most stay
                                  [SB: tuples] [II: page -> tuples] --join phase: read plan--> R

    Pending phase: wait for IB_thresh tuples. Online phase: look them up in the index together; those whose pages are all cached
    are done. Join phase, when SB_thresh tuples wait: read the pages that II names. Choose it for an indexed relation: it reads
    only what is asked for, and gains from any skew between pages.

    Parameters
    ----------
    relation, on, memory, how, columns, suffix, clock, order
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
        self.plan: PlanKind = choice("plan", plan, ("optimal", "greedy", "none"))  # type: ignore[assignment]
        self.cache: Policy = choice("cache", cache, ("utility", "lru"))  # type: ignore[assignment]
        self.IB_thresh, self.SB_thresh, self.max_scan, self.split = IB_thresh, SB_thresh, max_scan, split
        self.deadline = None if deadline is None else parse_duration(deadline, name="deadline")
        self._range = range_columns(condition, on, relation)
        super().__init__(relation, on, memory, how=how, columns=columns, suffix=suffix, clock=clock, order=order)
        self.condition = condition
        if self.deadline is not None and order == "stream":
            raise BadInput(
                f"order='stream' keeps tuples in order, and deadline={deadline!r} takes the most urgent first; choose one"
            )

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
            self._IB.add(self.clock.now() + waits)
            self._book()

    @property
    def due(self) -> float:
        """When, by its clock, the next `advance` must come so that no deadline passes; inf when there is none."""
        earliest = min(self._IB.earliest, self._SB.earliest)
        if np.isinf(earliest):
            return np.inf
        return earliest - self._time.estimate(self._II.distinct, self._SB.used, self._buffered)

    @property
    def _pressed(self) -> bool:
        return self.clock.now() >= self.due

    def drain(self) -> Iterator[pa.RecordBatch]:
        """The end of the stream: every tuple leaves."""
        self._ending = True
        try:
            yield from super().drain()
        finally:
            self._ending = False

    def join(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Join one batch to its end."""
        self._lent = True
        try:
            yield from super().join(batch)
        finally:
            self._lent = False

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Join a stream: a phase whenever there are tuples for one, or a deadline is near, and all that is left at the end."""
        self._lent = True
        try:
            yield from super().run(batches)
        finally:
            self._lent = False

    def before_update(self) -> Iterator[pa.RecordBatch]:
        """A forced join phase: no tuple has seen a part of the relation and waits for the rest. [SSIJ] §IV.E"""
        yield from self._counted(self._join_phase())

    def refresh(self, relation: Relation | None = None) -> Iterator[pa.RecordBatch]:
        """Go on with the latest version of the relation, or a given one, after a forced join phase; changed pages leave CR."""
        yield from self.before_update()
        new = self.relation.refresh() if relation is None else relation
        if new.path != self.relation.path:
            raise BadInput(f"{new.path} is another relation than {self.relation.path}; make a new SSIJ for it")
        self._follow(new)

    # -- phases ----------------------------------------------------------------------------------------------------------

    def _wanted_now(self) -> int:
        return max(1, self._buffered) if self._pressed else self._IB_now

    def _iterate(self, w: int) -> Iterator[pa.RecordBatch]:
        if self._buffered >= self._IB_now or self._ending or self._pressed:
            yield from self._online_phase(min(self._buffered, self._IB_now))
        if self._SB.used >= self._SB_now or (self._ending and not self._buffered) or self._pressed or self._held_much:
            # Tuples whose deadline would pass during the join phase take part in it. [SSIJ] §IV.F
            while self._buffered and self._IB.earliest < self.clock.now() + self._time.estimate(
                self._II.distinct, self._SB.used, self._IB_now
            ):
                yield from self._online_phase(min(self._buffered, self._IB_now))
            yield from self._join_phase()
            self._resize()

    def _online_phase(self, count: int) -> Iterator[pa.RecordBatch]:
        """Algorithm 1."""
        if not count:
            return
        begun = self.clock.now()
        if self._SB.room < count or self._waiting_bytes + self._more_bytes_for(count) > self._waiting_room:
            yield from self._join_phase()
            self._resize()
            each = self._column_bytes + PAIR_BYTES + LIST_BYTES
            count = max(1, min(count, int(self._waiting_room / each)))
        SB = self._SB
        taken, numbers, deadlines = self._pick(count)
        columns = [[name] for name in self._range] if self._range else [list(self.stream_key)]
        keys, rows = keys_of(self._version.codec, taken, columns)
        self._spend(c_S=count, c_X=rows.size)
        if rows.size < count:
            yield from self._leave_at_once(taken, numbers, np.setdiff1d(np.arange(count), rows, assume_unique=True))
            taken, numbers, deadlines = taken.take(pa.array(rows)), numbers[rows], deadlines[rows]
        slots = SB.add(numbers, self.clock.now(), deadlines)
        self._window.enter(taken, numbers, slots)
        spans = Spans.equal(self._version, keys[0]) if len(keys) == 1 else Spans.between(self._version, *keys)
        SB.pending[slots] = spans.pages(slots.size)
        yield from self._finish(slots[SB.pending[slots] == 0])
        stop: Longs = np.zeros(2, np.int64)
        while stop[0] < spans.size:
            room = self._II.room(self._waiting_room - self._waiting_bytes)
            if room < 1 and self._II.pairs:
                yield from self._join_phase()
                continue
            row, places = spans.some(stop, max(1, min(self._chunk, room)))
            yield from self._meet(keys, row, slots, places)
        self._book()
        self._time.online(self.clock.now() - begun)

    def _meet(self, keys: list[Keys], row: Ints, slots: Ints, places: Longs) -> Iterator[pa.RecordBatch]:
        """Join tuples of the online phase with pages that are cached; note the others in II."""
        SB = self._SB
        slot, frame = slots[row], self._CR.find(places)
        here = frame >= 0
        if here.any():
            self._CR.count(frame[here])
            yield from self._search(keys, row[here], slot[here], self._CR.addresses(frame[here]))
            cross_off(slot[here], SB.pending)
            seen = np.unique(slot[here])
            yield from self._finish(seen[SB.pending[seen] == 0])
        if not here.all():
            new, first = np.unique(slot[~here], return_index=True)
            fresh = ~SB.waits(new)
            SB.add_keys(new[fresh], [some.take(row[~here][first[fresh]]) for some in keys])
            self._spend(c_A=int(fresh.sum()))
            self._II.add(places[~here], slot[~here])

    def _join_phase(self) -> Iterator[pa.RecordBatch]:
        """Algorithm 2."""
        if not self._II.pairs:
            return
        begun = self.clock.now()
        SB = self._SB
        ranks, starts, slots = self._II.lists()
        keys = SB.keys()
        self._book()
        self._weigh(ranks, starts, slots)
        keep = self._CR.choose(starts, self._capacity(self._beside))
        self._book(self._CR.used + int(keep.sum()))
        for start, places in self._plans(ranks):
            with closing(self._disk_buffer.read(places, self.stats)) as rounds:
                for i, j, addresses in rounds:
                    a, b = start + i, start + j
                    yield from self._meet_pages(keys, addresses, starts[a : b + 1], slots)
                    kept = keep[a:b]
                    self._CR.put(places[i:j][kept], addresses[kept], np.diff(starts[a : b + 1])[kept])
        cross_off(slots, SB.pending)
        del slots  # the memory of II
        self._II.clear()
        for done in SB.done(self._chunk):
            yield from self._let_go(done)
        self._window.keep(self._numbers())
        self._time.joined(ranks.size, self.clock.now() - begun)
        SB.forget()
        self._CR.clear_counters()
        self._book()

    def _plans(self, ranks: Ints) -> Iterator[tuple[int, Longs]]:
        """Pages to plan together, and how many came before: without the last run, which may go on in the next plan."""
        start = 0
        while start < ranks.size:
            places = self._places[ranks[start : start + self._planned]]
            if start + places.size < ranks.size:
                disk, page = self.relation.disk, self.relation.page_size
                first, _ = disk.runs(places, page, self._scan, plan=self.plan)
                if first.size > 1:
                    places = places[: int(np.searchsorted(places, first[-1]))]
            yield start, places
            start += places.size

    def _meet_pages(self, keys: list[Keys], addresses: Longs, starts: Ints, slots: Ints) -> Iterator[pa.RecordBatch]:
        """Join pages in memory with the tuples in their lists: many at a time, so that one popular page takes no more memory."""
        for a in range(int(starts[0]), int(starts[-1]), self._chunk):
            b = min(a + self._chunk, int(starts[-1]))
            some = np.clip(starts, a, b)
            each: Ints = some[1:] - some[:-1]
            yield from self._search(keys, self._SB.which(slots[a:b]), slots[a:b], np.repeat(addresses, each))

    def _search(self, keys: list[Keys], which: Ints, slots: Ints, pages: Longs) -> Iterator[pa.RecordBatch]:
        """Join tuples, keys[which] in `slots`, each with one page in memory."""
        low, high = np.empty(which.size, np.int32), np.empty(which.size, np.int32)
        keys[0].find(pages, which, low, high)
        if len(keys) == 2:
            keys[1].find(pages, which, np.empty_like(low), high)
            np.maximum(low, high, out=high)  # a range whose end is before its begin
        self._spend(c_H=which.size)
        if self.how in ("semi", "anti"):
            hit = np.unique(slots[high > low])
            for a in range(0, hit.size, self._output_rows):
                yield from self._found(hit[a : a + self._output_rows], pages, low)
            return
        stop: Longs = np.zeros(2, np.int64)
        while stop[0] < which.size:
            pair, row = np.empty(self._output_rows, np.int32), np.empty(self._output_rows, np.int32)
            n = int(spell_out(low, high, stop, pair, row))
            if n:
                yield from self._found(slots[pair[:n]], pages[pair[:n]], row[:n])

    # -- stream tuples come and go ---------------------------------------------------------------------------------------

    def _pick(self, count: int) -> tuple[pa.RecordBatch, Longs, Times]:
        """Take tuples from IB, the most urgent first, their numbers and their deadlines."""
        deadlines, first = self._IB.take(count)
        if first is None:
            return *self._next_tuples(count), deadlines
        numbers = np.arange(self._numbered, self._numbered + count)
        self._numbered += count
        whole = pa.concat_batches(self._buffer)
        rest = np.setdiff1d(np.arange(whole.num_rows), first, assume_unique=True)
        self._buffer, self._buffered = [whole.take(pa.array(rest))], rest.size
        return whole.take(pa.array(first)), numbers, deadlines

    def _finish(self, slots: Ints) -> Iterator[pa.RecordBatch]:
        """Tuples that an online phase is done with: those that never waited were hits."""
        waited = self._SB.waits(slots)
        yield from self._leave(slots[waited])
        yield from self._leave(slots[~waited], hits=True, queued=False)

    def _let_go(self, slots: Ints, *, hits: bool = False, queued: bool = True) -> Iterator[pa.RecordBatch]:
        self.stats.late += self._SB.late(slots, self.clock.now())
        yield from super()._let_go(slots, hits=hits, queued=queued)

    def _stream_key(self, on: On | None) -> tuple[str, ...]:
        return () if self._range else super()._stream_key(on)

    def output_schema(self, stream: pa.Schema) -> pa.Schema:
        """The schema of results for a stream of this schema; refuses what cannot be joined, by name."""
        for name in self._range or ():
            if stream.names.count(name) != 1:
                raise BadInput(
                    f"the stream has {'no' if name not in stream.names else 'more than one'} column {name!r}; its columns are"
                    f" {', '.join(stream.names)}"
                )
            self.relation.codec.check([stream.field(name)])
        return super().output_schema(stream)
