"""The clean-up of a multi-way join: partition by partition, the n-tuples of which one had left memory when the last came."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

import numpy as np
import pyarrow as pa

from headrace.arrays import Int32s, Int64s
from headrace.kernels import multiway
from headrace.progressive.memory.evict import Evictor
from headrace.progressive.memory.merge import Position
from headrace.progressive.memory.spill import Spill, SpilledRows, cells_of
from headrace.progressive.memory.streams import Streams
from headrace.progressive.output import BatchRows
from headrace.progressive.policies.stats import PartitionStats
from headrace.progressive.stats import ProgressiveStats

Block = SpilledRows
Groups = tuple[
    Int64s, Int64s
]  # the first row of each stream in each group, and the one behind its last: [stream, group]


class MultiWayCleanup:
    """Joins what memory could not join, after all streams have ended.

    What is in memory of a partition that has tuples on disk is written to disk too, and the segments of each stream become one,
    sorted by cell. Then n sorted segments are read side by side, in blocks. Rows of a cell that lie in the blocks of all streams
    as a whole are joined at once. A cell that is larger than a block is joined by blocks in nested loops.

    Parameters
    ----------
    streams
        The streams of the join.
    evictor
        Writes what is in memory.
    partition_stats
        Says which partitions have been productive; these are joined first.
    stats
        Where results are counted.
    """

    def __init__(
        self, streams: Streams, evictor: Evictor, partition_stats: PartitionStats, stats: ProgressiveStats
    ) -> None:
        self._streams, self._evictor, self._partition_stats, self._stats = streams, evictor, partition_stats, stats
        self._step: Iterator[pa.RecordBatch] | None = None
        self._left: list[int] | None = (
            None  # partitions that are still to come, the last is next; None before the first
        )

    def run(self) -> Iterator[pa.RecordBatch]:
        """Give all results that are left. After an error of the disk, or if it was dropped, another run goes on."""
        yield from self._finish_step()
        if not self._streams.all_present:
            return
        if self._left is None:
            self._left = self._begin()
        while self._left:
            for memory in self._streams.present:
                self._streams.merger(memory.number).reduce(self._left[-1], 1)
            self._step = self._join(self._left.pop())
            yield from self._finish_step()

    def _finish_step(self) -> Iterator[pa.RecordBatch]:
        """Give the rest of the results of a partition."""
        if self._step is not None:
            # `yield from` would close the step when the caller closes this generator.
            for out in self._step:  # noqa: UP028
                yield out
            self._step = None

    def _begin(self) -> list[int]:
        """Write to disk what has to be joined there, and free memory. Returns the partitions to join, productive ones last."""
        streams, came = self._streams, self._partition_stats.arrived
        spills = [streams.spill(memory.number) for memory in streams.present]
        self._distribute()
        spilled = np.any([spill.segments_by_partition() > 0 for spill in spills], axis=0)
        wanted = spilled & (came > 0).all(axis=0)
        if wanted.any():
            self._evictor.flush_partitions(wanted)
        self._distribute()
        streams.clear()
        partitions = np.flatnonzero(wanted)
        rate = self._partition_stats.results.sum(axis=0) / np.maximum(1, came.sum(axis=0))
        return list(partitions[np.lexsort([partitions, -rate[partitions]])][::-1].tolist())

    def _distribute(self) -> None:
        for memory in self._streams.present:
            self._streams.merger(memory.number).distribute()

    # -- one partition ---------------------------------------------------------------------------------------------------

    def _join(self, partition: int) -> Iterator[pa.RecordBatch]:
        """Join the segments of a partition, one of each stream, in the order of cells."""
        size = self._streams.block_bytes
        cursors = []
        for memory in self._streams.present:
            spill = self._streams.spill(memory.number)
            (segment,) = spill.among([partition]).tolist()
            cursors.append(Cursor(spill, segment, size))
        while all(cursor.fill() for cursor in cursors):
            cell = max(cursor.first for cursor in cursors)
            behind = [cursor for cursor in cursors if cursor.first < cell]
            for cursor in behind:
                cursor.drop_before(cell)
            if behind:
                continue
            # A segment that goes on may have more rows of the last cell that is held.
            ends = [cursor.last for cursor in cursors if cursor.more]
            if ends and min(ends) == cell:
                yield from self._large_cell(cursors, cell)
                continue
            blocks = [cursor.before(min(ends) if ends else None) for cursor in cursors]
            yield from self._products(blocks, _groups(blocks))
            for cursor, block in zip(cursors, blocks, strict=True):
                cursor.drop(block.cell.size)

    def _large_cell(self, cursors: Sequence[Cursor], cell: int) -> Iterator[pa.RecordBatch]:
        """Join the rows of one cell, of which some stream has more than a block, by blocks in nested loops."""
        positions = [cursor.free() for cursor in cursors]

        def nest(chosen: list[Block]) -> Iterator[pa.RecordBatch]:
            number = len(chosen)
            if number == len(cursors):
                first = np.zeros((number, 1), np.int64)
                yield from self._products(chosen, (first, np.array([[block.cell.size] for block in chosen])))
                return
            for block in cursors[number].blocks(positions[number], cell):
                yield from nest([*chosen, block])

        yield from nest([])
        for cursor in cursors:
            cursor.drop_through(cell)

    def _products(self, blocks: Sequence[Block], groups: Groups) -> Iterator[pa.RecordBatch]:
        """Send the n-tuples of rows in blocks that memory has not joined, group by group."""
        n = len(blocks)
        ends = np.cumsum([block.cell.size for block in blocks])
        begins = np.concatenate([[0], ends[:-1]])
        first, last = ((rows + begins[:, None]).reshape(-1) for rows in groups)
        arrived, departed = (
            np.concatenate([getattr(block, name) for block in blocks]) for name in ("arrived", "departed")
        )
        room = self._streams.results_at_once([block.row_bytes for block in blocks])
        state, at, bounds = np.zeros(2, np.int64), np.empty(n, np.int64), np.empty(4 * (n + 1), np.int64)
        while state[0] < groups[0].shape[1]:
            rows = np.empty(n * room, np.int64)
            made = multiway.owed(n, first, last, arrived, departed, state, at, bounds, rows)
            if made:
                of_streams = [
                    BatchRows(block.rows, _int32(some[:made] - begin))
                    for block, some, begin in zip(blocks, rows.reshape(n, room), begins, strict=True)
                ]
                out, _ = self._streams.output.make(of_streams)
                self._stats.disk_disk += out.num_rows
                yield out


class Cursor:
    """Reads a segment, sorted by cell, from its beginning to its end, and holds about a block of rows of it.

    Parameters
    ----------
    spill, segment
        The stream's segments, and the one to read.
    size
        The bytes of a block.
    """

    def __init__(self, spill: Spill, segment: int, size: int) -> None:
        self._spill, self._segment, self._size = spill, segment, size
        self._at = spill.begin(segment)  # the record to read next
        self._skip = 0  # rows of that record that are behind the cursor already
        self._records: list[tuple[int, int]] = []  # the offset of each record that is held in part, and its rows
        self._gone = 0  # rows of the first of them that are not held any more
        self._held: Block | None = None

    @property
    def more(self) -> bool:
        """Whether rows come after those that are held."""
        return self._at < self._spill.end(self._segment)

    @property
    def first(self) -> int:
        """The first cell that is held."""
        return int(self._block.cell[0])

    @property
    def last(self) -> int:
        """The last cell that is held."""
        return int(self._block.cell[-1])

    @property
    def _block(self) -> Block:
        assert self._held is not None
        return self._held

    def fill(self) -> bool:
        """Read on until a block is held, or the segment ends. Returns whether any row is held."""
        held = self._held
        size = 0 if held is None else held.rows.nbytes
        parts = []
        while self.more and size < self._size:
            [record], after = self._spill.read(self._segment, self._at, 0)
            self._records.append((self._at, record.num_rows))
            if self._skip:  # nothing is held, so this is the first record
                self._gone = self._skip
                record, self._skip = record.slice(self._skip), 0
            parts.append(record)
            size, self._at = size + record.nbytes, after
        if parts:
            new = self._spill.rows(parts)
            self._held = new if held is None or not held.cell.size else _joined(held, new)
        return self._held is not None and self._held.cell.size > 0

    def before(self, cell: int | None) -> Block:
        """The rows that are held of lower cells; all if it is None."""
        block = self._block
        return block if cell is None else _slice(block, 0, int(np.searchsorted(block.cell, np.uint64(cell))))

    def drop(self, n: int) -> None:
        """Leave the first rows behind."""
        block = self._block
        self._held = _slice(block, n, block.cell.size - n)
        self._gone += n
        while self._records and self._gone >= self._records[0][1]:
            self._gone -= self._records.pop(0)[1]

    def drop_before(self, cell: int) -> None:
        """Leave the rows that are held of lower cells behind."""
        self.drop(int(np.searchsorted(self._block.cell, np.uint64(cell))))

    def drop_through(self, cell: int) -> None:
        """Leave all rows of cells up to this one behind."""
        while self.fill():
            self.drop(int(np.searchsorted(self._block.cell, np.uint64(cell), side="right")))
            if self._block.cell.size:
                return

    def free(self) -> Position:
        """Forget what is held, to read it again later. Returns where that begins."""
        if self._records:
            self._at, self._skip = self._records[0][0], self._gone
        self._records, self._gone, self._held = [], 0, None
        return self._at, self._skip

    def blocks(self, start: Position, cell: int) -> Iterator[Block]:
        """The rows of a cell that begin at a position, a block at a time. The cursor stays where it is."""
        at, skip = start
        end = self._spill.end(self._segment)
        while at < end:
            parts, size = list[pa.RecordBatch](), 0
            while at < end and size < self._size:
                [record], after = self._spill.read(self._segment, at, 0)
                cells = cells_of(record)
                last = int(np.searchsorted(cells, np.uint64(cell), side="right"))
                parts.append(record.slice(skip, last - skip))
                skip, size = 0, size + parts[-1].nbytes
                at = after if last == cells.size else end
            yield self._spill.rows(parts)


def _groups(blocks: Sequence[Block]) -> Groups:
    """The rows of each cell that all blocks have."""
    shared = reduce(np.intersect1d, [block.cell for block in blocks])
    first, last = (
        np.stack([np.searchsorted(block.cell, shared, side=side) for block in blocks]).astype(np.int64)
        for side in ("left", "right")
    )
    return first, last


def _slice(block: Block, first: int, rows: int) -> Block:
    some = slice(first, first + rows)
    return SpilledRows(
        block.rows.slice(first, rows), block.arrived[some], block.departed[some], block.swept[some], block.cell[some]
    )


def _joined(a: Block, b: Block) -> Block:
    rows = pa.concat_batches([a.rows, b.rows], memory_pool=pa.system_memory_pool())
    facts = (np.concatenate([getattr(a, name), getattr(b, name)]) for name in ("arrived", "departed", "swept", "cell"))
    return SpilledRows(rows, *facts)


def _int32(rows: Int64s) -> Int32s:
    return rows.astype(np.int32)
