"""LoggedRows: the rows of one side in the run log, which are the disk partitions of a progressive join. (DESIGN D7)

A file holds the rows of a micro-batch, or of several after a compaction, as record batches of whole steps. Each is sorted by
partition, so that one partition is read by slices. Beside its own columns a row has three: its partition, its step, and the step
that it `sees`: rows of the other side of steps before that one were on disk alone when it came, and it owes the pairs with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.arrays import Bools, Int32s, Int64s
from headrace.errors import DamagedLog, OtherLog
from headrace.files import status_of
from headrace.progressive.grids.partitioning import stream_kind, stream_name
from headrace.progressive.logged.checkpoint import NEVER
from headrace.progressive.logged.sharding import ShardedRows
from headrace.row_copies import POOL, take
from headrace.runlog import DecisionDraft, LogFile, ShardLog
from headrace.runlog.files import CURE, StateDraft, read_state, understood

PARTITION, STEP, SEES = (f"__headrace_{name}" for name in ("partition", "step", "sees"))
EXTRA = pa.schema({PARTITION: pa.int32(), STEP: pa.int32(), SEES: pa.int32()})
_TIER = 8  # files of about one size before they are merged; sizes of two tiers differ by this factor
_SPAN = (
    4  # where rows expire, a merged file has at most this part of all rows: a file goes when all its rows have expired
)

_checked: dict[Path, tuple[int, int]] = {}  # inode and mtime of files whose checksum this process has compared


@dataclass(frozen=True, slots=True)
class SteppedRows:
    """Rows from the log, with the partition, the step, and what each of them sees."""

    rows: pa.RecordBatch
    partition: Int32s
    step: Int32s
    sees: Int32s

    def where(self, which: Bools) -> SteppedRows:
        """Select rows: a copy, or these themselves if it is all of them."""
        if which.all():
            return self
        return SteppedRows(
            take(self.rows, np.flatnonzero(which)), self.partition[which], self.step[which], self.sees[which]
        )


class LoggedRows:
    """The files of one side's rows in a shard.

    Parameters
    ----------
    shard
        The shard of the run log, held.
    side
        0 is left, 1 is right; of several streams their number. The kind of the files is named after it.
    schema
        The columns of its rows.
    times
        Gives the event times of a side's rows in microseconds; None if rows do not expire.
    size
        Bytes of a record batch after a compaction.
    streams
        How many sides there are.
    partitions
        How many partitions rows are divided into.
    """

    def __init__(
        self,
        shard: ShardLog,
        side: int,
        schema: pa.Schema,
        times: Callable[[int, pa.RecordBatch], Int64s] | None = None,
        *,
        size: int = 1 << 22,
        streams: int = 2,
        partitions: int = 1 << 31,
    ) -> None:
        self.shard, self.side, self.kind, self.schema = shard, side, stream_kind(side, streams), schema
        self.name = stream_name(side, streams)
        self.times, self.size, self.partitions = times, size, partitions
        self.written = pa.schema([*EXTRA, *schema])
        self._files: dict[Path, LogFile] = {}

    # -- writing ---------------------------------------------------------------------------------------------------------

    def draft(self, decision: DecisionDraft) -> RowDraft:
        """Begin the rows of a micro-batch, in a file beside its decision."""
        return RowDraft(self, decision)

    # -- reading ---------------------------------------------------------------------------------------------------------

    def read(
        self, before: int, since: int = 0, until: int = 1 << 40, partition: int | None = None, not_before: int = NEVER
    ) -> Iterator[SteppedRows]:
        """Read rows of micro-batches before one and of steps from `since` to before `until`, of one partition or all, by steps.

        Files whose rows are all of event times before `not_before` are skipped.
        """
        for file in self._open(before):
            latest = file.facts["latest"]
            if (
                file.facts["last"] < since
                or file.facts["first"] >= until
                or (latest is not None and latest < not_before)
            ):
                continue
            for batch in file.batches():
                found = self._rows(file, batch, since, until, partition)
                if found.rows.num_rows:
                    yield found

    def of_batch(self, batch: int) -> Iterator[SteppedRows]:
        """Read the rows of a decided micro-batch, step by step, as they were written."""
        file = self.shard.find(self.kind, batch)
        if file is not None:
            yield from (self._rows(file, some, 0, 1 << 40, None) for some in self._fitting(file).batches())

    def _rows(self, file: LogFile, batch: pa.RecordBatch, since: int, until: int, partition: int | None) -> SteppedRows:
        if partition is not None:
            # A copy: rows of a partition lie all over the file, and to read them later would map most of it again.
            first, last = np.searchsorted(np.asarray(batch.column(0)), [partition, partition + 1]).tolist()
            batch = take(batch, np.arange(first, last))
        at, step, sees = (np.asarray(batch.column(i)) for i in range(3))
        # Nulls make them floats; numbers outside lead nowhere. A checksum does not say that there are none.
        if {at.dtype, step.dtype, sees.dtype} != {np.dtype(np.int32)} or not self._inside(at):
            raise DamagedLog(
                f"{file.path} is damaged: it has rows of partitions or steps that there are none of; {CURE}"
            )
        own = pa.RecordBatch.from_arrays(batch.columns[3:], schema=self.schema)
        return SteppedRows(own, at, step, sees).where((step >= since) & (step < until))

    def _inside(self, partition: Int32s) -> bool:
        return partition.size == 0 or bool(partition.min() >= 0 and partition.max() < self.partitions)

    def _open(self, before: int) -> Iterator[LogFile]:
        for entry in self.shard.entries(self.kind, before=before):
            if entry.path not in self._files:
                known = status_of(entry.path, follow=False)
                name = known.st_ino, known.st_mtime_ns
                self._files[entry.path] = self._fitting(read_state(entry.path, check=_checked.get(entry.path) != name))
                _checked[entry.path] = name
            yield self._files[entry.path]

    def _fitting(self, file: LogFile) -> LogFile:
        if not file.schema.equals(self.written):
            raise OtherLog(
                f"{file.path} holds rows of {self.name} with columns {_named(file.schema)}, and they are now"
                f" {_named(self.written)}; go on with the columns it had, or begin anew with another state directory and"
                " checkpoint"
            )
        with understood(file.path):
            first, last, latest = (file.facts[name] for name in ("first", "last", "latest"))
            if not (isinstance(first, int) and isinstance(last, int) and isinstance(latest, int | None)):
                raise TypeError("first, last and latest")
        return file

    # -- fewer files -----------------------------------------------------------------------------------------------------

    def tidy(self, before: int, expired: int) -> None:
        """Remove files whose rows are all of times before `expired`; merge files of about one size, without such rows."""
        if expired == NEVER and len(self.shard.entries(self.kind, before=before)) < _TIER:
            return
        files = list(self._open(before))
        if gone := [f.path for f in files if f.facts["latest"] is not None and f.facts["latest"] < expired]:
            self.shard.remove(gone)
        entries = self.shard.entries(self.kind, before=before)
        sizes = [self._files[e.path].rows for e in entries]
        first, last = _run(sizes, sum(sizes) // _SPAN if self.times is not None else None)
        if last > first:
            some = [self._files[e.path].facts for e in entries[first:last]]
            times = [f["latest"] for f in some if f["latest"] is not None]
            facts = {"first": some[0]["first"], "last": some[-1]["last"], "latest": max(times, default=None)}
            self.shard.compact(
                self.kind,
                before=entries[last - 1].last + 1,
                since=entries[first].last,
                facts=facts,
                merge=lambda batches: self._merged(batches, expired),
            )
        self._files.clear()

    def _merged(self, batches: Iterator[pa.RecordBatch], expired: int) -> Iterator[pa.RecordBatch]:
        """Concatenate record batches up to a size, and sort them by partition and step."""
        held: list[pa.RecordBatch] = []
        for batch in batches:
            if self.times is not None and expired > NEVER:
                own = pa.RecordBatch.from_arrays(batch.columns[3:], schema=self.schema)
                batch = take(batch, np.flatnonzero(self.times(self.side, own) >= expired))
            if held and sum(b.nbytes for b in held) + batch.nbytes > self.size:
                yield _sorted(held)
                held = []
            held.append(batch)
        if held:
            yield _sorted(held)


class RowDraft:
    """A side's rows of a micro-batch that is not decided yet. The file is opened when its first row comes.

    Parameters
    ----------
    rows
        The side's rows in the log.
    decision
        The decision that they are written beside.
    """

    def __init__(self, rows: LoggedRows, decision: DecisionDraft) -> None:
        self._rows, self._decision = rows, decision
        self._draft: StateDraft | None = None
        self._first = self._last = -1
        self._latest: int | None = None

    @property
    def written(self) -> int:
        """How many rows there are."""
        return 0 if self._draft is None else self._draft.rows

    def add(self, rows: ShardedRows, step: int, sees: Int64s, latest: int) -> None:
        """Add the rows of a step. `latest` is the latest event time in it."""
        if self._draft is None:
            self._draft, self._first = self._decision.beside(self._rows.kind, self._rows.written), step
        self._last = step
        if self._rows.times is not None:
            self._latest = max(latest, NEVER if self._latest is None else self._latest)
        n = rows.rows.num_rows
        extra = [pa.array(rows.partition), pa.array(np.full(n, step, np.int32)), pa.array(sees.astype(np.int32))]
        self._draft.add(pa.RecordBatch.from_arrays([*extra, *rows.rows.columns], schema=self._rows.written))

    def facts(self) -> dict[str, int | None]:
        """The facts of the file: its first and last step, and the latest event time."""
        return {"first": self._first, "last": self._last, "latest": self._latest}


def _run(sizes: list[int], most: int | None) -> tuple[int, int]:
    """Choose files to merge: the newest ones, if there are enough of them that are not larger than those of a tier."""
    tiers = [int(np.log(rows + 1) / np.log(_TIER)) for rows in sizes]
    for tier in sorted(set(tiers)):
        first = len(tiers)
        while first and tiers[first - 1] <= tier:
            first -= 1
        if len(tiers) - first >= _TIER and (most is None or sum(sizes[first:]) <= most):
            return first, len(tiers)
    return 0, 0


def _sorted(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    whole = batches[0] if len(batches) == 1 else pa.concat_batches(batches, memory_pool=POOL)
    # A stable sort: batches are in the order of steps, and so are the rows of each partition.
    order = np.argsort(np.asarray(whole.column(0)), kind="stable")
    return take(whole, order)


def _named(schema: pa.Schema) -> str:
    return ", ".join(f"{f.name} {f.type}" for f in list(schema)[len(EXTRA) :])
