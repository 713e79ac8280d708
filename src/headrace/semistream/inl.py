"""Index nested loops: one index probe a stream tuple, through a buffer pool. [MESH] §5.1"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from headrace.arrays import Bools, Int32s, Int64s, UInt8s
from headrace.clock import Clock
from headrace.errors import MemoryRefused
from headrace.kernels.cache import OLDEST, lru, spell_out
from headrace.relation import Relation
from headrace.relation.columns import address
from headrace.relation.index_memory import IndexMemory
from headrace.relation.keys import Keys
from headrace.relation.paged_index import open_index
from headrace.relation.reader import PageReader
from headrace.relation.store import StoreFull, TupleSources, TupleStore
from headrace.semistream.base import How, On, SemiStreamJoin
from headrace.semistream.page_ranges import Spans
from headrace.semistream.plan_facts import PlanFacts
from headrace.semistream.results import ResultMaker
from headrace.semistream.snapshot import Snapshot
from headrace.semistream.waiting_plan import facts_of, text_room
from headrace.units import format_size

_FRAME_BYTES = (
    8 + 3 * 4 + 8 + 4 * 4
)  # bytes of a page in the pool besides the page: place, links, scratch, part of the table
_ROW_BYTES = 120  # bytes of a stream tuple while it is joined: key, order, span, access
_OUTPUT_BYTES = 40  # bytes of a result besides its columns
_LEAST_ROWS, _MOST_ROWS = 16, 1 << 13  # stream tuples that are joined together
_NOT_POOL = 0.15  # share of the memory at most for what is not the pool
_NONE: Int32s = np.empty(0, np.int32)


@dataclass(frozen=True, kw_only=True)
class INLPlan:
    """How index nested loops divide a memory: | index | output: rows that are joined together | buffer pool: frames |.

    Parameters
    ----------
    least
        Bytes that it needs at least.
    index
        How the index is held: as a whole, or its upper part.
    output, pool
        Bytes of these parts.
    rows, frames
        Stream tuples that are joined together, and pages of the pool.
    """

    least: int
    index: IndexMemory
    output: int
    pool: int
    rows: int
    frames: int

    @classmethod
    def of(cls, facts: PlanFacts, limit: int) -> INLPlan:
        """A small share for the rows that are joined together, and the rest for the pool."""
        frame = facts.page_size + _FRAME_BYTES

        def work(rows: int) -> int:
            return int(rows * (_ROW_BYTES + _OUTPUT_BYTES + facts.tuple_bytes)) + facts.result_bytes(rows)

        index = facts.index_in(limit - frame - work(_LEAST_ROWS))
        least = index.nbytes + frame + work(_LEAST_ROWS)
        spare = int(_NOT_POOL * (limit - least))
        rows = int(np.clip(_LEAST_ROWS + spare // (work(1) - work(0)), _LEAST_ROWS, _MOST_ROWS))
        frames = max(1, min((limit - index.nbytes - work(rows)) // frame, facts.pages))
        return cls(least=least, index=index, output=work(rows), pool=frames * frame, rows=rows, frames=frames)

    @property
    def parts(self) -> dict[str, int]:
        """Bytes of each part, by its name in the budget."""
        return {"index": self.index.nbytes, "output": self.output, "buffer pool": self.pool}


class IndexNestedLoop(SemiStreamJoin):
    """Look every stream tuple up in the index and read the pages it needs, unless the pool has them.

        S --tuple by tuple--> index --page--> [pool: pages, the least recently used goes first] <--one page a miss-- R

    The baseline that the other joins are measured against: it holds no stream tuple back, and pays a random read for each page
    that is not in the pool.

    Parameters
    ----------
    relation, on, memory, how, columns, suffix, clock
        See SemiStreamJoin.

    Example
    -------
    >>> import pyarrow as pa, tempfile, headrace as hr
    >>> from headrace.semistream import IndexNestedLoop
    >>> lookup = pa.table({"id": [1, 2, 3], "skey": [100, 110, 120]})
    >>> rel = hr.Relation.create(tempfile.mkdtemp() + "/lookup", lookup, key="id")
    >>> op = IndexNestedLoop(rel, on="id", memory="1MiB")
    >>> pa.Table.from_batches(op.run([pa.record_batch({"id": [2, 1, 2]})])).to_pydict()
    {'id': [2, 1, 2], 'skey': [110, 100, 110]}

    References
    ----------
    [MESH] §5.1.

    Deviations: the paper's pool was Berkeley DB's; ours lets the least recently used page go. The index is in memory beside it.
    Tuples are looked up in batches, but pages are asked for in stream order and read one at a time: hits, misses and results are
    those of one tuple after the other. Where the index does not fit the memory, its upper part is held and the rest read.
    """

    def __init__(
        self,
        relation: Relation,
        on: On,
        memory: int | str = "64MiB",
        *,
        how: How = "inner",
        columns: Sequence[str] | None = None,
        suffix: str | None = "_right",
        clock: Clock | None = None,
    ) -> None:
        super().__init__(relation, on, memory, how=how, columns=columns, suffix=suffix, clock=clock)
        facts = facts_of(relation, self._payload, algorithm="inl", stream_bytes=0.0)
        plan = self.plan(facts, self.budget.limit)
        if plan.least > self.budget.limit:
            raise MemoryRefused(
                f"memory={format_size(self.budget.limit)} is too small for IndexNestedLoop with {relation.path}: its index, one"
                f" page and its buffers need {format_size(plan.least)}; give {format_size(plan.least)} or more"
            )
        self._rows, self.frames = plan.rows, plan.frames
        self._reserved = [self.budget.reserve(part, nbytes) for part, nbytes in plan.parts.items()]
        self._version = open_index(relation.opened, plan.index, lambda: self.stats)
        self._maker = ResultMaker(self.how, self._payload)
        self._results = TupleStore(self._payload, self._rows, text_room(relation, self._payload, self._rows))
        pool = mmap.mmap(-1, self.frames * relation.page_size)  # files: memory without a file
        self._memory: UInt8s = np.frombuffer(pool, np.uint8)
        self._reader = PageReader(self._version, self._memory.size, self._memory, whole=True)
        self._clear()

    @staticmethod
    def plan(facts: PlanFacts, limit: int) -> INLPlan:
        """How it divides a memory: see INLPlan."""
        return INLPlan.of(facts, limit)

    def _clear(self) -> None:
        """Empty the pool."""
        n = self.frames
        self._table: Int32s = np.full(1 << (2 * n - 1).bit_length(), -1, np.int32)
        self._place_of: Int64s = np.full(n, -1, np.int64)
        self._older, self._younger = np.full(n, -1, np.int32), np.full(n, -1, np.int32)
        self._ends: Int64s = np.array([-1, -1, 0])
        self._scratch: Int64s = np.empty(n, np.int64)

    # -- one batch -------------------------------------------------------------------------------------------------------

    def join(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Join one batch to its end, in stream order."""
        schema, stats = self._schema_of(batch), self.stats
        stats.batches += 1
        stats.tuples_in += batch.num_rows
        slices = (batch.slice(a, self._rows) for a in range(0, batch.num_rows, self._rows))
        yield from self._counted(chain.from_iterable(self._join_slice(some, schema) for some in slices))

    def _join_slice(self, batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        n, stats = batch.num_rows, self.stats
        keys, valid = self._version.codec.encode([batch.column(name) for name in self.stream_key])
        rows = np.flatnonzero(valid) if valid.size else np.arange(n)
        self.relation.disk.spend({"c_S": n, "c_X": rows.size})
        spans = Spans.equal(self._version, keys.take(rows))
        at = rows[spans.row]
        # The accesses of a tuple are its pages and, behind them, one that reads nothing: there it is known whether it matched.
        first, last, shard = (np.zeros(n, np.int32) for _ in range(3))
        first[at], last[at], shard[at] = spans.first, spans.stop, spans.shard
        matched, missed = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
        stop: Int64s = np.zeros(2, np.int64)
        while stop[0] < n:
            row, page = np.empty(self._rows, np.int32), np.empty(self._rows, np.int32)
            count = int(spell_out(first, last + np.int32(1), stop, row, page))
            row, page = row[:count], page[:count]
            places, real = np.full(count, -1, np.int64), page < last[row]
            places[real] = spans.places(shard[row[real]], page[real])
            done = 0
            while done < count:
                frame, miss = np.empty(count - done, np.int32), np.empty(count - done, np.uint8)
                served = self._serve(places[done:], frame, miss)
                some = row[done : done + served]
                missed[some[miss[:served] == 1]] = True
                yield from self._results_of(batch, schema, keys, some, frame[:served], matched)
                done += served
        stats.nulls += n - rows.size
        stats.misses += int(missed.sum())
        stats.hits += rows.size - int(missed.sum())
        stats.matched += int(matched.sum())
        stats.unmatched += n - int(matched.sum())

    def _serve(self, places: Int64s, frame: Int32s, miss: UInt8s) -> int:
        """Have the pages of as many accesses as the pool takes at once; returns how many."""
        served = int(
            lru(places, self._table, self._place_of, self._older, self._younger, self._ends, self._scratch, frame, miss)
        )
        read = np.flatnonzero(miss[:served])
        self._reader.read_into(places[read], self._addresses(frame[read]), self.stats)
        return served

    def _addresses(self, frames: Int32s) -> Int64s:
        return address(self._memory) + frames.astype(np.int64) * self.relation.page_size

    def _results_of(
        self,
        batch: pa.RecordBatch,
        schema: pa.Schema,
        keys: Keys,
        row: Int32s,
        frame: Int32s,
        matched: Bools,
    ) -> Iterator[pa.RecordBatch]:
        """Results of accesses whose pages are all in the pool. An access without a page ends its tuple."""
        low, high = np.zeros(row.size, np.int32), np.zeros(row.size, np.int32)
        pages = np.flatnonzero(frame >= 0)
        where = np.zeros(row.size, np.int64)
        where[pages] = self._addresses(frame[pages])
        if pages.size:
            a, b = np.empty(pages.size, np.int32), np.empty(pages.size, np.int32)
            keys.find(where[pages], row[pages], a, b)
            low[pages], high[pages] = a, b
            matched[row[pages[b > a]]] = True
        if self.how in ("semi", "anti"):
            high[:] = low
        if self.how != "inner":
            ends = np.flatnonzero(frame < 0)
            high[ends] = matched[row[ends]] if self.how == "semi" else ~matched[row[ends]]
        stop: Int64s = np.zeros(2, np.int64)
        most = self._rows
        while stop[0] < row.size:
            back = stop.copy()
            which, line = np.empty(most, np.int32), np.empty(most, np.int32)
            n = int(spell_out(low, high, stop, which, line))
            if n == 0:
                return
            try:
                out = self._made(batch, schema, row[which[:n]], where[which[:n]], line[:n])
            except StoreFull:  # longer texts than expected
                if n == 1:
                    raise
                stop, most = back, n // 2
                continue
            self.relation.disk.spend({"c_O": n})
            yield out

    def _made(
        self, batch: pa.RecordBatch, schema: pa.Schema, row: Int32s, page: Int64s, line: Int32s
    ) -> pa.RecordBatch:
        """Stream tuples with the tuple at (page, line) each; where there is no page, with nulls."""
        if not self._payload:
            return self._maker.gather(batch, schema, None, row, _NONE, _NONE)
        there = page > 0
        self._results.clear()
        self._results.append_from_pages(page[there], line[there])
        src = np.where(there, 0, -1).astype(np.int32)
        pos = (np.cumsum(there) - 1).astype(np.int32)
        pos[~there] = 0
        return self._maker.gather(batch, schema, TupleSources([self._results]), row, src, pos)

    # -- snapshots -------------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Which pages the pool has, the least recently used first. Results do not depend on it; reads do."""
        pool, frame = [], int(self._ends[OLDEST])
        while frame >= 0:
            pool.append(int(self._place_of[frame]))
            frame = int(self._younger[frame])
        return self._named({"pool": np.array(pool, np.int64)})

    def restore(self, snapshot: Snapshot) -> None:
        """Read the pages again that the operator had that the snapshot was taken of."""
        snapshot.check(self._named({}))
        self._clear()
        places = snapshot.arrays["pool"][-self.frames :]
        frame, miss = np.empty(places.size, np.int32), np.empty(places.size, np.uint8)
        self._serve(places, frame, miss)

    def _named(self, arrays: dict[str, Int64s]) -> Snapshot:
        names = tuple(column.name for column in self._payload)
        return Snapshot(type(self).__name__, str(self.relation.path), self.relation.version, names, dict(arrays))
