"""JoinMemory: what an approximate join holds of both sides, and who is dropped when it is full. [PQP] ch. 8"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from headrace.arrays import AnyArray, Int32s, Int64s, UInt8s, UInt64s
from headrace.kernels import approximate_join as kernels
from headrace.kernels import join_values as fields
from headrace.kernels.approximate_join import FLUSH, KEEP_ALL
from headrace.kernels.count_sketch import COUNTER_BYTES, ROWS
from headrace.kernels.join_values import JoinValues
from headrace.memory import MemoryBudget
from headrace.sampling.dropping import Dropping
from headrace.splitmix import draw

ROW_BYTES = 4 + 4 + 4  # of a slot, to find its row: its chunk, its row there, and its number in the list of the chunk
SLOT_BYTES = 4 * fields.SLOT_FIELDS + ROW_BYTES
ENTRY_BYTES = 4 + 8 + 4 + 4 + 2 * 4 * 4 + 4 * 8 + 2 * 8 + 2 * 4  # of a value, in all arrays of JoinValues together
_LEAST = 64  # slots of a side at the beginning, where their number grows


@dataclass(frozen=True, slots=True)
class ArrivingTuples:
    """Tuples of one side, in the order in which they come."""

    codes: UInt64s
    partitions: Int32s
    words: UInt64s
    """random words"""
    sampled: UInt8s
    """whether each is placed by sampling, and not by priority"""
    taken: Int32s
    """the slot of each, when it has been taken in; -1 if it was dropped"""
    matches: Int64s
    """the number of results of each, when it has been taken in; empty if the results themselves are wanted"""


class JoinMemory:
    """The join values and slots of both sides. It knows codes and slots, and no rows.

    Parameters
    ----------
    dropping
        Who is dropped when memory is full.
    tuples
        The number of tuples of both sides together; 0 for no limit.
    partitions
        The number k of partitions of each side.
    counters
        Bytes for counting the arrivals of values that are not held: half of them for exact counts, and half for the sketch
        that counts once there are more values.
    seed
        The seed of all draws.
    budget
        What memory is reserved from.
    """

    def __init__(
        self, dropping: Dropping, tuples: int, partitions: int, counters: int, seed: int, budget: MemoryBudget
    ) -> None:
        self.dropping, self.tuples, self.seed = dropping, tuples, seed
        self._parts = {name: budget.reserve(name, 0) for name in ("slots", "values", "counters")}
        each = tuples if dropping.pool else tuples // 2
        extra = counters // 2 // ENTRY_BYTES if dropping.counts else 0
        self._width = _power_of_two(counters // 2 // (2 * ROWS * COUNTER_BYTES)) if dropping.counts else 0
        slots, entries = (each, tuples + extra) if tuples else (_LEAST, _LEAST)
        self._extra = extra
        self._reserve(slots, entries)
        numbers = np.zeros(fields.NUMBERS, np.int64)
        numbers[fields.FREE_ENTRY] = -1
        numbers[fields.DOMAIN] = entries
        numbers[fields.COUNTING] = fields.EXACT_COUNTS if dropping.counts else fields.NO_COUNTS
        numbers[fields.PLACING], numbers[fields.SCANNING] = dropping.placing, dropping.scanning
        numbers[fields.LITERAL] = dropping.literal
        for side in (0, 1):
            numbers[fields.SIZE + side] = each
            numbers[fields.SPARE + side] = numbers[fields.LEAST_SPARE + side] = slots
        self.values = JoinValues(
            numbers,
            np.full(entries + 1, -1, np.int32),
            np.zeros(entries + 1, np.uint64),
            np.full(entries + 1, -1, np.int32),
            np.zeros(entries + 1, np.int32),
            np.zeros((2, 4, entries + 1), np.int32),
            np.zeros((4, entries + 1), np.int64),
            np.zeros((2, entries + 1), np.uint64),
            np.zeros((2, entries + 1), np.int32),
            np.full((2, fields.SLOT_FIELDS, slots), -1, np.int32),
            np.zeros((2, fields.PART_FIELDS, partitions), np.int64),
            np.zeros((2, 0), np.uint32),
        )
        order = np.arange(slots, dtype=np.int32)
        self.values.slots[:, fields.PLACE] = order[::-1] if dropping.pool else order

    # -- numbers ---------------------------------------------------------------------------------------------------------

    @property
    def slots(self) -> int:
        """The number of slots of each side."""
        return int(self.values.slots.shape[2])

    @property
    def size(self) -> int:
        """The number of tuples of both sides together that fit."""
        return int(self.values.numbers[fields.SIZE]) * (1 if self.dropping.pool else 2)

    @property
    def sketched(self) -> bool:
        """Whether arrivals are counted in the sketch."""
        return bool(self.values.numbers[fields.COUNTING] == fields.SKETCHED_COUNTS)

    def number(self, which: int) -> list[int]:
        """A number of each side, such as fields.HELD."""
        pair: list[int] = self.values.numbers[which : which + 2].tolist()
        return pair

    def in_use(self, side: int) -> Int32s:
        """The slots of a side that hold a tuple."""
        return np.flatnonzero(self.values.slots[side, fields.OWNER] >= 0).astype(np.int32)

    # -- arrivals --------------------------------------------------------------------------------------------------------

    def take_in(self, side: int, arriving: ArrivingTuples, most: int) -> Iterator[tuple[Int32s, Int32s]]:
        """Take in tuples of a side. Gives pairs of a tuple and a slot of the other side, at most `most` at a time.

        When all are read, arriving.taken[i] is the slot of tuple i, or -1; `entered` says which of them are held.
        """
        if self.dropping.placing == KEEP_ALL:
            self._need(arriving.codes.size)
        numbers, a = self.values.numbers, arriving
        numbers[fields.LEAST_SPARE : fields.LEAST_SPARE + 2] = numbers[fields.SPARE : fields.SPARE + 2]
        flushed = max(1, round(self.dropping.share * int(numbers[fields.SIZE])))
        stop = np.array([0, kernels.BEGIN], np.int64)
        seed = np.uint64(self.seed & ((1 << 64) - 1))
        given = a.codes, a.partitions, a.words, a.sampled, flushed, seed, a.taken, a.matches
        while stop[0] < a.codes.size:
            rows, slots = np.empty(most, np.int32), np.empty(most, np.int32)
            n = kernels.take_in(self.values, side, *given, stop, rows, slots)
            if n:
                yield rows[:n], slots[:n]
            if self.values.numbers[fields.OVERFLOW]:
                self._sketch()

    def entered(self, side: int, taken: Int32s) -> Int32s:
        """The tuples of the last `take_in` that are held, in ascending order."""
        rows = np.flatnonzero(taken >= 0)
        held: Int32s = rows[self.values.slots[side, fields.ROW, taken[rows]] == rows].astype(np.int32)
        return held

    def freed(self, side: int) -> Int32s:
        """The slots of a side on the stack that may have held a tuple before the last `take_in`."""
        low, top = (int(self.values.numbers[which + side]) for which in (fields.LEAST_SPARE, fields.SPARE))
        freed: Int32s = self.values.slots[side, fields.PLACE, low : top if self.dropping.pool else low]
        return freed

    def shrink(self, tuples: int) -> list[Int32s]:
        """Make room for this many tuples of both sides together, and no more. Returns the slots of each side that were freed.

        What is dropped is what would be dropped if memory were full; of a sample, a random part.
        """
        m = self.values
        if self.dropping.pool:
            m.numbers[fields.LEAST_SPARE : fields.LEAST_SPARE + 2] = m.numbers[fields.SPARE : fields.SPARE + 2]
            more = sum(self.number(fields.HELD)) - tuples
            if more > 0:
                seed = np.uint64(self.seed & ((1 << 64) - 1))
                kernels.drop_of_both(m, more, seed, self.dropping.placing == FLUSH)
            m.numbers[fields.SIZE : fields.SIZE + 2] = tuples
            return [self.freed(side) for side in (0, 1)]
        return [self._shrink_side(side, tuples // 2) for side in (0, 1)]

    def _shrink_side(self, side: int, size: int) -> Int32s:
        m = self.values
        held, before = (int(m.numbers[which + side]) for which in (fields.HELD, fields.SIZE))
        place = m.slots[side, fields.PLACE, :before].copy()
        filled, more = place[:held], max(0, held - size)
        if self.dropping.sampled == 0.0:
            dropped = np.empty(more, np.int32)
            kernels.drop_lowest(m, side, more, dropped)
        else:
            dropped = filled[np.argsort(draw(self.seed, ~side, filled.astype(np.int64)))[:more]]
            kernels.drop_slots(m, side, dropped)
        kept = np.concatenate([filled[~np.isin(filled, dropped)], place[held:]])
        m.slots[side, fields.PLACE, :size] = kept[:size]
        m.numbers[fields.SIZE + side], m.numbers[fields.LAID_OUT + side] = size, 0
        return dropped

    # -- snapshots -------------------------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, AnyArray]:
        """The state as arrays of one dimension."""
        return {name: array.reshape(-1) for name, array in self.values._asdict().items()}

    def restore(self, arrays: dict[str, AnyArray]) -> None:
        """Go on with the state of another object that was made in the same way."""
        slots, entries = arrays["slots"].size // (2 * fields.SLOT_FIELDS), arrays["codes"].size
        self._reserve(slots, entries - 1)
        own = self.values._asdict()
        self.values = JoinValues(**{name: arrays[name].reshape(_shape(array)) for name, array in own.items()})

    def release(self) -> None:
        """Give back what was reserved; the object is not used any more."""
        for part in self._parts.values():
            part.release()

    # -- helpers ---------------------------------------------------------------------------------------------------------

    def _reserve(self, slots: int, entries: int) -> None:
        """Reserve the bytes of so many slots of each side, and entries, of which some only count."""
        self._parts["slots"].resize(2 * slots * SLOT_BYTES)
        self._parts["values"].resize((entries - self._extra) * ENTRY_BYTES)
        sketch = 2 * ROWS * COUNTER_BYTES * self._width
        self._parts["counters"].resize(self._extra * ENTRY_BYTES + sketch)

    def _sketch(self) -> None:
        """Count in the sketch from now on: there are more values than the counters have room for."""
        self.values = self.values._replace(sketch=np.zeros((2, ROWS * self._width), np.uint32))
        self.values.numbers[fields.OVERFLOW] = 0
        fields.sketch_counts(self.values)

    def _need(self, more: int) -> None:
        """Double the slots and entries until so many more tuples fit, where nothing is dropped."""
        m = self.values
        held = max(self.number(fields.HELD))
        slots, entries = self.slots, m.codes.size - 1
        while slots < held + more:
            slots *= 2
        while entries < int(m.numbers[fields.TOUCHED]) + more:
            entries *= 2
        if (slots, entries) == (self.slots, m.codes.size - 1):
            return
        self._reserve(slots, entries)
        grown = {
            name: _longer(array, entries + 1)
            for name, array in m._asdict().items()
            if name in ("codes", "part", "chain", "lists", "counts", "tags", "heap")
        }
        longer = _longer(m.slots, slots)
        longer[:, fields.PLACE] = np.arange(slots)
        self.values = m._replace(slots=longer, heads=np.full(entries + 1, -1, np.int32), **grown)
        fields.rehash(self.values)


def _longer(array: AnyArray, length: int) -> AnyArray:
    """A copy of an array with a longer last dimension."""
    out = np.full((*array.shape[:-1], length), -1 if array.dtype == np.int32 else 0, array.dtype)
    out[..., : array.shape[-1]] = array
    return out


def _shape(array: AnyArray) -> tuple[int, ...]:
    """The shape of an array whose last dimension is as long as it needs to be; sketches have two sides."""
    return (*array.shape[:-1], -1)


def _power_of_two(most: int) -> int:
    """The largest power of two that is not above a number."""
    return 1 << (most.bit_length() - 1) if most > 0 else 0
