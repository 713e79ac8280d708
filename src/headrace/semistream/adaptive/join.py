"""AdaptiveJoin: the join behind algorithm="auto". Hot tuples from memory, absent keys by a filter, the rest by planned reads.

Built on [SSIJ] §III-IV (index, batched look-ups, optimal read plan, memory that moves between cache and stream) with three
changes: the cache holds tuples and not pages (DESIGN D5), a filter answers for absent keys (D10), and a batch is joined to its
end, so nothing waits.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from headrace.conditions import Condition
from headrace.relation.reader import KeyPages
from headrace.relation.store import StoreFull
from headrace.semistream.adaptive.shared_hot_set import SharedHotSet
from headrace.semistream.adaptive.unordered import AdaptivePhases
from headrace.semistream.base import Matches

_EMA = 0.2  # weight of the newest slice in running means
_TAKEN_BACK = ("nulls", "unique_keys", "hits", "absent", "misses")


class AdaptiveJoin(AdaptivePhases):
    """Join each batch with the relation, to its end, within a byte budget.

        stream batch -> distinct keys -> hot set -> filter -> index -> read plan -> pages -> results in stream order
                                          hit        absent              several reads in flight
                          +-------+--------+--------+--------+---------------+-------------+--------+
        the budget        | index | filter | sketch | hot set| stream buffer | read buffer | output |
                          +-------+--------+--------+--------+---------------+-------------+--------+

    Choose it unless you study a published algorithm: it needs no tuning, and no order of the relation beyond its key. Parts that
    the budget is too small for are left out, and `stats.left_out` says which and why. The split between hot set and stream buffer
    follows what the stream shows: repeated keys earn a larger hot set, scattered ones a larger buffer that shares reads.

    Parameters
    ----------
    relation, on, memory, how, columns, suffix
        See SemiStreamJoin.
    order
        "stream": results in the order of the stream. "any": results go out as they are found. What is in memory leaves at once;
        the rest waits, in `run` also for later batches, and is read together in the order of the pages. A waiting tuple takes a
        fraction of what a fetched one does that is held for its turn, so more of them share a read.
    group
        Other processes that join with the same relation: the budget is theirs together, and so is the hot set. Batches are
        joined between `enter` and `leave`.
    mark
        With how="left": the name of a column of the result that says whether the row has a match.

    Example
    -------
    >>> import pyarrow as pa, tempfile, headrace as hr
    >>> from headrace.semistream import AdaptiveJoin
    >>> products = pa.table({"product_id": [1, 2], "name": ["bolt", "gear"]})
    >>> rel = hr.Relation.create(tempfile.mkdtemp() + "/products", products, key="product_id")
    >>> op = AdaptiveJoin(rel, on="product_id", memory="4MiB")
    >>> sales = pa.record_batch({"product_id": [2, 1, 2, 7], "amount": [10, 20, 30, 40]})
    >>> pa.Table.from_batches(op.run([sales])).to_pydict()
    {'product_id': [2, 1, 2], 'amount': [10, 20, 30], 'name': ['gear', 'bolt', 'gear']}
    """

    condition: Condition | None = None  # see ConditionalJoin

    def _join(self, batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        self._meet(batch)
        at = 0
        while at < batch.num_rows:
            if self._slices >= self._next_plan:
                self._replan()
            # Slices of equal size: a short last one would share few reads.
            parts = -(-(batch.num_rows - at) // self._split.slice_rows)
            rows = -(-(batch.num_rows - at) // parts)
            if not self._room_for(rows):
                self._publish()
            self._hot.begin()
            if isinstance(self._hot, SharedHotSet):
                self._use_filter(self._hot)
            try:
                for out in self._join_slice(batch.slice(at, rows), schema):
                    self.relation.disk.spend({"c_O": out.num_rows})
                    yield out
            finally:
                self._hot.end()
            at += rows
            self._slices += 1
            self._follow()

    def _join_slice(self, batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Join some rows; if their matches overflow the stream buffer, make room, then take fewer rows."""
        before = [getattr(self.stats, name) for name in _TAKEN_BACK]
        try:
            matches = self._match(batch)
        except StoreFull:
            # It is counted when it is taken again; what it read was read all the same.
            for name, value in zip(_TAKEN_BACK, before, strict=True):
                setattr(self.stats, name, value)
            if self._hot.young.tuples.used:
                self._publish()
                if isinstance(self._hot, SharedHotSet):
                    self._use_filter(self._hot)  # publishing pinned another generation, perhaps one without it
                yield from self._join_slice(batch, schema)
            elif batch.num_rows > 1:
                half = batch.num_rows // 2
                yield from self._join_slice(batch.slice(0, half), schema)
                yield from self._join_slice(batch.slice(half), schema)
            else:
                yield from self._join_giant(batch, schema)
            return
        found = int((matches.count[matches.uid[matches.uid >= 0]] > 0).sum())
        self.stats.matched += found
        self.stats.unmatched += batch.num_rows - found
        yield from self._emit(batch, schema, matches, self._parts.output_rows)

    def _match(self, batch: pa.RecordBatch) -> Matches:
        """Find where the matches of a batch's rows are, fetching what is not in memory."""
        part, rest = self._look_up(batch)
        matches = part.matches
        if rest.size:
            self._fetch(part, rest)
        self._learn(part, batch.num_rows, rest.size)
        return Matches(matches.uid, matches.src, matches.pos, matches.count, self._hot.sources())

    def _join_giant(self, row: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """One stream tuple with more matches than the stream buffer holds: results go out as pages come in."""
        part = self._distinct(row)
        pairs = self._version.pairs(part.keys, part.hashes, np.zeros(1, np.int64))
        young, stats = self._hot.young, self.stats
        stats.unique_keys += 1
        stats.misses += 1
        stats.matched += 1
        step, at = self._reader.half, 0
        while at < pairs.size:
            young.clear()
            # Pages that updates moved are read in runs that go forward, so that tuples come in the key's own order.
            back = np.flatnonzero(np.diff(pairs.place[at : at + step]) < 0)
            taken = int(back[0]) + 1 if back.size else step
            some = KeyPages(pairs.key[at : at + taken], pairs.place[at : at + taken])
            try:
                _, count = self._reader.fetch(part.keys, some, young.tuples, stats)
            except StoreFull:
                step = max(1, step // 2)  # one page always fits: the split sees to it
                continue
            at += taken
            n = int(count.sum())
            if n:
                matches = Matches(
                    part.matches.uid,
                    np.full(1, len(self._hot.segments), np.int32),
                    np.zeros(1, np.int32),
                    np.full(1, n, np.int32),
                    self._hot.sources(),
                )
                yield from self._emit(row, schema, matches, self._parts.output_rows)
                if self.how in ("semi", "anti"):
                    break
        young.clear()
