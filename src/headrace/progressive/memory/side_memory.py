"""One side of a progressive join: the tuples of one stream that are in memory. Written once, used twice. [PQP] §3.1.1"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernels import cells
from headrace.memory import MemoryBudget
from headrace.progressive.grids.partitioning import SIDES, Doubles, Entries, Mask, Partitioning
from headrace.progressive.memory.lazy_arrays import Rooms
from headrace.relation.columns import Longs
from headrace.relation.keys import Hashes, Ints

_SLOT_BYTES = 8 + 4 + 8 + 4 + 4 + 4 + 4 + 4  # cell, partition, arrival, chunk, row, two links, slot in its chunk
_FLUSH_BYTES = 8  # of a slot, while others are flushed: which leave, where chunks have their rows, new numbers
# Of a slot whose results are counted: the counter, and its place in the order of all while some leave
_COUNTED_BYTES = 4 + 16
_CHUNKS = 32  # a chunk is at most such a part of memory
# Arrow's own keeps what is freed for later: three times what is in use, with chunks that come and go
POOL = pa.system_memory_pool()
_SPREAD = 1.5  # times the slots in use: with more ever used, they are numbered anew


@dataclass(slots=True)
class Chunk:
    """Rows that are kept together."""

    rows: pa.RecordBatch
    slots: Ints
    """of its rows when it was made; those that left since belong to another chunk, or to none"""


class Side:
    """The memory part of one side.

        cell --> slots  [cell, partition, arrival, chunk, row]      a row in several cells has a slot in each
                                              |     |
        chunks          [rows as they came    v     v  ] [...]      Arrow, copied from the input; small ones are put together

    Parameters
    ----------
    number
        0 is left, 1 is right.
    schema
        Of its rows.
    partitioning
        What slots compare by.
    budget
        What it reserves from: its tuples and its index.
    most
        Slots that it can ever hold.
    buckets
        Of the index.
    counted
        Whether results are counted by tuple.
    """

    def __init__(
        self,
        number: int,
        schema: pa.Schema,
        partitioning: Partitioning,
        budget: MemoryBudget,
        most: int,
        buckets: int,
        counted: bool,
    ) -> None:
        self.number = number
        self.schema = schema
        self.width = partitioning.width
        self._partitioning = partitioning
        self._most_chunk = max(1 << 16, budget.limit // _CHUNKS)
        self._chunks: dict[int, Chunk] = {}
        self._next_chunk = 0
        self._heads = np.full(buckets, -1, np.int32)
        self._ends = np.array([-1, 0, 0], np.int64)
        self._rooms = Rooms(most)
        self._before, self._after = self._rooms.make(np.int32), self._rooms.make(np.int32)
        self.cell = self._rooms.make(np.uint64)
        self.partition = self._rooms.make(np.int32)
        self.arrived = self._rooms.make(np.int64)
        self._chunk, self._row = self._rooms.make(np.int32), self._rooms.make(np.int32)
        self._values = self._rooms.make(np.float64, self.width)
        self.results = self._rooms.make(np.int32, 1 if counted else 0)
        self.slot_bytes = slot_bytes(partitioning, counted)
        self.latest = -1
        self._index = budget.reserve(f"{SIDES[number]} index", self._heads.nbytes)
        self._tuples = budget.reserve(f"{SIDES[number]} tuples", 0)

    @property
    def used(self) -> int:
        """Slots in use."""
        return int(self._ends[cells.USED])

    @property
    def touched(self) -> int:
        """Slots ever used: no slot has a higher number."""
        return int(self._ends[cells.TOUCHED])

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in memory, on average."""
        rows: int = sum(chunk.rows.num_rows for chunk in self._chunks.values())
        return self._tuples.nbytes // max(1, rows) + 1

    def of(self, partitions: Mask, most: int) -> Ints:
        """The slots in use of some partitions, of which there are so many at most."""
        slots = np.empty(most, np.int32)
        n = cells.in_partitions(self.partition, self.touched, partitions.view(np.uint8), slots)
        return slots[:n]

    def live(self) -> Ints:
        """The slots in use."""
        return self.of(np.ones(self._partitioning.partitions, np.bool_), self.used)

    def more_bytes(self, slots: int) -> int:
        """What the index grows by with so many more slots."""
        return max(0, self.used + slots - self.touched) * self.slot_bytes

    # -- in and out ------------------------------------------------------------------------------------------------------

    def insert(
        self, batch: pa.RecordBatch, entries: Entries, values: Doubles, partitions: Ints, stamp: int | Longs
    ) -> None:
        """Keep rows in their cells, with one stamp or one for each entry. There must be room."""
        n = entries.row.size
        if not n:
            return
        assert self.used + n <= self.cell.size, f"{self.used} slots of {self.cell.size} are in use, and {n} are to come"
        slots = np.empty(n, np.int32)
        self._index.resize(self._index.nbytes + self.more_bytes(n))
        cells.insert(self._heads, self.cell, self._before, self._after, self._ends, entries.cell, slots)
        first = np.ones(n, np.bool_)
        np.not_equal(entries.row[1:], entries.row[:-1], out=first[1:])
        rows = take(batch, entries.row[first])
        self.partition[slots], self.arrived[slots] = partitions, stamp
        self._row[slots] = np.cumsum(first) - 1
        if self.width:
            self._values.reshape(-1, self.width)[slots] = values.reshape(-1, self.width)[entries.row]
        if self.results.size:
            self.results[slots] = 0
        self.latest = int(np.max(stamp))
        self._add(Chunk(rows, slots))
        self._put_together()

    def remove(self, slots: Ints) -> None:
        """Let go of slots; rows that no slot has any more are given up by `compact`."""
        cells.remove(self._heads, self.cell, self._before, self._after, self._ends, slots)
        self.partition[slots] = -1
        self._chunk[slots] = -1

    def clear(self) -> None:
        """Let go of everything, for good."""
        self._chunks.clear()
        self._ends[:] = -1, 0, 0
        self._heads = np.full(1, -1, np.int32)
        self._rooms.give_back(0)
        self._index.release()
        self._tuples.release()

    def compact(self) -> None:
        """Rewrite chunks that lost rows."""
        for name, chunk in list(self._chunks.items()):
            chunk.slots = chunk.slots[self._chunk[chunk.slots] == name]
            rows = self._row[chunk.slots]
            there = np.zeros(chunk.rows.num_rows, np.bool_)
            there[rows] = True
            kept = np.flatnonzero(there)
            if kept.size == chunk.rows.num_rows:
                continue
            before = chunk.rows.nbytes
            if kept.size:
                self._row[chunk.slots] = (np.cumsum(there) - 1)[rows]
                chunk.rows = take(chunk.rows, kept)
            else:
                del self._chunks[name]
            after = chunk.rows.nbytes if kept.size else 0
            self._tuples.resize(self._tuples.nbytes - before + after)
        self._put_together(everywhere=True)
        if self.touched > _SPREAD * (self.used + 64):
            self._renumber()

    def _renumber(self) -> None:
        """Slots in use become the first ones: what lies beyond is given back, so that the other side can have it."""
        live = self.live()
        number = np.full(self.touched, -1, np.int32)
        number[live] = np.arange(live.size)
        for name, chunk in self._chunks.items():
            chunk.slots = number[chunk.slots[self._chunk[chunk.slots] == name]]
        for array in (self.cell, self.partition, self.arrived, self._chunk, self._row, self.results, self._values):
            if array.size:
                of_slots = array.reshape(-1, self.width if array is self._values else 1)
                of_slots[: live.size] = of_slots[live]
        self._heads[:], self._ends[:] = -1, (-1, 0, 0)
        codes = self.cell[: live.size]
        cells.insert(self._heads, self.cell, self._before, self._after, self._ends, codes, live)
        self._rooms.give_back(live.size)
        self._index.resize(self._heads.nbytes + live.size * self.slot_bytes)

    def _add(self, chunk: Chunk) -> None:
        name = self._next_chunk
        self._next_chunk += 1
        self._chunks[name] = chunk
        self._chunk[chunk.slots] = name
        self._tuples.resize(self._tuples.nbytes + chunk.rows.nbytes)

    def _put_together(self, everywhere: bool = False) -> None:
        """Chunks that are small beside their successor join it, so that a row is copied a few times and chunks stay few."""
        names = list(self._chunks)
        at = len(names) - 1
        while at > 0:
            old, new = self._chunks[names[at - 1]], self._chunks[names[at]]
            small = old.rows.nbytes + new.rows.nbytes <= self._most_chunk
            if not small or (old.rows.num_rows >= 2 * new.rows.num_rows and not everywhere):
                if not everywhere:
                    return
                at -= 1
                continue
            slots = new.slots[self._chunk[new.slots] == names[at]]
            older = old.slots[self._chunk[old.slots] == names[at - 1]]
            self._row[slots] += old.rows.num_rows
            self._chunk[slots] = names[at - 1]
            before = old.rows.nbytes + new.rows.nbytes
            del self._chunks[names[at]]
            old.rows = pa.concat_batches([old.rows, new.rows], memory_pool=POOL)
            old.slots = np.concatenate([older, slots])
            self._tuples.resize(self._tuples.nbytes - before + old.rows.nbytes)
            names.pop(at)
            at -= 1

    # -- looking up ------------------------------------------------------------------------------------------------------

    def match(self, wanted: Hashes, rows: Ints, values: Doubles, most: int) -> Iterator[tuple[Ints, Ints]]:
        """Pairs of an entry of the other side and a slot of this one, at most so many at a time."""
        stop = np.array([0, -1], np.int64)
        order = None
        if self.width:
            # Who looks into one cell does so one after the other, while it is in the processor's cache: twice as fast and more.
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

    def by_chunk(self, slots: Ints) -> Longs:
        """The order in which `rows` wants slots."""
        return np.argsort(self._chunk[slots], kind="stable")

    def rows(self, slots: Ints, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The rows of slots that are in the order of `by_chunk`."""
        if not slots.size:
            schema = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
            return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
        chunks = self._chunk[slots]
        first = np.flatnonzero(np.diff(chunks, prepend=-1))
        parts: list[Any] = []
        for name, rows in zip(chunks[first].tolist(), np.split(self._row[slots], first[1:]), strict=True):
            chunk = self._chunks[name].rows
            parts.append(take(chunk if columns is None else chunk.select(list(columns)), rows))
        return parts[0] if len(parts) == 1 else pa.concat_batches(parts, memory_pool=POOL)


def take(batch: pa.RecordBatch, rows: Ints | Longs) -> pa.RecordBatch:
    """Rows of a batch, copied."""
    return pc.take(batch, pa.array(rows), memory_pool=POOL)


def copied(batch: pa.RecordBatch) -> int:
    """Bytes of a copy at most: it may say of each value whether it is there, where the batch does not."""
    return int(batch.nbytes + batch.num_columns * (batch.num_rows // 8 + 64))


def slot_bytes(partitioning: Partitioning, counted: bool) -> int:
    """What a slot takes beside its row."""
    return _SLOT_BYTES + _FLUSH_BYTES + 8 * partitioning.width + (_COUNTED_BYTES if counted else 0)
