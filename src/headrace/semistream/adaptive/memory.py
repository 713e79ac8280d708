"""JoinMemory: the memory of an AdaptiveJoin while it runs, whose parts move with what the stream shows. [SSIJ] §IV.A"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import numpy as np
import pyarrow as pa

from headrace.arrays import AnyArray, UInt32s
from headrace.clock import Clock
from headrace.memory import MemoryBudget, release_freed_memory
from headrace.metrics import JoinStats
from headrace.relation import Relation
from headrace.relation.columns import Column
from headrace.relation.paged_index import open_index
from headrace.relation.reader import PageReader, Version
from headrace.relation.sketch import Sketch
from headrace.relation.store import StoreFull
from headrace.semistream.adaptive.forecast import better_split
from headrace.semistream.adaptive.hot_set import SEGMENTS, HotSet
from headrace.semistream.adaptive.keyed_store import Arrays, dump_store, load_store, refill
from headrace.semistream.adaptive.local_hot_set import LocalHotSet
from headrace.semistream.adaptive.memory_plan import FEW_ABSENT, MemoryPlan
from headrace.semistream.adaptive.split import Split, first_split, resized, sketch_horizon, split_beside
from headrace.semistream.adaptive.workload import EMA, FIRST_BATCH_ROWS, USUAL_COPIES, Workload

_LONG = 1024  # bytes: a column whose values are longer on average is most of what rows take
_REPLAN = 8  # slices between two looks at the split
_ENOUGH_SEEN = 4  # slices before the filter may go: the first ones may have had no absent key by chance
_FIRST_BYTE_SECONDS = 2e-9  # to write a byte of a segment, before one was written: a copy in memory
_YOUNG_FULL = 0.9  # share of the young store's entries above which its entries compete for a segment
_SAVE_EVERY = 20.0  # seconds between two times that the hot set is saved: a copy of its bytes
_MISS_MARGIN = 1.1  # a slice may miss so many times the mean


class JoinMemory:
    """The memory of one AdaptiveJoin, and its sizes, which follow what the stream shows.

    Look-up and execution use its parts: `hot` (with the filters), `reader`, `version` (with the index) and `split`.

    Parameters
    ----------
    relation, payload
        The relation, and the columns of a tuple that are kept.
    plan
        How the budget is divided.
    budget
        What the parts are reserved from.
    clock, stats
        What times are taken from, and the counters of the join.
    """

    hot: HotSet
    reader: PageReader

    def __init__(
        self,
        relation: Relation,
        payload: Sequence[Column],
        plan: MemoryPlan,
        budget: MemoryBudget,
        clock: Clock,
        stats: JoinStats,
    ) -> None:
        self.relation = relation
        self.payload = tuple(payload)
        self.plan = plan
        self.clock = clock
        self.stats = stats
        stats.left_out = dict(plan.left_out)
        parts = {
            "index": plan.index,
            "sketch": plan.sketch,
            "read buffer": plan.read,
            "output": plan.output,
            "input": plan.input,
            "process": plan.process,
            "filter": 0,
            "hot set": 0,
            "stream buffer": 0,
        }
        self._reserved = {part: budget.reserve(part, nbytes) for part, nbytes in parts.items()}
        self.version: Version = relation.opened
        self.workload = Workload(rows=FIRST_BATCH_ROWS)
        self.split = first_split(plan, self.workload)
        self.horizon = sketch_horizon(plan)
        self.miss_seconds = relation.disk.seek + relation.disk.transfer  # of a key that is read for: a running mean
        self.byte_seconds = _FIRST_BYTE_SECONDS  # of writing a byte of a segment: a running mean
        self._saved = clock.now()  # when the hot set was last saved, or the join began
        self._slices = 0  # joined so far
        self._next_plan = 1  # slices after which the split is looked at again
        self._agreement = 0  # of the hot set's size, that `split` was made for

    # -- its sizes, as the join asks for them ------------------------------------------------------------------------------

    @property
    def piece_rows(self) -> int:
        """Rows that are looked up together."""
        return self.split.slice_rows

    @property
    def most_rows(self) -> int:
        """Rows that a slice could have were batches larger; or that may wait, where rows wait."""
        return self.split.most_rows

    @property
    def output_rows(self) -> int:
        """Rows of a result batch at most."""
        return self.plan.output_rows

    @property
    def output_bytes(self) -> int:
        """Bytes of a result batch at most, unless it is of one row."""
        return self.plan.output // self.plan.workers

    @property
    def gathered_bytes(self) -> int:
        """Bytes of stream rows that a worker may gather to be joined at once."""
        return self.plan.input // self.plan.workers

    @property
    def popularity(self) -> Sketch:
        """The counts of keys that the hot set is chosen by."""
        return self.hot.sketch

    # -- where the parts lie -----------------------------------------------------------------------------------------------

    def allocate(self) -> None:
        """Have all parts in memory of this process's own."""
        self.version = self.open_index()
        self.reader = PageReader(self.version, self.plan.read)
        sketch, integer = Sketch(self.plan.sketch, self.horizon), self.version.codec.integer
        self.hot = LocalHotSet(self.payload, integer, self.split.young, sketch, self._read_filters)
        self._reserved["filter"].resize(self.plan.filter)
        self.hot.keep_filter(True)
        self._adopt(self.split)

    def open_index(self) -> Version:
        """Return the relation's version with an index of this process's own, as the plan says."""
        return open_index(self.relation.opened, self.plan.index_memory, lambda: self.stats)

    def _read_filters(self) -> list[UInt32s]:
        shards = self.relation.num_shards if self.plan.filter else 0
        return [self.version.filter(shard) for shard in range(shards)]

    def attach(self, hot: HotSet, reader: PageReader, version: Version, *, has_young: bool) -> None:
        """Go on with parts that lie in shared memory, and with the young store that is there, if there is one."""
        self.hot, self.reader, self.version = hot, reader, version
        self._agreement = hot.agreement
        split = self._split_beside(hot.memory)
        if has_young:
            self._take_over(split)
        else:
            self._adopt(split)
        hot.end()

    def detach(self) -> None:
        """Leave the parts in shared memory to another process; what this one holds beside them goes back to the system."""
        del self.hot, self.reader
        self.version = self.relation.opened
        release_freed_memory()

    # -- around a slice ----------------------------------------------------------------------------------------------------

    def expect(self, batch: pa.RecordBatch) -> None:
        """Take note of a batch's size. The first batch decides how the moving bytes are split to begin with."""
        rows, workload = batch.num_rows, self.workload
        if rows:
            workload.stream_bytes = max(1.0, batch.nbytes / rows)
            widest = max((column.nbytes for column in batch.columns), default=0)
            # Of short rows the usual share is what cost models reckon with, and the difference is some bytes a row.
            workload.copies = 1 + widest / batch.nbytes if widest > _LONG * rows else USUAL_COPIES
        if self._slices == 0:
            workload.rows = max(1, rows)
            agreed = self.hot.agreed_bytes
            self._adopt(first_split(self.plan, workload) if agreed is None else self._split_beside(agreed))
        workload.rows += 0.5 * (rows - workload.rows)

    def replan_if_due(self) -> None:
        """Look again at how the moving bytes are split: after every slice at first, then after a few."""
        if self._slices >= self._next_plan:
            self._replan()

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """The hot set and the filters stay as they are while a slice is joined and its results leave."""
        self.hot.begin()
        self._note_filter()
        try:
            yield
        finally:
            self.hot.end()

    def joined_slice(self) -> None:
        """Take note that a slice is joined."""
        self._slices += 1
        self.follow()

    def follow(self) -> None:
        """Where the group agreed on another size of the hot set, keep to it."""
        if self.hot.agreement != self._agreement:
            self._agreement = self.hot.agreement
            self.publish()
            agreed = self.hot.agreed_bytes
            assert agreed is not None
            self._adopt(self._split_beside(agreed))

    # -- the hot set -------------------------------------------------------------------------------------------------------

    def publish(self) -> None:
        """Let fetched tuples compete for the hot set, and make room for more."""
        begun, size = self.clock.now(), self.hot.segment_bytes
        # A hit counted in the sketch's window is expected again in the next window of the same length; half of it, to be careful
        # with a stream that changes.
        if self.hot.publish(self.miss_seconds / 2, self.byte_seconds):
            elapsed = self.clock.now() - begun
            self.byte_seconds += EMA * (elapsed / max(1, size) - self.byte_seconds)
            self.stats.generations = self.hot.generations
            if self.hot.generations >= SEGMENTS and begun - self._saved >= _SAVE_EVERY:
                self._saved = begun
                self.hot.save()

    def publish_unless_room(self, rows: int) -> None:
        """Make room in the young store, unless it takes what so many rows should miss and entries for a good part of it."""
        young = self.hot.young
        expected = rows * min(1.0, _MISS_MARGIN * self.workload.missed) if self.plan.ordered else 0.0
        if young.used > _YOUNG_FULL * young.entries or young.tuples.used + expected > young.tuples.rows:
            self.publish()

    def read_for(self, keys: int, seconds: float) -> None:
        """Take note of the time that reading for so many keys took."""
        self.stats.io_seconds += seconds
        self.miss_seconds += EMA * (seconds / keys - self.miss_seconds)

    # -- parts that move -----------------------------------------------------------------------------------------------------

    @property
    def _moving(self) -> int:
        return self.plan.moving_bytes(filtered=self.hot.filtered)

    def _split_beside(self, hot_bytes: int) -> Split:
        return split_beside(self.plan, self.workload, self._moving, hot_bytes)

    def _replan(self) -> None:
        self._next_plan = self._slices + min(self._slices, _REPLAN)
        moved = self._keep_or_drop_filter()
        split = better_split(self.plan, self.relation.disk, self.workload, self._moving, self.split)
        if split is None and moved:
            split = resized(self.plan, self.workload, self._moving, self.split)
        if split is not None:
            self.publish()
            if self.hot.agree(split.hot_bytes):
                self._adopt(split)
            else:
                self.follow()

    def _keep_or_drop_filter(self) -> bool:
        """A filter that turns nothing away is memory for hot tuples; it comes back with the first absent keys."""
        if self.plan.filter == 0:
            return False
        there, workload = self.hot.filtered, self.workload
        drop = there and workload.seen >= _ENOUGH_SEEN and workload.absent < FEW_ABSENT
        load = not there and workload.absent > 2 * FEW_ABSENT
        return (drop or load) and self._change_filter(load)

    def _change_filter(self, wanted: bool) -> bool:
        if wanted:
            self.publish()
            self.hot.make_room(self.plan.filter)
            self._reserve(filter_bytes=self.plan.filter, hot_bytes=0, stream_bytes=0)
        changed = self.hot.keep_filter(wanted)
        if changed:
            self._note_filter()
        else:
            self._take_over(self.split)
        return changed

    def _note_filter(self) -> None:
        """Say in the counters whether the filter is left out."""
        if self.plan.filter:
            if self.hot.filtered:
                self.stats.left_out.pop("filter", None)
            else:
                self.stats.left_out["filter"] = "hardly a key was absent lately; it comes back when some are"

    def _adopt(self, split: Split) -> None:
        """Change to a split. The young store is empty: its entries have competed."""
        self.hot.resize(split.hot_bytes)
        self.hot.renew_young(split.young)
        self._take_over(split)

    def _take_over(self, split: Split) -> None:
        """Keep to a split that hot set and young store have the sizes of already."""
        self.split = split
        self._reserve(
            filter_bytes=self.plan.filter if self.hot.filtered else 0,
            hot_bytes=split.hot_bytes,
            stream_bytes=self.plan.workers * split.stream_bytes,
        )

    def _reserve(self, *, filter_bytes: int, hot_bytes: int, stream_bytes: int) -> None:
        """Change what is reserved for the parts that move: first what shrinks, so that it is never more than the budget."""
        self._reserved["hot set"].resize(0)
        self._reserved["stream buffer"].resize(0)
        self._reserved["filter"].resize(filter_bytes)
        self._reserved["hot set"].resize(hot_bytes)
        self._reserved["stream buffer"].resize(stream_bytes)

    # -- snapshots -----------------------------------------------------------------------------------------------------------

    def dump(self) -> Arrays:
        """Everything that the join has learned and cached, as arrays."""
        hot, load = self.hot, self.workload
        arrays: dict[str, AnyArray] = {
            "sketch": hot.sketch.dump(),
            "workload": np.array([load.rows, load.distinct, load.missed, load.absent, load.seen]),
            "seconds": np.array([self.miss_seconds, self.byte_seconds, self._slices, self._next_plan]),
            "filter": np.array([len(hot.filters)]),
        }
        for number, segment in enumerate(hot.segments):
            arrays |= dump_store(segment, f"segment{number}")
        return arrays | dump_store(hot.young, "young")

    def load(self, arrays: Arrays) -> None:
        """Go on from what `dump` gave; nothing, where the snapshot is of a join that held the relation whole."""
        if not arrays:
            return
        integer = self.version.codec.integer
        rows, distinct, missed, absent, seen = (float(x) for x in arrays["workload"])
        self.workload = Workload(rows=rows, distinct=distinct, missed=missed, absent=absent, seen=int(seen))
        self.miss_seconds, self.byte_seconds = (float(x) for x in arrays["seconds"][:2])
        self._slices, self._next_plan = (int(x) for x in arrays["seconds"][2:])
        self.hot.sketch.load(arrays["sketch"])
        if self.hot.filters and not int(arrays["filter"][0]):
            self._change_filter(False)
        self._adopt(resized(self.plan, self.workload, self._moving, self.split))
        count = sum(name.startswith("segment") and name.endswith(".first") for name in arrays)
        segments = [load_store(self.payload, integer, arrays, f"segment{n}") for n in range(count)]
        self.hot.replace_segments(segments)
        with suppress(StoreFull):  # another split may have less room; what does not fit is only warmth
            refill(self.hot.young, load_store(self.payload, integer, arrays, "young"))
