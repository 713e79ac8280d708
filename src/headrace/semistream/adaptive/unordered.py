"""AdaptiveJoin without an order to keep: an online phase, in which hits leave, and a join phase for the rest. [SSIJ] §IV.B

    batch --piece by piece--> hot set, filter --hit or absent--> results
                                   | miss
                              the rows wait: their columns and nothing else
                                   | when there is no room for more: the next quarter of them in the order of the pages,
                                   | from where the last join phase ended; all when the batch or the stream ends
                              piece by piece: index, planned reads, results from the pages

A row that waits takes its own bytes and a place in an order. All else that a look-up needs is held for one piece at a time, so
the memory buys rows that share reads, and hot tuples. Join phases go round the relation, a part at a time: the pages ahead are
those for which rows have waited longest, so a read serves nearly twice as many as if all left at once ([XHJ] gains from the
same: its oldest tuple names the partition that most others wait for).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import BadInput
from headrace.kernels.store import expand_pages
from headrace.memory import release_freed_memory
from headrace.relation.columns import Longs
from headrace.relation.keys import Ints, Keys
from headrace.relation.reader import FoundRows, KeyPages
from headrace.relation.store import StoreFull
from headrace.semistream.adaptive.lookup import AdaptiveLookup, Slice
from headrace.semistream.adaptive.memory_plan import PHASE, first_split
from headrace.semistream.adaptive.page_results import Results
from headrace.semistream.adaptive.shared_hot_set import SharedHotSet
from headrace.semistream.base import Matches, empty

_EMA = 0.2  # weight of the newest piece in running means
_BORDER = 256  # rows among which the end of a page is looked for


class AdaptivePhases(AdaptiveLookup):
    """The two phases."""

    _stream_schema: pa.Schema

    def offer(self, batch: pa.RecordBatch) -> None:
        """Hand over stream rows. `advance` looks them up; those that miss wait. For order="any"."""
        self._schema_for(batch.schema)
        self.stats.batches += 1
        self.stats.tuples_in += batch.num_rows
        self._meet(batch)
        if self._waiting and not batch.schema.equals(self._stream_schema):
            raise BadInput(
                "the stream's schema changed while rows wait; call drain() before the first batch of another schema"
            )
        self._stream_schema = batch.schema
        self._offered.append(batch)
        self._since += batch.num_rows

    @property
    def wanted(self) -> int:
        """Rows that it looks up at a time."""
        return self._split.slice_rows

    @property
    def capacity(self) -> int:
        """Rows that may wait at the same time."""
        return self._split.most_rows

    @property
    def buffered(self) -> int:
        """Rows offered and not looked up."""
        return sum(batch.num_rows for batch in self._offered)

    @property
    def waiting(self) -> int:
        """Rows offered that have not left."""
        return self.buffered + self._waiting_rows

    def advance(self) -> Iterator[pa.RecordBatch]:
        """Look up what was offered; read for what waits when there is much of it."""
        while self._offered:
            batch = self._offered.pop(0)
            yield from self._counted(self._online(batch, self._schema_for(batch.schema)))

    def let_wait(self) -> pa.RecordBatch | None:
        """Give the rows that wait back: somebody else keeps them, and offers them again. They count as `deferred` alone."""
        if not self._waiting_rows:
            return None
        self._swept = None
        batch = self._put_together()
        for name, rows in (("tuples_in", -batch.num_rows), ("misses", -batch.num_rows), ("deferred", batch.num_rows)):
            setattr(self.stats, name, getattr(self.stats, name) + rows)
        return batch

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Have every row leave."""
        yield from self.advance()
        if self._since:
            rows, self._since = self._since, 0
            self._workload.between = min(self._workload.between, 2.0 * rows)  # from none known to what is seen
            self._workload.between += 0.5 * (rows - self._workload.between)
        if self._waiting:
            yield from self._counted(self._join_phase(self._schema_for(self._stream_schema), 1.0))
        self.stats.memory = self.budget.held()
        self.stats.memory_peak = self.budget.peak

    def _counted(self, results: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for out in results:
            self.stats.results += out.num_rows
            yield out

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Join a stream. With order="any" a row that misses may wait for those of later batches."""
        if self.order == "stream":
            yield from super().run(batches)
            return
        emitted, schema = False, None
        for batch in batches:
            schema = batch.schema
            self.offer(batch)
            for out in self.advance():
                emitted = True
                yield out
        for out in self.drain():
            emitted = True
            yield out
        if schema is not None and not emitted:
            yield empty(self._schema_for(schema))

    def join(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Join one batch to its end, in stream order if that was asked for."""
        if self.order == "stream":
            yield from super().join(batch)
            return
        self.offer(batch)
        yield from self.drain()

    def _meet(self, batch: pa.RecordBatch) -> None:
        """Take note of a batch's size. The first one decides how the operator starts."""
        rows = batch.num_rows
        if rows:
            self._workload.stream_bytes = max(1.0, batch.nbytes / rows)
        if self._slices == 0:
            self._workload.rows = max(1, rows)
            if self._group is None:
                self._adopt(first_split(self.relation, self._parts, self._workload, self._payload))
            else:
                self._adopt(self._beside(self._hot.memory))
        self._workload.rows += 0.5 * (rows - self._workload.rows)

    def _online(self, batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Rows whose tuples are in memory, or surely nowhere, leave; the others wait."""
        at = 0
        while at < batch.num_rows:
            if self._slices >= self._next_plan:
                self._replan()
            piece = batch.slice(at, self._split.slice_rows)
            yield from self._pinned(self._online_piece(piece, schema))
            at += piece.num_rows
            self._slices += 1
            self._follow()
            most = self._split.most_rows
            if self._waiting_rows >= most or self._waiting_bytes > most * self._workload.stream_bytes:
                yield from self._join_phase(schema, PHASE)

    def _pinned(self, results: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Results of a piece, with the hot set as it is until they are out."""
        self._hot.begin()
        if isinstance(self._hot, SharedHotSet):
            self._use_filter(self._hot)
        try:
            for out in results:
                self.relation.disk.spend({"c_O": out.num_rows})
                yield out
        finally:
            self._hot.end()

    def _online_piece(self, piece: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        part, rest = self._look_up(piece)
        found = part.matches
        matches = Matches(found.uid, found.src, found.pos, found.count, self._hot.sources())
        waits = np.zeros(part.hashes.size + 1, np.bool_)  # the last is for rows without a key
        waits[rest] = True
        waiting = waits[found.uid]
        leaving = np.flatnonzero(~waiting).astype(np.int32) if rest.size else None
        matched = int((found.count[found.uid[found.uid >= 0]] > 0).sum())
        rows = piece.num_rows - int(waiting.sum())
        self.stats.matched += matched
        self.stats.unmatched += rows - matched
        if rest.size:
            some = piece.take(pa.array(np.flatnonzero(waiting)))
            self._waiting.append(some.columns)
            self._waiting_rows += some.num_rows
            self._waiting_bytes += some.nbytes
            # Put aside and sorted. They leave together, so there is no c_E.
            self.relation.disk.spend({"c_A": some.num_rows})
        nothing = int(part.counts[(found.count == 0) & ~waits[:-1]].sum())
        nothing += int(self._unmatched * (piece.num_rows - rows))
        self._learn(part, piece.num_rows, rest.size, nothing)
        yield from self._emit(piece, schema, matches, self._parts.output_rows, leaving)

    def _join_phase(self, schema: pa.Schema, part: float) -> Iterator[pa.RecordBatch]:
        """Read for a part of what waits, in the order of the pages, from where the last join phase ended."""
        if not self._waiting_rows:
            return
        if self._swept is not None:
            # Those that were sorted before are sorted again
            self.relation.disk.spend({"c_X": len(self._waiting[0][0])})
            self._waiting.append(self._swept)  # a row that has left: where it comes in the order, the last phase ended
        batch = self._put_together()
        order = self.by_page(batch)
        if self._swept is not None:
            mark = int(np.flatnonzero(order == batch.num_rows - 1)[0])
            order = np.concatenate([order[mark + 1 :], order[:mark]])
        leaving, at = int(np.ceil(part * order.size)), 0
        while at < leaving:
            some = order[at : at + self._piece(batch, order, at, leaving)]
            if not self._room_for(some.size):
                self._publish()
            yield from self._pinned(self._join_piece(batch.take(pa.array(some)), schema))
            at += some.size
            self._follow()
            if leaving < order.size and leaving - at < _BORDER // 2:
                break  # what is left of this part is hardly more than a page
        self._swept = batch.take(pa.array(order[at - 1 : at])).columns if at < order.size else None
        if at < order.size:
            columns, rest = batch.columns, pa.array(order[at:])
            del batch
            # As they were put together: one column at a time is there twice.
            self._waiting = [[columns.pop(0).take(rest) for _ in self._stream_schema]]
            self._waiting_rows = len(rest)
            self._waiting_bytes = sum(column.nbytes for column in self._waiting[0])

    def _piece(self, batch: pa.RecordBatch, order: Ints, at: int, leaving: int) -> int:
        """How many rows to read for together from order[at] on: a piece, without the page that goes on in the next one.

        That page would be read for both, and where to go back is a seek.
        """
        rows = min(self._split.slice_rows, leaving - at)
        if at + rows == order.size:
            return rows
        border = pa.array(order[at + rows - min(rows // 2, _BORDER) : at + rows + 1])
        keys, _ = self._version.codec.encode([batch.column(name).take(border) for name in self.stream_key])
        new = np.flatnonzero(np.diff(self._first_place(keys)))
        return rows if not new.size else rows - (len(keys) - 2 - int(new[-1]))

    def _put_together(self) -> pa.RecordBatch:
        """What waits, as one batch: column by column, so that only one column is there twice."""
        stream, parts = self._stream_schema, self._waiting
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0
        columns = [pa.concat_arrays([part.pop(0) for part in parts]) for _ in stream]
        release_freed_memory()  # the pieces that they were
        return pa.RecordBatch.from_arrays(columns, schema=stream)

    def by_page(self, batch: pa.RecordBatch) -> Ints:
        """The rows in an order in which those of a page are neighbours."""
        keys, _ = self._version.codec.encode([batch.column(name) for name in self.stream_key])
        if self.relation.order == "key":
            return keys.argsort().astype(np.int32)
        return np.argsort(self._first_place(keys), kind="stable").astype(np.int32)

    def _first_place(self, keys: Keys) -> Longs:
        """The first page that each key may be in; 0 where there is none."""
        pairs = self._version.pairs(keys, keys.hashes(), np.arange(len(keys)))
        place = np.zeros(len(keys), np.int64)
        place[pairs.key[::-1]] = pairs.place[::-1]  # the first of several is written last
        return place

    def _join_piece(self, piece: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        part = self._distinct(piece)
        yield from self._read_and_join(piece, schema, part)
        count, uid = part.matches.count, part.matches.uid
        matched = int((count[uid] > 0).sum())
        self.stats.matched += matched
        self.stats.unmatched += piece.num_rows - matched
        self._unmatched += _EMA * (1 - matched / piece.num_rows - self._unmatched)
        if self.how != "inner":  # those that met nothing, or something
            which = None if self.how != "left" else np.flatnonzero(count[uid] == 0).astype(np.int32)
            matches = Matches(uid, part.matches.src, part.matches.pos, count, self._hot.sources())
            yield from self._emit(piece, schema, matches, self._parts.output_rows, which)

    def _read_and_join(self, batch: pa.RecordBatch, schema: pa.Schema, part: Slice) -> Iterator[pa.RecordBatch]:
        """Results of some rows, page by page. Keys worth it get an entry in young on the way."""
        young, matches, keys, begun = self._hot.young, part.matches, part.keys, self.clock.now()
        n = part.hashes.size
        rows = np.argsort(matches.uid, kind="stable").astype(np.int32)
        starts = np.concatenate([[0], np.cumsum(part.counts)]).astype(np.int64)
        pairs = self._version.pairs(keys, part.hashes, np.arange(n))
        kept = np.zeros(n, np.bool_)
        kept[self._worth_keeping(part.hashes, part.counts, young.entries - young.used)] = True
        where, count = np.zeros(pairs.size, np.int32), np.zeros(pairs.size, np.int32)
        total = matches.count
        spent, mark = 0.0, young.tuples.mark()
        results = Results(self.relation, self._payload, batch, schema, self._parts.output_rows)
        with closing(self._reader.find(keys, pairs, self.stats)) as rounds:
            for found in rounds:
                key = pairs.key[found.pairs]
                np.add.at(total, key, found.high - found.low)
                wanted = kept[key]
                if wanted.any():
                    try:
                        where[found.pairs], count[found.pairs] = found.only(wanted).copy_to(young.tuples)
                    except StoreFull:  # they are only warmth
                        kept[:] = False
                spent += self.clock.now() - begun
                if self.how in ("inner", "left"):
                    yield from self._from_pages(results, found, key, rows, starts)
                begun = self.clock.now()
        yield from results.flush()
        if kept.any():
            self._keep(part, np.flatnonzero(kept), pairs, where, count, mark)
        spent += self.clock.now() - begun
        self.stats.io_seconds += spent
        self._miss_seconds += _EMA * (spent / n - self._miss_seconds)

    def _keep(self, part: Slice, kept: Longs, pairs: KeyPages, where: Ints, count: Ints, mark: Any) -> None:
        """Enter keys whose tuples lie in young."""
        young = self._hot.young
        try:
            first, total = self._by_key(pairs, where, count, part.hashes.size)
            young.insert(part.keys.take(kept), part.hashes[kept], first[kept], total[kept])
        except StoreFull:
            young.tuples.rewind(mark)

    def _from_pages(
        self, results: Results, found: FoundRows, key: Ints, rows: Ints, starts: Longs
    ) -> Iterator[pa.RecordBatch]:
        """Results of the tuples found in pages that are in memory."""
        stop = np.zeros(3, np.int64)
        while stop[0] < found.pages.size:
            room = results.room
            row, at, pos = np.empty(room, np.int32), np.empty(room, np.int64), np.empty(room, np.int32)
            n = int(expand_pages(found.pages, key, found.low, found.high, rows, starts, stop, row, at, pos))
            if n:
                yield from results.add(row[:n], at[:n], pos[:n])
