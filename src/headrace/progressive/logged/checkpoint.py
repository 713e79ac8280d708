"""Checkpoint: the state of a logged progressive join after a micro-batch, without its rows. (DESIGN D7)"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Int64s
from headrace.errors import OtherLog
from headrace.progressive.grids.partitioning import stream_kind
from headrace.progressive.policies.stats import PartitionStats
from headrace.runlog import Decision

NEVER = -(1 << 62)  # earlier than every event time
_BY_SIDE = ("first", "flushed", "until")
_BY_PARTITION = ("caught", "target", "phase", "at", "owed")
_LEDGER = ("held", "arrived", "fresh", "results", "recent")
_MARKS = 64  # watermarks that are remembered, each with its step; with more, every other one is forgotten


@dataclass(slots=True, kw_only=True)
class Checkpoint:
    """State of one shard. Arrays are [side, partition] or [partition]; a step is a chunk of rows of one side, numbered from 0."""

    first: Int64s
    """memory holds the rows of steps from this one on"""
    flushed: Int64s
    """rows of steps before this one are on disk alone and may match rows to come; at most `first`, 0 if there are none"""
    until: Int64s
    """no row that was flushed has a later event time than this"""
    caught: Int64s
    """all pairs that rows of steps before this one owed are out"""
    target: Int64s
    """rows of steps before this one are being caught up; 0 if none are"""
    phase: Int64s
    """the side whose rows from `caught` to `target` are being caught up"""
    at: Int64s
    """they have met the rows of the other side of steps before this one"""
    owed: Int64s
    """how many rows of steps from `caught` on owe pairs with rows on disk"""
    ledger: PartitionStats
    """arrivals and results, which flush policies choose by"""
    batch: int = -1
    """the micro-batch; -1 before the first one"""
    origin: str = ""
    """a random name of the log: a cache tells it from another log in the same place"""
    steps: int = 0
    """how many steps there have been"""
    memory: int = 0
    """bytes of the cache's budget"""
    latest: list[int] = field(default_factory=lambda: [NEVER, NEVER])
    """the latest event time of each side, in microseconds"""
    departures: list[list[int]] = field(default_factory=list)
    """of several streams, the flushes that catching up must know; see MultiWayCatchUp"""
    unmatched_before: int = NEVER
    """of outer joins: rows without a partner of event times before this one have left alone"""
    numbers: list[int] = field(default_factory=list)
    """of outer joins: how many rows of each side there have been"""
    marks: list[list[int]] = field(default_factory=list)
    """watermarks in microseconds, each with the step at which it was set"""

    @classmethod
    def empty(cls, partitions: int, streams: int = 2) -> Checkpoint:
        """The state before the first micro-batch."""
        arrays: dict[str, Any] = {name: np.zeros((streams, partitions), np.int64) for name in _BY_SIDE}
        arrays |= {name: np.zeros(partitions, np.int64) for name in _BY_PARTITION}
        return cls(**arrays, ledger=PartitionStats.empty(partitions, streams), latest=[NEVER] * streams)

    @property
    def streams(self) -> int:
        """How many streams are joined."""
        return int(self.first.shape[0])

    @property
    def partitions(self) -> int:
        """How many partitions there are."""
        return int(self.owed.size)

    @property
    def settled(self) -> int:
        """All pairs that rows of steps before this one owed are out, in every partition."""
        return int(np.where(self.owed > 0, self.caught, self.steps).min())

    def settle(self) -> None:
        """Note that all that was owed is out."""
        self.owed[:] = self.target[:] = 0

    def owe(self, step: int, partition: Int64s) -> None:
        """Note that rows of a step, in these partitions, owe pairs."""
        came = np.bincount(partition, minlength=self.partitions)
        self.caught[(self.owed == 0) & (came > 0)] = step
        self.owed += came

    def note_watermark(self, watermark: int) -> None:
        """Note the watermark that a micro-batch begins with."""
        if watermark > NEVER and (not self.marks or self.marks[-1][0] < watermark):
            self.marks.append([watermark, self.steps])
        if len(self.marks) > _MARKS:
            del self.marks[1::2]

    def safe_watermark(self) -> int:
        """The latest watermark before which no row is owed a pair: all steps before it was set are caught up."""
        return max((mark for mark, step in self.marks if step <= self.settled), default=NEVER)

    # -- on disk ---------------------------------------------------------------------------------------------------------

    def table(self) -> pa.RecordBatch:
        """The arrays, with a row for each partition."""
        columns = {
            f"{name}_{stream_kind(side, self.streams)}": getattr(self if name in _BY_SIDE else self.ledger, name)[side]
            for name in (*_BY_SIDE, *_LEDGER)
            for side in range(self.streams)
        }
        columns |= {name: getattr(self, name) for name in _BY_PARTITION}
        return pa.record_batch({name: pa.array(values) for name, values in columns.items()})

    def facts(self) -> dict[str, Any]:
        """The scalars, for JSON; the batch is a fact of the driver's."""
        return {name: getattr(self, name) for name in _SCALARS} | {"flushes": self.ledger.flushes}

    @classmethod
    def of(cls, decision: Decision | None, partitions: int, streams: int = 2) -> Checkpoint:
        """Read it from a decision; refuse one of another number of partitions or streams."""
        if decision is None:
            return cls.empty(partitions, streams)
        file, table = decision.file, decision.file.table()
        if table.num_rows != partitions:
            raise OtherLog(
                f"{file.path} is of a join with {table.num_rows} partitions, and partitions={partitions} is asked for; give"
                f" partitions={table.num_rows}, or another state directory and checkpoint for a query that starts anew"
            )
        columns = {name: table.column(name).to_numpy().copy() for name in table.schema.names}
        there = sum(name.startswith("first_") for name in columns)
        if there != streams:
            raise OtherLog(
                f"{file.path} is of a join of {there} streams, and {streams} are joined now; join as many, or give another state"
                " directory and checkpoint for a query that starts anew"
            )
        kinds = [stream_kind(side, streams) for side in range(streams)]
        sides = {name: np.stack([columns[f"{name}_{kind}"] for kind in kinds]) for name in (*_BY_SIDE, *_LEDGER)}
        ledger: dict[str, Any] = {name: sides[name] for name in _LEDGER}
        rest: dict[str, Any] = {name: sides[name] for name in _BY_SIDE}
        rest |= {name: columns[name] for name in _BY_PARTITION}
        rest |= {name: file.facts[name] for name in _SCALARS if name in file.facts}
        found = cls(**rest, batch=decision.batch, ledger=PartitionStats(**ledger, flushes=file.facts["flushes"]))
        if decision.finished:
            found.settle()
        return found


_SCALARS = [f.name for f in fields(Checkpoint) if f.name not in (*_BY_SIDE, *_BY_PARTITION, "ledger", "batch")]
