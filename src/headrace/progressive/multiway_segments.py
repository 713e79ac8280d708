"""SegmentsJoin: joins a segment of each stream on disk, in the order of cells, and sends what memory has not joined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

import numpy as np
import pyarrow as pa

from headrace.arrays import Int32s, Int64s
from headrace.kernels import multiway
from headrace.progressive.memory.merge import Position
from headrace.progressive.memory.spill import Spill, SpilledRows, cells_of
from headrace.progressive.multiway_output import MultiWayOutput
from headrace.progressive.output import BatchRows

Block = SpilledRows
Groups = tuple[
    Int64s, Int64s
]  # the first row of each stream in each group, and the one behind its last: [stream, group]
_MATCH_WORK = 16  # bytes of a result for each stream beside its rows: where they are


class SegmentsJoin:
    """Reads n segments side by side, in blocks, and sends the n-tuples of which a row departs before the last one arrives.

    Rows of a cell that lie in the blocks of all streams as a whole are joined at once. A cell that is larger than a block is
    joined by blocks in nested loops.

    Parameters
    ----------
    spills
        The segments of each stream.
    output
        Makes results.
    block
        The bytes of a stream's rows that are held together.
    work
        The bytes of results that are made at a time.
    since
        An n-tuple whose rows have all arrived before this stamp is not sent.
    """

    def __init__(
        self, spills: Sequence[Spill], output: MultiWayOutput, *, block: int, work: int, since: int = 0
    ) -> None:
        self._spills, self._output, self._block, self._work, self._since = spills, output, block, work, since

    def run(self, partition: int) -> Iterator[pa.RecordBatch]:
        """Join the segments of a partition, of which each stream has one."""
        cursors = []
        for spill in self._spills:
            (segment,) = spill.among([partition]).tolist()
            cursors.append(Cursor(spill, segment, self._block))
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
        """Send the n-tuples of rows in blocks that are owed, group by group."""
        n = len(blocks)
        ends = np.cumsum([block.cell.size for block in blocks])
        begins = np.concatenate([[0], ends[:-1]])
        orders = [self._old_first(block) for block in blocks]
        arrived, departed = (
            np.concatenate([getattr(block, name)[order] for block, order in zip(blocks, orders, strict=True)])
            for name in ("arrived", "departed")
        )
        room = max(1, self._work // (2 * sum(block.row_bytes for block in blocks) + _MATCH_WORK * n))
        for some in self._with_new(blocks, groups):
            first, last = ((rows + begins[:, None]).reshape(-1) for rows in some)
            state, at, bounds = np.zeros(2, np.int64), np.empty(n, np.int64), np.empty(4 * (n + 1), np.int64)
            while state[0] < some[0].shape[1]:
                rows = np.empty(n * room, np.int64)
                made = multiway.owed(n, first, last, arrived, departed, state, at, bounds, rows)
                if made:
                    of_streams = [
                        BatchRows(block.rows, _int32(order[found[:made] - begin]))
                        for block, order, found, begin in zip(
                            blocks, orders, rows.reshape(n, room), begins, strict=True
                        )
                    ]
                    yield self._output.make(of_streams)[0]

    def _old_first(self, block: Block) -> Int64s:
        """The order of a block's rows in which those of a cell that have arrived before `since` come first."""
        if not self._since:
            return np.arange(block.cell.size)
        return np.lexsort([block.arrived >= self._since, block.cell])

    def _with_new(self, blocks: Sequence[Block], groups: Groups) -> Iterator[Groups]:
        """Parts of groups with all n-tuples that have a new row, each once: by the last stream that its new rows are of."""
        if not self._since:
            yield groups
            return
        first, last = groups
        middle = first.copy()  # where the new rows of each group begin
        for stream, block in enumerate(blocks):
            old = np.concatenate([[0], np.cumsum(block.arrived < self._since)])
            middle[stream] += old[last[stream]] - old[first[stream]]
        for newest in range(len(blocks)):
            begin, end = first.copy(), last.copy()
            begin[newest], end[newest + 1 :] = middle[newest], middle[newest + 1 :]
            some = (begin < end).all(axis=0)
            if some.any():
                yield begin[:, some], end[:, some]


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
