"""ShardGroups: GROUP BY of a query on Spark, in the order of pulls.

Rows of a micro-batch come from many tasks, in any order, and what a join owes comes in later ones. Windows end in the order of
pulls, as in an embedded query, so rows come as partial sums with the number of their pull, and every pull has a mark beside
them, with the moment at which its items were seen. They wait until no join owes anything: then all rows of their pulls are here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from headrace.arrays import Int64s
from headrace.feeds.items import MOMENT
from headrace.feeds.spark.schemas import spark_schemas, typed
from headrace.feeds.sql.open_groups import OpenGroups
from headrace.feeds.sql.partial_sums import WINDOW, PartialSums
from headrace.feeds.sql.plan import QueryPlan
from headrace.files import paths_in
from headrace.memory import MemoryBudget
from headrace.metrics import JoinStats
from headrace.runlog.log import safe_name
from headrace.sampling.event_times import START, whole_times
from headrace.sampling.snapshot import Parts, SnapshotReader, write_side, write_snapshot
from headrace.spark.pair_step import OWED

PULL, SEEN = "_pull", "_seen"
_WHAT, _WINDOW = "groups of a feed query", "window"
_COPIES = 2  # of rows that wait, while they are put in order

Batches = Iterator[pa.RecordBatch]


def sums_schema(sums: PartialSums) -> pa.Schema:
    """The columns of rows that come: the pull, partial sums, and of a mark, which has no sums, when its items were seen."""
    return pa.schema([(PULL, pa.int64()), *sums.schema, (SEEN, MOMENT)])


@dataclass(frozen=True)
class SumRows:
    """Makes partial sums of joined rows. Picklable."""

    plan: QueryPlan

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Partial sums by the pull of the latest item of each row."""
        assert self.plan.grouping is not None
        sums = PartialSums(self.plan.grouping)
        pulls = [rows.column(f"{one.alias}__pull") for one in self.plan.sources]
        made = sums.of(rows.append_column(PULL, pc.max_element_wise(*pulls)), [PULL])
        return pa.RecordBatch.from_arrays([*made.columns, pa.nulls(made.num_rows, MOMENT)], schema=sums_schema(sums))


@dataclass(frozen=True)
class MarkRows:
    """Makes a mark of the items of each pull. Picklable."""

    schema: pa.Schema

    def __call__(self, items: pa.RecordBatch) -> pa.RecordBatch:
        """The number of each pull, and when it was made."""
        seen = pa.table([items.column("pull"), items.column("seen")], names=[PULL, SEEN])
        marks = seen.group_by(PULL, use_threads=False).aggregate([(SEEN, "max")]).combine_chunks()
        given = {PULL: marks.column(PULL), SEEN: marks.column(f"{SEEN}_max")}
        columns = [
            given[field.name].combine_chunks() if field.name in given else pa.nulls(marks.num_rows, field.type)
            for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


@dataclass(frozen=True, kw_only=True)
class GroupSpec:
    """GROUP BY as it travels to the executors.

    Args:
        plan: the query.
        memory: bytes of the groups in a worker.
        state: the directory of the query's run logs.
        joins: the names of the run logs of its joins.
    """

    plan: QueryPlan
    memory: int
    state: str
    joins: tuple[str, ...]
    name: str = "groups"

    def open(self, shard: int) -> ShardGroups:
        """Make the operator of a shard."""
        return ShardGroups(self.plan, self.memory, self._owes)

    def _owes(self) -> bool:
        """Whether a join of this query owes results; its tasks of this micro-batch have ended when groups are made."""
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        if query is None:
            return False
        logs = [Path(self.state) / safe_name("query", query) / safe_name("operator", name) for name in self.joins]
        return any(paths_in(log / OWED, "shard-*", missing_ok=True) for log in logs)


class ShardGroups:
    """The groups of all windows that are open, and rows of pulls that are not complete.

    Args:
        plan: the query.
        memory: bytes of both.
        owes: says whether rows of earlier pulls may still come.
    """

    def __init__(self, plan: QueryPlan, memory: int, owes: Callable[[], bool]) -> None:
        assert plan.grouping is not None
        self.plan, self.grouping, self._owes = plan, plan.grouping, owes
        self.budget = MemoryBudget(memory)
        self._groups = OpenGroups(plan.grouping, self.budget)
        self._takes = sums_schema(self._groups.sums)
        self._gives = spark_schemas(plan.schema)[1]
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_part = self.budget.reserve("rows of pulls that are not complete", 0)
        self._clock = START

    def insert(self, side: int, batch: pa.RecordBatch) -> Batches:
        """Keep rows until the end of the micro-batch."""
        batch = typed(batch, self._takes)
        batch = batch.filter(
            batch.column(PULL).is_valid()
        )  # without a pull it says no more than that there is a micro-batch
        self._waiting_part.resize(self._waiting_part.nbytes + _COPIES * batch.nbytes)
        self._waiting.append(batch)
        return iter(())

    def end(self) -> Batches:
        """Give the groups of windows that have ended."""
        if not self._waiting or self._owes():
            return
        rows = pa.concat_batches(self._waiting)
        self._waiting = []
        rows = rows.take(pc.sort_indices(rows.column(PULL)))  # which is stable
        for part, seen in self._steps(rows):
            self._groups.insert(part.select(self._groups.sums.schema.names))
            groups = self._groups.advance(seen)
            if groups is not None and groups.num_rows:
                yield typed(self.plan.results(groups), self._gives)
        self._waiting_part.resize(0)

    def snapshot(self) -> Parts:
        """The state."""
        numbers = {"numbers": np.array([self._groups.late, self._clock], np.int64)}
        yield from write_snapshot(_WHAT, numbers, self._waiting)
        yield from write_side(_WINDOW, self._groups.snapshot())

    def restore(self, snapshot: Iterable[pa.RecordBatch]) -> None:
        """Go on from a snapshot."""
        reader = SnapshotReader(snapshot)
        reader.check(_WHAT)
        self._groups.late, self._clock = reader.arrays()["numbers"].tolist()
        self._waiting = list(reader.rows())
        self._waiting_part.resize(_COPIES * sum(batch.nbytes for batch in self._waiting))
        reader.side()
        self._groups.restore(reader)

    def counters(self) -> JoinStats:
        """What was counted, and what memory is held."""
        return JoinStats(
            late=self._groups.late,
            memory=self.budget.held(),
            memory_limit=self.budget.limit,
            memory_peak=self.budget.peak,
        )

    def _steps(self, rows: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Partial sums in the order of their pulls, and the clock after them.

        Pulls that follow each other come together as long as no window ends between them.
        """
        marks = rows.column(SEEN).is_valid()
        sums = rows.filter(pc.invert(marks))
        pulls, clocks = _clocks(rows.filter(marks), self._clock)
        if not clocks.size:
            yield sums, self._clock
            return
        before, self._clock = self._clock, int(clocks[-1])
        of, at = np.asarray(sums.column(PULL)), 0
        for i in self._last_pulls(sums, clocks, before).tolist():
            until = int(np.searchsorted(of, pulls[i], "right"))
            yield sums.slice(at, until - at), int(clocks[i])
            at = until

    def _last_pulls(self, sums: pa.RecordBatch, clocks: Int64s, before: int) -> Int64s:
        """The pulls after which a window ends that rows are in, and the last one: a pull ends windows after its own rows."""
        starts = whole_times(sums.column(WINDOW).drop_null())
        if not starts.size:
            return np.array([clocks.size - 1])
        # All windows begin at the same distance from a multiple of their width.
        since = int(starts[0]) + int(self.grouping.slack * 1e6)
        ended = (clocks - since) // self.grouping.width
        first = ended[0] - 1 if before == START else (before - since) // self.grouping.width
        changed = np.diff(ended, prepend=first) != 0
        changed[-1] = True
        return np.flatnonzero(changed)


def _clocks(marks: pa.RecordBatch, clock: int) -> tuple[Int64s, Int64s]:
    """The numbers of the pulls that marks are of, in order, and the latest moment at which items were seen up to each."""
    pulls, first = np.unique(np.asarray(marks.column(PULL)), return_index=True)
    if not pulls.size:
        return pulls, pulls
    seen = np.maximum.reduceat(whole_times(marks.column(SEEN)), first)
    return pulls, np.maximum(np.maximum.accumulate(seen), clock)
