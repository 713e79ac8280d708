"""MultiWayCatchUp: makes the n-tuples that were put off because a row was on disk alone, partition by partition."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.arrays import Int32s, Int64s
from headrace.memory import MemoryBudget
from headrace.metrics import JoinStats
from headrace.progressive.logged.catch_up import owing_partitions
from headrace.progressive.logged.checkpoint import Checkpoint
from headrace.progressive.logged.flusher import Flush
from headrace.progressive.logged.rows import LoggedRows, SteppedRows
from headrace.progressive.logged.sharding import Sharding
from headrace.progressive.memory.merge import Merger
from headrace.progressive.memory.spill import ANYWHERE, Spill
from headrace.progressive.multiway_output import MultiWayOutput
from headrace.progressive.multiway_segments import SegmentsJoin
from headrace.progressive.stats import ProgressiveStats
from headrace.relation.disk import Disk
from headrace.row_copies import POOL, take

_STAYS = 1 << 62  # the departure of a row that is still in memory
_BUDGET = 8  # times the bytes of a step: what sorting a partition may take, which is a quarter of the memory for rows
_MOST_DEPARTURES = 32  # of a stream and partition on average: with more, catching up goes on when its time is over


class Span(NamedTuple):
    """The steps of a partition that were caught up. A decision lists these, so that a replay repeats them."""

    partition: int
    since: int
    until: int


class MultiWayCatchUp:
    """Joins the rows of a partition in the log with each other, and sends the n-tuples that were owed.

        log, a stream at a time --> segments sorted by key, on disk --> read side by side --> the n-tuples that are owed

    No n-tuple twice, none missed. Take an n-tuple of rows with equal keys, and let A be the latest of their steps: all rows of
    a step are of one stream, so one row alone came then. It met what memory held, which was the steps from `first` on of each
    stream in this partition. So the n-tuple was sent in step A if every other row was in memory then, and is owed otherwise. A
    row departs between two steps, when a flush raises `first` above its own step: it was in memory in step A if and only if it
    departs after A. Stamps are twice the step for arrivals, and odd numbers for departures.

    A span from `since` to `until` sends the owed n-tuples whose A lies in it. Only rows of steps before `until` are read, and
    n-tuples of rows before `since` alone are left out: they were sent in step A, or in an earlier span, since spans of a
    partition follow each other. So each n-tuple is sent in step A or in the one span that A lies in.

    `departures` of the checkpoint has stream, partition, the last step before the departure, and the first step that stayed, of
    each flush. Where a partition is caught up to a step, only the last flush before that is kept: rows that departed then or
    before are on disk for all rows to come.

    The work of a span is that of sorting all rows of its partition, and of the n-tuples with a row that is new in it.

    Parameters
    ----------
    output
        Makes results.
    sharding
        Hashes keys.
    rows
        The log's rows of each stream.
    stats
        Counts results.
    batch
        The micro-batch's number; only rows of earlier ones are read.
    chunk
        Bytes of a step.
    """

    def __init__(
        self,
        output: MultiWayOutput,
        sharding: Sharding,
        rows: Sequence[LoggedRows],
        stats: JoinStats,
        batch: int,
        chunk: int,
    ) -> None:
        self.output, self.sharding, self.rows, self.stats = output, sharding, rows, stats
        self.batch, self.chunk = batch, chunk
        self.units: list[Span] = []
        """what was done, in this order"""

    def run(self, checkpoint: Checkpoint, top: int, over: Callable[[], bool]) -> Iterator[pa.RecordBatch]:
        """Make n-tuples that rows of steps before `top` owe, a partition at a time, until time is over."""
        most = _MOST_DEPARTURES * checkpoint.streams * checkpoint.partitions
        for partition in owing_partitions(checkpoint, self.batch):
            if over() and len(checkpoint.departures) <= most:
                return
            span = Span(partition, int(checkpoint.caught[partition]), top)
            if span.since < top:
                owed = yield from self._join(checkpoint, span)
                self.units.append(span)
                checkpoint.owed[partition] -= owed
                checkpoint.caught[partition] = top

    def repeat(self, checkpoint: Checkpoint, units: Sequence[Sequence[int]]) -> Iterator[pa.RecordBatch]:
        """Make the n-tuples that another attempt made."""
        # Flushes of the micro-batch itself come after all steps of its spans, so those before it say enough.
        for unit in units:
            yield from self._join(checkpoint, Span(*unit))

    def note_flushes(self, checkpoint: Checkpoint, flushes: Sequence[Flush]) -> None:
        """Add flushes to the departures, and forget those that nothing asks for any more."""
        caught = np.where(checkpoint.owed > 0, checkpoint.caught, checkpoint.steps)
        all_of_them = [*checkpoint.departures, *([f.side, f.partition, f.after, f.first] for f in flushes)]
        kept, found = list[list[int]](), set[tuple[int, int]]()
        for stream, partition, after, first in reversed(all_of_them):
            if (stream, partition) not in found:
                kept.append([stream, partition, after, first])
            if after < caught[partition]:
                found.add((stream, partition))
        checkpoint.departures = kept[::-1]

    # -- one partition ---------------------------------------------------------------------------------------------------

    def _join(self, checkpoint: Checkpoint, span: Span) -> Generator[pa.RecordBatch, None, int]:
        """Send the n-tuples of a span. Returns how many of its rows owed any."""
        budget = MemoryBudget(_BUDGET * self.chunk)
        departures = np.array(checkpoint.departures, np.int64).reshape(-1, 4)
        departures = departures[departures[:, 1] == span.partition]
        spills, owed = [], 0
        for log in self.rows:
            spill = Spill(log.kind, log.schema, 1, Disk(), budget, ProgressiveStats(), None)
            of_stream = departures[departures[:, 0] == log.side]
            for some in self._pieces(log, span):
                owed += int(((some.sees > 0) & (some.step >= span.since)).sum())
                self._add(spill, log.side, some, of_stream)
            spills.append(spill)
        if all(len(spill) for spill in spills):
            for spill in spills:
                Merger(spill, self.sharding.partitioning, budget.limit).reduce(0, 1)
            # Blocks of all streams together take as much as a step.
            block = self.chunk // len(spills)
            join = SegmentsJoin(spills, self.output, block=block, work=self.chunk, since=2 * span.since)
            for out in join.run(0):
                if out.num_rows:
                    self.stats.results += out.num_rows
                    yield out
        return owed

    def _pieces(self, log: LoggedRows, span: Span) -> Iterator[SteppedRows]:
        """The rows of a stream, about a step's bytes at a time: those of a partition lie all over the log."""
        held, size = list[SteppedRows](), 0
        for some in log.read(self.batch, until=span.until, partition=span.partition):
            if held and size + some.rows.nbytes > self.chunk:
                yield _together(held)
                held, size = [], 0
            held.append(some)
            size += some.rows.nbytes
        if held:
            yield _together(held)

    def _add(self, spill: Spill, number: int, some: SteppedRows, departures: Int64s) -> None:
        """Write rows as a segment, sorted by cell, with the stamps of their arrivals and departures."""
        cell = self.sharding.reassign(number, some.rows, some.partition).entries.cell
        order = np.argsort(cell, kind="stable")
        step = some.step[order]
        stamps = np.append(2 * departures[:, 2] + 1, _STAYS)
        # `first` grows from flush to flush: a row departs with the first flush that raises it above the row's step.
        departed = stamps[np.searchsorted(departures[:, 3], step, side="right")]
        swept: Int32s = np.zeros(step.size, np.int32)
        begin = spill.room_for(ANYWHERE)
        end = spill.append(begin, take(some.rows, order), 2 * step.astype(np.int64), swept, cell[order], departed)
        spill.add(0, step.size, int(departed.max()), begin, end - begin)


def _together(parts: list[SteppedRows]) -> SteppedRows:
    if len(parts) == 1:
        return parts[0]
    rows = pa.concat_batches([part.rows for part in parts], memory_pool=POOL)
    return SteppedRows(
        rows, *(np.concatenate([getattr(part, name) for part in parts]) for name in ("partition", "step", "sees"))
    )
