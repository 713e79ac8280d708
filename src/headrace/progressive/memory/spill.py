"""Spill: the tuples of one side that were flushed to disk, in segments. A segment is what one flush wrote of one partition.

A side has one file, which only grows and has no name, so that it is gone with the process. A flush writes its segments one after
the other. A partition that was flushed often, or by few tuples at a time, lies in many places, and each costs a read request.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.arrays import Int32s, Int64s, UInt64s
from headrace.memory import MemoryBudget
from headrace.progressive.grids.partitioning import SIDES
from headrace.progressive.memory.row_chunks import POOL
from headrace.progressive.stats import ProgressiveStats
from headrace.relation.disk import Disk

PAGE = 4096  # bytes: the unit that reads and writes are counted in
_FIELDS = {  # of a segment; see the properties of Spill
    "partition": np.int32,
    "rows": np.int32,
    "departed": np.int64,
    "met": np.int64,
    "offset": np.int64,
    "length": np.int64,
}
_SEGMENT_BYTES = 40  # what _FIELDS take, with room for growth
_MEETING_BYTES = 4  # the segment of a meeting; segments that meet together share the stamp


@dataclass(frozen=True, slots=True)
class SpilledRows:
    """Tuples that were read from disk."""

    rows: pa.RecordBatch
    arrived: Int64s
    """the stamp of arrival of each row"""
    cell: UInt64s
    """the cell of each row"""
    segment: Int32s
    """the number of each row's segment"""

    @property
    def row_bytes(self) -> int:
        """The bytes of a row, on average."""
        return int(self.rows.nbytes // max(1, self.rows.num_rows)) + 1


class Spill:
    """The segments of one side on disk, and a list of them in memory.

    Parameters
    ----------
    number
        0 is left, 1 is right.
    schema
        The schema of its rows.
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
        number: int,
        schema: pa.Schema,
        disk: Disk,
        budget: MemoryBudget,
        stats: ProgressiveStats,
        directory: Path | None,
    ) -> None:
        self.schema = pa.schema([*schema, pa.field("arrived", pa.int64()), pa.field("cell", pa.uint64())])
        self._columns = len(schema)
        self._disk, self._stats = disk, stats
        self._file = tempfile.TemporaryFile(dir=directory, prefix="headrace-")  # noqa: SIM115  it lives as long as the join
        self._end = 0
        self._segments = {name: np.empty(0, type_) for name, type_ in _FIELDS.items()}
        self._room = self._count = 0
        self._new: list[tuple[int, ...]] = []
        self._meetings: list[tuple[Int32s, int]] = []  # segments, and when they met memory
        self._met = 0
        self._plain = schema
        self._list = budget.reserve(f"{SIDES[number]} segments", 0)

    def __len__(self) -> int:
        return self._count

    @property
    def partition(self) -> Int32s:
        """The partition of each segment."""
        return self._segments["partition"][: self._count]

    @property
    def departed(self) -> Int64s:
        """The stamp at which each segment left memory."""
        return self._segments["departed"][: self._count]

    @property
    def met(self) -> Int64s:
        """The stamp at which each segment last met the other side's memory: it was joined with all tuples that arrived before."""
        return self._segments["met"][: self._count]

    @property
    def length(self) -> Int64s:
        """The bytes of each segment."""
        return self._segments["length"][: self._count]

    @property
    def nbytes(self) -> int:
        """The bytes of the file."""
        return self._end

    # -- writing ---------------------------------------------------------------------------------------------------------

    def write(self, partition: int, rows: pa.RecordBatch, arrived: Int64s, cell: UInt64s, stamp: int) -> None:
        """Append a segment. `wrote` must follow when the flush has written all of its segments."""
        whole = pa.RecordBatch.from_arrays([*rows.columns, pa.array(arrived), pa.array(cell)], schema=self.schema)
        data = whole.serialize(memory_pool=POOL)
        self._new.append((partition, rows.num_rows, stamp, stamp, self._end, data.size))
        os.pwrite(self._file.fileno(), data, self._end)
        self._end += data.size

    def wrote(self, since: int) -> None:
        """Add the segments of a flush, which lie in the file from offset `since` on, to the list; count one write for all."""
        count = self._count + len(self._new)
        if count > self._room:
            self._room = max(64, count * 3 // 2)
            self._segments = {name: np.resize(old, self._room) for name, old in self._segments.items()}
        for name, facts in zip(_FIELDS, zip(*self._new, strict=True), strict=True):
            self._segments[name][self._count : count] = facts
        self._count, self._new = count, []
        pages = -(-(self._end - since) // PAGE)
        self._stats.pages_written += pages
        self._spend(1, pages)

    @property
    def _list_bytes(self) -> int:
        return self._room * _SEGMENT_BYTES + self._met * _MEETING_BYTES

    @property
    def uncounted(self) -> int:
        """The bytes of the list that are not reserved yet, since it grows during a flush, while memory is full."""
        return self._list_bytes - self._list.nbytes

    def count(self) -> None:
        """Reserve the `uncounted` bytes."""
        self._list.resize(self._list_bytes)

    # -- keys ---------------------------------------------------------------------------------------------------------

    def read(self, segments: Int64s) -> SpilledRows:
        """Read the tuples of some segments; segments that lie together in the file are one read request."""
        order = np.sort(segments)  # segments are numbered in the order in which they lie in the file
        chosen = {name: column[order] for name, column in self._segments.items()}
        goes_on = np.zeros(order.size, np.bool_)
        goes_on[1:] = chosen["offset"][1:] == chosen["offset"][:-1] + chosen["length"][:-1]
        begins = np.flatnonzero(~goes_on)
        parts = []
        pages = 0
        for first, last in zip(begins.tolist(), [*begins[1:].tolist(), order.size], strict=True):
            start = int(chosen["offset"][first])
            size = int(chosen["offset"][last - 1] + chosen["length"][last - 1]) - start
            data = pa.py_buffer(os.pread(self._file.fileno(), size, start))
            pages += -(-size // PAGE)
            for at, length in zip(
                chosen["offset"][first:last].tolist(), chosen["length"][first:last].tolist(), strict=True
            ):
                parts.append(pa.ipc.read_record_batch(data.slice(at - start, length), self.schema))
        self._stats.seeks += begins.size
        self._stats.pages_read += pages
        self._spend(begins.size, pages)
        whole = parts[0] if len(parts) == 1 else pa.concat_batches(parts, memory_pool=POOL)
        rows = pa.RecordBatch.from_arrays(whole.columns[: self._columns], schema=self._plain)
        return SpilledRows(
            rows,
            np.asarray(whole.column(self._columns)),
            np.asarray(whole.column(self._columns + 1)),
            np.repeat(order.astype(np.int32), chosen["rows"]),
        )

    def blocks(self, segments: Int64s, most: int) -> Iterator[Int64s]:
        """Divide segments into groups of about `most` bytes, in their order."""
        if segments.size:
            group = np.cumsum(self.length[segments]) // max(1, most)
            yield from np.split(segments, np.flatnonzero(np.diff(group)) + 1)

    def _spend(self, requests: int, pages: int) -> None:
        if self._disk.kind == "simulated":
            seek, transfer = self._disk.costs(PAGE)
            self._disk.clock.advance(requests * seek + pages * transfer)

    # -- meetings with the other side's memory ---------------------------------------------------------------------------

    def meet(self, segments: Int64s, stamp: int) -> None:
        """Note that segments were joined, at this stamp, with all tuples in the memory of the other side."""
        self._segments["met"][segments] = stamp
        self._meetings.append((segments.astype(np.int32), stamp))
        self._met += segments.size

    def meetings(self) -> tuple[Int64s, Int64s]:
        """The stamps at which segments met the other side's memory: those of segment g are stamps[first[g] : first[g + 1]]."""
        first = np.zeros(self._count + 1, np.int64)
        if not self._meetings:
            return first, np.empty(0, np.int64)
        segments = np.concatenate([some for some, _ in self._meetings])
        stamps = np.repeat([stamp for _, stamp in self._meetings], [some.size for some, _ in self._meetings])
        np.cumsum(np.bincount(segments, minlength=self._count), out=first[1:])
        return first, stamps[np.argsort(segments, kind="stable")].astype(np.int64)
