"""SampleIndex: finds the tuples of a sample by key hash or grid cell, so that no sample is scanned."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headrace.arrays import Float64s, Int32s, UInt64s
from headrace.kernels import cells, sample_index
from headrace.memory import Reservation
from headrace.progressive.grids.partitioning import CellEntries, Partitioning

_ENTRY_BYTES = 4 + 8 + 4 * 4  # a bucket, the code, two neighbours, the owner and the next entry of the owner
_LEAST = 64  # entries that there is room for at the beginning


class SampleIndex:
    """A hash multi-map from cells to slots of a sample. A tuple has an entry in every cell that it belongs to.

    Parameters
    ----------
    partitioning
        Gives the kernel that compares an arriving tuple with entries.
    reservation
        Grows with the index.
    """

    def __init__(self, partitioning: Partitioning, reservation: Reservation) -> None:
        self._partitioning = partitioning
        self._reservation = reservation
        self._first: Int32s = np.empty(0, np.int32)
        self._make(_LEAST)

    @staticmethod
    def entry_bytes(partitioning: Partitioning) -> int:
        """The bytes of an entry."""
        return _ENTRY_BYTES + 8 * partitioning.width

    def insert(self, entries: CellEntries, owners: Int32s, values: Float64s, slots: int) -> None:
        """Add an entry for each of the cells, with its owner and the coordinates of its row. There are `slots` slots in all."""
        n, width = entries.cell.size, self._partitioning.width
        if slots > self._first.size:
            first = np.full(slots, -1, np.int32)
            first[: self._first.size] = self._first
            self._first = first
        self._need(n)
        new = np.empty(n, np.int32)
        cells.insert(self._heads, self._codes, self._before, self._after, self._ends, entries.cell, new)
        self._owner[new] = owners
        if width:
            self._values.reshape(-1, width)[new] = values.reshape(-1, width)[entries.row]
        sample_index.link(self._first, self._sibling, new, owners)

    def remove(self, owners: Int32s) -> None:
        """Remove all entries of slots; a slot without any is left alone."""
        owners = owners[owners < self._first.size]
        gone = np.empty(int(self._ends[cells.USED]), np.int32)
        gone = gone[: sample_index.unlink(self._first, self._sibling, owners, gone)]
        cells.remove(self._heads, self._codes, self._before, self._after, self._ends, gone)
        self._owner[gone] = -1

    def match(self, wanted: UInt64s, rows: Int32s, values: Float64s, most: int) -> Iterator[tuple[Int32s, Int32s]]:
        """Pairs of a position in `wanted` and a slot that may match; at most `most` pairs at a time."""
        stop = np.array([0, -1], np.int64)
        order = None
        if self._partitioning.width:  # probes of one cell follow each other, while it is in the processor's cache
            order = np.argsort(wanted).astype(np.int32)
            wanted, rows = wanted[order], rows[order]
        while stop[0] < wanted.size:
            number, entries = np.empty(most, np.int32), np.empty(most, np.int32)
            index = self._heads, self._codes, self._after, self._values
            n = self._partitioning.match(*index, wanted, rows, values, self._partitioning.limits, stop, number, entries)
            if n:
                yield number[:n] if order is None else order[number[:n]], self._owner[entries[:n]]

    def _make(self, room: int) -> None:
        self._reservation.resize(room * self.entry_bytes(self._partitioning))
        self._heads = np.full(room, -1, np.int32)
        self._ends = np.array([-1, 0, 0], np.int64)
        self._codes = np.empty(room, np.uint64)
        self._before, self._after, self._sibling = (np.empty(room, np.int32) for _ in range(3))
        self._owner = np.full(room, -1, np.int32)
        self._values = np.empty(room * self._partitioning.width)

    def _need(self, more: int) -> None:
        """Double the room until so many more entries fit."""
        room, needed = self._owner.size, int(self._ends[cells.USED]) + more
        if needed <= room:
            return
        while room < needed:
            room *= 2
        used = np.flatnonzero(self._owner >= 0).astype(np.int32)
        owners, codes, width = self._owner[used], self._codes[used], self._partitioning.width
        values = self._values.reshape(-1, width)[used].reshape(-1) if width else self._values
        self._first[:] = -1
        self._make(room)
        rows = np.arange(used.size, dtype=np.int32)
        self.insert(CellEntries(rows, codes), owners, values, self._first.size)
