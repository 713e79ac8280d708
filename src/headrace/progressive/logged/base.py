"""What every part of a logged progressive join needs: where it stands, which rows are in time, pairs, counters."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from headrace.clock import Clock, SystemClock
from headrace.errors import RunLogError
from headrace.metrics import JoinStats
from headrace.progressive.grids.partitioning import Mask
from headrace.progressive.logged.checkpoint import NEVER, Standing
from headrace.progressive.logged.join_spec import Pairing
from headrace.progressive.logged.rows import LoggedRows, RowDraft
from headrace.progressive.logged.sharding import Part
from headrace.progressive.logged.state_cache import Warm, pairs_with
from headrace.progressive.memory.side_memory import SideMemory
from headrace.progressive.output import BatchRows, MemoryRows, left_and_right
from headrace.progressive.policies.stats import Counts
from headrace.relation.columns import Longs
from headrace.relation.keys import Ints
from headrace.runlog import LogFile, ShardLog

DECISION, FINISHING, FINISHED = "decision", "finishing", "finished"
_EXPECTED = 64  # bytes of a pair beside its rows
_CHUNKS = 32  # a step is at most such a part of memory, and so are results that leave together


class LoggedBase:
    """The log, the memory and the clock of a LoggedJoin; see there for the parameters."""

    _standing: Standing
    _drafts: list[RowDraft]
    _begun: int

    def __init__(
        self,
        pairing: Pairing,
        shard: ShardLog,
        warm: Warm,
        batch: int,
        *,
        idle: float = 1.0,
        clock: Clock | None = None,
    ) -> None:
        self.pairing, self.shard, self.warm, self.batch, self.idle = pairing, shard, warm, batch, idle
        self.clock = clock or SystemClock()
        self.division = warm.division
        self.stats = JoinStats(memory_limit=warm.memory)
        self._chunk = max(1 << 12, warm.memory // _CHUNKS)
        bound = pairing.bound
        self.rows = [
            LoggedRows(shard, side, schema, bound.times if bound else None, size=4 * self._chunk)
            for side, schema in enumerate(pairing.schemas)
        ]
        self._events: list[list[int]] = []  # flushes: after which step, side, partition, where memory begins
        self._units: list[list[int]] = []  # what was caught up
        self._watermark = NEVER

    # -- where it stands -------------------------------------------------------------------------------------------------

    def _before(self, *, finishing: bool = False) -> Standing:
        """After the last micro-batch before this one."""
        last = self.shard.last(DECISION, before=self.batch)
        if last is None:
            return Standing.empty(self.pairing.partitioning.partitions)
        standing = self._decided(last)
        if self.shard.find(FINISHED, standing.batch) is not None:
            standing.settle()
        elif self.shard.find(FINISHING, standing.batch) is not None and not finishing:
            raise RunLogError(
                f"hr.finish was interrupted after batch {standing.batch} of {self.shard.directory}; call it again before the"
                " query goes on"
            )
        return standing

    def _decided(self, file: LogFile) -> Standing:
        return Standing.of(file, self.pairing.partitioning.partitions)

    def _tidy(self) -> None:
        """Files that nobody needs: Spark may replay this micro-batch, but none before it."""
        for kind in (DECISION, FINISHING, FINISHED):
            self.shard.expire(kind, before=self._standing.batch)
        expired = NEVER
        if self.pairing.bound is not None:
            expired = max(NEVER, self._standing.safe_watermark() - self.pairing.bound.within)
        for log in self.rows:
            log.tidy(self.batch, expired)

    # -- event time ------------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """The watermark of this micro-batch, by what came before it; memory lets go of what has expired."""
        standing, bound = self._standing, self.pairing.bound
        if bound is None:
            return
        self._watermark = bound.watermark(standing.latest)
        if self._watermark == NEVER:
            return
        standing.note_watermark(self._watermark)
        expired = self._watermark - bound.within
        standing.flushed[standing.until < expired] = 0
        standing.first = self._alive(bound.times, bound.columns, expired)
        self.warm.drop(standing.first)

    def _alive(self, times: Callable[[int, pa.RecordBatch], Longs], columns: tuple[str, str], expired: int) -> Counts:
        """Where memory can begin, since all rows before have expired."""
        standing, first = self._standing, self._standing.first.copy()
        for side, column in zip(self.warm.sides, columns, strict=True):
            slots = side.live()
            slots = slots[side.by_chunk(slots)]
            alive = slots[times(side.number, side.rows(slots, [column])) >= expired]
            begin = np.full(standing.partitions, standing.steps, np.int64)
            np.minimum.at(begin, side.partition[alive], side.arrived[alive])
            first[side.number] = np.maximum(first[side.number], begin)
        return first

    def _in_time(self, number: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows that have a time, and are not late."""
        bound = self.pairing.bound
        if bound is None:
            return batch
        times = bound.times(number, batch)
        late = (times < self._watermark) & (times > NEVER) & (bound.delays[number] is not None)
        self.stats.late += int(late.sum())
        there = (times > NEVER) & ~late
        return batch if there.all() else batch.filter(pa.array(there))

    # -- pairs -----------------------------------------------------------------------------------------------------------

    def _matches(
        self, number: int, part: Part, other: SideMemory, keep: Callable[[Ints, Ints], Mask] | None = None
    ) -> Iterator[tuple[pa.RecordBatch, Ints]]:
        """Results of rows with the other side's slots, and those slots. `keep` says which pairs are wanted."""
        if not other.used or not part.entries.row.size:
            return
        each = part.rows.nbytes // max(1, part.rows.num_rows) + other.row_bytes + _EXPECTED
        for rows, slots in pairs_with(other, part, max(64, self._chunk // each)):
            if keep is not None:
                which = keep(rows, slots)
                rows, slots = rows[which], slots[which]
            if rows.size:
                out, some = self.pairing.output.make(
                    *left_and_right(number, BatchRows(part.rows, rows), MemoryRows(other, slots))
                )
                if out.num_rows:
                    self.stats.results += out.num_rows
                    yield out, slots if some is None else slots[some]

    # -- counters --------------------------------------------------------------------------------------------------------

    def _recount(self) -> None:
        """The tuples in memory."""
        held = self._standing.ledger.held
        for side in self.warm.sides:
            held[side.number] = np.bincount(side.partition[side.live()], minlength=held.shape[1])

    def _count(self) -> None:
        self.stats.waiting = int(self._standing.owed.sum())
        self.stats.memory = self.warm.budget.held()
        self.stats.memory_peak = self.warm.budget.peak
