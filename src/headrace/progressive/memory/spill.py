"""Spill: the tuples of one side that were flushed to disk, in segments. A segment has tuples of one partition, sorted by cell.

A side has one file, which has no name, so that it is gone with the process. A flush writes one staged segment, which has tuples
of several partitions, sorted by partition and cell; the merger (`merge.py`) distributes staged segments to partitions, and
replaces segments of a partition by one. The room that they took is used again. A segment is a sequence of records, each its
length in 8 bytes and then an Arrow message of at most `record_bytes`, or of one row.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.arrays import AnyArray, Int32s, Int64s, UInt64s
from headrace.errors import SpillError
from headrace.files import open_nameless
from headrace.memory import FreedMemory, MemoryBudget
from headrace.progressive.stats import ProgressiveStats
from headrace.relation.disk import Disk
from headrace.row_copies import POOL

PAGE = 4096  # bytes: the unit that reads and writes are counted in
_FIELDS = {  # of a segment; see the properties of Spill
    "partition": np.int32,
    "rows": np.int64,
    "newest": np.int64,
    "offset": np.int64,
    "length": np.int64,
    "pinned": np.bool_,
}
SEGMENT_BYTES = 40  # what _FIELDS take, with the numbers that a search for room needs
_RECORDS = 128  # a record is at most this part of the budget, so that a few can be held for each of several segments
_LEAST_RECORD, _MOST_RECORD = 1 << 12, 1 << 16  # bytes: smaller ones are mostly headers, larger ones gain nothing
_FREE, STAGED = -1, -2  # in place of a partition: no segment, and a segment of several partitions
ANYWHERE = (
    1 << 62
)  # bytes: more than there are between two segments, so that only the end of the file has room for them
_HEAD = struct.Struct("<q")  # the length of the message that follows
_EXTRA = [("arrived", pa.int64()), ("departed", pa.int64()), ("swept", pa.int32()), ("cell", pa.uint64())]


@dataclass(frozen=True, slots=True)
class SpilledRows:
    """Tuples that were read from disk."""

    rows: pa.RecordBatch
    arrived: Int64s
    """the stamp of arrival of each row"""
    departed: Int64s
    """the stamp at which each row left memory"""
    swept: Int32s
    """partitions of the other side before this number had met the row on disk before it left memory; see Meetings"""
    cell: UInt64s
    """the cell of each row"""

    @property
    def row_bytes(self) -> int:
        """The bytes of a row, on average."""
        return int(self.rows.nbytes // max(1, self.rows.num_rows)) + 1


class Spill:
    """The segments of one side on disk, and a list of them in memory. A segment keeps its number until it is merged.

    Parameters
    ----------
    name
        What the list of segments is called by in the budget: left, right, or the stream.
    schema
        The schema of its rows.
    partitions
        The number of partitions.
    disk
        Charges reads and writes to its clock if it is simulated.
    budget
        The budget that the list of segments is reserved from.
    stats
        Where reads and writes are counted.
    directory
        The directory of the file; the system's for temporary files if None.
    """

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        partitions: int,
        disk: Disk,
        budget: MemoryBudget,
        stats: ProgressiveStats,
        directory: Path | None,
    ) -> None:
        self.schema = pa.schema([*schema, *(pa.field(name, type_) for name, type_ in _EXTRA)])
        self.newest = np.full(partitions, -1, np.int64)
        """the stamp at which a tuple of each partition last left memory; -1 if none did"""
        self.record_bytes = min(_MOST_RECORD, max(_LEAST_RECORD, budget.limit // _RECORDS))
        self._plain, self._disk, self._stats = schema, disk, stats
        self._where = directory or Path(tempfile.gettempdir())
        self._file = open_nameless(self._where)  # it lives as long as the join
        self._segments: dict[str, AnyArray] = {name: np.empty(0, type_) for name, type_ in _FIELDS.items()}
        self._count = 0
        self._head = -1  # where the last request ended
        self._list = budget.reserve(f"{name} segments", 0)
        self._freed = FreedMemory(budget.limit)

    def __len__(self) -> int:
        return self._count

    # -- the list of segments --------------------------------------------------------------------------------------------

    @property
    def staged(self) -> Int64s:
        """The numbers of the segments that flushes wrote and that are not distributed to partitions yet."""
        return np.flatnonzero(self._segments["partition"] == STAGED)

    def among(self, partitions: Int32s | Sequence[int]) -> Int64s:
        """The numbers of the segments of some partitions, those of one partition together."""
        of = self._segments["partition"]
        found = np.flatnonzero(of == partitions[0] if len(partitions) == 1 else np.isin(of, partitions))
        return found[np.argsort(of[found], kind="stable")]

    def fact(self, name: str, segments: Int64s) -> Int64s:
        """A fact of some segments: `rows`, `length` in bytes, `newest` (the latest departure), or whether each is `pinned`."""
        return self._segments[name][segments]

    def pin(self, segments: Int64s, pinned: bool) -> None:
        """Keep segments as they are, since a join on disk is reading them; or let them be merged again."""
        self._segments["pinned"][segments] = pinned

    def segments_by_partition(self) -> Int64s:
        """The number of segments of each partition."""
        of = self._segments["partition"]
        return np.bincount(of[of >= 0], minlength=self.newest.size)

    def bytes_by_partition(self) -> Int64s:
        """The bytes of each partition on disk."""
        used = np.flatnonzero(self._segments["partition"] >= 0)  # neither free nor staged
        sizes = np.bincount(
            self._segments["partition"][used], self._segments["length"][used], minlength=self.newest.size
        )
        return sizes.astype(np.int64)

    def add(self, partition: int, rows: int, newest: int, offset: int, length: int) -> None:
        """Add a segment that has been written, of a partition or STAGED, to the list."""
        free = np.flatnonzero(self._segments["partition"] == _FREE)
        if not free.size:
            before = self._segments["partition"].size
            after = max(64, before * 3 // 2)
            self._segments = {name: np.resize(old, after) for name, old in self._segments.items()}
            self._segments["partition"][before:] = _FREE
            free = np.array([before])
        for name, value in zip(_FIELDS, (partition, rows, newest, offset, length, False), strict=True):
            self._segments[name][free[0]] = value
        if partition != STAGED:
            self.newest[partition] = max(self.newest[partition], newest)
        self._count += 1

    def drop(self, segments: Int64s) -> None:
        """Forget segments, so that their room in the file is used again; the end of the file is cut off if they were there."""
        self._segments["partition"][segments] = _FREE
        self._count -= segments.size
        self._file.truncate(self._end())

    @property
    def uncounted(self) -> int:
        """The bytes of the list that are not reserved yet, since it grows during a flush, while memory is full."""
        return self._segments["partition"].size * SEGMENT_BYTES - self._list.nbytes

    def count(self) -> None:
        """Reserve the `uncounted` bytes."""
        self._list.resize(self._segments["partition"].size * SEGMENT_BYTES)

    # -- writing ---------------------------------------------------------------------------------------------------------

    def append(
        self, offset: int, rows: pa.RecordBatch, arrived: Int64s, swept: Int32s, cell: UInt64s, stamp: int | Int64s
    ) -> int:
        """Write rows that left memory at a stamp, or each at its own, from an offset on; returns the offset behind them.

        `add` must follow.
        """
        departed = np.full(arrived.size, stamp, np.int64)
        extra = [pa.array(values) for values in (arrived, departed, swept, cell)]
        data = b"".join(self.records(pa.RecordBatch.from_arrays([*rows.columns, *extra], schema=self.schema)))
        self.write_at(offset, data)
        return offset + len(data)

    def records(self, whole: pa.RecordBatch) -> Iterator[bytes]:
        """The records of rows that have all columns of a segment."""
        each = max(1, self.record_bytes * whole.num_rows // max(1, whole.nbytes))
        for at in range(0, whole.num_rows, each):
            message = whole.slice(at, each).serialize(memory_pool=POOL)
            yield _HEAD.pack(message.size) + message.to_pybytes()

    def room_for(self, size: int) -> int:
        """The offset of the first room in the file for so many bytes between segments, or the end of the file."""
        used = np.flatnonzero(self._segments["partition"] != _FREE)
        offset, length = self._segments["offset"][used], self._segments["length"][used]
        order = np.argsort(offset)
        ends = np.concatenate([[0], (offset + length)[order]])
        gaps = np.flatnonzero(offset[order] - ends[:-1] >= size)
        return int(ends[gaps[0]] if gaps.size else ends[-1])

    def write_at(self, offset: int, data: bytes) -> None:
        """Write bytes, all of them or none that count: an error says what to do, and leaves the list of segments as it was."""
        try:
            self._file.write_at(offset, data)
        except OSError as error:
            raise SpillError(
                error.errno,
                f"{len(data)} bytes of a flush could not be written in {self._where} ({error.strerror}); make room there, and"
                " call again: the join goes on where it stopped. Or give another directory, spill=, to a new join",
            ) from error
        self._stats.pages_written += -(-len(data) // PAGE)
        self._spend(offset, len(data))

    def _end(self) -> int:
        used = self._segments["partition"] != _FREE
        return int((self._segments["offset"] + self._segments["length"])[used].max(initial=0))

    # -- reading ---------------------------------------------------------------------------------------------------------

    def begin(self, segment: int) -> int:
        """The offset of a segment's first record."""
        return int(self._segments["offset"][segment])

    def end(self, segment: int) -> int:
        """The offset behind a segment's last record."""
        return int(self._segments["offset"][segment] + self._segments["length"][segment])

    def read(self, segment: int, offset: int, size: int) -> tuple[list[pa.RecordBatch], int]:
        """Read records of a segment from an offset on: as many as lie in `size` bytes, and at least one.

        Returns them with all columns of a segment, and the offset of the next.
        """
        end = self.end(segment)
        data = self._file.read_at(offset, min(max(size, _HEAD.size), end - offset))
        (first,) = _HEAD.unpack_from(data)
        if first + _HEAD.size > len(data):
            data = self._file.read_at(offset, first + _HEAD.size)
        whole, at, found = pa.py_buffer(data), 0, []
        while at < len(data) - _HEAD.size:
            (length,) = _HEAD.unpack_from(data, at)
            if at + _HEAD.size + length > len(data):
                break
            found.append(pa.ipc.read_record_batch(whole.slice(at + _HEAD.size, length), self.schema))
            at += _HEAD.size + length
        self._stats.pages_read += -(-len(data) // PAGE)
        self._stats.seeks += self._spend(offset, len(data))
        self._freed.add(at, sum(record.num_rows for record in found))
        return found, offset + at

    def partition(self, segment: int) -> int:
        """The partition of a segment."""
        return int(self._segments["partition"][segment])

    def rows(self, parts: Sequence[pa.RecordBatch]) -> SpilledRows:
        """Put batches that were read together."""
        whole = parts[0] if len(parts) == 1 else pa.concat_batches(parts, memory_pool=POOL)
        n = len(self._plain)
        rows = pa.RecordBatch.from_arrays(whole.columns[:n], schema=self._plain)
        return SpilledRows(rows, *(np.asarray(column) for column in whole.columns[n:]))

    def _spend(self, offset: int, size: int) -> bool:
        """Charge a request to the clock of a simulated disk; returns whether it begins elsewhere than the last one ended."""
        seeks, self._head = offset != self._head, offset + size
        if self._disk.kind == "simulated":
            seek, transfer = self._disk.costs(PAGE)
            self._disk.clock.advance(seeks * seek + -(-size // PAGE) * transfer)
        return seeks


def cells_of(whole: pa.RecordBatch) -> UInt64s:
    """The cells of rows that have all columns of a segment."""
    return np.asarray(whole.column(whole.num_columns - 1))
