"""What a logged progressive join knows after a micro-batch without looking at rows: the decision. (DESIGN D7)"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import OtherLog
from headrace.progressive.grids.partitioning import SIDES
from headrace.progressive.policies.stats import Counts, PartitionStats
from headrace.runlog import LogFile

NEVER = -(1 << 62)  # earlier than every event time
_BY_SIDE = ("first", "flushed", "until")
_BY_PARTITION = ("caught", "target", "phase", "at", "owed")
_LEDGER = ("held", "arrived", "fresh", "results", "recent")
_MARKS = 64  # watermarks that are remembered with the step at which they came


@dataclass(slots=True)
class Standing:
    """State of one shard. Arrays are [side, partition] or [partition]; a step is a chunk of rows of one side, numbered from 0."""

    first: Counts
    """memory holds the steps from here on"""
    flushed: Counts
    """rows of steps before this one are on disk alone and may match rows to come; at most `first`, 0 if there are none"""
    until: Counts
    """no such row has a later event time"""
    caught: Counts
    """pairs of steps before this one are out, all of them"""
    target: Counts
    """how far the catching up under way is to go; 0 if none is"""
    phase: Counts
    """the side whose rows from `caught` to `target` are being caught up"""
    at: Counts
    """steps of the other side before this one are done with"""
    owed: Counts
    """rows from `caught` on that owe pairs with rows on disk"""
    ledger: PartitionStats
    batch: int = -1
    origin: str = ""
    """told apart from another log in the same place"""
    steps: int = 0
    memory: int = 0
    """bytes of the budget"""
    latest: list[int] = field(default_factory=lambda: [NEVER, NEVER])
    """the latest event time of each side, in microseconds"""
    marks: list[list[int]] = field(default_factory=list)
    """watermarks, each with the step at which it came"""

    @classmethod
    def empty(cls, partitions: int) -> Standing:
        """Before the first micro-batch."""
        arrays: dict[str, Any] = {name: np.zeros((2, partitions), np.int64) for name in _BY_SIDE}
        arrays |= {name: np.zeros(partitions, np.int64) for name in _BY_PARTITION}
        return cls(**arrays, ledger=PartitionStats.empty(partitions))

    @property
    def partitions(self) -> int:
        """How many there are."""
        return int(self.owed.size)

    @property
    def settled(self) -> int:
        """Pairs of steps before this one are out, in every partition."""
        return int(np.where(self.owed > 0, self.caught, self.steps).min())

    def settle(self) -> None:
        """All that was owed is out."""
        self.owed[:] = self.target[:] = 0

    def owe(self, step: int, partition: Counts) -> None:
        """Rows of a step, in these partitions, owe pairs."""
        came = np.bincount(partition, minlength=self.partitions)
        self.caught[(self.owed == 0) & (came > 0)] = step
        self.owed += came

    def note_watermark(self, watermark: int) -> None:
        """This batch begins with a watermark."""
        if watermark > NEVER and (not self.marks or self.marks[-1][0] < watermark):
            self.marks.append([watermark, self.steps])
        if len(self.marks) > _MARKS:
            del self.marks[1::2]

    def safe_watermark(self) -> int:
        """Rows that can match nothing from this time on owe nothing either: what came before the watermark did is settled."""
        return max((mark for mark, step in self.marks if step <= self.settled), default=NEVER)

    # -- on disk ---------------------------------------------------------------------------------------------------------

    def table(self) -> pa.RecordBatch:
        """A row for each partition."""
        columns = {
            f"{name}_{SIDES[side]}": getattr(self if name in _BY_SIDE else self.ledger, name)[side]
            for name in (*_BY_SIDE, *_LEDGER)
            for side in (0, 1)
        }
        columns |= {name: getattr(self, name) for name in _BY_PARTITION}
        return pa.record_batch({name: pa.array(values) for name, values in columns.items()})

    def facts(self) -> dict[str, Any]:
        """The rest, for JSON."""
        return {name: getattr(self, name) for name in _SCALARS} | {"flushes": self.ledger.flushes}

    @classmethod
    def of(cls, file: LogFile, partitions: int) -> Standing:
        """As a decision has it."""
        table = file.table()
        if table.num_rows != partitions:
            raise OtherLog(
                f"{file.path} is of a join with {table.num_rows} partitions, and partitions={partitions} is asked for; give"
                f" partitions={table.num_rows}, or another state directory and checkpoint for a query that starts anew"
            )
        columns = {name: table.column(name).to_numpy().copy() for name in table.schema.names}
        sides = {name: np.stack([columns[f"{name}_{side}"] for side in SIDES]) for name in (*_BY_SIDE, *_LEDGER)}
        ledger: dict[str, Any] = {name: sides[name] for name in _LEDGER}
        rest: dict[str, Any] = {name: sides[name] for name in _BY_SIDE}
        rest |= {name: columns[name] for name in _BY_PARTITION} | {name: file.facts[name] for name in _SCALARS}
        return cls(**rest, ledger=PartitionStats(**ledger, flushes=file.facts["flushes"]))


_SCALARS = [f.name for f in fields(Standing) if f.name not in (*_BY_SIDE, *_BY_PARTITION, "ledger")]
