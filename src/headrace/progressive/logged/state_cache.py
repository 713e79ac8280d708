"""The warm copy of a logged progressive join: what the log says is in memory, as two sides with their indexes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from headrace.memory import MemoryBudget
from headrace.progressive.logged.checkpoint import Standing
from headrace.progressive.logged.rows import LoggedRows
from headrace.progressive.logged.sharding import Division, Part
from headrace.progressive.memory.side_memory import SideMemory, slot_bytes
from headrace.progressive.policies.base import FlushPolicy
from headrace.progressive.policies.driver import partition_scores
from headrace.progressive.policies.stats import Counts
from headrace.relation.columns import Longs
from headrace.relation.keys import Ints

_NO_BATCH = -2
_SLACK = 2  # the operator keeps to `memory`; a copy that is made again may need a little more for a moment


class Warm:
    """Memory of one shard in one process. It is rebuilt from the log at will: to lose it costs time and nothing else.

        log     [step 0] [step 1] [step 2] [step 3] [step 4] ...
        memory                    <-- from `first` of its side and partition on, all rows

    Parameters
    ----------
    division
        Of the shard.
    policy
        What chooses among partitions; it may learn from what comes by.
    memory
        Bytes for rows and indexes.
    schemas
        Of the rows of the two sides.
    """

    def __init__(self, division: Division, policy: FlushPolicy, memory: int, schemas: Sequence[pa.Schema]) -> None:
        self.division, self.policy, self.memory = division, policy, memory
        self.schemas = schemas
        self.batch, self.origin, self.steps = _NO_BATCH, "", 0
        self._clear(memory)

    def _clear(self, memory: int) -> None:
        self.budget = MemoryBudget(_SLACK * memory)
        self.sides = [
            make_side(number, schema, self.division, self.budget) for number, schema in enumerate(self.schemas)
        ]

    def dirty(self) -> None:
        """A micro-batch begins: until `clean` says so, this is the copy of no decision."""
        self.batch = _NO_BATCH

    def clean(self, standing: Standing) -> None:
        """It is what this decision says."""
        self.batch, self.origin, self.steps = standing.batch, standing.origin, standing.steps

    # -- from the log ----------------------------------------------------------------------------------------------------

    def bring_up(self, standing: Standing, rows: Sequence[LoggedRows], before: int) -> None:
        """Hold what a decision says."""
        if self.batch == _NO_BATCH or self.origin != standing.origin or self.batch > standing.batch:
            # With less memory than before, the rest is flushed afterwards
            self._clear(max(self.memory, standing.memory))
            steps = 0
        elif self.batch == standing.batch:
            return
        else:
            steps = self.steps
        self.dirty()
        self.drop(standing.first)
        for number, log in enumerate(rows):
            first = standing.first[number]
            for found in log.read(before, since=max(steps, int(first.min()))):
                found = found.where((found.step >= first[found.partition]) & (found.step >= steps))
                if found.rows.num_rows:
                    self.insert(
                        number, self.division.again(number, found.rows, found.partition), found.step.astype(np.int64)
                    )
        self.clean(standing)

    # -- in and out ------------------------------------------------------------------------------------------------------

    def need(self, number: int, part: Part) -> int:
        """Bytes that rows will take."""
        return int(part.rows.nbytes) + self.sides[number].more_bytes(part.entries.row.size)

    def insert(self, number: int, part: Part, step: int | Longs) -> None:
        """Hold rows. There must be room."""
        stamp = step if isinstance(step, int) else step[part.entries.row]
        self.sides[number].insert(part.rows, part.entries, part.values, part.at, stamp)

    def drop(self, first: Counts) -> None:
        """Let go of steps before these, [side, partition]."""
        for side in self.sides:
            slots = side.live()
            slots = slots[side.arrived[slots] < first[side.number][side.partition[slots]]]
            if slots.size:
                side.remove(slots)
                side.compact()

    # -- what leaves -----------------------------------------------------------------------------------------------------

    def victims(self, standing: Standing, wanted: int) -> Counts:
        """Where memory is to begin after a flush of about so many tuples: whole steps go, so there may be more."""
        policy, ledger = self.policy, standing.ledger
        scores, held = partition_scores(policy, ledger), ledger.held
        if policy.pairs:
            scores, held = scores.min(axis=0, keepdims=True), held.sum(axis=0, keepdims=True)
        size = held.reshape(-1)
        there = np.flatnonzero(size)
        order = there[np.argsort(scores.reshape(-1)[there], kind="stable")]
        last = min(int(np.searchsorted(np.cumsum(size[order]), wanted)), order.size - 1)
        go = np.zeros(held.shape, np.bool_)
        go.reshape(-1)[order[: last + 1]] = True
        first = np.where(go, standing.steps, standing.first)
        spare = int(size[order[: last + 1]].sum()) - wanted
        if spare > 0 and not policy.whole and not policy.pairs:
            number, partition = divmod(int(order[last]), held.shape[1])
            side = self.sides[number]
            slots = side.live()
            steps = np.sort(side.arrived[slots[side.partition[slots] == partition]])
            # The oldest, as many as were asked for
            first[number, partition] = steps[max(0, steps.size - spare - 1)] + 1
        return first


def make_side(number: int, schema: pa.Schema, division: Division, budget: MemoryBudget) -> SideMemory:
    """A side of as many rows as fit the budget, as far as can be said before any is seen."""
    each = slot_bytes(division.partitioning, False)
    rows = budget.limit // (each + sum(_width(field.type) for field in schema))
    return SideMemory(
        number=number,
        schema=schema,
        partitioning=division.partitioning,
        budget=budget,
        slots=budget.limit // each + 1,
        buckets=max(64, rows // 2),
        counted=False,
    )


def _width(type_: pa.DataType) -> int:
    try:
        return int(type_.bit_width) // 8 + 1
    except ValueError:
        return 16


def pairs_with(side: SideMemory, part: Part, most: int) -> Iterator[tuple[Ints, Ints]]:
    """Pairs of a row of a part and a slot of a side, slots in the order in which `side.rows` wants them."""
    for entries, slots in side.match(part.entries.cell, part.entries.row, part.values, most):
        order = side.by_chunk(slots)
        yield part.entries.row[entries[order]], slots[order]
