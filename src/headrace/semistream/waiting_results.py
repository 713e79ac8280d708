"""What becomes of stream tuples that wait, when pages come by: matches, and results in the order that was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import MemoryRefused
from headrace.memory import Reservation
from headrace.relation.columns import Longs, from_arrow
from headrace.relation.keys import ByteKeys, IntKeys, Ints, Keys
from headrace.relation.reader import PageReader, Version, key_column, stored_keys
from headrace.relation.store import StoreFull, TupleSources, TupleStore
from headrace.semistream.base import Order, SemiStreamJoin
from headrace.semistream.hash_queue import HashQueue, StreamWindow
from headrace.semistream.matching import Matching
from headrace.semistream.slots import SlotWindow
from headrace.units import format_size


class WaitingResults(SemiStreamJoin):
    """Probes H with pages and sends results out, or holds them. WaitingJoin sets what is named below."""

    order: Order
    _version: Version
    _matching: Matching | None
    _key_out: tuple[str, ...]  # key columns of the relation that are in the result
    _window: StreamWindow | SlotWindow
    _H: HashQueue
    _disk_buffer: PageReader  # there from the first stream tuple on
    _held: list[tuple[Longs, pa.RecordBatch]]  # results in wait for their turn
    _reservations: dict[str, Reservation]
    _room: int  # bytes for everything but ordered results
    _output_rows: int
    _results: TupleStore

    def _reserve(self, part: str, nbytes: int) -> None:
        """Hold so many bytes for a part from now on."""
        if part in self._reservations:
            self._reservations[part].resize(nbytes)
        else:
            self._reservations[part] = self.budget.reserve(part, nbytes)

    def _spend(self, **steps: int) -> None:
        """Work done, by the names of [MESH] Table 1: a simulated machine takes its time for it."""
        self.relation.disk.spend(steps)

    def _stream(self, slots: Ints) -> pa.RecordBatch:
        """The columns of waiting tuples."""
        return self._window.take(self._H.number[slots], slots)

    # -- pages meet H ----------------------------------------------------------------------------------------------------

    def _probe(self, addresses: Longs) -> Iterator[pa.RecordBatch]:
        """Join the pages at these addresses with all that waits."""
        if not addresses.size or not self._H.used:
            return
        keys, at, row = self._tuples_of(addresses)
        self.stats.probes += len(keys)
        self._spend(c_H=len(keys))
        yield from self._match(keys, at, row)

    def _match(self, keys: Keys, at: Longs, row: Ints) -> Iterator[pa.RecordBatch]:
        """Join tuples of R, given by key and place, with all that waits."""
        if self._matching and not self.stream_key:
            for r, slots in self._matching.pairs(self._H, self._output_rows):
                yield from self._found(slots, at[r], row[r])
            return
        hashes, stop = keys.hashes(), np.array([0, -1])
        while stop[0] < hashes.size:
            number, slots = np.empty(self._output_rows, np.int32), np.empty(self._output_rows, np.int32)
            n = self._H.probe(hashes, stop, number, slots)
            r, slots = self._really(keys, number[:n], slots[:n])
            if self._matching:
                r, slots = self._matching.kept(r, slots)
            if r.size:
                yield from self._found(slots, at[r], row[r])

    def _really(self, keys: Keys, r: Ints, slots: Ints) -> tuple[Ints, Ints]:
        """KeyPages whose keys are equal. Hashes of integers are one to one; texts with one hash may differ."""
        if self._version.codec.integer or not r.size:
            return r, slots
        names = self.stream_key
        stream = self._stream(slots)
        mine, _ = self._version.codec.encode([stream.column(name) for name in names])
        same = mine.equal_at(keys.take(r), np.arange(r.size, dtype=np.int32))  # type: ignore[arg-type]
        return r[same], slots[same]

    def _found(self, slots: Ints, at: Longs, row: Ints) -> Iterator[pa.RecordBatch]:
        """KeyPages of a waiting tuple and a tuple of R at (page address, row)."""
        H = self._H
        if self.how == "semi":
            first = np.unique(slots)
            fresh = first[H.matched[first] == 0]
            H.matched[fresh] = 1
            if fresh.size:
                yield from self._result(H.number[fresh], self._stream(fresh), None)
            return
        H.matched[slots] = 1
        if self.how != "anti":
            yield from self._pairs(slots, at, row)

    def _pairs(self, slots: Ints, at: Longs, row: Ints) -> Iterator[pa.RecordBatch]:
        """Results of an inner or left join."""
        self._results.clear()
        try:
            self._results.append_from_pages(at, row)
            payload = self._gathered(slots.size)
        except StoreFull:  # longer texts than expected
            half = slots.size // 2
            if half == 0:
                raise
            yield from self._pairs(slots[:half], at[:half], row[:half])
            yield from self._pairs(slots[half:], at[half:], row[half:])
            return
        yield from self._result(self._H.number[slots], self._stream(slots), payload)

    def _gathered(self, count: int) -> list[pa.Array]:
        sources = TupleSources([self._results])
        src, pos = np.zeros(count, np.int32), np.arange(count, dtype=np.int32)
        arrays = [sources.gather(i, src, pos, outer=False) for i in range(len(self._payload))]
        return [*self._decoded(arrays[0]), *arrays[1:]] if self._key_out else arrays

    def _decoded(self, stored: pa.Array) -> list[pa.Array]:
        """The key columns of a result, from keys as pages hold them."""
        codec, buffers = self._version.codec, from_arrow(stored)
        keys: Keys = (
            IntKeys(buffers.values.view(np.int64)) if codec.integer else ByteKeys(buffers.values, buffers.offsets)
        )
        columns = dict(zip(self.relation.key, codec.decode(keys), strict=True))
        return [columns[name] for name in self._key_out]

    def _tuples_of(self, addresses: Longs) -> tuple[Keys, Longs, Ints]:
        """Key, page address and row of every tuple in some pages."""
        more = self._matching.columns if self._matching else ()
        store, at, row = self._disk_buffer.tuples(addresses, (key_column(self._version.codec), *more))
        keys = stored_keys(store, self._version.codec.integer)
        if self._matching:
            self._matching.meet(keys, store)
        return keys, at, row

    # -- results ---------------------------------------------------------------------------------------------------------

    def _result(
        self, numbers: Longs, stream: pa.RecordBatch, payload: list[pa.Array] | None
    ) -> Iterator[pa.RecordBatch]:
        """Send results out, or hold them until all earlier tuples have left."""
        arrays: list[Any] = list(stream.columns)
        schema = self._schema_for(stream.schema)
        if self._payload:
            arrays += payload or [pa.nulls(numbers.size, field.type) for field in list(schema)[len(arrays) :]]
        out = pa.RecordBatch.from_arrays(arrays, schema=schema)
        self._spend(c_O=numbers.size)
        if self.order == "any":
            yield out
            return
        self._held.append((numbers, out))
        self._hold()

    def _hold(self) -> None:
        size = sum(batch.nbytes + 8 * numbers.size for numbers, batch in self._held)
        if size > self.budget.limit - self._room:
            raise MemoryRefused(
                f"order='stream' holds {format_size(size)} of results that wait for earlier tuples, and"
                f" {format_size(self.budget.limit - self._room)} is there for them; give more memory, or use order='any'"
            )
        self._reserve("ordered results", size)

    def _release(self) -> Iterator[pa.RecordBatch]:
        """Results of tuples before the oldest that waits."""
        if not self._held:
            return
        oldest = self._H.oldest(1)
        mark = self._H.number[oldest[0]] if oldest.size else np.iinfo(np.int64).max
        numbers = np.concatenate([n for n, _ in self._held])
        order = np.argsort(numbers, kind="stable")
        ready = int(np.searchsorted(numbers[order], mark))
        if not ready:
            return
        whole = pa.concat_batches([batch for _, batch in self._held])
        kept = order[ready:]
        self._held = [(numbers[kept], whole.take(pa.array(kept)))] if kept.size else []
        self._hold()
        for a in range(0, ready, self._output_rows):
            yield whole.take(pa.array(order[a : min(ready, a + self._output_rows)]))
