"""The driver of the published joins, in which stream tuples wait in memory for the pages they need. [MESH] §3.1, [XHJ] §3

    offer --> stream buffer --w tuples--> H and Q <--probed by-- pages in the disk buffer <--read-- R
                                            |
                                 results as they are found; left and anti when a tuple leaves

A waiting join has an input buffer, a store of waiting tuples, a result emitter and its memory reservations. An operator says
which pages come next and which tuples leave. Work is done in bounded steps: one `advance` is one iteration of the paper's loop.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise

import numpy as np
import pyarrow as pa

from headrace.arrays import AnyArray, Bools, Float64s, Int32s, Int64s
from headrace.clock import Clock
from headrace.conditions import ON_FORMS, Condition
from headrace.errors import BadInput, MemoryRefused, choice
from headrace.relation import Relation, Sketch
from headrace.relation.columns import Column
from headrace.relation.reader import key_column
from headrace.semistream.base import How, On, Order, SemiStreamJoin
from headrace.semistream.deadlines import StepTime
from headrace.semistream.hash_probe import HashProbe
from headrace.semistream.input_buffer import InputBuffer
from headrace.semistream.join_key import JoinKey
from headrace.semistream.kept_tuples import NOT_MET, KeptTuples
from headrace.semistream.plan_facts import PlanFacts
from headrace.semistream.protocols import DrivenOperator, StreamShedder
from headrace.semistream.reservations import Reservations
from headrace.semistream.result_emitter import ResultEmitter
from headrace.semistream.snapshot import Snapshot
from headrace.semistream.waiting_plan import OutputPlan, facts_of
from headrace.semistream.waiting_store import HashWindow, WaitingStore
from headrace.units import format_size

_ORDERED_SHARE = 0.5  # of the budget, for results that wait to go out in stream order
_CREDIT = 0.25  # of the time that the stream takes: for a stream that computes meanwhile, steps in all of it would halve its rate
_BACKLOG_SHARE = (
    0.02  # of the budget, with `shed`, for tuples that have come and that the next iteration does not take in
)
_COUNTS_SHARE, _COUNTERS = 1 / 32, 4  # of the budget, with `measure`, at most; bytes of counters for each key of R
_LEAST_HORIZON, _HORIZON = 1 << 16, 4  # stream tuples after which counts are halved: at least, and for each key of R
_PIECE = 1 << 13  # tuples that are taken out together: what is made of them on the way is small beside H


class WaitingJoin(SemiStreamJoin):
    """A join whose stream tuples wait in memory until their pages come by.

    Parameters
    ----------
    relation, on, memory, how, columns, suffix, clock
        See SemiStreamJoin.
    order
        "any": results go out as they are found. "stream": results of a tuple go out together, tuples in the order they came
        ([MESH] §3.4); half of the budget is kept for results that wait.
    condition
        What pairs must satisfy besides `on`, or instead of it, for operators that take one.
    shed
        Chooses what is joined when tuples come faster than they can be taken in, such as headrace.shedding.Shedder; the rest goes
        to its store ([MESH] §4). By default all tuples are joined, however long they wait to be taken in.
    measure
        Count how often each key is asked for, in a 32nd of the memory at most: `popularity`.
    """

    in_order = False

    def __init__(
        self,
        relation: Relation,
        on: On | None,
        memory: int | str = "64MiB",
        *,
        how: How = "inner",
        columns: Sequence[str] | None = None,
        suffix: str | None = "_right",
        clock: Clock | None = None,
        order: Order = "any",
        condition: Condition | None = None,
        shed: StreamShedder | None = None,
        measure: bool = False,
    ) -> None:
        self.condition = condition  # before the base class asks for the stream's key
        super().__init__(relation, on, memory, how=how, columns=columns, suffix=suffix, clock=clock)
        self.order: Order = choice("order", order, ("any", "stream"))  # type: ignore[assignment]
        self.shed = shed
        self._input = InputBuffer()
        self._steps = StepTime()
        share = 1 - _ORDERED_SHARE if order == "stream" else 1.0
        backlog = 0 if shed is None else int(_BACKLOG_SHARE * self.budget.limit)
        shedding = 0 if shed is None else shed.nbytes
        counts = _counts_for(relation, self.budget.limit) if measure else 0
        apart = {"backlog": backlog, "shedding": shedding, "key counts": counts}
        room = int((self.budget.limit - sum(apart.values())) * share)
        self._memory = Reservations(self.budget, max(0, room), apart)
        if measure:
            self._input.counts = Sketch(counts, max(_LEAST_HORIZON, _HORIZON * relation.distinct_keys))
        self._waiting = self._new_store()
        output = self._output_plan()
        self._check_room(output)
        self._results = ResultEmitter(
            relation=relation,
            payload=self._payload,
            key_columns=self._key_columns,
            how=self.how,
            order=self.order,
            waiting=self._waiting,
            memory=self._memory,
            output=output,
            schema_for=self._schema_for,
        )

    def _check_room(self, output: OutputPlan) -> None:
        """Refuse a memory that is too small for the operator, whatever the stream."""
        if output.least > self._memory.room:
            share = 1 - _ORDERED_SHARE if self.order == "stream" else 1.0
            shedding = 0 if self.shed is None else self.shed.nbytes
            beside = shedding + self._memory.held("key counts")
            whole = int((output.least / share + beside) / (1 - _BACKLOG_SHARE if self.shed else 1)) + 1
            raise MemoryRefused(
                f"memory={format_size(self.budget.limit)} is too small for {type(self).__name__} with {self.relation.path}: its"
                f" buffers need {format_size(output.least)}{' beside ordered results' if share < 1 else ''}; give"
                f" {format_size(whole)} or more"
            )

    # -- names -----------------------------------------------------------------------------------------------------------

    def _key_of(self, on: On | None) -> JoinKey:
        if on is None and self.condition is not None:
            return JoinKey(self.relation, None)
        if on is None:
            raise BadInput(f"{type(self).__name__} has nothing to join on; give on={ON_FORMS}")
        return super()._key_of(on)

    @property
    def _key_columns(self) -> tuple[str, ...]:
        """Key columns of R that are in the result: those that are not joined on are like any other column."""
        wanted, joined = self.columns, self._join_key.relation
        return tuple(n for n in self.relation.key if n not in joined and (wanted is None or n in wanted))

    def _payload_of(self, relation: Relation) -> tuple[Column, ...]:
        """The columns of a version that are in the result; the stored key, a column without a name, where its columns are."""
        payload = super()._payload_of(relation)
        with_key = self._key_columns and self.how in ("inner", "left")
        return (key_column(relation.codec), *payload) if with_key else payload

    def _right_fields(self) -> list[pa.Field]:
        fields = [pa.field(column.name, column.type) for column in self._payload if column.name]
        key = [self.relation.schema.field(name) for name in self._key_columns if len(fields) < len(self._payload)]
        return [*(pa.field(field.name, field.type) for field in key), *fields]

    def output_schema(self, stream: pa.Schema) -> pa.Schema:
        """The schema of results for a stream of this schema; refuses what cannot be joined, by name."""
        self._waiting.check_stream(stream)
        return super().output_schema(stream)

    # -- the public steps ------------------------------------------------------------------------------------------------

    def offer(self, batch: pa.RecordBatch) -> None:
        """Hand over stream tuples. They are taken in by `advance`."""
        self._schema_of(batch)
        if self._input.tuple_bytes and batch.schema is not self._input.schema:
            self._meet_stream(batch.schema)
        self.stats.batches += 1
        self.stats.tuples_in += batch.num_rows
        if batch.num_rows:
            self._begin_with(batch)
            self._input.add(batch, self.clock.now())
            self._steps.came += batch.num_rows
        self._note_memory()

    @property
    def wanted(self) -> int:
        """Stream tuples that the next iteration would take in."""
        return self._wanted_now() if self._input.tuple_bytes else 1

    @property
    def buffered(self) -> int:
        """Stream tuples offered that were not taken in yet."""
        return self._input.rows

    def as_waiting(self) -> DrivenOperator:
        """This join: its stream tuples wait."""
        return self

    @property
    def popularity(self) -> Sketch | None:
        """How often the stream asked for each key lately, with `measure`; None without."""
        return self._input.counts

    @property
    def capacity(self) -> int:
        """Stream tuples that may wait at the same time."""
        return self._waiting.capacity

    @property
    def waiting(self) -> int:
        """Stream tuples offered that have not left."""
        return self._input.rows + self._waiting.used

    @property
    def ready(self) -> bool:
        """Whether there are tuples for an iteration."""
        return self._input.rows > 0 and self._input.rows >= self.wanted

    @property
    def due(self) -> float:
        """When, by its clock, the next iteration must come so that no deadline passes; inf when there is none."""
        earliest = self._earliest()
        return earliest if np.isinf(earliest) else earliest - self._seconds_left()

    def take_in(self) -> Iterator[pa.RecordBatch]:
        """Let tuples wait where they have memory, if no iteration has to come first for that."""
        return self._counted(self._early())

    def has_waited(self, seconds: float) -> None:
        """Take note that the stream let it wait for so long."""
        self._steps.waited = (self._steps.waited or 0.0) + seconds
        self._steps.owed += _CREDIT * seconds

    def advance(self, *, quiet: bool = False) -> Iterator[pa.RecordBatch]:
        """One iteration; nothing is done before the first stream tuple.

        Parameters
        ----------
        quiet
            Whether no more tuples are awaited: what there is room for then enters at once, and shares one pass.
        """
        self._check_read()
        self.stats.iterations += 1
        if self._input.tuple_bytes:
            begun, left = self.clock.now(), self.stats.matched + self.stats.unmatched
            if self.shed is not None and not quiet:
                self._shed_surplus(self.shed)
            w = min(self._input.rows, self._room_now()) if quiet else self._wanted_now()
            yield from self._counted(self._iterate(w))
            self._steps.note(self.clock.now() - begun, self.stats.matched + self.stats.unmatched - left)

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Iterate until every tuple has left."""
        self._check_read()
        while self.waiting:
            yield from self.advance(quiet=True)

    def join(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Join one batch to its end; offer and drain count its tuples and results."""
        self.offer(batch)
        yield from self.drain()

    def _counted(self, step: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return super()._counted(chain(step, self._results.release()))

    # -- deadlines: [SSIJ] §IV.F -----------------------------------------------------------------------------------------

    def _earliest(self) -> float:
        """The first deadline of a tuple in it; inf where there is none. Tuples leave in the order they came, or nearly so."""
        if self.deadline is None or not self.waiting:
            return np.inf
        oldest, now = self._waiting.oldest(1), self.clock.now()
        came = now - float(self._waiting.waited(oldest, now)[0]) if oldest.size else self._input.oldest
        return came + self.deadline

    def _late(self, slots: Int32s, waited: Float64s) -> int:
        """How many of these tuples have passed their deadline, after they waited so long."""
        return 0 if self.deadline is None else int((waited > self.deadline).sum())

    # -- overload: [MESH] §4 ---------------------------------------------------------------------------------------------

    def _shed_surplus(self, shed: StreamShedder) -> None:
        """Put aside what has come beyond the tuples that the next iteration takes in, and the room for a backlog."""
        beside = int(self._memory.held("backlog") / max(1.0, self._input.tuple_bytes))
        most = max(self._most_wanted(), self.backlog_room) + beside
        if self._input.rows > most:
            interval = self._input.all_rows()
            kept = shed.keep(interval, most)
            rest = interval.filter(pa.array(~kept))
            shed.put_aside(rest)
            self._keep_buffered(kept)
            self.stats.tuples_in -= rest.num_rows
            self.stats.shed += rest.num_rows

    def _most_wanted(self) -> int:
        """Stream tuples that an iteration takes in at most."""
        return self._wanted_now()

    def _keep_buffered(self, kept: Bools) -> None:
        """Some of the tuples that were not taken in yet stay, and the others are put aside."""
        self._input.keep(kept)

    # -- what an operator says -------------------------------------------------------------------------------------------

    @abstractmethod
    def _new_store(self) -> WaitingStore:
        """An empty store of waiting tuples."""

    @abstractmethod
    def _output_plan(self) -> OutputPlan:
        """Room for results, and the least memory that it works in, whatever the stream."""

    @abstractmethod
    def _begin(self) -> None:
        """The size of a stream tuple is known: plan the memory, reserve it, make the buffers."""

    @abstractmethod
    def _wanted_now(self) -> int:
        """w of the next iteration."""

    @abstractmethod
    def _iterate(self, w: int, most: int | None = None) -> Iterator[pa.RecordBatch]:
        """One iteration that takes in up to w tuples, and brings so many pages of a scan at most."""

    @abstractmethod
    def _room_now(self) -> int:
        """Tuples that could be taken in by one iteration."""

    def _early(self) -> Iterator[pa.RecordBatch]:
        """Take in tuples that no iteration has to come first for."""
        return iter(())

    @abstractmethod
    def _seconds_left(self) -> float:
        """Seconds until all that waits has left, at most, if it iterates from now on."""

    # -- what operators have in common -----------------------------------------------------------------------------------

    def _facts(self, ahead: Relation | None = None) -> PlanFacts:
        """What the memory plan is made from, for the stream at hand; with `ahead`, a version that is not read yet."""
        return facts_of(
            ahead or self.relation,
            self._payload_of(ahead) if ahead else self._payload,
            algorithm=type(self).__name__.lower(),
            stream_bytes=self._input.tuple_bytes,
            condition_row_bytes=self._waiting.condition_row_bytes + self._join_key.row_bytes,
            condition_slot_bytes=self._waiting.condition_slot_bytes(self._input.tuple_bytes),
            condition_pair_bytes=self._waiting.condition_pair_bytes,
            column_extra_bytes=self._waiting.column_extra_bytes,
        )

    def _probe_of(self, H: HashWindow) -> HashProbe:
        """The part that takes tuples into H and probes it, for operators that have one."""
        return HashProbe(
            relation=self.relation,
            key=self._join_key,
            stream=self._input,
            H=H,
            results=self._results,
            leave_at_once=self._leave_at_once,
        )

    # -- stream tuples come and go ---------------------------------------------------------------------------------------

    def _begin_with(self, batch: pa.RecordBatch) -> None:
        """The first tuples of a stream say how large its tuples are."""
        if not self._input.tuple_bytes:
            self._input.tuple_bytes = max(1.0, batch.nbytes / batch.num_rows)
            self._meet_stream(batch.schema)
            self._begin()

    def _meet_stream(self, schema: pa.Schema) -> None:
        """The schema of the stream is known, or may have changed: see to it that its columns have where to wait."""
        old = self._input.schema
        if old is not None and (old.names, old.types) == (schema.names, schema.types):
            self._input.schema = schema
            return
        if self.waiting:
            raise BadInput(
                f"the stream's columns are {_columns(schema)} now and were {_columns(old)}, and {self.waiting:,} tuples of before"
                " wait; drain() the operator first, or make a new one"
            )
        self._input.schema = schema
        self._waiting.begin_stream(schema)

    def _leave_at_once(self, taken: pa.RecordBatch, numbers: Int64s, nulls: Int64s) -> Iterator[pa.RecordBatch]:
        """Some of the tuples that come in have a null and no match."""
        self.stats.nulls += nulls.size
        self.stats.unmatched += nulls.size
        yield from self._results.unmatched_rows(taken, numbers, nulls)

    def _leave(self, slots: Int32s, *, hits: bool = False, queued: bool = True) -> Iterator[pa.RecordBatch]:
        """Tuples have met every page they need. `hits`: without a read of their own; `queued`: after they had to wait."""
        if slots.size:
            numbers = self._waiting.number[slots]
            yield from self._free(slots, hits=hits, queued=queued)
            self._waiting.drop(numbers)

    def _free(self, slots: Int32s, *, hits: bool = False, queued: bool = True) -> Iterator[pa.RecordBatch]:
        """Count tuples that leave, free their slots and send out those without a match; their columns are not dropped."""
        waiting, stats = self._waiting, self.stats
        matched, waited = waiting.matched[slots] == 1, waiting.waited(slots, self.clock.now())
        stats.late += self._late(slots, waited)
        stats.waiting_seconds += float(waited.sum())
        stats.longest_wait = max(stats.longest_wait, float(waited.max()))
        stats.matched += int(matched.sum())
        if hits:
            stats.hits += slots.size
        else:
            stats.misses += slots.size
        self.relation.disk.spend({"c_E": slots.size if queued else 0})
        waiting.remove(slots)
        alone = slots[~matched]
        stats.unmatched += alone.size
        yield from self._results.unmatched(alone)

    # -- updates of the relation: [SSIJ] §IV.E ---------------------------------------------------------------------------

    def before_update(self) -> Iterator[pa.RecordBatch]:
        """Have no tuple wait that has met a part of the relation: such tuples meet the rest of the version they began with."""
        yield from self._counted(self._finish_begun())

    def refresh(self, relation: Relation | None = None) -> Iterator[pa.RecordBatch]:
        """Go on with the latest version of the relation, or with a given one; gives the results of tuples that leave before.

        A tuple is joined with one version, whole. What has met a part of the old version meets the rest of it first
        (`before_update`); tuples that have met nothing see the new one. A version that cannot be joined with is refused, and the
        join goes on with the old one. Of the old version nothing is held afterwards.
        """
        self._check_read()
        new = self._successor(relation)
        if new.version == self.relation.version:
            return
        yield from self.before_update()
        yield from self._counted(self._make_room_for(new))
        old = self.relation
        old.opened.drop_indexes()  # whoever else has the old version open: two indexes would exceed the budget
        try:
            self._move_to(new)
        except BaseException:
            self._move_to(old)
            raise
        self._note_memory()

    def _successor(self, relation: Relation | None) -> Relation:
        """The version to go on with; refuses one of another relation, and one that the operator cannot be used with."""
        new = self.relation.refresh() if relation is None else relation
        if new.path != self.relation.path:
            raise BadInput(
                f"{new.path} is another relation than {self.relation.path}; make a new {type(self).__name__} for it"
            )
        new.check_identity(self.relation.identity)
        self._check_version(new)
        return new

    def _check_version(self, relation: Relation) -> None:
        """Refuse a version that lacks what the operator asks of a relation."""

    def _finish_begun(self) -> Iterator[pa.RecordBatch]:
        """Let tuples that have met a part of the relation meet the rest: iterations that take nothing in, until all have left."""
        while self._waiting.used:
            self.stats.iterations += 1
            yield from self._iterate(0)

    def _make_room_for(self, version: Relation) -> Iterator[pa.RecordBatch]:
        """Join with the old version while more tuples wait than have room beside the new one."""
        most = self._room_with(version) if self._waiting.used else 0
        while self._waiting.used > most:
            self.stats.iterations += 1
            yield from self._iterate(0)

    def _room_with(self, version: Relation) -> int:
        """Tuples that may wait with another version."""
        return self.capacity

    @abstractmethod
    def _move_to(self, relation: Relation) -> None:
        """Read another version from now on: let go of what is held of the old one, `_follow`, and make the buffers anew."""

    def _follow(self, relation: Relation, output: OutputPlan | None = None) -> None:
        """Let the parts that all operators have go over to another version, with the room for results that it needs."""
        self.relation, self._payload = relation, self._payload_of(relation)
        self._join_key = self._key_of(self.on)
        self._waiting.follow(relation)
        output = output or self._output_plan()
        self._check_room(output)
        self._results.follow(relation, self._payload, output)

    # -- tuples that are kept elsewhere, from one micro-batch to the next ------------------------------------------------

    @property
    def scan_pages(self) -> int | None:
        """Pages of the scan that every tuple stays for; None where tuples wait for pages of their own."""
        return None

    @property
    def position(self) -> int:
        """The page that the scan comes to next."""
        return self._position()

    def go_to(self, position: int) -> None:
        """Have the scan go on at a page. Nothing waits."""
        self._go_to(position)

    @property
    def seconds_left(self) -> float:
        """Seconds until all that waits has left, at most, if it iterates from now on."""
        return self._seconds_left() if self.waiting else 0.0

    def settle(self) -> Iterator[pa.RecordBatch]:
        """Let tuples leave that need no iteration; those that stay can be taken out."""
        return self._counted(self._settled())

    def take_out(self) -> Iterator[KeptTuples]:
        """Give all tuples out that wait, after `settle`, in the order in which they leave. They are not counted here."""
        waiting = self._waiting
        slots, left = waiting.oldest(waiting.used), self._pages_left()
        for a in range(0, slots.size, _PIECE):
            some = slots[a : a + _PIECE]
            numbers = waiting.number[some]
            yield KeptTuples(waiting.columns(some), left[a : a + _PIECE], waiting.matched[some] == 1)
            waiting.remove(some)
            waiting.drop(numbers)
            self.stats.tuples_in -= some.size
        self._emptied()
        for batch in self._input.clear():
            n = batch.num_rows
            self.stats.tuples_in -= n
            yield KeptTuples(batch, np.full(n, NOT_MET, np.int64), np.zeros(n, np.bool_))

    def put_back(self, kept: KeptTuples, came: Float64s) -> int:
        """Take tuples in again that were taken out of this join or another; those put back before leave before them.

        Parameters
        ----------
        kept
            The tuples.
        came
            When each came, by the join's clock.

        Returns
        -------
        int
            How many of them there was room for, the first ones.
        """
        self._schema_for(kept.rows.schema)
        if not len(kept):
            return 0
        self._begin_with(kept.rows)
        begun = int((kept.left != NOT_MET).sum())
        taken = self._room_for(begun) if begun else 0
        ends = np.flatnonzero(np.diff(kept.left[:taken], append=NOT_MET)) + 1
        for a, b in pairwise([0, *ends.tolist()]):
            self._buffer(kept.rows.slice(a, b - a), came[a:b])
            self._go_on(int(kept.left[a]), kept.matched[a:b])
        if taken == begun:
            self._buffer(kept.rows.slice(taken), came[taken:])
            taken = len(kept)
        self.stats.tuples_in += taken
        return taken

    def scan(self, pages: int) -> Iterator[pa.RecordBatch]:
        """Go on by so many pages exactly, and take no tuples in: for a join that scans."""
        while pages > 0 and self.scan_pages:
            before = self._position()
            yield from self._counted(self._iterate(0, pages))
            pages -= (self._position() - before - 1) % self.scan_pages + 1

    def _buffer(self, rows: pa.RecordBatch, came: Float64s) -> None:
        """Have tuples in the stream buffer that came before now, and were counted then."""
        ends = np.flatnonzero(np.diff(came, append=np.inf)) + 1
        for a, b in pairwise([0, *ends.tolist()]):
            self._input.add(rows.slice(a, b - a), float(came[a]))
        self._input.offered -= rows.num_rows

    def _settled(self) -> Iterator[pa.RecordBatch]:
        """Results of tuples that need no iteration any more."""
        return iter(())

    def _pages_left(self) -> Int64s:
        """Pages that each tuple in the store has still to meet, the oldest first; NOT_MET where a tuple can begin anew."""
        left: Int64s = np.full(self._waiting.used, NOT_MET, np.int64)
        return left

    def _room_for(self, tuples: int) -> int:
        """How many of so many tuples that have met pages can go on."""
        raise NotImplementedError  # tuples of a join without a scan have met none

    def _go_on(self, left: int, matched: Bools) -> None:
        """The tuples in the stream buffer go on, with so many pages still to meet."""
        raise NotImplementedError

    def _emptied(self) -> None:
        """The store is empty now: forget what else is known of its tuples."""

    # -- snapshots -------------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Where the operator is between two batches that were joined to their end."""
        assert not self.waiting, "take a snapshot when nothing waits"
        return self._named({"position": np.array([self._position()])})

    def restore(self, snapshot: Snapshot) -> None:
        """Go on where the operator was that the snapshot was taken of."""
        snapshot.check(self._named({}))
        self._go_to(int(snapshot.arrays["position"][0]))

    def _position(self) -> int:
        """The page of R that comes next; 0 where an operator does not scan."""
        return 0

    def _go_to(self, position: int) -> None:
        """Start from a position."""

    def _named(self, arrays: dict[str, AnyArray]) -> Snapshot:
        names = tuple(column.name for column in self._payload)
        return Snapshot(type(self).__name__, str(self.relation.path), self.relation.version, names, arrays)


def _counts_for(relation: Relation, limit: int) -> int:
    """Bytes of counters for the keys of a relation, within a budget of so many bytes."""
    return Sketch.size(min(int(_COUNTS_SHARE * limit), _COUNTERS * relation.distinct_keys))


def _columns(schema: pa.Schema | None) -> str:
    return ", ".join(f"{field.name} ({field.type})" for field in schema or ())
