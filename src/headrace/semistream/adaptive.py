"""AdaptiveJoin: the join behind algorithm="auto". Hot tuples from memory, absent keys by a filter, the rest by planned reads.

Built on [SSIJ] §III-IV (index, batched look-ups, optimal read plan, memory that moves between cache and stream) with three
changes: the cache holds tuples and not pages (DESIGN D5), a filter answers for absent keys (D10), and a batch is joined to its
end, so nothing waits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.clock import Clock
from headrace.kernels.filter import filter_test
from headrace.memory import give_back
from headrace.relation import Relation
from headrace.relation.columns import Bytes, Longs
from headrace.relation.keys import Hashes, Ints, Keys
from headrace.relation.reader import PageReader, Pairs
from headrace.relation.sidecar import arrays_in
from headrace.relation.store import StoreFull
from headrace.semistream.base import How, Matches, On, SemiStreamJoin
from headrace.semistream.hotset import HotSet, KeyedStore, Sketch
from headrace.semistream.shared import Group, Shared, SharedHotSet
from headrace.semistream.snapshot import Snapshot, dump_store, load_store, refill
from headrace.semistream.split import (
    Parts,
    Popularity,
    Split,
    Workload,
    better_split,
    first_split,
    fixed_parts,
    resized,
    split_beside,
)  # fmt: skip

_SAMPLE = 4096  # keys of a slice whose popularity is looked at
_EMA = 0.2  # weight of the newest slice in running means
_REPLAN = 8  # slices between two looks at the split
_FEW_ABSENT = 0.002  # share of stream tuples below which the filter is not worth its memory
_TAKEN_BACK = ("nulls", "unique_keys", "hits", "absent", "misses")


@dataclass
class Slice:
    """A part of a batch, being joined: its distinct keys and what is known of them."""

    keys: Keys
    hashes: Hashes
    counts: np.ndarray[tuple[int], np.dtype[np.int32]]
    matches: Matches


class AdaptiveJoin(SemiStreamJoin):
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
    group
        Other processes that join with the same relation: the budget is theirs together, and so is the hot set. Batches are
        joined between `enter` and `leave`.

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

    def __init__(
        self, relation: Relation, on: On, memory: int | str = "64MiB", *, how: How = "inner",
        columns: Sequence[str] | None = None, suffix: str | None = "_right", clock: Clock | None = None,
        group: Group | None = None,
    ) -> None:  # fmt: skip
        super().__init__(relation, on, memory, how=how, columns=columns, suffix=suffix, clock=clock)
        self._version = relation.opened
        self._group = group
        self._parts = parts = self._divide()
        self.stats.left_out = parts.left_out
        reserve = self.budget.reserve
        self._reserved = [
            reserve("index", parts.index), reserve("sketch", parts.sketch), reserve("read buffer", parts.read),
            reserve("output", parts.output), reserve("input", parts.input), reserve("process", parts.process),
        ]  # fmt: skip
        self._filter_reserved = reserve("filter", 0)
        self._hot_reserved = reserve("hot set", 0)
        self._stream_reserved = reserve("stream buffer", 0)
        self._filters: list[np.ndarray[tuple[int], np.dtype[np.uint32]]] = []
        self._workload = Workload(rows=1 << 14)
        self._slices = 0  # joined so far, and after how many to look at the split again
        self._next_plan = 1
        self._miss_seconds = relation.disk.seek + relation.disk.transfer
        self._byte_seconds = 2e-9
        self._split = first_split(relation, parts, self._workload, self._payload)
        self._horizon = max(1 << 16, 10 * self._split.hot_entries)
        self._shared: Shared | None = None
        self._entered = False
        self._hot: HotSet
        if group is None:
            self._load_filter()
            self._reader = PageReader(self._version, parts.read)
            sketch = Sketch(parts.sketch, self._horizon)
            self._hot = HotSet(self._payload, self._version.codec.integer, 0, self._new_young(self._split), sketch)
            self._adopt(self._split)

    def _divide(self) -> Parts:
        limit, relation, group = self.budget.limit, self.relation, self._group
        if group is None:
            return fixed_parts(relation, self._payload, limit, relation.index_bytes)
        # The index is not loaded yet: it is shared as it is in its file.
        index = sum(shard.index.bytes for shard in self._version.manifest.shards)
        return fixed_parts(relation, self._payload, limit, index, group.workers)

    # -- in a group ------------------------------------------------------------------------------------------------------

    @property
    def wanted_rows(self) -> int:
        """How many rows it would join at once, given them."""
        return self._split.most_rows

    @property
    def wanted_bytes(self) -> int:
        """Bytes of stream tuples that a worker may gather to be joined at once."""
        return self._parts.input // self._parts.workers

    def enter(self) -> bool:
        """Take part in the group, until `leave`; False if as many workers as it has room for do so already."""
        assert self._group is not None
        if self._shared is None:
            text = f"{self.relation.path}:{self.budget.limit}:{self._group.workers}:{[c.name for c in self._payload]}"
            card = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
            self._shared = Shared(self._group, card, self.relation, self._payload, self._parts)
        shared, before = self._shared, self._shared.arena
        slot = shared.open_slot(self._split.hot_bytes)
        if slot is None:
            return False
        try:
            if shared.arena is not before or not self._entered:
                self._version = self.relation.opened.with_indexes(shared.sidecars("index"))
                self._entered = True
            self._settle(shared, slot)
        except BaseException:
            shared.close_slot(slot)
            raise
        return True

    def _settle(self, shared: Shared, slot: int) -> None:
        """Go on in a slot with what its last worker left."""
        integer = self._version.codec.integer
        young = SharedHotSet.left_young(shared, slot, integer)
        self._hot = hot = SharedHotSet(shared, slot, integer, young, shared.sketch(self._horizon))
        self._reader = PageReader(self._version, shared.read_bytes, shared.read_buffer(slot))
        self._agreed = hot.agreed
        split = self._beside(hot.memory)
        if young is None:
            self._adopt(split)
        else:
            self._take_over(split)
        hot.end()

    def _use_filter(self, hot: SharedHotSet) -> None:
        """Have the filters of the generation that is pinned."""
        if bool(self._filters) != (hot.filtered and self._parts.filter > 0):
            pieces = hot.shared.sidecars("filter") if hot.filtered else []
            self._filters = [arrays_in(whole)["words"] for whole in pieces]

    def _beside(self, hot_bytes: int) -> Split:
        return split_beside(self.relation, self._parts, self._workload, self._payload, self._moving, hot_bytes)

    def leave(self) -> None:
        """Let another worker have the place."""
        hot, shared = self._hot, self._shared
        assert isinstance(hot, SharedHotSet) and shared is not None
        hot.end()
        shared.close_slot(hot.slot)
        self._filters = []
        del self._hot, self._reader
        give_back()

    def snapshot(self) -> Snapshot:
        """What the operator knows between two batches. Results do not depend on it; hits do."""
        hot, load = self._hot, self._workload
        arrays = {
            "sketch": hot.sketch.dump(),
            "workload": np.array([load.rows, load.distinct, load.missed, load.absent, load.seen]),
            "seconds": np.array([self._miss_seconds, self._byte_seconds, self._slices, self._next_plan]),
            "filter": np.array([len(self._filters)]),
        }
        for number, segment in enumerate(hot.segments):
            arrays |= dump_store(segment, f"segment{number}")
        return self._named(arrays | dump_store(hot.young, "young"))

    def restore(self, snapshot: Snapshot) -> None:
        """Go on as the operator did that the snapshot was taken of."""
        snapshot.check(self._named({}))
        arrays, integer = snapshot.arrays, self._version.codec.integer
        rows, distinct, missed, absent, seen = (float(x) for x in arrays["workload"])
        self._workload = Workload(rows, distinct, missed, absent, int(seen))
        self._miss_seconds, self._byte_seconds = (float(x) for x in arrays["seconds"][:2])
        self._slices, self._next_plan = (int(x) for x in arrays["seconds"][2:])
        self._hot.sketch.load(arrays["sketch"])
        if self._filters and not int(arrays["filter"][0]):
            self._drop_filter()
        self._adopt(resized(self.relation, self._parts, self._workload, self._payload, self._moving, self._split))
        count = sum(name.startswith("segment") and name.endswith(".first") for name in arrays)
        segments = [load_store(self._payload, integer, arrays, f"segment{n}") for n in range(count)]
        self._hot.replace_segments(segments)
        with suppress(StoreFull):  # another split may have less room; what does not fit is only warmth
            refill(self._hot.young, load_store(self._payload, integer, arrays, "young"))

    def _named(self, arrays: dict[str, np.ndarray[Any, Any]]) -> Snapshot:
        names = tuple(column.name for column in self._payload)
        return Snapshot(type(self).__name__, str(self.relation.path), self.relation.version, names, arrays)

    # -- one batch -------------------------------------------------------------------------------------------------------

    def _join(self, batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        self._meet(batch.num_rows)
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
                yield from self._join_slice(batch.slice(at, rows), schema)
            finally:
                self._hot.end()
            at += rows
            self._slices += 1
            self._follow()

    def _meet(self, rows: int) -> None:
        """Take note of a batch's size. The first one decides how the operator starts."""
        if self._slices == 0:
            self._workload.rows = max(1, rows)
            if self._group is None:
                self._adopt(first_split(self.relation, self._parts, self._workload, self._payload))
            else:
                self._adopt(self._beside(self._hot.memory))
        self._workload.rows += 0.5 * (rows - self._workload.rows)

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
        part = self._distinct(batch)
        matches, stats, hot = part.matches, self.stats, self._hot
        n = part.hashes.size
        stats.unique_keys += n
        nulls = batch.num_rows - int(part.counts.sum())
        stats.nulls += nulls
        hot.probe(part.keys, part.hashes, matches.src, matches.pos, matches.count)
        rest = np.flatnonzero(matches.src < 0)
        missed_rows = int(part.counts[rest].sum())
        stats.hits += batch.num_rows - nulls - missed_rows
        rest = self._not_absent(part.hashes, rest)
        wanted_rows = int(part.counts[rest].sum())
        stats.absent += missed_rows - wanted_rows
        stats.misses += wanted_rows
        if rest.size:
            self._fetch(part, rest)
        # Counted last: a slice that has to be taken again is not counted twice.
        some = slice(None, None, max(1, n // _SAMPLE))
        self._workload.popularity = Popularity.of(
            hot.sketch.estimate(np.ascontiguousarray(part.hashes[some])), part.counts[some], hot.sketch.window
        )
        hot.sketch.add(part.hashes, part.counts)
        nothing = int(part.counts[matches.count == 0].sum())
        self._workload.observe(_EMA, batch.num_rows, n, rest.size, nothing)
        return Matches(matches.uid, matches.src, matches.pos, matches.count, hot.sources())

    def _distinct(self, batch: pa.RecordBatch) -> Slice:
        n = batch.num_rows
        keys, valid = self._version.codec.encode([batch.column(name) for name in self.stream_key])
        hashes = keys.hashes()
        table = np.full(1 << max(4, int(1.5 * n).bit_length()), -1, np.int32)
        uid, first_row, counts = (np.empty(n, np.int32) for _ in range(3))
        found = keys.unique(valid, hashes, (table, uid, first_row, counts))
        first_row = first_row[:found]
        matches = Matches(uid, np.full(found, -1, np.int32), np.zeros(found, np.int32), np.zeros(found, np.int32), None)
        return Slice(keys.take(first_row), hashes[first_row], counts[:found].copy(), matches)

    def _not_absent(self, hashes: Hashes, rest: Longs) -> Longs:
        if not self._filters or rest.size == 0:
            return rest
        maybe = np.ones(rest.size, np.uint8)
        if len(self._filters) == 1:
            filter_test(self._filters[0], hashes, rest, maybe)
        else:
            shards = self._version.shards_of(hashes[rest])
            for number, words in enumerate(self._filters):
                mine = np.flatnonzero(shards == number)
                answer: Bytes = np.empty(mine.size, np.uint8)
                filter_test(words, hashes, rest[mine], answer)
                maybe[mine] = answer
        kept: Longs = rest[maybe == 1]
        return kept

    def _fetch(self, part: Slice, rest: Longs) -> None:
        """Bring the tuples of the missing keys to young, and say where they are."""
        young, matches = self._hot.young, part.matches
        mark, begun = young.tuples.mark(), self.clock.now()
        keys = part.keys.take(rest)
        pairs = self._version.pairs(keys, part.hashes, rest)
        try:
            where, count = self._reader.fetch(keys, pairs, young.tuples, self.stats)
            first, total = self._by_key(pairs, where, count, rest.size)
        except StoreFull:
            young.tuples.rewind(mark)
            raise
        matches.src[rest] = len(self._hot.segments)
        matches.pos[rest] = first
        matches.count[rest] = total
        hashes = part.hashes[rest]
        kept = self._worth_keeping(hashes, part.counts[rest], young.entries - young.used)
        with suppress(StoreFull):  # keys longer than expected: this slice has its tuples all the same
            young.insert(keys.take(kept), hashes[kept], first[kept], total[kept])
        elapsed = self.clock.now() - begun
        self.stats.io_seconds += elapsed
        self._miss_seconds += _EMA * (elapsed / rest.size - self._miss_seconds)

    def _worth_keeping(self, hashes: Hashes, counts: Ints, room: int) -> Longs:
        """Which fetched keys get an entry: all, or the most frequent ones that there is room for."""
        if counts.size <= room:
            return np.arange(counts.size)
        use = self._hot.sketch.estimate(hashes) + counts
        return np.sort(np.argpartition(-use, room)[:room]) if room > 0 else np.empty(0, np.int64)

    def _by_key(self, pairs: Pairs, where: Ints, count: Ints, keys: int) -> tuple[Ints, Ints]:
        """First tuple and number of tuples of each key.

        A key whose rows span pages has its tuples in pieces when updates moved a page or a round ended between two of
        them; then the tuples of this fetch are copied once more, in order.
        """
        total = np.bincount(pairs.key, weights=count, minlength=keys).astype(np.int32)
        some = count > 0
        key, start, size = pairs.key[some], where[some], count[some]
        again = np.flatnonzero(np.diff(key) == 0)
        if bool((start[again] + size[again] != start[again + 1]).any()):
            start = self._copy_in_order(start, size)
        first = np.zeros(keys, np.int32)
        first[key[::-1]] = start[::-1]  # the first of several pieces is written last
        return first, total

    def _copy_in_order(self, start: Ints, size: Ints) -> Ints:
        young = self._hot.young.tuples
        within = np.arange(int(size.sum())) - np.repeat(np.cumsum(size) - size, size)
        pos = (np.repeat(start, size) + within).astype(np.int32)
        new = young.append_from(self._hot.sources(), np.full(pos.size, len(self._hot.segments), np.int32), pos)
        return (new + np.cumsum(size) - size).astype(np.int32)

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
            some = Pairs(pairs.key[at : at + taken], pairs.place[at : at + taken])
            try:
                _, count = self._reader.fetch(part.keys, some, young.tuples, stats)
            except StoreFull:
                step = max(1, step // 2)  # one page always fits: the split sees to it
                continue
            at += taken
            n = int(count.sum())
            if n:
                matches = Matches(
                    part.matches.uid, np.full(1, len(self._hot.segments), np.int32), np.zeros(1, np.int32),
                    np.full(1, n, np.int32), self._hot.sources(),
                )  # fmt: skip
                yield from self._emit(row, schema, matches, self._parts.output_rows)
                if self.how in ("semi", "anti"):
                    break
        young.clear()

    # -- memory ----------------------------------------------------------------------------------------------------------

    def _publish(self) -> None:
        """Let what was fetched compete for the hot set, and make room for more."""
        begun, size = self.clock.now(), self._hot.segment_bytes
        # A hit counted in the sketch's window is expected again in the next window of the same length; half of it, to be careful
        # with a stream that changes.
        if self._hot.publish(self._miss_seconds / 2, self._byte_seconds):
            elapsed = self.clock.now() - begun
            self._byte_seconds += _EMA * (elapsed / max(1, size) - self._byte_seconds)
            self.stats.generations = self._hot.generations

    def _room_for(self, rows: int) -> bool:
        """Whether young takes what a slice should miss, and has room for a good part of it to stay."""
        young = self._hot.young
        expected = rows * min(1.0, 1.1 * self._workload.missed)
        return young.used <= 0.9 * young.entries and young.tuples.used + expected <= young.tuples.rows

    def _replan(self) -> None:
        """Look again at what the parts that move are worth: soon at first, then now and then."""
        self._next_plan = self._slices + min(self._slices, _REPLAN)
        moved = self._keep_or_drop_filter()
        split = better_split(self.relation, self._parts, self._workload, self._payload, self._moving, self._split)
        if split is None and moved:
            split = resized(self.relation, self._parts, self._workload, self._payload, self._moving, self._split)
        if split is not None:
            self._publish()
            if isinstance(self._hot, SharedHotSet):
                self._hot.agree(split.hot_bytes)
                self._follow()
            else:
                self._adopt(split)

    def _follow(self) -> None:
        """Where the group agreed on another size of the hot set, keep to it."""
        if isinstance(self._hot, SharedHotSet) and self._hot.agreed != self._agreed:
            self._agreed = self._hot.agreed
            self._publish()
            size = self._hot.shared.hot_bytes
            self._adopt(self._beside(size))

    @property
    def _moving(self) -> int:
        """Bytes that hot set and stream buffer share: more while the filter is out."""
        if isinstance(self._hot, SharedHotSet):
            return self._parts.moving + (0 if self._hot.filtered else self._parts.filter)
        return self._parts.moving + self._parts.filter - self._filter_reserved.nbytes

    def _keep_or_drop_filter(self) -> bool:
        """A filter that turns nothing away is memory for hot tuples; it comes back with the first absent keys."""
        if self._parts.filter == 0:
            return False
        hot = self._hot
        there = hot.filtered if isinstance(hot, SharedHotSet) else bool(self._filters)
        drop = there and self._workload.seen >= 4 and self._workload.absent < _FEW_ABSENT
        load = not there and self._workload.absent > 2 * _FEW_ABSENT
        if isinstance(hot, SharedHotSet):
            return (drop or load) and hot.keep_filter(load)
        if drop:
            self._drop_filter()
            return True
        if load:
            self._publish()
            self._release()
            self._load_filter()
            return True
        return False

    def _drop_filter(self) -> None:
        self._filters = []
        self._filter_reserved.resize(0)
        self.stats.left_out["filter"] = "hardly a key was absent lately; it comes back when some are"

    def _load_filter(self) -> None:
        if self._parts.filter:
            self._filter_reserved.resize(self._parts.filter)
            self._filters = [self._version.filter(s) for s in range(self.relation.num_shards)]
            self.stats.left_out.pop("filter", None)

    def _new_young(self, split: Split) -> KeyedStore:
        sizes = split.young_entries, split.young_rows, split.young_data
        if self._group is not None and isinstance(self._hot, SharedHotSet):
            return self._hot.new_young(*sizes)
        return KeyedStore(self._payload, *sizes, self._version.codec.integer)

    def _release(self) -> None:
        """Give up the parts that move, as far as a larger filter needs."""
        self._hot.resize(max(0, self._split.hot_bytes - self._parts.filter))
        self._hot_reserved.resize(0)
        self._stream_reserved.resize(0)

    def _adopt(self, split: Split) -> None:
        """Change to a split. Young is empty: what it held has competed."""
        self._hot.resize(split.hot_bytes)
        self._hot.replace_young(self._new_young(split))
        self._take_over(split)

    def _take_over(self, split: Split) -> None:
        """Keep to a split that hot set and young are made for already."""
        self._split = split
        self._hot_reserved.resize(0)
        self._stream_reserved.resize(0)
        if isinstance(self._hot, SharedHotSet):
            self._filter_reserved.resize(self._parts.filter if self._hot.filtered else 0)
        self._hot_reserved.resize(split.hot_bytes)
        self._stream_reserved.resize(self._parts.workers * split.stream_bytes)
