"""The memory of AdaptiveJoin: its parts, alone or in a group, and how they move with what the stream shows. [SSIJ] §IV.A"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.clock import Clock
from headrace.errors import BadInput, choice
from headrace.memory import release_freed_memory
from headrace.relation import Relation
from headrace.relation.reader import PageReader
from headrace.relation.sidecar import arrays_in
from headrace.relation.store import StoreFull
from headrace.semistream.adaptive.hot_set import HotSet, KeyedStore, Sketch
from headrace.semistream.adaptive.memory_plan import (
    Parts,
    Split,
    Workload,
    better_split,
    first_split,
    fixed_parts,
    resized,
    split_beside,
)
from headrace.semistream.adaptive.shared_hot_set import Group, Shared, SharedHotSet
from headrace.semistream.base import How, On, Order, SemiStreamJoin
from headrace.semistream.snapshot import Snapshot, dump_store, load_store, refill

_EMA = 0.2  # weight of the newest slice in running means
_REPLAN = 8  # slices between two looks at the split
_FEW_ABSENT = 0.002  # share of stream tuples below which the filter is not worth its memory


class AdaptiveMemory(SemiStreamJoin):
    """Index, filter, sketch, hot set, stream buffer and read buffer within a budget. See AdaptiveJoin for the parameters."""

    _aside: int = 0  # bytes of the budget that are for something else

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
        order: Order = "stream",
        group: Group | None = None,
        mark: str | None = None,
    ) -> None:
        super().__init__(relation, on, memory, how=how, columns=columns, suffix=suffix, clock=clock)
        if mark is not None and how != "left":
            raise BadInput(f"mark={mark!r} says which rows have a match, for how='left'; how={how!r} needs none")
        self.mark = self._mark = mark
        self.order: Order = choice("order", order, ("any", "stream"))  # type: ignore[assignment]
        self._version = relation.opened
        self._group = group
        self._parts = parts = self._divide()
        self.stats.left_out = parts.left_out
        reserve = self.budget.reserve
        self._reserved = [
            reserve("index", parts.index),
            reserve("sketch", parts.sketch),
            reserve("read buffer", parts.read),
            reserve("output", parts.output),
            reserve("input", parts.input),
            reserve("process", parts.process),
        ]
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
        self._offered: list[pa.RecordBatch] = []
        self._waiting: list[list[pa.Array]] = []  # columns of rows that wait for a join phase
        self._waiting_rows = self._waiting_bytes = 0
        self._swept: list[pa.Array] | None = None  # the last row of the last join phase, if others still wait
        self._since = 0  # rows since all had left
        self._unmatched = 0.0  # share of rows read for that met nothing, lately
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
        limit, relation, group = self.budget.limit - self._aside, self.relation, self._group
        if group is None:
            return fixed_parts(relation, self._payload, limit, relation.index_bytes, ordered=self.order == "stream")
        # The index is not loaded yet: it is shared as it is in its file.
        index = sum(shard.index.bytes for shard in self._version.manifest.shards)
        return fixed_parts(relation, self._payload, limit, index, group.workers, ordered=self.order == "stream")

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
            limit = self.budget.limit - self._aside
            text = f"{self.relation.path}:{limit}:{self._group.workers}:{[c.name for c in self._payload]}"
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
        release_freed_memory()

    # -- between two batches ---------------------------------------------------------------------------------------------

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

    # -- parts that move ---------------------------------------------------------------------------------------------------

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
        expected = rows * min(1.0, 1.1 * self._workload.missed) if self.order == "stream" else 0.0
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
