"""The columns of the stream tuples that wait, in the record batches that they came in.

A tuple has a number that counts up with arrival. Batches are put together when there are many, and copied without their dead
tuples when an eighth of a batch has left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from headrace.arrays import Int32s, Int64s
from headrace.kernels.store import locate, take_fixed, take_sizes, take_variable, take_wide
from headrace.memory import release_freed_memory
from headrace.relation.columns import NO_BYTES, Buffers, address, to_arrow
from headrace.row_copies import POOL, take

_CHUNKS = 32  # batches held before two of them are put together
_FULL = 7 / 8  # share of a batch that is alive, below which its dead tuples are dropped
_GIVE_BACK = 1 << 19  # bytes that are freed at least before the allocator is asked to return them
_WHOLE = 2  # a slice may keep alive so many times its own size


@dataclass
class _Chunk:
    batch: pa.RecordBatch
    numbers: Int64s  # of its rows, ascending
    dead: list[Int64s] = field(default_factory=list)  # numbers of rows that left and were not dropped yet

    @property
    def alive(self) -> int:
        return self.numbers.size - sum(some.size for some in self.dead)

    def drop_dead(self) -> None:
        there = np.flatnonzero(np.isin(self.numbers, np.concatenate(self.dead), assume_unique=True, invert=True))
        self.batch, self.numbers, self.dead = take(self.batch, there), self.numbers[there], []


class _Columns:
    """Where the values of some batches lie: tuples are gathered from all of them at once, column by column."""

    def __init__(self, chunks: list[_Chunk]) -> None:
        self._batches = [chunk.batch for chunk in chunks]
        self._numbers = [chunk.numbers for chunk in chunks]  # keeps the memory behind the addresses alive
        self.firsts = np.array([numbers[0] for numbers in self._numbers])
        self.sizes = np.array([numbers.size for numbers in self._numbers])
        self.numbers = np.array([address(numbers) for numbers in self._numbers])
        self._addresses = [self._of(i) for i in range(self._batches[0].num_columns)]

    def _of(self, i: int) -> tuple[Int64s, Int64s] | None:
        """Addresses of a column's buffers in every batch; None where it has nulls, or is not of plain values."""
        parts = [batch.column(i) for batch in self._batches]
        type_ = parts[0].type
        if _width(type_) is None or any(part.null_count for part in parts):
            return None
        width = _width(type_)
        values = [part.buffers()[1].address + part.offset * (width or 4) for part in parts]
        texts = [] if width else [b.address if (b := part.buffers()[2]) else 0 for part in parts]
        return np.array(values, np.int64), np.array(texts, np.int64)

    def take(self, src: Int32s, pos: Int32s, wanted: Sequence[int] | None) -> pa.RecordBatch:
        """Rows pos[i] of batches src[i]; all columns, or some by their places."""
        schema, n = self._batches[0].schema, src.size
        places = range(len(schema)) if wanted is None else wanted
        schema = schema if wanted is None else pa.schema([schema.field(i) for i in wanted])
        arrays: list[pa.Array | None] = []
        for column, addresses in zip(schema, (self._addresses[i] for i in places), strict=True):
            width = _width(column.type)
            if addresses is None:
                arrays.append(None)
            elif width:
                values = np.empty(n * width, np.uint8)
                (take_fixed if width in (1, 2, 4, 8, 16) else take_wide)(addresses[0], src, pos, width, address(values))
                arrays.append(pa.Array.from_buffers(column.type, n, [None, pa.py_buffer(values)], null_count=0))
            else:
                offsets = np.empty(n + 1, np.int64)
                size = int(take_sizes(addresses[0], src, pos, offsets))
                values = np.empty(size, np.uint8)
                take_variable(addresses[0], addresses[1], src, pos, offsets, address(values))
                arrays.append(to_arrow(column.type, n, Buffers(values, offsets, NO_BYTES)))
        others = [i for i, array in enumerate(arrays) if array is None]
        if others:
            for i, array in zip(others, self._others([places[i] for i in others], src, pos), strict=True):
                arrays[i] = array
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _others(self, columns: list[int], src: Int32s, pos: Int32s) -> list[pa.Array]:
        """Gather tuples by Arrow, batch by batch: lists, dictionaries and columns with nulls, which no kernel takes."""
        order = np.argsort(src, kind="stable")
        begins = np.searchsorted(src[order], np.arange(len(self._batches) + 1))
        parts = [
            take(batch.select(columns), pos[order[a:b]])
            for batch, (a, b) in zip(self._batches, pairwise(begins.tolist()), strict=True)
            if b > a
        ]
        whole = pa.concat_batches(parts) if parts else self._batches[0].select(columns).slice(0, 0)
        back = np.empty(order.size, np.int64)
        back[order] = np.arange(order.size)
        return list(take(whole, back).columns)


def _width(type_: pa.DataType) -> int | None:
    """Bytes of a value, 0 where that differs, None for types that are left to Arrow."""
    t = pa.types
    if t.is_string(type_) or t.is_binary(type_):
        return 0
    plain = t.is_integer(type_) or t.is_floating(type_) or t.is_decimal(type_) or t.is_temporal(type_)
    return (type_.bit_width // 8 or None) if plain or t.is_fixed_size_binary(type_) else None


class StreamWindow:
    """Columns of the stream tuples that wait, found by number. It takes what waits and no more: SSIJ lends the rest to CR."""

    def __init__(self) -> None:
        self._chunks: list[_Chunk] = []
        self._columns: _Columns | None = None  # of the chunks as they are
        self._let_go = 0  # bytes of batches that were copied, since the allocator was last asked to give such back

    @property
    def rows(self) -> int:
        """Tuples held, with those that left and were not dropped yet: an eighth at most."""
        return sum(chunk.numbers.size for chunk in self._chunks)

    def enter(self, batch: pa.RecordBatch, numbers: Int64s, slots: Int32s) -> None:
        """Hold tuples with these numbers, which are higher than all before."""
        self._columns = None
        if batch.num_rows:
            if batch.get_total_buffer_size() > _WHOLE * batch.nbytes:
                batch = take(batch, np.arange(batch.num_rows))  # a slice would keep all of a batch alive
            self._chunks.append(_Chunk(batch, numbers))
        if len(self._chunks) > _CHUNKS:
            self._put_together()

    def resize(self, capacity: int, before: Int32s, after: Int32s) -> None:
        """Tuples have other slots now, which it knows nothing of."""

    def take(self, numbers: Int64s, slots: Int32s, wanted: Sequence[int] | None = None) -> pa.RecordBatch:
        """The tuples with these numbers, in this order; all of their columns, or some by their places."""
        src, pos = np.empty(numbers.size, np.int32), np.empty(numbers.size, np.int32)
        columns = self._columns = self._columns or _Columns(self._chunks)
        locate(columns.firsts, columns.numbers, columns.sizes, np.ascontiguousarray(numbers), src, pos)
        return columns.take(src, pos, wanted)

    def leave(self, numbers: Int64s) -> None:
        """Some tuples left: a batch that lost an eighth is copied without its dead. Most leave with the batch they came in."""
        self._columns = None
        rising = np.sort(numbers)
        firsts = np.array([chunk.numbers[0] for chunk in self._chunks])
        begins = np.append(np.searchsorted(rising, firsts), rising.size)
        for chunk, a, b in zip(self._chunks, begins[:-1], begins[1:], strict=True):
            if b > a:
                chunk.dead.append(rising[a:b])
        sparse = [chunk for chunk in self._chunks if chunk.alive < _FULL * chunk.numbers.size]
        self._chunks = [chunk for chunk in self._chunks if chunk.alive]
        while sparse:
            chunk = sparse.pop()
            self._let_go += chunk.batch.nbytes
            if chunk.alive:
                chunk.drop_dead()
            del chunk
            self._give_back()

    def keep(self, alive: Int64s) -> None:
        """All tuples left but those with these numbers, ascending."""
        self._columns = None
        some = [np.isin(chunk.numbers, alive, assume_unique=True) for chunk in self._chunks]
        self._chunks = [
            _Chunk(take(chunk.batch, np.flatnonzero(stays)), chunk.numbers[stays])
            for chunk, stays in zip(self._chunks, some, strict=True)
            if stays.any()
        ]

    def _put_together(self) -> None:
        """The neighbours that are smallest together become one: each tuple is copied a few times at most."""
        sizes = np.array([chunk.numbers.size for chunk in self._chunks])
        i = int(np.argmin(sizes[1:] + sizes[:-1]))
        a, b = self._chunks[i : i + 2]
        batch = pa.concat_batches([a.batch, b.batch], memory_pool=POOL)
        self._chunks[i : i + 2] = [_Chunk(batch, np.concatenate([a.numbers, b.numbers]), a.dead + b.dead)]
        self._let_go += batch.nbytes
        del a, b
        self._give_back()

    def _give_back(self) -> None:
        """What was let go in pieces of other sizes than what comes stays with the allocator, and would be memory on top."""
        if self._let_go > max(_GIVE_BACK, sum(chunk.batch.nbytes for chunk in self._chunks) // 16):
            self._let_go = 0
            release_freed_memory()
