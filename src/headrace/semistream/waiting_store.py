"""The store of stream tuples that wait: the protocol that drivers rely on, and H with Q, which most joins have. [MESH] §3.1"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from headrace.arrays import Float64s, Int32s, Int64s, UInt8s, UInt64s
from headrace.conditions import Condition
from headrace.relation import Relation
from headrace.semistream.hash_queue import HashQueue
from headrace.semistream.matching import Matching
from headrace.semistream.slot_window import SlotWindow


class WaitingStore(Protocol):
    """Stream tuples that wait, each in a slot: H with Q, or SB of SSIJ."""

    @property
    def capacity(self) -> int:
        """Tuples that it has slots for."""
        ...

    @property
    def used(self) -> int:
        """Tuples in it."""
        ...

    @property
    def number(self) -> Int64s:
        """The number of the tuple in each slot; numbers rise with arrival."""
        ...

    @property
    def matched(self) -> UInt8s:
        """1 for slots whose tuple has met a match."""
        ...

    def columns(self, slots: Int32s) -> pa.RecordBatch:
        """The columns of the tuples in these slots; of tuples that were removed too, until they are dropped."""
        ...

    def waited(self, slots: Int32s, now: float) -> Float64s:
        """Seconds since these tuples came."""
        ...

    def oldest(self, count: int) -> Int32s:
        """Slots of the tuples that came first, in order."""
        ...

    def remove(self, slots: Int32s) -> None:
        """Free slots. The columns of their tuples stay until `drop`."""
        ...

    def drop(self, numbers: Int64s) -> None:
        """Drop the columns of removed tuples with these numbers."""
        ...

    def begin_stream(self, schema: pa.Schema) -> None:
        """Hold tuples of this schema from now on. Nothing waits."""
        ...

    def check_stream(self, schema: pa.Schema) -> None:
        """Refuse a stream without the columns that a condition needs."""
        ...

    def follow(self, relation: Relation) -> None:
        """Compare with tuples of another version of the relation from now on."""
        ...

    @property
    def condition_row_bytes(self) -> float:
        """Memory that a condition takes for a tuple of R in the disk buffer."""
        ...

    def condition_slot_bytes(self, stream_bytes: float) -> float:
        """Memory that a condition takes for a waiting tuple, with stream tuples of so many bytes."""
        ...

    @property
    def condition_pair_bytes(self) -> float:
        """Memory that a condition takes for a pair while it is tested."""
        ...

    @property
    def column_extra_bytes(self) -> float:
        """Memory of a waiting tuple's columns and key, beyond its bytes in Arrow."""
        ...


class HashWindow:
    """H and Q, and the columns of the tuples in them.

        H, Q     hash -> slots, and slots in the order their tuples came
        columns  by slot, as far as they have a fixed width
        matching what a condition compares, by slot

    Parameters
    ----------
    relation, condition, alone
        R, the condition beyond equality if there is one, and whether there is no equality beside it.
    """

    def __init__(self, relation: Relation, condition: Condition | None = None, *, alone: bool = False) -> None:
        self.matching = None if condition is None else Matching(relation, condition, alone, rows=self)
        self.column_extra_bytes = 0.0  # known with the schema of the stream
        self._H = HashQueue(0)
        self._columns: SlotWindow | None = None  # there from the first stream tuple on

    @property
    def capacity(self) -> int:
        """Tuples that it has slots for."""
        return self._H.capacity

    @property
    def used(self) -> int:
        """Tuples in it."""
        return self._H.used

    @property
    def room(self) -> int:
        """Tuples that there is room for."""
        return self._H.room

    @property
    def number(self) -> Int64s:
        """The number of the tuple in each slot; numbers rise with arrival."""
        return self._H.number

    @property
    def matched(self) -> UInt8s:
        """1 for slots whose tuple has met a match."""
        return self._H.matched

    @property
    def held_rows(self) -> int:
        """Tuples whose columns are held."""
        return self._columns.rows if self._columns else 0

    def begin_stream(self, schema: pa.Schema) -> None:
        """Hold tuples of this schema from now on. Nothing waits."""
        self.column_extra_bytes = float(SlotWindow.more_bytes(schema))
        self._columns = SlotWindow(schema, self._H.capacity)

    def check_stream(self, schema: pa.Schema) -> None:
        """Refuse a stream without the columns that a condition needs."""
        if self.matching:
            self.matching.check(schema)

    def follow(self, relation: Relation) -> None:
        """Compare with tuples of another version of the relation from now on."""
        if self.matching:
            self.matching.follow(relation)

    @property
    def condition_row_bytes(self) -> float:
        """Memory that a condition takes for a tuple of R in the disk buffer."""
        return self.matching.tuple_bytes if self.matching else 0.0

    def condition_slot_bytes(self, stream_bytes: float) -> float:
        """Memory that a condition takes for a waiting tuple, with stream tuples of so many bytes."""
        return self.matching.slot_bytes(stream_bytes) if self.matching else 0.0

    @property
    def condition_pair_bytes(self) -> float:
        """Memory that a condition takes for a pair while it is tested."""
        return self.matching.pair_bytes if self.matching else 0.0

    def resize(self, capacity: int) -> None:
        """Have room for so many tuples; those that wait stay."""
        before = self._H.oldest(self._H.used)
        self._H.resize(capacity)
        after = self._H.oldest(self._H.used)
        if self._columns:
            self._columns.resize(self._H.capacity, before, after)
        if self.matching:
            self.matching.resize(self._H.capacity, before, after)

    def enter(self, batch: pa.RecordBatch, hashes: UInt64s, numbers: Int64s, times: Float64s) -> Int32s:
        """Queue tuples that came at these times; returns their slots."""
        assert self._columns is not None, "the first stream tuple makes the columns"
        slots = self._H.insert(hashes, numbers, times)
        self._columns.enter(batch, numbers, slots)
        if self.matching:
            self.matching.enter(slots, numbers)
        return slots

    def columns(self, slots: Int32s) -> pa.RecordBatch:
        """The columns of the tuples in these slots; of tuples that were removed too, until they are dropped."""
        assert self._columns is not None, "the first stream tuple makes the columns"
        return self._columns.take(self._H.number[slots], slots)

    def some_columns(self, names: Sequence[str], slots: Int32s) -> pa.RecordBatch:
        """Some columns of the tuples in these slots."""
        assert self._columns is not None, "the first stream tuple makes the columns"
        return self._columns.take(self._H.number[slots], slots, names)

    def waited(self, slots: Int32s, now: float) -> Float64s:
        """Seconds since these tuples were offered."""
        return self._H.waited(slots, now)

    def hashes(self, slots: Int32s) -> UInt64s:
        """The hashes by which tuples are found."""
        return self._H.hashes(slots)

    def oldest(self, count: int) -> Int32s:
        """Slots of the tuples that came first, in order."""
        return self._H.oldest(count)

    def remove(self, slots: Int32s) -> None:
        """Free slots. The columns of their tuples stay until `drop`."""
        self._H.remove(slots)
        if self.matching:
            self.matching.changed()

    def drop(self, numbers: Int64s) -> None:
        """Drop the columns of removed tuples with these numbers."""
        assert self._columns is not None, "the first stream tuple makes the columns"
        self._columns.leave(numbers)

    def probe(self, hashes: UInt64s, stop: Int64s, number: Int32s, slots: Int32s) -> int:
        """KeyPages of a hash and a slot with that hash, as many as the output takes; see kernels.multimap.probe."""
        return self._H.probe(hashes, stop, number, slots)
