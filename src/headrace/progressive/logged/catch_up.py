"""CatchUp: makes pairs that were put off because one of the two rows was on disk alone, productive partitions first."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.memory import MemoryBudget
from headrace.progressive.logged.checkpoint import NEVER, Checkpoint
from headrace.progressive.logged.flusher import Flush
from headrace.progressive.logged.matcher import Matcher
from headrace.progressive.logged.rows import LoggedRows
from headrace.progressive.logged.sharding import Sharding
from headrace.progressive.logged.state_cache import make_side
from headrace.progressive.memory.side_memory import SideMemory

_BLOCK = 2  # times the bytes of a step: rows that are caught up together
_SLOT_BYTES = 1 << 8  # of a block's budget for each index entry: more than an entry takes, since a block is small
_BLOCK_BYTES = 1 << 16  # of a block's budget beside its rows and entries


class Unit(NamedTuple):
    """A block of a side's rows met rows of the other side. A decision lists these units, so that a replay repeats them."""

    partition: int
    side: int
    since: int
    """the block has rows of steps from here on"""
    until: int
    """to before this one"""
    first: int
    """they met rows of the other side of steps from here on"""
    last: int
    """to before this one"""


@dataclass(frozen=True, slots=True)
class _Block:
    """Rows of one side that owe pairs."""

    memory: SideMemory | None = None
    """their index, with the step that each row sees as its stamp; None if there are none"""
    rows: int = 0
    sees: int = 0
    """the highest step that one of them sees"""
    not_before: int = NEVER
    """the event time before which a row of the other side matches none of them"""


class CatchUp:
    """Rows that owe pairs meet the rows that they could not see when they came. LoggedJoin says what is owed.

    A block of rows that owe, of steps from `caught` to `target`, is put into memory; rows of the other side of steps before what
    the block sees are read once, from `at` on if an earlier micro-batch had no time for all of them.

    Parameters
    ----------
    matcher
        Makes the results.
    sharding
        Says which cells the rows of the log are in.
    rows
        The log's rows of both sides.
    batch
        The micro-batch's number; only rows of earlier ones are read.
    chunk
        Bytes of a step.
    """

    def __init__(
        self, matcher: Matcher, sharding: Sharding, rows: Sequence[LoggedRows], batch: int, chunk: int
    ) -> None:
        self.matcher, self.sharding, self.rows = matcher, sharding, rows
        self.batch, self.chunk = batch, chunk
        self.units: list[Unit] = []
        """what was done, in this order"""

    def run(self, checkpoint: Checkpoint, top: int, over: Callable[[], bool]) -> Iterator[pa.RecordBatch]:
        """Make pairs that rows of steps before `top` owe, until time is over; note in the checkpoint how far it came."""
        for partition in owing_partitions(checkpoint, self.batch):
            while checkpoint.owed[partition] and checkpoint.caught[partition] < top:
                if over():
                    return
                yield from self._go_on(checkpoint, partition, top, over)

    def repeat(self, checkpoint: Checkpoint, units: Sequence[Sequence[int]]) -> Iterator[pa.RecordBatch]:
        """Make the pairs that another attempt made."""
        for unit in (Unit(*numbers) for numbers in units):
            block = self._block(unit.partition, unit.side, unit.since, unit.until)
            yield from self._meet(block, unit.partition, unit.side, unit.first, unit.last, lambda: False)

    def note_flushes(self, checkpoint: Checkpoint, flushes: Sequence[Flush]) -> None:
        """Nothing: rows of a pair note themselves what they could not see."""

    def _go_on(
        self, checkpoint: Checkpoint, partition: int, top: int, over: Callable[[], bool]
    ) -> Iterator[pa.RecordBatch]:
        """Catch up one side of a block, or as much of it as there is time for."""
        since = int(checkpoint.caught[partition])
        if not checkpoint.target[partition]:
            checkpoint.target[partition] = self._block_end(partition, since, top)
            checkpoint.phase[partition] = checkpoint.at[partition] = 0
        until, side, first = (int(a[partition]) for a in (checkpoint.target, checkpoint.phase, checkpoint.at))
        block = self._block(partition, side, since, until)
        reached = yield from self._meet(block, partition, side, first, block.sees, over)
        self.units.append(Unit(partition, side, since, until, first, reached))
        if reached < block.sees:
            checkpoint.at[partition] = reached
            return
        checkpoint.owed[partition] -= block.rows
        checkpoint.at[partition] = 0
        if side == 0:
            checkpoint.phase[partition] = 1
        else:
            checkpoint.caught[partition], checkpoint.target[partition] = until, 0

    def _meet(
        self, block: _Block, partition: int, number: int, first: int, last: int, over: Callable[[], bool]
    ) -> Generator[pa.RecordBatch, None, int]:
        """Join a block with rows of the other side of steps from `first` to before `last`, until time is over.

        Returns the step before which it has met all rows.
        """
        memory, other = block.memory, 1 - number
        if memory is None:
            return max(first, last)
        found = self.rows[other].read(
            self.batch, since=first, until=last, partition=partition, not_before=block.not_before
        )
        for some in found:
            rows = self.sharding.reassign(other, some.rows, some.partition)
            step, sees = some.step, memory.arrived
            for out, _ in self.matcher.matches(other, rows, memory, lambda r, s: step[r] < sees[s]):  # noqa: B023
                yield out
            if over() and step[-1] + 1 < last:
                return int(step[-1]) + 1
        return max(first, last)

    def _block(self, partition: int, number: int, since: int, until: int) -> _Block:
        """Put a side's rows that owe, of steps from `since` to before `until`, into memory."""
        found = [
            some.where(some.sees > 0)
            for some in self.rows[number].read(self.batch, since=since, until=until, partition=partition)
        ]
        found = [some for some in found if some.rows.num_rows]
        if not found:
            return _Block()
        spec, not_before = self.matcher.spec, NEVER
        if (bound := spec.bound) is not None:
            not_before = min(int(bound.times(number, some.rows).min()) for some in found) - bound.within
        placed = [self.sharding.reassign(number, some.rows, some.partition) for some in found]
        slots = sum(rows.entries.row.size for rows in placed)
        size = sum(rows.rows.nbytes for rows in placed) + _SLOT_BYTES * slots
        memory = make_side(number, spec.schemas[number], self.sharding, MemoryBudget(2 * size + _BLOCK_BYTES))
        for some, rows in zip(found, placed, strict=True):
            stamp = some.sees[rows.entries.row].astype(np.int64)
            memory.insert(rows.rows, rows.entries, rows.values, rows.at, stamp)
        owing, sees = sum(some.rows.num_rows for some in found), max(int(some.sees.max()) for some in found)
        return _Block(memory, owing, sees, not_before)

    def _block_end(self, partition: int, since: int, top: int) -> int:
        """The step before which rows of a partition that owe fit memory; at least one step."""
        end = top
        for log in self.rows:
            size = 0
            for some in log.read(self.batch, since=since, until=end, partition=partition):
                owing = int((some.sees > 0).sum()) * some.rows.nbytes // max(1, some.rows.num_rows)
                if size + owing > _BLOCK * self.chunk:
                    end = int(some.step[0]) if size else int(some.step[-1]) + 1
                    break
                size += owing
        return max(end, since + 1)


def owing_partitions(checkpoint: Checkpoint, batch: int) -> list[int]:
    """The partitions that owe results, in the order in which a micro-batch catches them up."""
    stats = checkpoint.ledger
    productive = stats.results.sum(axis=0) / np.maximum(1, stats.arrived.sum(axis=0))
    # Every other time those that owe longest: productive ones alone would starve the others, and hold back what expires.
    order = np.argsort(checkpoint.caught if batch % 2 else -productive, kind="stable")
    return list(order[(checkpoint.owed > 0)[order]].tolist())
