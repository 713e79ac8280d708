"""The driver of the published joins, in which stream tuples wait in memory for the pages they need. [MESH] §3.1, [XHJ] §3

    offer --> stream buffer --w tuples--> H and Q <--probed by-- pages in the disk buffer <--read-- R
                                            |
                                 results as they are found; left and anti when a tuple leaves

An operator says which pages come next and which tuples leave; this file takes tuples in and lets them go, and `waiting_results`
finds their matches and makes results. Work is done in bounded steps: one `advance` is one iteration of the paper's loop.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.clock import Clock
from headrace.conditions import ON_FORMS, Condition
from headrace.errors import BadInput, MemoryRefused, choice
from headrace.memory import Reservation
from headrace.relation import Relation
from headrace.relation.columns import NO_BYTES, Bytes, Column, Longs
from headrace.relation.keys import Hashes, Ints
from headrace.relation.reader import key_column
from headrace.relation.store import TupleStore
from headrace.semistream.base import How, On, Order, empty
from headrace.semistream.hash_queue import POINTER_BYTES, SLOT_BYTES, HashQueue, StreamWindow
from headrace.semistream.matching import Matching
from headrace.semistream.sizes import tuple_bytes
from headrace.semistream.slots import SlotWindow
from headrace.semistream.snapshot import Snapshot
from headrace.semistream.waiting_results import WaitingResults
from headrace.units import format_size

PROBE_BYTES = 64  # of a tuple of R in the disk buffer: where it is, its key, its hash
LEAST_WINDOW = 64  # tuples
_PIECE = 1 << 14  # stream tuples that enter H together: what is made of them on the way is small beside H
_LEAST_OUTPUT = 16
_OUTPUT_ROWS = 1 << 13
_ORDERED_SHARE = 0.5  # of the budget, for results that wait to go out in stream order


class WaitingJoin(WaitingResults):
    """A join whose stream tuples wait in H until their pages come by.

    Parameters
    ----------
    relation, on, memory, how, columns, suffix, clock
        See SemiStreamJoin.
    order
        "any": results go out as they are found. "stream": results of a tuple go out together, tuples in the order they came
        ([MESH] §3.4); half of the budget is kept for results that wait.
    """

    in_order = False
    condition: Condition | None = None  # of operators that take one: set before this class is initialised

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
    ) -> None:
        super().__init__(relation, on, memory, how=how, columns=columns, suffix=suffix, clock=clock)
        self.order: Order = choice("order", order, ("any", "stream"))  # type: ignore[assignment]
        self._version = relation.opened
        self._places: Longs = np.sort(
            np.concatenate([np.empty(0, np.int64), *(self._version.places(s) for s in range(relation.num_shards))])
        )
        alone = not self.stream_key
        self._matching = Matching(relation, self.condition, alone) if self.condition is not None else None
        # Without an equality the relation's key is a column like any other.
        self._key_out = tuple(n for n in relation.key if alone and (columns is None or n in columns))
        if self._key_out and self.how in ("inner", "left"):
            self._payload = (key_column(relation.codec), *self._payload)
        self._window: StreamWindow | SlotWindow = StreamWindow()
        self._stream_schema: pa.Schema | None = None
        self._numbered = 0  # stream tuples that have a number
        self._H = HashQueue(0)
        self._buffer: list[pa.RecordBatch] = []  # the stream buffer: offered and not in H yet
        self._buffered = 0
        self._held: list[tuple[Longs, pa.RecordBatch]] = []  # results in wait for their turn
        self._stream_bytes = 0.0  # v_S; 0 until the first tuple
        self._more_bytes = 0  # of a tuple in H, beyond its bytes in Arrow
        self._reservations: dict[str, Reservation] = {}
        width = tuple_bytes(relation, [c for c in self._payload if c.name]) + 64
        width += sum(int(1.05 * self._variable_bytes(c)) + 12 for c in self._payload if not c.name)  # the key
        room = self.budget.limit * (1 - _ORDERED_SHARE) if order == "stream" else self.budget.limit
        self._room = int(room)  # bytes for everything but ordered results
        least_output = (
            TupleStore.size(self._payload, _LEAST_OUTPUT, self._data_room(_LEAST_OUTPUT)) + 40 * _LEAST_OUTPUT
        )
        least = least_output + self._least()
        if least > self._room:
            whole = int(least / (1 - _ORDERED_SHARE)) if order == "stream" else least
            raise MemoryRefused(
                f"memory={format_size(self.budget.limit)} is too small for {type(self).__name__} with {relation.path}: its"
                f" buffers need {format_size(least)}{' beside ordered results' if whole > least else ''}; give"
                f" {format_size(whole)} or more"
            )
        spare = (self._room - least) // 12
        self._output_rows = int(np.clip(spare // width, _LEAST_OUTPUT, _OUTPUT_ROWS))
        self._results = TupleStore(self._payload, self._output_rows, self._data_room(self._output_rows))
        self._reserve("output", self._output_bytes)

    def _stream_key(self, on: On | None) -> tuple[str, ...]:
        if on is None and self.condition is not None:
            return ()
        if on is None:
            raise BadInput(f"{type(self).__name__} has nothing to join on; give on={ON_FORMS}")
        return super()._stream_key(on)

    def _right_fields(self) -> list[pa.Field]:
        fields = [pa.field(column.name, column.type) for column in self._payload if column.name]
        key = [self.relation.schema.field(name) for name in self._key_out] if len(fields) < len(self._payload) else []
        return [*(pa.field(field.name, field.type) for field in key), *fields]

    def output_schema(self, stream: pa.Schema) -> pa.Schema:
        """The schema of results for a stream of this schema; refuses what cannot be joined, by name."""
        if self._matching:
            self._matching.check(stream)
        return super().output_schema(stream)

    # -- the public steps ------------------------------------------------------------------------------------------------

    def offer(self, batch: pa.RecordBatch) -> None:
        """Hand over stream tuples. They are taken into H by `advance`."""
        self._schema_for(batch.schema)
        if self._stream_bytes and batch.schema is not self._stream_schema:
            self._meet_stream(batch.schema)
        self.stats.batches += 1
        self.stats.tuples_in += batch.num_rows
        if batch.num_rows:
            if not self._stream_bytes:
                self._stream_bytes = max(1.0, batch.nbytes / batch.num_rows)
                self._meet_stream(batch.schema)
                self._begin()
            self._buffer.append(batch)
            self._buffered += batch.num_rows

    @property
    def wanted(self) -> int:
        """Stream tuples that the next iteration would take in."""
        return self._wanted_now() if self._stream_bytes else 1

    @property
    def buffered(self) -> int:
        """Stream tuples offered that are not in H yet."""
        return self._buffered

    @property
    def backlog_room(self) -> int:
        """Stream tuples that may come meanwhile and wait in its own memory; 0 where it sets none aside for that."""
        return 0

    @property
    def capacity(self) -> int:
        """Stream tuples that H has room for."""
        return self._H.capacity

    @property
    def waiting(self) -> int:
        """Stream tuples offered that have not left."""
        return self._buffered + self._H.used

    def advance(self) -> Iterator[pa.RecordBatch]:
        """One iteration."""
        self.stats.iterations += 1
        yield from self._counted(self._iterate(self._wanted_now()))

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Iterate until every tuple has left."""
        while self.waiting:
            # The rest is all there: what H has room for enters at once, and shares one pass.
            self.stats.iterations += 1
            yield from self._counted(self._iterate(min(self._buffered, self._room_now())))

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Join a stream: an iteration whenever there are tuples for one, and all that is left at the end."""
        emitted, schema = False, None
        for batch in batches:
            schema = batch.schema
            self.offer(batch)
            for out in self._counted(self._early()):
                emitted = True
                yield out
            while self._buffered and self._buffered >= self.wanted:
                for out in self.advance():
                    emitted = True
                    yield out
        for out in self.drain():
            emitted = True
            yield out
        self._take_stock()
        if schema is not None and not emitted:
            yield empty(self._schema_for(schema))

    def _join(self, batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        self.offer(batch)
        yield from self.drain()

    def join(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Join one batch to its end. The books are kept by offer and drain."""
        yield from self._join(batch, self._schema_for(batch.schema))
        self._take_stock()

    def _take_stock(self) -> None:
        self.stats.memory = self.budget.held()
        self.stats.memory_peak = self.budget.peak

    def _counted(self, results: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for out in results:
            self.stats.results += out.num_rows
            yield out
        if self.order == "stream":
            for out in self._release():
                self.stats.results += out.num_rows
                yield out

    # -- what an operator says -------------------------------------------------------------------------------------------

    @abstractmethod
    def _least(self) -> int:
        """Bytes that it needs besides the output, whatever the stream."""

    @abstractmethod
    def _begin(self) -> None:
        """The size of a stream tuple is known: choose sizes, reserve them, make H with `_make_window`."""

    @abstractmethod
    def _wanted_now(self) -> int:
        """w of the next iteration."""

    def _early(self) -> Iterator[pa.RecordBatch]:
        """Take in tuples that no iteration has to come first for."""
        return iter(())

    def _room_now(self) -> int:
        """Tuples that could enter H in one iteration."""
        return self._H.room

    @abstractmethod
    def _iterate(self, w: int) -> Iterator[pa.RecordBatch]:
        """One iteration that takes in up to w tuples."""

    # -- memory ----------------------------------------------------------------------------------------------------------

    def _data_room(self, rows: int) -> dict[str, int]:
        """Bytes for the variable columns of so many tuples of mean size, and one page of them."""
        return {
            c.name: int(1.05 * rows * self._variable_bytes(c)) + self.relation.page_size
            for c in self._payload
            if c.width == 0
        }

    def _variable_bytes(self, column: Column) -> float:
        """Mean bytes of a variable column; of a key that is text, what it takes where pages hold nothing else."""
        if not column.name:
            return self.relation.page_size / max(1.0, self._rows_per_page)
        return self.relation.variable_bytes[column.name] / max(1, self.relation.num_rows)

    @property
    def _output_bytes(self) -> int:
        return self._results.nbytes + 40 * self._output_rows

    @property
    def _page_bytes(self) -> int:
        """Bytes of the disk buffer a page, with what is noted of its tuples while they are probed."""
        each = PROBE_BYTES + (self._matching.tuple_bytes if self._matching else 0)
        return self.relation.page_size + int(each * self._rows_per_page)

    @property
    def _rows_per_page(self) -> float:
        return self.relation.num_rows / max(1, self.relation.num_pages)

    @property
    def _slot_bytes(self) -> float:
        """Bytes of a waiting tuple in H, its columns included: f * v_S of eq. 1, without the queue."""
        more = self._more_bytes + (self._matching.slot_bytes if self._matching else 0)
        return SLOT_BYTES - POINTER_BYTES + self._stream_bytes + more

    def _meet_stream(self, schema: pa.Schema) -> None:
        """The schema of the stream is known, or may have changed: see to it that its columns have where to wait."""
        old, self._stream_schema = self._stream_schema, schema
        if old is not None and (old.names, old.types) == (schema.names, schema.types):
            return
        if self.waiting:
            self._stream_schema = old
            raise BadInput(
                f"the stream's columns are {_columns(schema)} now and were {_columns(old)}, and {self.waiting:,} tuples of before"
                " wait; drain() the operator first, or make a new one"
            )
        self._window = self._new_window(schema)

    def _new_window(self, schema: pa.Schema) -> StreamWindow | SlotWindow:
        self._more_bytes = SlotWindow.more_bytes(schema)
        return SlotWindow(schema, self._H.capacity)

    def _make_window(self, tuples: int) -> None:
        """H and Q with room for so many tuples; those that wait stay."""
        self._reserve("hash table", int(tuples * self._slot_bytes))
        self._reserve("queue", tuples * POINTER_BYTES)
        before = self._H.oldest(self._H.used)
        self._H.resize(tuples)
        after = self._H.oldest(self._H.used)
        self._window.resize(self._H.capacity, before, after)
        if self._matching:
            self._matching.resize(self._H.capacity, before, after)

    # -- stream tuples come and go ---------------------------------------------------------------------------------------

    def _take_in(self, count: int) -> Iterator[pa.RecordBatch]:
        """Move up to so many tuples from the stream buffer to H. Tuples with a null in the key leave at once."""
        count = min(count, self._buffered, self._H.room)
        for done in range(0, count, _PIECE):
            taken, numbers = self._next_tuples(min(_PIECE, count - done))
            hashes, valid = self._hashed(taken, numbers)
            self._spend(c_S=numbers.size, c_A=numbers.size)
            if valid.size:
                taken, numbers, hashes = yield from self._without_nulls(taken, numbers, hashes, valid)
            self._enter(taken, hashes, numbers)

    def _next_tuples(self, count: int) -> tuple[pa.RecordBatch, Longs]:
        """Tuples from the stream buffer, and their numbers."""
        numbers = np.arange(self._numbered, self._numbered + count)
        self._numbered += count
        return self._from_buffer(count), numbers

    def _without_nulls(
        self, taken: pa.RecordBatch, numbers: Longs, hashes: Hashes, valid: Bytes
    ) -> Generator[pa.RecordBatch, None, tuple[pa.RecordBatch, Longs, Hashes]]:
        """Let go of tuples that can match nothing; returns the others."""
        nulls = np.flatnonzero(valid == 0)
        if not nulls.size:
            return taken, numbers, hashes
        yield from self._leave_at_once(taken, numbers, nulls)
        there = np.flatnonzero(valid)
        return taken.take(pa.array(there)), numbers[there], hashes[there]

    def _leave_at_once(self, taken: pa.RecordBatch, numbers: Longs, nulls: Longs) -> Iterator[pa.RecordBatch]:
        """Some of the tuples that come in have a null and no match."""
        self.stats.nulls += nulls.size
        self.stats.unmatched += nulls.size
        if self.how in ("left", "anti"):
            for a in range(0, nulls.size, self._output_rows):
                some = nulls[a : a + self._output_rows]
                yield from self._result(numbers[some], taken.take(pa.array(some)), None)

    def _hashed(self, taken: pa.RecordBatch, numbers: Longs) -> tuple[Hashes, Bytes]:
        """Hashes of tuples, and which can match anything (empty: all): there is no null in the key or for the condition."""
        if self.stream_key:
            keys, valid = self._version.codec.encode([taken.column(name) for name in self.stream_key])
            hashes = keys.hashes()
        else:  # nothing is looked up in H, which serves as the queue
            hashes, valid = numbers.astype(np.uint64), NO_BYTES
        if self._matching:
            there = self._matching.take(taken, int(numbers[0]))
            valid = valid & there if valid.size else there
        return hashes, valid

    def _enter(self, batch: pa.RecordBatch, hashes: Any, numbers: Longs) -> None:
        slots = self._H.insert(hashes, numbers, self.clock.now())
        self._window.enter(batch, numbers, slots)
        if self._matching:
            self._matching.enter(slots, numbers)

    def _from_buffer(self, count: int) -> pa.RecordBatch:
        parts = []
        while count:
            batch = self._buffer[0]
            if batch.num_rows <= count:
                parts.append(self._buffer.pop(0))
            else:
                parts.append(batch.slice(0, count))
                self._buffer[0] = batch.slice(count)
            count -= parts[-1].num_rows
        self._buffered -= sum(part.num_rows for part in parts)
        return parts[0] if len(parts) == 1 else pa.concat_batches(parts)

    def _numbers(self) -> Longs:
        """Numbers of the tuples in H, ascending: the queue is in order of arrival."""
        return self._H.number[self._H.oldest(self._H.used)]

    def _leave(self, slots: Ints, *, hits: bool = False, queued: bool = True) -> Iterator[pa.RecordBatch]:
        """Tuples have met every page they need. `hits`: without a read of their own; `queued`: after they had to wait."""
        if slots.size:
            numbers = self._H.number[slots]
            yield from self._let_go(slots, hits=hits, queued=queued)
            self._window.leave(numbers, self._numbers)

    def _let_go(self, slots: Ints, *, hits: bool = False, queued: bool = True) -> Iterator[pa.RecordBatch]:
        """The same, but that their columns stay where they are."""
        H, stats = self._H, self.stats
        matched, waited = H.matched[slots] == 1, H.waited(slots, self.clock.now())
        stats.waiting_seconds += float(waited.sum())
        stats.longest_wait = max(stats.longest_wait, float(waited.max()))
        stats.matched += int(matched.sum())
        if hits:
            stats.hits += slots.size
        else:
            stats.misses += slots.size
        self._spend(c_E=slots.size if queued else 0)
        H.remove(slots)
        if self._matching:
            self._matching.changed()
        alone = slots[~matched]
        stats.unmatched += alone.size
        if self.how in ("left", "anti"):
            for a in range(0, alone.size, self._output_rows):
                some = alone[a : a + self._output_rows]  # still there: nobody has got their slots yet
                yield from self._result(H.number[some], self._stream(some), None)

    # -- snapshots -------------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Where the operator is between two batches that were joined to their end."""
        assert not self.waiting, "take a snapshot when nothing waits"
        return self._named({"position": np.array(self._position())})

    def restore(self, snapshot: Snapshot) -> None:
        """Go on where the operator was that the snapshot was taken of."""
        snapshot.check(self._named({}))
        self._go_to([int(x) for x in snapshot.arrays["position"]])

    def _position(self) -> list[int]:
        return [0]

    def _go_to(self, position: list[int]) -> None:
        """Start from a position."""

    def _named(self, arrays: dict[str, np.ndarray[Any, Any]]) -> Snapshot:
        names = tuple(column.name for column in self._payload)
        return Snapshot(type(self).__name__, str(self.relation.path), self.relation.version, names, arrays)


def _columns(schema: pa.Schema | None) -> str:
    return ", ".join(f"{field.name} ({field.type})" for field in schema or ())
