"""OrderedExecution: results of AdaptiveJoin in stream order. A batch is joined in slices, each to its end.

    batch --slice by slice--> hot set, filter --> planned reads for what misses --> results in the order of the rows

Tuples that were read are held in the young store until the results of their slice have left.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from headrace.relation.reader import KeyPages
from headrace.relation.store import StoreFull
from headrace.semistream.adaptive.eager import EagerExecution
from headrace.semistream.adaptive.lookup import KeyLookup
from headrace.semistream.adaptive.memory import JoinMemory
from headrace.semistream.results import Matches, ResultMaker

_RECOUNTED = ("nulls", "unique_keys", "hits", "absent", "misses")  # counters of a slice that is joined again


class OrderedExecution(EagerExecution):
    """Joins batches slice by slice: those of a slice share reads.

    Parameters
    ----------
    memory, lookup, results
        The parts of the join that it works with.
    """

    def __init__(self, memory: JoinMemory, lookup: KeyLookup, results: ResultMaker) -> None:
        super().__init__()
        self._memory = memory
        self._lookup = lookup
        self._results = results

    def _join(self, batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        memory, at = self._memory, 0
        while at < batch.num_rows:
            memory.replan_if_due()
            # Slices of equal size: a short last one would share few reads.
            slices = -(-(batch.num_rows - at) // memory.split.slice_rows)
            rows = -(-(batch.num_rows - at) // slices)
            memory.publish_unless_room(rows)
            with memory.pinned():
                for out in self._join_slice(batch.slice(at, rows), schema):
                    memory.relation.disk.spend({"c_O": out.num_rows})
                    yield out
            at += rows
            memory.joined_slice()

    def _join_slice(self, batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Join some rows; if their matches overflow the young store, make room there, then take fewer rows."""
        memory, stats = self._memory, self._memory.stats
        before = [getattr(stats, name) for name in _RECOUNTED]
        try:
            matches = self._match(batch)
        except StoreFull:
            # The slice is counted when it is joined again; what it read was read all the same.
            for name, value in zip(_RECOUNTED, before, strict=True):
                setattr(stats, name, value)
            if memory.hot.young.tuples.used:
                memory.publish()
                yield from self._join_slice(batch, schema)
            elif batch.num_rows > 1:
                half = batch.num_rows // 2
                yield from self._join_slice(batch.slice(0, half), schema)
                yield from self._join_slice(batch.slice(half), schema)
            else:
                yield from self._join_giant(batch, schema)
            return
        found = int((matches.count[matches.uid[matches.uid >= 0]] > 0).sum())
        stats.matched += found
        stats.unmatched += batch.num_rows - found
        yield from self._results.emit(batch, schema, matches, memory.output_rows, memory.output_bytes)

    def _match(self, batch: pa.RecordBatch) -> Matches:
        """Find where the matches of a batch's rows are, and read those that are not in memory."""
        part, rest = self._lookup.find_in_memory(batch)
        matches = part.matches
        if rest.size:
            self._lookup.fetch(part, rest)
        unmatched = int(part.counts[matches.count == 0].sum())
        self._lookup.learn(part, batch.num_rows, rest.size, unmatched)
        return Matches(matches.uid, matches.src, matches.pos, matches.count, self._memory.hot.sources())

    def _join_giant(self, row: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Join one stream row that has more matches than the young store holds: results leave as pages come in."""
        memory = self._memory
        part = self._lookup.distinct(row)
        pairs = memory.version.pairs(part.keys, part.hashes, np.zeros(1, np.int64))
        young, stats = memory.hot.young, memory.stats
        stats.unique_keys += 1
        stats.misses += 1
        stats.matched += 1
        step, at = memory.reader.half, 0
        while at < pairs.size:
            young.clear()
            # Pages that updates moved are read in runs that go forward, so that tuples come in the key's own order.
            back = np.flatnonzero(np.diff(pairs.place[at : at + step]) < 0)
            taken = int(back[0]) + 1 if back.size else step
            some = KeyPages(pairs.key[at : at + taken], pairs.place[at : at + taken])
            try:
                _, count = memory.reader.fetch(part.keys, some, young.tuples, stats)
            except StoreFull:
                step = max(1, step // 2)  # one page always fits: the memory plan sees to it
                continue
            at += taken
            n = int(count.sum())
            if n:
                hot = memory.hot
                source, first = np.full(1, len(hot.segments), np.int32), np.zeros(1, np.int32)
                matches = Matches(part.matches.uid, source, first, np.full(1, n, np.int32), hot.sources())
                yield from self._results.emit(row, schema, matches, memory.output_rows, memory.output_bytes)
                if self._results.how in ("semi", "anti"):
                    break
        young.clear()
