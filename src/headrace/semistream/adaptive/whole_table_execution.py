"""AdaptiveJoin with a relation that fits its budget: every key is looked up in a WholeTable, and nothing is read. (DESIGN D5)

    batch --piece by piece--> keys --> slots --> results in the order of the rows

There are no distinct keys to find, no popularity to measure and no split to choose: a row takes one look-up and its columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.clock import Clock
from headrace.memory import MemoryBudget, release_freed_memory
from headrace.metrics import JoinStats
from headrace.relation import Relation
from headrace.relation.columns import Column
from headrace.relation.sketch import Sketch
from headrace.semistream.adaptive.eager import EagerExecution
from headrace.semistream.adaptive.group import Group, GroupMembership
from headrace.semistream.adaptive.keyed_store import Arrays
from headrace.semistream.adaptive.shared_table import SharedTable
from headrace.semistream.adaptive.whole_table import WholeTable, WholeTablePlan
from headrace.semistream.results import Matches, ResultMaker

_LEAST_HORIZON, _HORIZON_KEYS = 1 << 16, 10  # stream tuples that the sketch counts: at least, and for each key


class WholeTableMemory:
    """The memory of an AdaptiveJoin that holds the whole relation. To the join it is what JoinMemory is.

    Parameters
    ----------
    relation, payload, plan, budget, stats
        See JoinMemory.
    """

    def __init__(
        self,
        relation: Relation,
        payload: tuple[Column, ...],
        plan: WholeTablePlan,
        budget: MemoryBudget,
        stats: JoinStats,
    ) -> None:
        self.relation = relation
        self.payload = payload
        self.plan = plan
        self.stats = stats
        parts = {"table": plan.table, "sketch": plan.sketch, "process": plan.process}
        parts |= {"loading": plan.load, "stream buffer": 0, "output": 0}
        self._reserved = {part: budget.reserve(part, nbytes) for part, nbytes in parts.items()}
        self._table: WholeTable | None = None
        self._alone = False  # whether no group has the table
        self.popularity = Sketch(
            plan.sketch // plan.workers, max(_LEAST_HORIZON, _HORIZON_KEYS * plan.facts.distinct_keys)
        )

    def allocate(self) -> None:
        """Have the table in memory of this process's own, from when the first rows come."""
        self._alone = True

    @property
    def table(self) -> WholeTable:
        """The table; it is made when it is first asked for, unless a group has it."""
        self.relation.opened.check_open()
        if self._table is None:
            assert self._alone, "the join is of a group, and holds no slot in it"
            table = WholeTable(self.plan, self.relation.codec)
            table.load(self.relation, self.begin_loading())
            release_freed_memory()
            self.hold(table)
            return table
        return self._table

    def begin_loading(self) -> JoinStats:
        """Reserve what loading takes, in place of the buffers for rows; gives the counters for what it reads."""
        for part, nbytes in (("stream buffer", 0), ("output", 0), ("loading", self.plan.load)):
            self._reserved[part].resize(nbytes)
        return self.stats

    def hold(self, table: WholeTable | None) -> None:
        """Use a table that is loaded, of this process or of a group; None: let go of it."""
        self._table = table
        if table is not None:
            self._reserved["loading"].resize(0)
            self._reserved["stream buffer"].resize(self.plan.stream)
            self._reserved["output"].resize(self.plan.output)

    @property
    def piece_rows(self) -> int:
        """Rows that are looked up together."""
        return self.plan.rows

    most_rows = piece_rows

    @property
    def output_rows(self) -> int:
        """Rows of a result batch at most."""
        return self.plan.rows

    @property
    def output_bytes(self) -> int:
        """Bytes of a result batch at most, unless it is of one row."""
        return self.plan.output // self.plan.workers

    @property
    def gathered_bytes(self) -> int:
        """Bytes of stream rows that are worth gathering: none, since rows share no reads."""
        return 0

    def expect(self, batch: pa.RecordBatch) -> None:
        """Nothing to do: no size follows that of a batch."""

    def dump(self) -> Arrays:
        """Nothing was learned that the relation does not tell."""
        return {}

    def load(self, arrays: Arrays) -> None:
        """Nothing to do, see `dump`."""


class WholeTableExecution(EagerExecution):
    """Looks the rows of a batch up, some thousand at a time, and makes their results.

    Parameters
    ----------
    memory, results
        The parts of the join that it works with.
    stream_key
        The stream's columns that must equal the relation's key.
    clock
        What says whether rows are late: loading the table takes time.
    """

    def __init__(
        self, memory: WholeTableMemory, results: ResultMaker, stream_key: tuple[str, ...], clock: Clock
    ) -> None:
        super().__init__()
        self._clock = clock
        self._oldest = 0.0  # when the first batch came of those that were not joined
        self._memory = memory
        self._results = results
        self._stream_key = stream_key
        self._counted = memory.plan.sketch > 0
        self._rows = np.arange(memory.plan.rows, dtype=np.int32)
        self._source = np.zeros(memory.plan.rows, np.int32)

    def offer(self, batch: pa.RecordBatch, schema: pa.Schema) -> None:
        """Take in a batch, with the schema of its results."""
        if not self._offered:
            self._oldest = self._clock.now()
        super().offer(batch, schema)

    def _join(self, batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        memory, rows = self._memory, self._memory.plan.rows
        if not batch.num_rows:
            return
        table = memory.table
        for at in range(0, batch.num_rows, rows):
            piece = batch.slice(at, rows)
            matches = self._look_up(piece, table)
            for out in self._results.emit(piece, schema, matches, rows, memory.output_bytes):
                memory.relation.disk.spend({"c_O": out.num_rows})
                yield out
        if self.deadline is not None and self._clock.now() > self._oldest + self.deadline:
            memory.stats.late += batch.num_rows

    def _look_up(self, piece: pa.RecordBatch, table: WholeTable) -> Matches:
        memory, stats, n = self._memory, self._memory.stats, piece.num_rows
        keys, valid = memory.relation.codec.encode([piece.column(name) for name in self._stream_key])
        pos, count = np.empty(n, np.int32), np.empty(n, np.int32)
        found = table.probe(keys, valid, pos, count)
        nulls = n - int(np.count_nonzero(valid)) if valid.size else 0
        stats.nulls += nulls
        stats.hits += found
        stats.absent += n - nulls - found
        stats.matched += found
        stats.unmatched += n - found
        if self._counted:
            hashes = keys.hashes()[count > 0]
            memory.popularity.add(hashes, np.ones(hashes.size, np.int32))
        memory.relation.disk.spend({"c_S": n, "c_X": n})
        return Matches(self._rows[:n], self._source[:n], pos, count, table.sources)


class WholeTableMembership(GroupMembership):
    """The part of a join in a group that holds the relation whole.

    Parameters
    ----------
    group, limit
        See GroupMembership.
    memory
        The memory of the join.
    """

    shared: SharedTable | None

    def __init__(self, group: Group, memory: WholeTableMemory, limit: int) -> None:
        super().__init__(group, memory.relation, memory.payload, limit)
        self._memory = memory

    def _open(self, card: Path) -> SharedTable:
        memory = self._memory
        return SharedTable(card, memory.relation, memory.payload, memory.plan, memory.begin_loading)

    def _attach(self, slot: int, *, moved: bool) -> None:
        assert self.shared is not None
        self._memory.hold(self.shared.table())

    def _detach(self) -> None:
        self._memory.hold(None)
        release_freed_memory()
