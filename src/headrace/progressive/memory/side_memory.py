"""SideMemory: the tuples of one stream of a progressive join that are in memory, with their index. [PQP] §3.1.1"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from headrace.arrays import Bools, Float64s, Int32s, Int64s, UInt64s
from headrace.kernels import cells
from headrace.memory import MemoryBudget
from headrace.progressive.grids.partitioning import SIDES, CellEntries, Partitioning
from headrace.progressive.memory.lazy_arrays import LazyArrays
from headrace.progressive.memory.row_chunks import RowChunks
from headrace.relation.columns import address

_SLOT_BYTES = 8 + 4 + 8 + 4 + 4 + 4 + 4 + 4  # cell, partition, arrival, chunk, row, two links, slot in its chunk
_FLUSH_BYTES = 8  # of a slot during a flush: whether it leaves, where chunks have their rows, its new number
# Bytes of a slot whose results are counted: the counter, and its place when all are sorted by a flush
_COUNTED_BYTES = 4 + 16
_CHUNKS = 32  # a chunk of rows takes at most this part of the budget, so that rewriting one takes little memory
_LEAST_CHUNK = 1 << 16  # bytes that a chunk may take however small the budget is
_SPREAD = 1.5  # slots are renumbered when more than this times those in use were ever used


class SideMemory:
    """The memory of one side: an index from cells to slots, and the rows that slots point to.

        cell --> slots  [cell, partition, arrival, chunk, row]      a row in several cells has a slot in each
                                              |     |
        chunks          [rows as they came    v     v  ] [...]      Arrow, copied from the input; small ones are merged

    The left and the right side are two objects of this class.

    Parameters
    ----------
    number
        0 is left, 1 is right; of several streams their number.
    schema
        The schema of its rows.
    partitioning
        Gives the kernel that compares an arriving tuple with slots.
    budget
        The budget that tuples and index are reserved from.
    slots
        The number of slots that it can ever hold.
    buckets
        The number of hash buckets of the index.
    counted
        Whether it counts the results of each tuple.
    name
        What its parts of the budget are called by; left or right if None.
    """

    def __init__(
        self,
        *,
        number: int,
        schema: pa.Schema,
        partitioning: Partitioning,
        budget: MemoryBudget,
        slots: int,
        buckets: int,
        counted: bool,
        name: str | None = None,
    ) -> None:
        self.number = number
        name = name or SIDES[number]
        self.schema = schema
        self.width = partitioning.width
        self._partitioning = partitioning
        self._heads = np.full(buckets, -1, np.int32)
        self._ends = np.array([-1, 0, 0], np.int64)
        self._arrays = arrays = LazyArrays(slots)
        self._before, self._after = arrays.allocate(np.int32), arrays.allocate(np.int32)
        self.cell = arrays.allocate(np.uint64)
        self.partition = arrays.allocate(np.int32)
        self.arrived = arrays.allocate(np.int64)
        self._values = arrays.allocate(np.float64, self.width)
        self.results = arrays.allocate(np.int32, 1 if counted else 0)
        self.slot_bytes = slot_bytes(partitioning, counted)
        self.latest = -1
        """the stamp of the latest arrival; -1 if there was none"""
        self._index = budget.reserve(f"{name} index", self._heads.nbytes)
        tuples = budget.reserve(f"{name} tuples", 0)
        self._chunks = RowChunks(schema, arrays, tuples, max(_LEAST_CHUNK, budget.limit // _CHUNKS))

    @property
    def used(self) -> int:
        """The number of slots in use."""
        return int(self._ends[cells.USED])

    @property
    def touched(self) -> int:
        """The number of slots that were ever used; all slots in use have lower numbers."""
        return int(self._ends[cells.TOUCHED])

    @property
    def row_bytes(self) -> int:
        """The bytes of a row in memory, on average."""
        return self._chunks.row_bytes

    def in_partitions(self, partitions: Bools, most: int) -> Int32s:
        """The slots in use of the marked partitions, of which there are at most `most`."""
        slots = np.empty(most, np.int32)
        n = cells.in_partitions(self.partition, self.touched, partitions.view(np.uint8), slots)
        return slots[:n]

    def live(self) -> Int32s:
        """The slots in use."""
        return self.in_partitions(np.ones(self._partitioning.partitions, np.bool_), self.used)

    def latest_by_partition(self, slots_at_once: int) -> Int64s:
        """The latest arrival in each partition, -1 where none is in memory; found in steps, since copies take memory."""
        latest = np.full(self._partitioning.partitions, -1, np.int64)
        for first in range(0, self.touched, slots_at_once):
            some = slice(first, min(self.touched, first + slots_at_once))
            used = self.partition[some] >= 0
            np.maximum.at(latest, self.partition[some][used], self.arrived[some][used])
        return latest

    def more_bytes(self, slots: int) -> int:
        """The bytes that the index grows by with this many more slots."""
        return max(0, self.used + slots - self.touched) * self.slot_bytes

    # -- changes ---------------------------------------------------------------------------------------------------------

    def insert(
        self, batch: pa.RecordBatch, entries: CellEntries, values: Float64s, partitions: Int32s, stamp: int | Int64s
    ) -> None:
        """Put rows of a batch into their cells, with one stamp of arrival or one for each entry. There must be room."""
        n = entries.row.size
        if not n:
            return
        assert self.used + n <= self.cell.size, f"{self.used} slots of {self.cell.size} are in use, and {n} are to come"
        slots = np.empty(n, np.int32)
        self._index.resize(self._index.nbytes + self.more_bytes(n))
        cells.insert(self._heads, self.cell, self._before, self._after, self._ends, entries.cell, slots)
        self.partition[slots], self.arrived[slots] = partitions, stamp
        if self.width:
            self._values.reshape(-1, self.width)[slots] = values.reshape(-1, self.width)[entries.row]
        if self.results.size:
            self.results[slots] = 0
        self.latest = int(np.max(stamp))
        self._chunks.insert(batch, entries.row, slots)

    def remove(self, slots: Int32s) -> None:
        """Take slots out of the index. `compact` frees the rows that no slot points to any more."""
        cells.remove(self._heads, self.cell, self._before, self._after, self._ends, slots)
        self.partition[slots] = -1
        self._chunks.remove(slots)

    def clear(self) -> None:
        """Free everything, for good."""
        self._chunks.clear()
        self._ends[:] = -1, 0, 0
        self._heads = np.full(1, -1, np.int32)
        self._arrays.release_beyond(0)
        self._index.release()

    def compact(self) -> None:
        """Free the rows of removed slots, and slots that were used and are not any more."""
        self._chunks.compact()
        if self.touched > _SPREAD * (self.used + 64):
            self._renumber()

    def _renumber(self) -> None:
        """Move the slots in use to the front. Memory beyond them goes back to the system, so that the other side can have it."""
        live = self.live()
        number = np.full(self.touched, -1, np.int32)
        number[live] = np.arange(live.size)
        self._chunks.renumber(live, number)
        for array in (self.cell, self.partition, self.arrived, self.results, self._values):
            if array.size:
                of_slots = array.reshape(-1, self.width if array is self._values else 1)
                of_slots[: live.size] = of_slots[live]
        self._heads[:], self._ends[:] = -1, (-1, 0, 0)
        codes = self.cell[: live.size]
        cells.insert(self._heads, self.cell, self._before, self._after, self._ends, codes, live)
        self._arrays.release_beyond(live.size)
        self._index.resize(self._heads.nbytes + live.size * self.slot_bytes)

    # -- reading ---------------------------------------------------------------------------------------------------------

    def match(self, wanted: UInt64s, rows: Int32s, values: Float64s, most: int) -> Iterator[tuple[Int32s, Int32s]]:
        """Pairs of an entry of the other side, by its position in `wanted`, and a slot; at most `most` pairs at a time."""
        stop = np.array([0, -1], np.int64)
        order = None
        if self.width:
            # Probes of one cell follow each other, while the cell is in the processor's cache: more than twice as fast.
            order = np.argsort(wanted).astype(np.int32)
            wanted, rows = wanted[order], rows[order]
        while stop[0] < wanted.size:
            number, slots = np.empty(most, np.int32), np.empty(most, np.int32)
            n = self._partitioning.match(
                self._heads,
                self.cell,
                self._after,
                self._values,
                wanted,
                rows,
                values,
                self._partitioning.limits,
                stop,
                number,
                slots,
            )
            if n:
                yield number[:n] if order is None else order[number[:n]], slots[:n]

    @property
    def index(self) -> tuple[int, int, int, int]:
        """The addresses of heads, cells and links of the index, and the number of its buckets; see kernels.cells."""
        return address(self._heads), address(self.cell), address(self._after), self._heads.size

    def by_chunk(self, slots: Int32s) -> Int64s:
        """The order in which `rows` needs slots."""
        return self._chunks.by_chunk(slots)

    def pairs_that_fit(self, batch: pa.RecordBatch, rows: Int32s, slots: Int32s, room: int) -> Iterator[slice]:
        """Divide pairs of a row of a batch and a slot, so that their rows fit `room` bytes; see RowChunks."""
        return self._chunks.pairs_that_fit(batch, rows, slots, room)

    def rows(self, slots: Int32s, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The rows of slots, or some of their columns. The slots must be in the order of `by_chunk`."""
        return self._chunks.rows(slots, columns)


def slot_bytes(partitioning: Partitioning, counted: bool) -> int:
    """The bytes that a slot takes beside its row."""
    return _SLOT_BYTES + _FLUSH_BYTES + 8 * partitioning.width + (_COUNTED_BYTES if counted else 0)
