"""Sampler: what all samplers of a stream share. A sampler decides which slot an arriving tuple takes; this keeps the books."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from headrace.arrays import AnyArray, Int32s, Int64s, UInt64s
from headrace.errors import BadInput, MemoryRefused, shown
from headrace.kernels.samplers import NEVER
from headrace.memory import MemoryBudget
from headrace.progressive.output import in_schema, plain_schema
from headrace.row_copies import copied_bytes, largest_row, row_sizes
from headrace.sampling.arriving import Arriving, Changes, SamplerState
from headrace.sampling.estimates import GROUPS, SampleTotals, answer, asked_of, row_totals
from headrace.sampling.event_times import START, EventTimes, LiveCounts
from headrace.sampling.held_rows import WASTE, HeldRows
from headrace.sampling.snapshot import Parts, SnapshotReader, write_snapshot
from headrace.sampling.stats import SamplerStats
from headrace.splitmix import draw
from headrace.units import format_size
from headrace.windows import RowWindow, TimeWindow, Window, check_window

_NO_LIMIT = 1 << 62  # bytes of a budget that only counts
_CHUNKS = 32  # a chunk of rows takes at most this part of the budget, so that merging two takes little memory
_LARGEST_CHUNK, _LEAST_CHUNK = (
    1 << 24,
    1 << 16,
)  # bytes that a chunk takes at most without a budget, and may take with any
_SPARE = (
    8  # 1/8 of the memory is left for rows that are longer than the first ones, and for rows that wait to be compacted
)
_INDEX_SPARE = 32  # 1/32 of the memory is never for rows
_LARGEST_ROW = 4  # a tuple takes at most 1/4 of the memory: it would drive too many others out
_SHRINK = 4  # a sample that has outgrown its memory loses 1/4 of its tuples at a time
ROW_BYTES = 4 + 4 + 4  # of a slot, to find its row: its chunk, its row there, and its number in the list of the chunk
ROWS_AT_ONCE = 1 << 16  # rows of a batch that are taken in together: what is computed about them takes a few MiB
MAX_SLOTS = 2**31 - 1  # slots are numbered by 32-bit integers

NO_SLOTS: Int32s = np.empty(0, np.int32)


class Sampler(ABC):
    """A sample of a stream or of its sliding window. Batches go in, the sample can be looked at after any of them.

    A draw depends on the seed and the number of the tuple alone: any division of a stream into batches gives the same sample,
    and so does a stream that goes on from a snapshot. With `memory` the size depends on the first batch, by which it is
    chosen.

    Parameters
    ----------
    size
        The number of tuples of the sample; at most the size of a window by sequence.
    window
        hr.rows(...) or hr.time(...).
    memory
        Bytes that the sample may take, in the place of `size`: the first batch decides how many tuples fit. If later tuples
        are longer, the sample is made smaller.
    seed
        Samples of different seeds are independent.
    stream
        The number of a sample among those with one seed; they are independent too.
    """

    #: Whether the whole stream can be sampled, without a window.
    _windowless: ClassVar[bool] = False

    def __init__(
        self,
        size: int | None = None,
        *,
        window: Window | None = None,
        memory: int | str | None = None,
        seed: int = 0,
        stream: int = 0,
    ) -> None:
        name = type(self).__name__
        if window is not None or not self._windowless:
            check_window(window)
        if (size is None) == (memory is None):
            raise BadInput(
                f"{name} needs its size: give either size=, a number of tuples, or memory=, a number of bytes"
            )
        if size is not None:
            check_size("size", size, window)
        self.window, self.memory, self.seed, self.stream = window, memory, seed, stream
        self.budget = MemoryBudget(_NO_LIMIT if memory is None else memory)
        self.stats = SamplerStats(memory_limit=0 if memory is None else self.budget.limit)
        self.beside = 0
        """bytes that a join holds for each slot in addition, such as its index: the size by memory leaves room for them"""
        self._size = size
        self._arrived = 0
        self._times = EventTimes(window) if isinstance(window, TimeWindow) else None
        self._live: LiveCounts | None = None
        self._rows: HeldRows | None = None
        self._slots_part = self.budget.reserve("slots", 0)
        self._rows_part = self.budget.reserve("rows", 0)

    # -- what a sampler decides ------------------------------------------------------------------------------------------

    @abstractmethod
    def _begin(self, size: int) -> None:
        """Make an empty state for a sample of this size."""

    @abstractmethod
    def _decide(self, arriving: Arriving) -> tuple[Int64s, Int32s]:
        """Take tuples in, one after the other: the slot of each, -1 if it is dropped, and all slots that were freed meanwhile."""

    @abstractmethod
    def _shrink(self, size: int) -> Int32s:
        """Make the sample smaller without making it unfair. Returns the slots that were freed."""

    @property
    @abstractmethod
    def _state(self) -> SamplerState:
        """The state."""

    @abstractmethod
    def members(self) -> Int32s:
        """The slots of the sample, in the order in which their tuples came."""

    @property
    def simple_random(self) -> bool:
        """Whether every set of live tuples is the sample with the same probability."""
        return False

    @property
    def complete(self) -> bool:
        """Whether it is known that all live tuples are in the sample."""
        return False

    def _slots_for(self, size: int) -> int:
        """The number of slots that a sample of this size takes."""
        return size

    # -- what a user calls -----------------------------------------------------------------------------------------------

    @property
    def size(self) -> int | None:
        """The number of tuples of the sample, when so many have come; None if memory decides and nothing has come."""
        return self._size

    def insert(self, batch: pa.RecordBatch) -> None:
        """Take in tuples of the stream."""
        batch = self._accept(batch)
        for at in range(0, batch.num_rows, ROWS_AT_ONCE):
            self._insert(batch.slice(at, ROWS_AT_ONCE))

    def _insert(self, batch: pa.RecordBatch) -> None:
        """Take in tuples that have been accepted."""
        self.stats.tuples_in += batch.num_rows
        if self._times is None:
            self.take_in(batch)
        else:
            rows, untimed, late = self._times.read(batch)
            self.stats.untimed += untimed
            self.stats.late += late
            self.take_in(rows.batch, rows.times, rows.now)

    def sample(self) -> pa.RecordBatch:
        """The sample, in the order in which its tuples came."""
        if self._rows is None:
            raise BadInput("nothing has come yet, so that the columns are not known; insert a batch first")
        return self._rows.rows(self.members())

    def estimate(
        self,
        *,
        count: bool = False,
        sum: str | Sequence[str] | None = None,
        avg: str | Sequence[str] | None = None,
        group_by: str | None = None,
        groups: int = GROUPS,
        confidence: float = 0.95,
    ) -> pa.Table:
        """Estimate what the tuples of the window, or of the stream without one, count, sum up to or average to.

        Estimates of counts and sums are unbiased; intervals are those of simple random sampling without replacement. Nulls
        count for nothing in sums and averages. In a window by time the number of live tuples is known to a thousandth of the
        window.

        Parameters
        ----------
        count, sum, avg
            The quantities: the number of tuples, and columns.
        group_by
            The column whose values make groups; None for all tuples together.
        groups
            The most groups; values beyond are estimated together.
        confidence
            The part of all intervals that is to cover the truth.

        Returns a table with a row for each group and quantity: `quantity`, `estimate`, `low`, `high`, `rows` in the window,
        and rows `kept` in the sample; with a group its value, and `other` for values beyond the most groups.
        """
        asked = asked_of(count, sum, avg, confidence)
        if not self.simple_random:
            raise BadInput(
                f"{self!r} is not a simple random sample of its window, so that nothing is known about its error; use FairWindow"
            )
        totals, group = self.totals(asked.columns, group_by, groups)
        return answer(asked, asked.columns, [totals], group)

    def totals(self, columns: Sequence[str], group_by: str | None, groups: int) -> tuple[SampleTotals, pa.Field | None]:
        """What is known from the sample, for `estimates.answer`; and the field of groups."""
        rows = self.sample()
        now, length = (0, 0) if self._times is None else (self._times.now, self._times.length)
        population = float(rows.num_rows) if self.complete else self.live(now, length)
        return row_totals(rows, population, columns, group_by, groups)

    @property
    def now(self) -> int:
        """The latest time, in a window by time."""
        return START if self._times is None else self._times.now

    def snapshot(self) -> Parts:
        """The state, as record batches for `restore`; they are made as they are read, before the next batch is inserted."""
        if self._rows is None:
            return write_snapshot(repr(self), {})
        state: Any = self._state
        arrays = {f.name: getattr(state, f.name) for f in fields(state)}
        now = START if self._times is None else self._times.now
        s = self.stats
        arrays["_counters"] = np.array([self._size, self._arrived, now, s.tuples_in, s.late, s.untimed], np.int64)
        if self._live is not None:
            arrays["_counts"], arrays["_steps"] = self._live.counts, self._live.steps
        return write_snapshot(repr(self), arrays, self._rows.pieces(self.in_use()))

    def restore(self, snapshot: Iterable[pa.RecordBatch]) -> None:
        """Go on from a snapshot of a sampler that was made in the same way, of this class and with these arguments."""
        for _ in self.restore_rows(SnapshotReader(snapshot)):
            pass

    def restore_rows(self, snapshot: SnapshotReader) -> Iterator[tuple[pa.RecordBatch, Int32s]]:
        """Go on from a snapshot, and give the rows, with their slots, as they are read."""
        snapshot.check(repr(self))
        arrays, rows = snapshot.arrays(), snapshot.rows()
        self._rows = None
        if not arrays:
            return
        first = next(rows)
        size, self._arrived, now, tuples_in, late, untimed = arrays.pop("_counters").tolist()
        self.stats.tuples_in, self.stats.late, self.stats.untimed = tuples_in, late, untimed
        self._make(first.schema, size)
        if self._times is not None:
            self._times.now = now
        if self._live is not None:
            self._live.counts, self._live.steps = arrays.pop("_counts"), arrays.pop("_steps")
        for name, array in arrays.items():
            setattr(self._state, name, array)
        self._reserve_slots()
        used = self.in_use()
        self.rows.grow(self.slots)
        at = 0
        for batch in chain([first], rows):
            slots = used[at : at + batch.num_rows]
            at += batch.num_rows
            self.rows.write(batch, np.arange(slots.size, dtype=np.int32), slots, used.size)
            yield batch, slots
        self._count()

    def __repr__(self) -> str:
        size = f"memory={self.memory!r}" if self.memory is not None else f"size={self._size}"
        return f"{type(self).__name__}({size}, window={self.window!r}, seed={self.seed}, stream={self.stream})"

    # -- what joins call -------------------------------------------------------------------------------------------------

    @property
    def rows(self) -> HeldRows:
        """The rows of slots. A batch must have come."""
        assert self._rows is not None
        return self._rows

    @property
    def slots(self) -> int:
        """The number of slots."""
        return int(self._state.seq.size)

    @property
    def until(self) -> Int64s:
        """The clock of the window at which the tuple of each slot expires."""
        return self._state.until

    @property
    def clock(self) -> int:
        """The number of tuples that have come: the clock of a window by sequence."""
        return self._arrived

    @property
    def length(self) -> int:
        """The length of a window by time, in the unit of the times."""
        assert self._live is not None
        return self._live.length

    def live(self, now: int, length: int) -> float:
        """The number of tuples in the window; in one by time, of those that are less than `length` before now."""
        if self._live is not None:
            return self._live.live(now, length)
        return float(min(self._arrived, self.window.size) if isinstance(self.window, RowWindow) else self._arrived)

    def check_rows(self, batch: pa.RecordBatch) -> None:
        """Refuse a tuple that would drive most others out of the memory."""
        if self.memory is not None:
            check_rows(batch, self.budget.limit, _LARGEST_ROW, self.memory, self.budget.limit)

    def begin(self, schema: pa.Schema, batch: pa.RecordBatch) -> None:
        """Get ready for tuples of a schema, of which a batch shows the width."""
        if self._rows is None:
            self._make(schema, self._size or self._size_for(batch))

    def advance(self, now: int) -> Int32s:
        """Let tuples of a window by time expire. Returns the slots that were freed; they keep their rows until `forget`."""
        return NO_SLOTS

    def forget(self, slots: Int32s) -> None:
        """Forget the rows of slots that hold nothing any more."""
        if slots.size:
            self.rows.forget(slots)

    def take_in(self, batch: pa.RecordBatch, times: Int64s | None = None, now: Int64s | None = None) -> Changes:
        """Take in tuples that are not late, with their times in a window by time."""
        n, first = batch.num_rows, self._arrived
        arriving = self._arriving(n, times, now)
        taken, freed = self._decide(arriving)
        self._arrived += n
        seq = self._state.seq
        rows, slots = self._entered(first, taken)
        gone = distinct(freed[seq[freed] == 0])
        self.forget(gone)
        if self.memory is not None:
            rows, slots, more = self._fit(batch, rows, slots)
            gone = distinct(np.concatenate([gone, more]))
        self.rows.write(batch, rows, slots, self._state.held)
        self._count()
        return Changes(rows, slots, gone)

    # -- helpers ---------------------------------------------------------------------------------------------------------

    def _arriving(self, n: int, times: Int64s | None, now: Int64s | None) -> Arriving:
        """What is decided about so many tuples: by their times, or by their numbers."""
        first, numbers = self._arrived, np.arange(self._arrived + 1, self._arrived + n + 1)
        if times is not None and now is not None:
            assert self._live is not None
            return Arriving(first, now, times + self._live.length, self._live.count(times, now))
        if isinstance(self.window, RowWindow):
            return Arriving(first, numbers, numbers + self.window.size, np.minimum(numbers, self.window.size))
        return Arriving(first, numbers, np.full(n, NEVER), numbers)

    def _draw(self, arriving: Arriving) -> UInt64s:
        """The random words of arriving tuples."""
        return draw(self.seed, self.stream, np.arange(arriving.first, arriving.first + arriving.clock.size))

    def _entered(self, first: int, taken: Int64s) -> tuple[Int32s, Int32s]:
        """The rows of a batch that are held after it, in ascending order, and their slots: those no later row has taken."""
        numbers = np.arange(first + 1, first + taken.size + 1)
        rows = np.flatnonzero((taken >= 0) & (self._state.seq[taken] == numbers))
        return rows.astype(np.int32), taken[rows].astype(np.int32)

    def in_use(self) -> Int32s:
        """The slots in use."""
        return np.flatnonzero(self._state.seq).astype(np.int32)

    def _accept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch in the types that rows are kept in. The first sets the columns of later ones."""
        if not isinstance(batch, pa.RecordBatch):
            raise BadInput(
                f"{type(batch).__name__} is no batch; give a pyarrow.RecordBatch, such as those of Table.to_batches()"
            )
        schema = plain_schema(batch.schema, "the stream") if self._rows is None else self.rows.schema
        batch = in_schema(batch, schema, "the stream")
        self.check_rows(batch)
        self.begin(schema, batch)
        return batch

    def _make(self, schema: pa.Schema, size: int) -> None:
        """Make the state and the place of the rows."""
        if self._times is not None:
            self._times.bind(schema, "the stream")
            self._live = LiveCounts(self._times.length)
        self._begin(size)
        self._size = size
        self._reserve_slots()
        most = _LARGEST_CHUNK if self.memory is None else max(_LEAST_CHUNK, self.budget.limit // _CHUNKS)
        self._rows_part.resize(0)
        self._rows = HeldRows(schema, self.slots, self._rows_part, most)

    def _reserve_slots(self, slots: int | None = None) -> None:
        """Reserve the bytes of so many slots, or of those that there are."""
        self._slots_part.resize((slots or self.slots) * self._state.slot_bytes)

    def _size_for(self, batch: pa.RecordBatch) -> int:
        """The number of tuples like those of a batch that fit the memory."""
        each = copied_bytes(batch) / max(1, batch.num_rows)
        self._begin(1)
        of_slot = self._state.slot_bytes + self.beside
        room = self.budget.limit - self.budget.limit // _SPARE
        low, high = 0, MAX_SLOTS
        if isinstance(self.window, RowWindow):
            high = self.window.size
        while low < high:
            middle = (low + high + 1) // 2
            if self._slots_for(middle) * (WASTE * each + of_slot) <= room:
                low = middle
            else:
                high = middle - 1
        if not low:
            raise MemoryRefused(
                f"memory={shown(self.memory)} is too small for one tuple of {format_size(int(each))} with what a sampler needs"
                f" beside it; give at least {format_size(int(2 * self._slots_for(1) * (WASTE * each + of_slot)))}"
            )
        return low

    def _fit(self, batch: pa.RecordBatch, rows: Int32s, slots: Int32s) -> tuple[Int32s, Int32s, Int32s]:
        """Make the sample smaller until new rows fit the memory. Returns the rows and slots that are left, and slots freed."""
        gone = NO_SLOTS
        while (needed := copied_bytes(batch, rows)) > self._room:
            self.forget(slots)  # what they held before will be overwritten
            self.rows.compact(self._state.held - rows.size)
            if needed <= self._room:
                break
            assert self._size is not None
            smaller = self._size - max(1, self._size // _SHRINK)
            if smaller < 1:
                raise MemoryRefused(
                    f"a tuple of {format_size(needed)} does not fit memory={shown(self.memory)}; give more, or leave such"
                    " tuples out"
                )
            freed = self._shrink(smaller)
            self._size = smaller
            self.forget(freed)
            left = self._state.seq[slots] > 0
            rows, slots, gone = rows[left], slots[left], distinct(np.concatenate([gone, freed]))
        return rows, slots, gone

    @property
    def _room(self) -> int:
        """Bytes that there are for more rows; some are left for an index that grows with the number of rows."""
        return self.budget.left - self.budget.limit // _INDEX_SPARE

    def _grow(self) -> None:
        """Follow the state, whose arrays have got more slots."""
        self._reserve_slots()
        self.rows.grow(self.slots)

    def _count(self) -> None:
        stats, budget = self.stats, self.budget
        stats.held = self._state.held
        stats.memory, stats.memory_peak = budget.held(), budget.peak


def check_size(name: str, size: int, window: Window | None) -> None:
    """Refuse a number of tuples that no sample of a window can have."""
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MAX_SLOTS:
        raise BadInput(f"{name}={shown(size)} is not a number of tuples; give 1 or more")
    if isinstance(window, RowWindow) and size > window.size:
        raise BadInput(
            f"{name}={size} is larger than the window of {window.size} rows; give at most {window.size}, which keeps all of it"
        )


def check_rows(batch: pa.RecordBatch, limit: int, share: int, memory: int | str, whole: int) -> None:
    """Refuse a tuple that takes more than a part of the memory, with the least that would do.

    Parameters
    ----------
    limit, share
        A tuple takes at most limit / share bytes.
    memory, whole
        What the user gave, of which `limit` bytes are a part.
    """
    if largest_row(batch) <= limit // share:
        return
    largest = int(row_sizes(batch).max(initial=0))
    if largest > limit // share:
        least = -(-largest * share * whole // limit >> 20) << 20  # in whole MiB, so that what is shown is enough
        raise MemoryRefused(
            f"a tuple of {format_size(largest)} is too large for memory={shown(memory)}, of which {format_size(limit // share)}"
            f" may be one tuple; give at least {format_size(least)}, or leave such tuples out"
        )


def distinct(slots: Int32s) -> Int32s:
    """Slots in ascending order, each once. np.unique hashes them, which takes ten times as long as sorting."""
    ascending = np.sort(slots)
    return ascending[np.flatnonzero(np.diff(ascending, prepend=np.int32(-1)))]


def resized(array: AnyArray, slots: int) -> AnyArray:
    """A longer copy of an array with an item for each slot; new items are 0."""
    out = np.zeros(slots, array.dtype)
    out[: array.size] = array
    return out
