"""UnorderedExecution: results of AdaptiveJoin as they are found, in an online phase and in join phases. [SSIJ] §IV.B

    batch --piece by piece--> hot set, filter --hit or absent--> results          online phase
                                   | miss
                              the rows wait: their columns and nothing else
                                   | when there is no room for more: the next quarter of them in the order of the pages,
                                   | from where the last join phase ended; all when the batch or the stream ends
                              piece by piece: index, planned reads, results from the pages          join phase

A row that waits takes its own bytes and a place in an order. All else that a look-up needs is held for one piece at a time, so
the memory buys rows that share reads, and hot tuples. Join phases go round the relation, a part at a time: the pages ahead are
those for which rows have waited longest, so a read serves nearly twice as many as if all left at once ([XHJ] gains from the
same: its oldest tuple names the partition that most others wait for).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Int32s, Int64s
from headrace.errors import BadInput
from headrace.kernels.store import expand_pages
from headrace.memory import FreedMemory, release_freed_memory, trim_malloc
from headrace.relation.reader import FoundRows, KeyPages
from headrace.relation.store import StoreFull
from headrace.row_copies import POOL, cuts, row_sizes, take
from headrace.semistream.adaptive.lookup import DistinctKeys, KeyLookup, RowPages, first_rows
from headrace.semistream.adaptive.memory import JoinMemory
from headrace.semistream.adaptive.page_results import PageResults
from headrace.semistream.adaptive.split import PHASE_SHARE
from headrace.semistream.adaptive.workload import EMA
from headrace.semistream.deadlines import JoinTime
from headrace.semistream.protocols import StreamShedder
from headrace.semistream.results import Matches, ResultMaker

_log = logging.getLogger(__name__)

_LONGER = 1.1  # rows so much longer than the split was made for are cut by their bytes; less is the noise of their mean
_BORDER = (
    256  # rows at the end of a piece among which the end of a page is looked for: a page has hardly more that wait
)


class UnorderedExecution:
    """Hits leave at once; rows that miss wait, also for those of later batches, and are read for together.

    Parameters
    ----------
    memory, lookup, results
        The parts of the join that it works with.
    """

    _stream_schema: pa.Schema
    _schema: pa.Schema

    def __init__(self, memory: JoinMemory, lookup: KeyLookup, results: ResultMaker) -> None:
        self._memory = memory
        self._lookup = lookup
        self._results = results
        self._offered: list[tuple[pa.RecordBatch, pa.Schema]] = []
        self._waiting: list[list[pa.Array]] = []  # columns of rows that wait for a join phase
        self._waiting_rows = self._waiting_bytes = 0
        self._swept: list[pa.Array] | None = None  # the last row of the last join phase, if others still wait
        self._since = 0  # rows since all had left
        self._freed = FreedMemory(memory.plan.limit)
        self.deadline: float | None = None  # seconds after it was offered in which a row should have left
        self._oldest = np.inf  # no row that waits came before; inf where none waits
        self._time = JoinTime(memory.relation.disk.costs(memory.relation.page_size), memory.relation.disk.factors)
        self._unmatched = 0.0  # share of rows read for that had no match: a running mean

    # -- steps -------------------------------------------------------------------------------------------------------------

    def offer(self, batch: pa.RecordBatch, schema: pa.Schema) -> None:
        """Take in a batch, with the schema of its results."""
        if self._waiting and not batch.schema.equals(self._stream_schema):
            raise BadInput(
                "the stream's schema changed while rows wait; call drain() before the first batch of another schema"
            )
        self._stream_schema, self._schema = batch.schema, schema
        self._offered.append((batch, schema))
        self._since += batch.num_rows
        if batch.num_rows:
            self._oldest = min(self._oldest, self._memory.clock.now())

    @property
    def buffered(self) -> int:
        """Rows offered that were not looked up."""
        return sum(batch.num_rows for batch, _ in self._offered)

    @property
    def waiting(self) -> int:
        """Rows that were looked up and have not left."""
        return self._waiting_rows

    @property
    def due(self) -> float:
        """When what waits must be read for so that no deadline passes; inf when there is none. [SSIJ] §IV.F

        Each row has a page of its own at most, or all of the relation is read.
        """
        if self.deadline is None or np.isinf(self._oldest):
            return np.inf
        memory = self._memory
        (seek, transfer), pages = memory.relation.disk.costs(memory.relation.page_size), memory.relation.num_pages
        self._time.scan = pages * transfer + seek * (memory.relation.num_shards + pages / max(1, memory.reader.half))
        left = self._time.estimate(self._waiting_rows, self._waiting_rows, self.buffered)
        return self._oldest + self.deadline - left

    def shed_surplus(self, shed: StreamShedder) -> None:
        """Put aside what has come beyond the rows that may wait. [MESH] §4"""
        most, stats = self._memory.split.most_rows, self._memory.stats
        if self.buffered <= most:
            return
        interval = pa.concat_batches([batch for batch, _ in self._offered])
        kept = shed.keep(interval, most)
        rest = interval.filter(pa.array(~kept))
        shed.put_aside(rest)
        self._offered = [(interval.filter(pa.array(kept)), self._schema)]
        self._since -= rest.num_rows
        stats.tuples_in -= rest.num_rows
        stats.shed += rest.num_rows

    def advance(self) -> Iterator[pa.RecordBatch]:
        """Look up what was offered; read for a part of what waits whenever there is no room for more of it."""
        while self._offered:
            yield from self._online(*self._offered.pop(0))
        if not self._waiting_rows:
            self._oldest = np.inf

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Look up what was offered, and read for all that waits."""
        yield from self.advance()
        if self._since:
            self._memory.workload.drained(self._since)
            self._since = 0
        if self._waiting:
            begun, rows = self._memory.clock.now(), self._waiting_rows
            yield from self._join_phase(self._schema, 1.0)
            self._time.joined(rows, self._memory.clock.now() - begun)
        self._oldest = np.inf

    def let_wait(self) -> pa.RecordBatch | None:
        """Give the rows that wait back: the caller keeps them. They count as `deferred` alone."""
        if not self._waiting_rows:
            return None
        self._swept, self._oldest = None, np.inf
        batch, stats = self._put_together(), self._memory.stats
        stats.tuples_in -= batch.num_rows
        stats.misses -= batch.num_rows
        stats.deferred += batch.num_rows
        return batch

    # -- the online phase ----------------------------------------------------------------------------------------------------

    def _online(self, batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Rows whose tuples are in memory, or that surely have none, leave; the others wait."""
        memory, at = self._memory, 0
        while at < batch.num_rows:
            memory.replan_if_due()
            piece = batch.slice(at, memory.split.slice_rows)
            most = int(_LONGER * memory.split.slice_bytes)
            if piece.nbytes > most:
                piece = piece.slice(0, next(cuts(row_sizes(piece), most)).stop)
            yield from self._pinned(self._online_piece(piece, schema))
            at += piece.num_rows
            memory.joined_slice()
            if self._waiting_rows >= memory.split.most_rows or self._waiting_bytes > memory.split.most_bytes:
                # As much must leave as has come, also when rows are longer than they were; one piece more is as usual.
                usual = _LONGER * (memory.split.most_bytes + memory.split.slice_bytes)
                beyond = 1 - (1 - PHASE_SHARE) * usual / max(1, self._waiting_bytes)
                yield from self._join_phase(schema, max(PHASE_SHARE, beyond))

    def _pinned(self, results: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Results of a piece, with the hot set as it is until they have left."""
        with self._memory.pinned():
            for out in results:
                self._memory.relation.disk.spend({"c_O": out.num_rows})
                yield out

    def _online_piece(self, piece: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        memory = self._memory
        part, rest = self._lookup.find_in_memory(piece)
        found = part.matches
        matches = Matches(found.uid, found.src, found.pos, found.count, memory.hot.sources())
        waits = np.zeros(part.hashes.size + 1, np.bool_)  # the last is for rows without a key
        waits[rest] = True
        waiting = waits[found.uid]
        leaving = np.flatnonzero(~waiting).astype(np.int32) if rest.size else None
        matched = int((found.count[found.uid[found.uid >= 0]] > 0).sum())
        rows = piece.num_rows - int(waiting.sum())
        memory.stats.matched += matched
        memory.stats.unmatched += rows - matched
        if rest.size:
            some = take(piece, np.flatnonzero(waiting))
            self._waiting.append(some.columns)
            self._waiting_rows += some.num_rows
            self._waiting_bytes += some.nbytes
            self._freed.add(some.nbytes, some.num_rows)
            # Put aside and sorted. They leave together, so there is no c_E.
            memory.relation.disk.spend({"c_A": some.num_rows})
        absent = int(part.counts[(found.count == 0) & ~waits[:-1]].sum())
        absent += int(self._unmatched * (piece.num_rows - rows))
        self._lookup.learn(part, piece.num_rows, rest.size, absent)
        yield from self._results.emit(piece, schema, matches, memory.output_rows, memory.output_bytes, leaving)

    # -- join phases -------------------------------------------------------------------------------------------------------

    def _join_phase(self, schema: pa.Schema, share: float) -> Iterator[pa.RecordBatch]:
        """Read for a share of what waits, in the order of the pages, from where the last join phase ended."""
        if not self._waiting_rows:
            return
        memory, pages = self._memory, self._memory.stats.pages_read
        # What the last phase left is in order, from where it ended on.
        sorted_rows = 0 if self._swept is None else len(self._waiting[0][0])
        nearly_sorted = 2 * sorted_rows >= self._waiting_rows
        if self._swept is not None:
            # Those that were sorted before are sorted again
            memory.relation.disk.spend({"c_X": len(self._waiting[0][0])})
            self._waiting.append(self._swept)  # a row that has left: where it comes in the order, the last phase ended
        batch = self._put_together()
        # An index that is read is asked once, in its own order, for all rows that take part.
        paged, by_key = memory.plan.index_memory.paged, memory.relation.order == "key"
        known: RowPages | None = None
        if paged and not by_key:
            known = self._lookup.pages_of(batch, np.arange(batch.num_rows, dtype=np.int32))
            order = np.argsort(known.first, kind="stable").astype(np.int32)
        else:
            order = self._lookup.by_page(batch, nearly_sorted=nearly_sorted)
        if self._swept is not None:
            mark = int(np.flatnonzero(order == batch.num_rows - 1)[0])
            order = np.concatenate([order[mark + 1 :], order[:mark]])
        leaving, at = int(np.ceil(share * order.size)), 0
        if paged and by_key:
            known = self._lookup.pages_of(batch, order[: leaving + 1])
        while at < leaving:
            some = order[at : at + self._piece(batch, order, at, leaving, known)]
            memory.publish_unless_room(some.size)
            yield from self._pinned(self._join_piece(take(batch, some), schema, known, some))
            at += some.size
            if self.deadline is not None and memory.clock.now() > self._oldest + self.deadline:
                memory.stats.late += some.size  # or fewer: when each of them came is not known
            memory.follow()
            if leaving < order.size and leaving - at < _BORDER // 2:
                break  # what is left of this part is hardly more than a page
        _log.debug(
            "join phase: %d of %d rows that wait, %d pages read", at, order.size, memory.stats.pages_read - pages
        )
        self._swept = take(batch, order[at - 1 : at]).columns if at < order.size else None
        long = self._freed.are_long(batch.nbytes, batch.num_rows)
        if at < order.size:
            columns, rest = batch.columns, pa.array(order[at:])
            del batch
            if long:
                trim_malloc()  # pieces and results have been freed
            # As they were put together: one column at a time is there twice.
            self._waiting = [[pc.take(columns.pop(0), rest, memory_pool=POOL) for _ in self._stream_schema]]
            self._waiting_rows = len(rest)
            self._waiting_bytes = sum(column.nbytes for column in self._waiting[0])
        else:
            del batch
        if long:
            trim_malloc()  # all rows that waited were copied, and malloc would keep as much again for later

    def _piece(self, batch: pa.RecordBatch, order: Int32s, at: int, leaving: int, known: RowPages | None) -> int:
        """How many rows to read for together from order[at] on: a piece, without the page that goes on in the next one.

        That page would be read for both, and where to go back is a seek.
        """
        split = self._memory.split
        rows = min(split.slice_rows, leaving - at)
        most = int(_LONGER * split.slice_bytes)
        if batch.nbytes > most * (batch.num_rows / max(1, rows)):
            rows = next(cuts(row_sizes(batch, order[at : at + rows]), most)).stop
        if at + rows == order.size:
            return rows
        border = order[at + rows - min(rows // 2, _BORDER) : at + rows + 1]
        places = self._lookup.first_places(batch, pa.array(border)) if known is None else known.first[border]
        new = np.flatnonzero(np.diff(places))
        return rows if not new.size else rows - (border.size - 2 - int(new[-1]))

    def _put_together(self) -> pa.RecordBatch:
        """The rows that wait as one batch: column by column, so that only one column is there twice."""
        stream, parts = self._stream_schema, self._waiting
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0
        columns = [pa.concat_arrays([part.pop(0) for part in parts], memory_pool=POOL) for _ in stream]
        release_freed_memory()  # the pieces that they were
        return pa.RecordBatch.from_arrays(columns, schema=stream)

    def _join_piece(
        self, piece: pa.RecordBatch, schema: pa.Schema, known: RowPages | None, rows: Int32s
    ) -> Iterator[pa.RecordBatch]:
        """Results of rows that waited: `rows` of those whose pages are known."""
        memory, how = self._memory, self._results.how
        part = self._lookup.distinct(piece)
        pairs = self._lookup.pages(part) if known is None else known.take(rows[first_rows(part)].astype(np.int64))
        yield from self._read_and_join(piece, schema, part, pairs)
        count, uid = part.matches.count, part.matches.uid
        matched = int((count[uid] > 0).sum())
        memory.stats.matched += matched
        memory.stats.unmatched += piece.num_rows - matched
        self._unmatched += EMA * (1 - matched / piece.num_rows - self._unmatched)
        if how != "inner":  # rows that leave without tuples of the relation
            which = None if how != "left" else np.flatnonzero(count[uid] == 0).astype(np.int32)
            matches = Matches(uid, part.matches.src, part.matches.pos, count, memory.hot.sources())
            yield from self._results.emit(piece, schema, matches, memory.output_rows, memory.output_bytes, which)

    def _read_and_join(
        self, batch: pa.RecordBatch, schema: pa.Schema, part: DistinctKeys, pairs: KeyPages
    ) -> Iterator[pa.RecordBatch]:
        """Results of some rows, whose keys have these pages, page by page.

        Keys worth it get an entry in the young store on the way.
        """
        memory = self._memory
        young, matches, keys, begun = memory.hot.young, part.matches, part.keys, memory.clock.now()
        n = part.hashes.size
        rows = np.argsort(matches.uid, kind="stable").astype(np.int32)
        starts = np.concatenate([[0], np.cumsum(part.counts)]).astype(np.int64)
        kept = np.zeros(n, np.bool_)
        kept[self._lookup.worth_keeping(part.hashes, part.counts)] = True
        where, count = np.zeros(pairs.size, np.int32), np.zeros(pairs.size, np.int32)
        total = matches.count
        spent, mark = 0.0, young.tuples.mark()
        results = PageResults(memory.relation, memory.payload, batch, schema, memory.output_rows, memory.output_bytes)
        with closing(memory.reader.find(keys, pairs, memory.stats)) as rounds:
            for found in rounds:
                key = pairs.key[found.pairs]
                np.add.at(total, key, found.high - found.low)
                wanted = kept[key]
                if wanted.any():
                    try:
                        where[found.pairs], count[found.pairs] = found.only(wanted).copy_to(young.tuples)
                    except StoreFull:  # they are only warmth
                        kept[:] = False
                spent += memory.clock.now() - begun
                if self._results.how in ("inner", "left"):
                    yield from self._from_pages(results, found, key, rows, starts)
                begun = memory.clock.now()
        yield from results.flush()
        if kept.any():
            self._keep(part, np.flatnonzero(kept), pairs, where, count, mark)
        spent += memory.clock.now() - begun
        memory.read_for(n, spent)

    def _keep(self, part: DistinctKeys, kept: Int64s, pairs: KeyPages, where: Int32s, count: Int32s, mark: Any) -> None:
        """Enter keys whose tuples lie in the young store."""
        young = self._memory.hot.young
        try:
            first, total = self._lookup.by_key(pairs, where, count, part.hashes.size)
            young.insert(part.keys.take(kept), part.hashes[kept], first[kept], total[kept])
        except StoreFull:
            young.tuples.rewind(mark)

    def _from_pages(
        self, results: PageResults, found: FoundRows, key: Int32s, rows: Int32s, starts: Int64s
    ) -> Iterator[pa.RecordBatch]:
        """Results of the tuples found in pages that are in memory."""
        stop = np.zeros(3, np.int64)
        while stop[0] < found.pages.size:
            room = results.room
            row, at, pos = np.empty(room, np.int32), np.empty(room, np.int64), np.empty(room, np.int32)
            n = int(expand_pages(found.pages, key, found.low, found.high, rows, starts, stop, row, at, pos))
            if n:
                yield from results.add(row[:n], at[:n], pos[:n])
