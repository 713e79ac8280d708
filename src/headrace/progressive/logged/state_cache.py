"""StateCache: the rows that a logged progressive join holds in memory, a side with its index for each stream."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.arrays import Int64s
from headrace.memory import MemoryBudget
from headrace.progressive.grids.partitioning import stream_kind
from headrace.progressive.logged.checkpoint import Checkpoint
from headrace.progressive.logged.rows import LoggedRows
from headrace.progressive.logged.sharding import ShardedRows, Sharding
from headrace.progressive.memory.side_memory import SideMemory, slot_bytes
from headrace.progressive.policies.base import FlushPolicy
from headrace.progressive.policies.driver import ranked

_NO_BATCH = -2  # of a cache that agrees with no checkpoint; -1 is the one before the first micro-batch
_SLACK = 2  # times `memory`: the operator keeps to that, but a cache that is rebuilt may need more for a moment


class StateCache:
    """Memory of one shard in one process. It can be rebuilt from the log at any time: to lose it costs time and nothing else.

        log     [step 0] [step 1] [step 2] [step 3] [step 4] ...
        memory                    <-- from `first` of its side and partition on, all rows

    Parameters
    ----------
    sharding
        Says which partitions of the shard rows belong to.
    policy
        Chooses what to flush; it may learn from the rows that come.
    memory
        Bytes for rows and indexes.
    schemas
        The columns of each side.
    """

    def __init__(self, sharding: Sharding, policy: FlushPolicy, memory: int, schemas: Sequence[pa.Schema]) -> None:
        self.sharding, self.policy, self.memory = sharding, policy, memory
        self.schemas = schemas
        self.batch, self.origin, self.steps = _NO_BATCH, "", 0
        self._clear(memory)

    def _clear(self, memory: int) -> None:
        self.budget = MemoryBudget(_SLACK * memory)
        self.sides = [
            make_side(number, schema, self.sharding, self.budget, len(self.schemas))
            for number, schema in enumerate(self.schemas)
        ]

    def dirty(self) -> None:
        """Note that a micro-batch begins: until `clean`, the cache agrees with no checkpoint."""
        self.batch = _NO_BATCH

    def clean(self, checkpoint: Checkpoint) -> None:
        """Note that the cache holds what this checkpoint says."""
        self.batch, self.origin, self.steps = checkpoint.batch, checkpoint.origin, checkpoint.steps

    # -- from the log ----------------------------------------------------------------------------------------------------

    def bring_up(self, checkpoint: Checkpoint, rows: Sequence[LoggedRows], before: int) -> None:
        """Read from the log what the cache lacks of what a checkpoint says, or all of it; drop the rest."""
        if self.batch == _NO_BATCH or self.origin != checkpoint.origin or self.batch > checkpoint.batch:
            # If there is less memory than before, the operator flushes the surplus afterwards.
            self._clear(max(self.memory, checkpoint.memory))
            steps = 0
        elif self.batch == checkpoint.batch:
            return
        else:
            steps = self.steps
        self.dirty()
        self.drop(checkpoint.first)
        for number, log in enumerate(rows):
            first = checkpoint.first[number]
            for found in log.read(before, since=max(steps, int(first.min()))):
                found = found.where((found.step >= first[found.partition]) & (found.step >= steps))
                if found.rows.num_rows:
                    self.insert(
                        number, self.sharding.reassign(number, found.rows, found.partition), found.step.astype(np.int64)
                    )
        self.clean(checkpoint)

    # -- in and out ------------------------------------------------------------------------------------------------------

    def need(self, number: int, rows: ShardedRows) -> int:
        """Bytes that rows of a side will take."""
        return int(rows.rows.nbytes) + self.sides[number].more_bytes(rows.entries.row.size)

    def insert(self, number: int, rows: ShardedRows, step: int | Int64s) -> None:
        """Insert rows of a side; there must be room for them. `step` is that of all, or one for each row."""
        stamp = step if isinstance(step, int) else step[rows.entries.row]
        self.sides[number].insert(rows.rows, rows.entries, rows.values, rows.at, stamp)

    def drop(self, first: Int64s) -> None:
        """Drop rows of steps before these, [side, partition]."""
        for side in self.sides:
            slots = side.live()
            slots = slots[side.arrived[slots] < first[side.number][side.partition[slots]]]
            if slots.size:
                side.remove(slots)
                side.compact()

    # -- flushes ---------------------------------------------------------------------------------------------------------

    def victims(self, checkpoint: Checkpoint, wanted: int) -> Int64s:
        """The first steps to keep, [side, partition], when about so many tuples are flushed: more, since whole steps go."""
        policy, ledger = self.policy, checkpoint.ledger
        order, size = ranked(policy, ledger)
        last = min(int(np.searchsorted(np.cumsum(size), wanted)), order.size - 1)
        go = np.zeros((1 if policy.pairs else checkpoint.streams, checkpoint.partitions), np.bool_)
        go.reshape(-1)[order[: last + 1]] = True
        first = np.where(go, checkpoint.steps, checkpoint.first)
        spare = int(size[: last + 1].sum()) - wanted
        if spare > 0 and not policy.whole and not policy.pairs:
            number, partition = divmod(int(order[last]), checkpoint.partitions)
            side = self.sides[number]
            slots = side.live()
            steps = np.sort(side.arrived[slots[side.partition[slots] == partition]])
            # Of the last partition only the oldest steps go, as many tuples as were asked for.
            first[number, partition] = steps[max(0, steps.size - spare - 1)] + 1
        return first


def make_side(number: int, schema: pa.Schema, sharding: Sharding, budget: MemoryBudget, streams: int = 2) -> SideMemory:
    """Make the memory of a side, for as many rows as will fit the budget by the widths of their columns."""
    each = slot_bytes(sharding.partitioning, False)
    rows = budget.limit // (each + sum(_width(field.type) for field in schema))
    return SideMemory(
        number=number,
        schema=schema,
        partitioning=sharding.partitioning,
        budget=budget,
        slots=budget.limit // each + 1,
        buckets=max(64, rows // streams),
        counted=False,
        name=stream_kind(number, streams),
    )


def _width(type_: pa.DataType) -> int:
    """Bytes of a value, about; 16 for one of no fixed width."""
    try:
        return int(type_.bit_width) // 8 + 1
    except ValueError:
        return 16
