"""Tuples of a relation held in memory as columns, appended from pages or from other stores. (DESIGN D5)"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import AnyArray, Int32s, Int64s, UInt8s, UInt32s
from headrace.kernels.pages import COLUMN_FIELDS, DATA_USED, gather_columns
from headrace.kernels.store import take_fixed, take_sizes, take_valid, take_variable
from headrace.relation.columns import NO_BYTES, NO_LONGS, Buffers, Column, address, to_arrow

_OFFSET_BYTES = 4  # of a string in an Arrow array
LARGEST_ARRAY = (1 << 31) - 1  # bytes of an Arrow string array, whose offsets are 32-bit
_LINE = 64  # bytes of a cache line, which arrays are aligned to


class StoreFull(Exception):
    """Raised when a store has no room for the tuples; the caller makes room or takes fewer."""


class ArrayAllocator:
    """Allocates the arrays of a store: from NumPy, or one after the other from a given piece of memory."""

    def __init__(self, memory: UInt8s | None = None) -> None:
        self._memory = memory
        self._at = 0

    def take(self, size: int, type_: Any) -> AnyArray:
        """Allocate an array of `size` values, uninitialised."""
        if self._memory is None:
            return np.empty(size, type_)
        nbytes = size * np.dtype(type_).itemsize
        if self._at + nbytes > self._memory.size:
            raise StoreFull
        out: AnyArray = self._memory[self._at : self._at + nbytes].view(type_)
        self._at += (nbytes + _LINE - 1) & -_LINE
        return out

    @staticmethod
    def slack(arrays: int) -> int:
        """Return the bytes that the alignment of so many arrays may waste in a given piece of memory."""
        return arrays * _LINE


class TupleStore:
    """A store of fixed capacity for tuples of some columns.

        column 0:  values  [v v v v . . . .]            rows      [used | free]
        column 1:  offsets [0 3 7 9 9 . . . .]          data      [used | free]
                   valid   [1 1 0 1 . . . .]            where the column may be null

    Parameters
    ----------
    columns
        The columns that are kept of a tuple.
    rows
        The capacity in tuples.
    data
        The capacity in bytes of each column of variable width, by name.
    room
        Allocates the arrays.
    """

    def __init__(
        self, columns: Sequence[Column], rows: int, data: dict[str, int], room: ArrayAllocator | None = None
    ) -> None:
        room = room or ArrayAllocator()
        self.columns = tuple(columns)
        self.rows = rows
        self.used = 0
        self._values: list[UInt8s] = []
        self._offsets: list[UInt32s] = []
        self._valid: list[UInt8s] = []
        for column in self.columns:
            size = rows * column.width if column.width else data[column.name]
            self._values.append(room.take(size, np.uint8))
            offsets = room.take(rows + 1 if column.width == 0 else 0, np.uint32)
            offsets[:1] = 0  # the others are written with the tuples
            self._offsets.append(offsets)
            self._valid.append(room.take(rows if column.nullable else 0, np.uint8))
        # What the kernel that copies from pages wants to know of each column; it keeps account of the bytes in use, too.
        self._layout = np.zeros((len(self.columns), COLUMN_FIELDS), np.int64)
        for i, column in enumerate(self.columns):
            arrays = self._values[i], self._valid[i], self._offsets[i]
            addresses = [address(array) if array.size else 0 for array in arrays]
            self._layout[i] = (column.position, column.width, *addresses, self._values[i].size, 0, 0)
        self._data_used = self._layout[:, DATA_USED]

    @staticmethod
    def size(columns: Sequence[Column], rows: int, data: dict[str, int]) -> int:
        """Return the bytes that a store of this capacity takes."""
        total = 0
        for column in columns:
            total += rows * column.width if column.width else data[column.name] + 4 * (rows + 1)
            total += rows if column.nullable else 0
        return total

    @property
    def nbytes(self) -> int:
        arrays: tuple[AnyArray, ...] = (*self._values, *self._offsets, *self._valid)
        return sum(array.nbytes for array in arrays)

    @property
    def used_bytes(self) -> int:
        return self.size(
            self.columns,
            self.used,
            {c.name: int(self._data_used[i]) for i, c in enumerate(self.columns) if c.width == 0},
        )

    def clear(self) -> None:
        self.used = 0
        self._data_used[:] = 0

    def room_for_data(self) -> list[int]:
        """Return the capacity in bytes of each column of variable width; 0 for the others."""
        return [0 if c.width else self._values[i].size for i, c in enumerate(self.columns)]

    def fill(self, i: int, values: UInt8s, offsets: Int64s, valid: UInt8s) -> None:
        """Fill column i with values that `buffers` returned; the caller sets `used` after the last column."""
        self._values[i][: values.size] = values
        self._valid[i][: valid.size] = valid
        if offsets.size:
            self._offsets[i][: offsets.size] = offsets
            self._data_used[i] = int(offsets[-1])

    def mark(self) -> tuple[int, list[int]]:
        """Return how far the store is filled, for `rewind`."""
        return self.used, self._data_used.tolist()

    def rewind(self, mark: tuple[int, list[int]]) -> None:
        """Drop the tuples that were appended since `mark`."""
        self.used, self._data_used[:] = mark[0], mark[1]

    def append_from_pages(self, at: Int64s, row: Int32s) -> int:
        """Copy the tuples at (page address, row); returns the position of the first. Raises `StoreFull` and copies none."""
        n = at.size
        start = self.used
        if start + n > self.rows:
            raise StoreFull
        if gather_columns(at, row, self._layout, start) < 0:
            raise StoreFull
        self.used += n
        return start

    def append_from(self, sources: TupleSources, src: Int32s, pos: Int32s) -> int:
        """Copy tuple pos[i] of store src[i]; returns the position of the first. Raises `StoreFull` and copies none."""
        n = src.size
        start = self.used
        if start + n > self.rows:
            raise StoreFull
        gathered = []
        for i, column in enumerate(self.columns):
            offsets, size = NO_LONGS, 0
            if column.width == 0:
                offsets, size = sources.sizes(i, src, pos)
                if self._data_used[i] + size > self._values[i].size:
                    raise StoreFull
            gathered.append((offsets, size))
        for i, (column, (offsets, size)) in enumerate(zip(self.columns, gathered, strict=True)):
            values = self._values[i]
            if column.nullable:
                take_valid(sources.valid[i], src, pos, self._valid[i][start : start + n])
            if column.width:
                take_fixed(sources.values[i], src, pos, column.width, address(values) + start * column.width)
            else:
                used = self._data_used[i]
                take_variable(sources.offsets[i], sources.values[i], src, pos, offsets, address(values) + used)
                self._offsets[i][start : start + n + 1] = offsets + used
                self._data_used[i] = used + size
        self.used += n
        return start

    def sizes(self, first: Int32s, many: Int32s) -> Int64s:
        """Return the bytes of each run of `many` tuples from tuple `first` on."""
        fixed = sum((c.width or 4) + (1 if c.nullable else 0) for c in self.columns)
        out = np.multiply(many, fixed, dtype=np.int64)
        for i, column in enumerate(self.columns):
            if column.width == 0:
                offsets = self._offsets[i]
                out += offsets[first + many]
                out -= offsets[first]
        return out

    def buffers(self, i: int) -> Buffers:
        """Return the values of column i, without a copy."""
        column, n = self.columns[i], self.used
        valid = self._valid[i][:n] if column.nullable else NO_BYTES
        if column.width:
            return Buffers(self._values[i][: n * column.width], NO_LONGS, valid)
        offsets = self._offsets[i][: n + 1].astype(np.int64)
        return Buffers(self._values[i][: self._data_used[i]], offsets, valid)

    def array(self, i: int) -> pa.Array:
        """Return column i as Arrow without a copy: only for a store that is not reused."""
        return to_arrow(self.columns[i].type, self.used, self.buffers(i))


class TupleSources:
    """The addresses of the columns of several stores, so that one call gathers result tuples from all of them."""

    def __init__(self, stores: Sequence[TupleStore]) -> None:
        self._stores = tuple(stores)  # keeps the memory behind the addresses alive
        columns = stores[0].columns if stores else ()
        self.columns = columns
        self.values = [self._addresses([s._values[i] for s in stores]) for i in range(len(columns))]
        self.offsets = [self._addresses([s._offsets[i] for s in stores]) for i in range(len(columns))]
        self.valid = [self._addresses([s._valid[i] for s in stores]) for i in range(len(columns))]

    @staticmethod
    def _addresses(arrays: Sequence[AnyArray]) -> Int64s:
        return np.array([address(a) if a.size else 0 for a in arrays], np.int64)

    def sizes(self, i: int, src: Int32s, pos: Int32s) -> tuple[Int64s, int]:
        """Return the offsets and the total size that the gathered values of variable column i will have."""
        offsets = np.empty(src.size + 1, np.int64)
        return offsets, int(take_sizes(self.offsets[i], src, pos, offsets))

    def add_sizes(self, columns: int, src: Int32s, pos: Int32s, sizes: Int64s) -> None:
        """Add the bytes that the first so many columns of each tuple will take once they are gathered."""
        for i, column in enumerate(self.columns[:columns]):
            if column.width:
                sizes += column.width
            else:
                sizes += np.diff(self.sizes(i, src, pos)[0]) + _OFFSET_BYTES

    def gather(self, i: int, src: Int32s, pos: Int32s, *, outer: bool, room: int | None = None) -> pa.Array:
        """Gather column i of tuple pos[k] of store src[k] as Arrow. With `outer`, a src of -1 gives a null.

        Raises `StoreFull` if the values take more than `room` bytes, or than an array can have.
        """
        column, n = self.columns[i], src.size
        valid = NO_BYTES
        if column.nullable or outer:
            valid = np.empty(n, np.uint8)
            if take_valid(self.valid[i], src, pos, valid) == 0:
                valid = NO_BYTES
        most = LARGEST_ARRAY if room is None else min(room, LARGEST_ARRAY)
        if column.width:
            if room is not None and n * column.width > room:
                raise StoreFull
            values = np.empty(n * column.width, np.uint8)
            take_fixed(self.values[i], src, pos, column.width, address(values))
            return to_arrow(column.type, n, Buffers(values, NO_LONGS, valid))
        offsets, size = self.sizes(i, src, pos)
        if size > most:
            raise StoreFull
        values = np.empty(size, np.uint8)
        take_variable(self.offsets[i], self.values[i], src, pos, offsets, address(values))
        return to_arrow(column.type, n, Buffers(values, offsets, valid))
