"""Results of stream tuples that wait: made as matches are found, and sent out at once or in the order of the stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Int32s, Int64s
from headrace.errors import MemoryRefused
from headrace.relation import Relation
from headrace.relation.columns import Column, from_arrow
from headrace.relation.keys import ByteKeys, IntKeys, Keys
from headrace.relation.store import StoreFull, TupleSources, TupleStore
from headrace.semistream.base import How, Order
from headrace.semistream.reservations import Reservations
from headrace.semistream.waiting_plan import OutputPlan, text_room
from headrace.semistream.waiting_store import WaitingStore
from headrace.units import format_size


class ResultEmitter:
    """Turns pairs of a waiting tuple and a tuple of R into results for inner, left, semi and anti.

    Parameters
    ----------
    relation, payload, key_columns
        R, the columns of it that are in the result, and the key columns that are. The stored key, a column without a name, comes
        first in the payload where key columns are asked for.
    how, order
        See WaitingJoin.
    waiting
        The tuples that wait.
    memory, output
        Where results that wait for their turn are reserved, and how many results are made together.
    schema_for
        Gives the schema of results for the schema of a stream.
    """

    def __init__(
        self,
        *,
        relation: Relation,
        payload: tuple[Column, ...],
        key_columns: tuple[str, ...],
        how: How,
        order: Order,
        waiting: WaitingStore,
        memory: Reservations,
        output: OutputPlan,
        schema_for: Callable[[pa.Schema], pa.Schema],
    ) -> None:
        self.how, self.order = how, order
        self.rows = output.rows  # results of a batch at most
        self._key_columns = key_columns
        self._waiting = waiting
        self._memory = memory
        self._schema_for = schema_for
        self._held: list[
            tuple[Int64s, pa.RecordBatch]
        ] = []  # results that wait for their turn, with their tuples' numbers
        self.output = output
        self._make_store(relation, payload)

    def follow(self, relation: Relation, payload: tuple[Column, ...], output: OutputPlan) -> None:
        """Make results with another version of the relation from now on, as many together as `output` says."""
        del self._store  # its memory goes before that of the next one is taken
        self.output, self.rows = output, output.rows
        self._make_store(relation, payload)

    def _make_store(self, relation: Relation, payload: tuple[Column, ...]) -> None:
        self._relation, self._payload = relation, payload
        self._memory.hold("output", self.output.nbytes)
        self._store = TupleStore(payload, self.rows, text_room(relation, payload, self.rows))

    # -- matches ---------------------------------------------------------------------------------------------------------

    def found(self, slots: Int32s, at: Int64s, row: Int32s) -> Iterator[pa.RecordBatch]:
        """KeyPages of a waiting tuple and a tuple of R at (page address, row) match."""
        waiting = self._waiting
        if self.how == "semi":
            first = np.unique(slots)
            fresh = first[waiting.matched[first] == 0]
            waiting.matched[fresh] = 1
            if fresh.size:
                yield from self._emit(waiting.number[fresh], waiting.columns(fresh), None)
            return
        waiting.matched[slots] = 1
        if self.how != "anti":
            yield from self._pairs(slots, at, row)

    def _pairs(self, slots: Int32s, at: Int64s, row: Int32s) -> Iterator[pa.RecordBatch]:
        self._store.clear()
        try:
            self._store.append_from_pages(at, row)
            payload = self._gathered(slots.size)
        except StoreFull:  # these texts are longer than the mean, for which the store was made
            half = slots.size // 2
            if half == 0:
                raise
            yield from self._pairs(slots[:half], at[:half], row[:half])
            yield from self._pairs(slots[half:], at[half:], row[half:])
            return
        yield from self._emit(self._waiting.number[slots], self._waiting.columns(slots), payload)

    def _gathered(self, count: int) -> list[pa.Array]:
        sources = TupleSources([self._store])
        src, pos = np.zeros(count, np.int32), np.arange(count, dtype=np.int32)
        arrays = [sources.gather(i, src, pos, outer=False) for i in range(len(self._payload))]
        return [*self._decoded(arrays[0]), *arrays[1:]] if self._key_columns else arrays

    def _decoded(self, stored: pa.Array) -> list[pa.Array]:
        """The key columns of a result, from keys as pages hold them."""
        codec, buffers = self._relation.codec, from_arrow(stored)
        keys: Keys = (
            IntKeys(buffers.values.view(np.int64)) if codec.integer else ByteKeys(buffers.values, buffers.offsets)
        )
        columns = dict(zip(self._relation.key, codec.decode(keys), strict=True))
        return [columns[name] for name in self._key_columns]

    # -- tuples without a match ------------------------------------------------------------------------------------------

    def unmatched(self, slots: Int32s) -> Iterator[pa.RecordBatch]:
        """Tuples leave without a match; their slots were freed, and nobody has got them yet."""
        if self.how in ("left", "anti"):
            for a in range(0, slots.size, self.rows):
                some = slots[a : a + self.rows]
                yield from self._emit(self._waiting.number[some], self._waiting.columns(some), None)

    def unmatched_rows(self, batch: pa.RecordBatch, numbers: Int64s, rows: Int64s) -> Iterator[pa.RecordBatch]:
        """Some rows of a batch leave without a match, before they had a slot."""
        if self.how in ("left", "anti"):
            for a in range(0, rows.size, self.rows):
                some = rows[a : a + self.rows]
                yield from self._emit(numbers[some], batch.take(pa.array(some)), None)

    # -- order -----------------------------------------------------------------------------------------------------------

    def _emit(
        self, numbers: Int64s, stream: pa.RecordBatch, payload: list[pa.Array] | None
    ) -> Iterator[pa.RecordBatch]:
        """Send results out, or hold them until all earlier tuples have left."""
        arrays: list[Any] = list(stream.columns)
        schema = self._schema_for(stream.schema)
        if self._payload:
            arrays += payload or [pa.nulls(numbers.size, field.type) for field in list(schema)[len(arrays) :]]
        out = pa.RecordBatch.from_arrays(arrays, schema=schema)
        self._relation.disk.spend({"c_O": numbers.size})
        if self.order == "any":
            yield out
            return
        self._held.append((numbers, out))
        self._reserve_held()

    def _reserve_held(self) -> None:
        size, room = sum(batch.nbytes + 8 * numbers.size for numbers, batch in self._held), self._memory.ordered_room
        if size > room:
            raise MemoryRefused(
                f"order='stream' holds {format_size(size)} of results that wait for earlier tuples, and"
                f" {format_size(room)} is there for them; give more memory, or use order='any'"
            )
        self._memory.hold("ordered results", size)

    @property
    def holds_much(self) -> bool:
        """Whether results that wait for earlier tuples take half of their room or more."""
        return 2 * self._memory.held("ordered results") > self._memory.ordered_room

    def release(self) -> Iterator[pa.RecordBatch]:
        """Send out the results of tuples that came before the oldest that waits."""
        if not self._held:
            return
        oldest = self._waiting.oldest(1)
        mark = self._waiting.number[oldest[0]] if oldest.size else np.iinfo(np.int64).max
        numbers = np.concatenate([n for n, _ in self._held])
        order = np.argsort(numbers, kind="stable")
        ready = int(np.searchsorted(numbers[order], mark))
        if not ready:
            return
        whole = pa.concat_batches([batch for _, batch in self._held])
        kept = order[ready:]
        self._held = [(numbers[kept], whole.take(pa.array(kept)))] if kept.size else []
        self._reserve_held()
        for a in range(0, ready, self.rows):
            yield whole.take(pa.array(order[a : min(ready, a + self.rows)]))
