"""Merger: keeps the segments of each partition few, as a log-structured merge tree does. Segments are sorted by cell."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from headrace.arrays import Int32s, Int64s, UInt64s
from headrace.progressive.grids.partitioning import Partitioning
from headrace.progressive.memory.spill import ANYWHERE, SEGMENT_BYTES, Spill, cells_of
from headrace.row_copies import POOL, take

TOGETHER = 8  # segments that are read together in the order of cells, at most, since a record of each is held
_STAGED = 8  # flushes of a side whose tuples are distributed to partitions together, at least
_MOST_STAGED = 512  # flushes of a side that wait for that, however few tuples each has and however much memory there is
_LISTS = 32  # the list of a side's segments takes at most this part of the budget
_LEAST_SEGMENTS = 2  # of a partition, however many partitions there are
_MOST_SEGMENTS = 64  # of a partition, however much memory there is, since a pause reads each with a request of its own
Position = tuple[int, int]  # the offset of a record, and the first of its rows that is still to come


class SegmentReader(Protocol):
    """Reads segments of a side to their ends, in some order of their rows."""

    @property
    def positions(self) -> list[Position]:
        """Where each segment goes on."""
        ...

    def pieces(self) -> Iterator[list[pa.RecordBatch]]:
        """The rows that are still to come, some at a time, with all columns of a segment."""
        ...


class SequentialReader:
    """Reads segments of a side one after the other.

    Parameters
    ----------
    spill
        The side's segments.
    segments
        The segments to read.
    positions
        Where to begin in each.
    size
        The bytes to read at a time.
    """

    def __init__(self, spill: Spill, segments: Sequence[int], positions: Sequence[Position], size: int) -> None:
        self._spill, self._segments, self._size = spill, segments, size
        self._at = [offset for offset, _ in positions]

    @property
    def positions(self) -> list[Position]:
        """Where each segment goes on."""
        return [(offset, 0) for offset in self._at]

    def pieces(self) -> Iterator[list[pa.RecordBatch]]:
        """What one read request gives after the other."""
        for i, segment in enumerate(self._segments):
            while self._at[i] < self._spill.end(segment):
                records, self._at[i] = self._spill.read(segment, self._at[i], self._size)
                yield records


class SortedReader:
    """Reads segments of a side together, in the order of partitions and cells. It holds a record of each.

    Parameters
    ----------
    spill
        The side's segments.
    segments
        The segments to read.
    positions
        Where to begin in each; at their beginnings if None.
    partition_of
        Gives the partition of each cell; None if all segments are of one partition.
    """

    def __init__(
        self,
        spill: Spill,
        segments: Sequence[int],
        positions: Sequence[Position] | None = None,
        partition_of: Callable[[UInt64s], Int32s] | None = None,
    ) -> None:
        self._spill, self._segments, self._partition_of = spill, segments, partition_of
        start = [(spill.begin(segment), 0) for segment in segments] if positions is None else positions
        self._at = list(start)
        self._next = [offset for offset, _ in start]
        self._held: list[pa.RecordBatch | None] = [None] * len(segments)

    @property
    def positions(self) -> list[Position]:
        """Where each segment goes on."""
        return list(self._at)

    def pieces(self) -> Iterator[list[pa.RecordBatch]]:
        """The rows of all segments in the order of cells; each piece has all that are held up to some cell."""
        while True:
            for i in range(len(self._segments)):
                self._fill(i)
            keys = [None if held is None else self._keys(held) for held in self._held]
            # A segment that goes on may have more rows of the last cell that is held, and of higher ones.
            ends = [
                (int(at[-1]), int(cell[-1]))
                for i, (at, cell) in ((i, key) for i, key in enumerate(keys) if key is not None)
                if self._next[i] < self._spill.end(self._segments[i])
            ]
            parts = [
                self._take(i, _up_to(*key, min(ends)) if ends else key[1].size) for i, key in enumerate(keys) if key
            ]
            parts = [part for part in parts if part.num_rows]
            if not parts:
                return
            whole = parts[0] if len(parts) == 1 else pa.concat_batches(parts, memory_pool=POOL)
            yield [whole if len(parts) == 1 else take(whole, np.lexsort(self._keys(whole)[::-1]))]

    def partitions(self, whole: pa.RecordBatch) -> Int32s:
        """The partition of each row of a piece; 0 if all are the same."""
        return self._keys(whole)[0]

    def _keys(self, whole: pa.RecordBatch) -> tuple[Int32s, UInt64s]:
        """The partition and the cell of each row; all partitions are 0 if they are the same."""
        cell = cells_of(whole)
        return np.zeros(cell.size, np.int32) if self._partition_of is None else self._partition_of(cell), cell

    def _fill(self, i: int) -> None:
        """Read the next record of a segment if none of its rows is held."""
        if self._held[i] is None and self._next[i] < self._spill.end(self._segments[i]):
            offset, row = self._at[i]
            [record], self._next[i] = self._spill.read(self._segments[i], offset, 0)
            self._held[i] = record.slice(row)

    def _take(self, i: int, n: int) -> pa.RecordBatch:
        """Take the first rows of a segment that are held."""
        held = self._held[i]
        assert held is not None
        offset, row = self._at[i]
        if n == held.num_rows:
            self._held[i], self._at[i] = None, (self._next[i], 0)
        else:
            self._held[i], self._at[i] = held.slice(n), (offset, row + n)
        return held.slice(0, n)


class Merger:
    """Keeps the segments of a side few, so that the memory for their list is bounded however long the stream is.

    Tuples of several flushes are distributed to partitions together, since a flush may have few of each. When a partition has
    too many segments, the smallest of them are merged, so that segments grow geometrically, and a tuple is rewritten
    a logarithmic number of times.

    Parameters
    ----------
    spill
        The side's segments.
    partitioning
        Says which partition a cell belongs to.
    limit
        The bytes of the budget, of which the list of segments takes a small part.
    """

    def __init__(self, spill: Spill, partitioning: Partitioning, limit: int) -> None:
        self._spill, self._partitioning = spill, partitioning
        self._most = most_segments(limit, partitioning.partitions)
        self._most_staged = max(_STAGED, min(_MOST_STAGED, limit // _LISTS // SEGMENT_BYTES // 2))

    def after_flush(self) -> None:
        """Distribute what flushes have written, if there is enough of it. Flushes of a few tuples each wait for more."""
        spill, staged = self._spill, self._spill.staged
        # A record of each is held while they are read together: no more than TOGETHER whole ones.
        enough = spill.fact("length", staged).sum() >= TOGETHER * spill.record_bytes
        if staged.size >= self._most_staged or (staged.size >= _STAGED and enough):
            self.distribute()

    def distribute(self) -> None:
        """Distribute all that flushes have written to partitions, and merge segments of partitions that have too many.

        If it fails, what was written before stays as it is.
        """
        spill, staged = self._spill, self._spill.staged
        if not staged.size:
            return
        for segment in self._copy(staged, spill.room_for(ANYWHERE), ANYWHERE, self._partitioning.partition_of) or []:
            spill.add(*segment)
        spill.drop(staged)
        for partition in np.flatnonzero(spill.segments_by_partition() > self._most).tolist():
            self.reduce(partition, self._most)

    def reduce(self, partition: int, most: int) -> None:
        """Merge the smallest segments of a partition until there are at most so many, beside those that are pinned."""
        spill = self._spill
        while True:
            mine = spill.among([partition])
            mine = mine[~spill.fact("pinned", mine).astype(np.bool_)]
            if mine.size <= most:
                return
            mine = mine[np.argsort(spill.fact("rows", mine), kind="stable")]
            self._merge(mine[: min(TOGETHER, max(2, mine.size // 2, mine.size - most + 1))])

    def _merge(self, group: Int64s) -> None:
        """Replace segments of one partition by one with all of their rows. If it fails they stay as they are."""
        spill = self._spill
        most = int(spill.fact("length", group).sum())
        made = self._copy(group, spill.room_for(most), most)
        if made is None:  # the rows take more room than before; there is no limit behind the last segment
            made = self._copy(group, spill.room_for(ANYWHERE), ANYWHERE)
        assert made is not None
        for _, *facts in made:
            spill.add(spill.partition(int(group[0])), *facts)
        spill.drop(group)

    def _copy(
        self, group: Int64s, offset: int, most: int, partition_of: Callable[[UInt64s], Int32s] | None = None
    ) -> list[tuple[int, int, int, int, int]] | None:
        """Write the rows of segments, sorted, from an offset on: a segment a partition, or one if they are of one partition.

        Returns partition (0 if there is one), rows, newest departure, offset and length of each; None if they do not fit `most`.
        """
        spill, at, newest = self._spill, offset, int(self._spill.fact("newest", group).max())
        made = list[tuple[int, int, int, int, int]]()
        for partition, rows in _runs(SortedReader(spill, group.tolist(), None, partition_of), 2 * spill.record_bytes):
            data = b"".join(spill.records(rows))
            if at + len(data) > offset + most:
                return None
            spill.write_at(at, data)
            if made and made[-1][0] == partition:
                _, before, _, start, length = made.pop()
                made.append((partition, before + rows.num_rows, newest, start, length + len(data)))
            else:
                made.append((partition, rows.num_rows, newest, at, len(data)))
            at += len(data)
        return made


def _runs(reader: SortedReader, size: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Rows of one partition after the other, at least `size` bytes at a time unless the partition ends."""
    held, of, nbytes = list[pa.RecordBatch](), 0, 0
    for [piece] in reader.pieces():
        at = reader.partitions(piece)
        begins = np.flatnonzero(np.diff(at, prepend=-1)).tolist()
        for first, last in zip(begins, [*begins[1:], at.size], strict=True):
            if held and (nbytes >= size or at[first] != of):
                yield of, held[0] if len(held) == 1 else pa.concat_batches(held, memory_pool=POOL)
                held, nbytes = [], 0
            part = piece.slice(first, last - first)
            held.append(part)
            of, nbytes = int(at[first]), nbytes + part.nbytes
    if held:
        yield of, held[0] if len(held) == 1 else pa.concat_batches(held, memory_pool=POOL)


def _up_to(partition: Int32s, cell: UInt64s, end: tuple[int, int]) -> int:
    """The number of rows, sorted by partition and cell, up to a partition and cell."""
    first, last = np.searchsorted(partition, end[0], side="left"), np.searchsorted(partition, end[0], side="right")
    return int(first + np.searchsorted(cell[first:last], np.uint64(end[1]), side="right"))


def most_segments(limit: int, partitions: int) -> int:
    """The number of segments of a partition, at most, so that the list of a side's segments takes a small part of a budget."""
    return min(_MOST_SEGMENTS, max(_LEAST_SEGMENTS, limit // _LISTS // SEGMENT_BYTES // partitions))


def most_partitions(limit: int) -> int:
    """The number of partitions, at most, so that the list of a side's segments takes a small part of a budget."""
    return max(1, limit // _LISTS // SEGMENT_BYTES // _LEAST_SEGMENTS)
