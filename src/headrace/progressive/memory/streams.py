"""Streams: the streams of a multi-way join, their memory and their segments on disk, and the budget they share."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.arrays import Int32s, Int64s
from headrace.errors import BadInput, MemoryRefused
from headrace.memory import MemoryBudget, Reservation, trim_malloc
from headrace.progressive.grids.keys import HashPartitioning
from headrace.progressive.memory.merge import Merger, most_partitions
from headrace.progressive.memory.side_memory import SideMemory, slot_bytes
from headrace.progressive.memory.sides import rows_fit
from headrace.progressive.memory.spill import Spill
from headrace.progressive.multiway_output import MultiWayOutput
from headrace.progressive.output import in_schema, plain_schema
from headrace.progressive.stats import ProgressiveStats
from headrace.relation.disk import Disk
from headrace.units import format_size

_WORK = 8  # 1/8 of the budget is working memory while tuples arrive, as with two sides
_PARTS = 8  # working memory is divided into this many parts; an arriving piece or a batch of results takes one
_ROW_WORK = 96  # bytes of an arriving row beside the row itself: its hash, its partition, its slot
_MATCH_WORK = 16  # bytes of a row or a result for each stream: its slot there, and its place in order
_LARGEST = 4  # a tuple takes at most 1/4 of the budget, which is always free when nothing else is in memory
_BLOCKS = 8  # what is read from disk at a time takes 1/8 of the budget, all streams together; memory is free then


class Streams:
    """The streams of a join on one key. Each has a memory and segments from its first batch on, which has its schema.

    Parameters
    ----------
    on
        The key's column in each stream.
    partitions, suffix
        See MultiWayJoin.
    budget
        The budget of all streams together.
    counted
        Whether the results of each tuple are counted.
    disk, directory
        See Spill.
    stats
        Where reads and writes are counted.
    """

    def __init__(
        self,
        on: Sequence[str],
        partitions: int,
        suffix: str | None,
        budget: MemoryBudget,
        *,
        counted: bool,
        disk: Disk,
        directory: Path | None,
        stats: ProgressiveStats,
    ) -> None:
        self.on, self.suffix = on, suffix
        self.partitioning = HashPartitioning.of_streams(on, partitions)
        # The lists of segments of all streams take as much as those of two sides would.
        self._lists = 2 * budget.limit // len(on)
        self.partitioning.coarsen(0, most_partitions(self._lists), 0)
        self.budget = budget
        self.work = budget.limit // _WORK // _PARTS
        """bytes of one part of working memory"""
        budget.reserve("work", budget.limit // _WORK)
        self.memories: list[SideMemory | None] = [None] * len(on)
        """the memory of each stream; None before its first batch"""
        self.present: list[SideMemory] = []
        """the streams that have seen a batch, by number"""
        self._spills: list[Spill | None] = [None] * len(on)
        self._mergers: list[Merger | None] = [None] * len(on)
        self._later: list[Reservation] = []  # for the indexes of streams that are still to come
        self._counted, self._disk, self._directory, self._stats = counted, disk, directory, stats
        self._output: MultiWayOutput | None = None

    @property
    def all_present(self) -> bool:
        """Whether every stream has seen a batch; before that there are no results."""
        return len(self.present) == len(self.on)

    @property
    def held(self) -> int:
        """The number of tuples in memory."""
        return sum(memory.used for memory in self.present)

    @property
    def output(self) -> MultiWayOutput:
        """What makes results. All streams must have seen a batch."""
        if self._output is None:
            self._output = self._make_output([memory.schema for memory in self.present])
        return self._output

    def name(self, number: int) -> str:
        """The name of a stream in messages."""
        return f"stream {number}"

    def memory(self, number: int) -> SideMemory:
        """The memory of a stream that has seen a batch."""
        memory = self.memories[number]
        assert memory is not None
        return memory

    def spill(self, number: int) -> Spill:
        """The segments on disk of a stream that has seen a batch."""
        spill = self._spills[number]
        assert spill is not None
        return spill

    def merger(self, number: int) -> Merger:
        """What keeps the segments of a stream few."""
        merger = self._mergers[number]
        assert merger is not None
        return merger

    def swept(self, number: int, partitions: Int32s, arrived: Int64s) -> Int32s:
        """Nothing: tuples in memory do not meet tuples on disk before the streams have ended."""
        return np.zeros(partitions.size, np.int32)

    def clear(self) -> None:
        """Free the memory of all streams, for good; a part of working memory grows to 1/16 of the budget."""
        for memory in self.present:
            memory.clear()
        trim_malloc()
        self.work = self.budget.limit // _PARTS // 2

    # -- how much at a time ----------------------------------------------------------------------------------------------

    @property
    def block_bytes(self) -> int:
        """The bytes of a stream's segments that are held together, when memory is free."""
        return self.budget.limit // _BLOCKS // len(self.on)

    def rows_at_once(self, batch: pa.RecordBatch) -> int:
        """The number of rows of a batch that fit working memory."""
        each = batch.nbytes // max(1, batch.num_rows) + 1
        return max(1, int(self.work // (2 * each + _ROW_WORK + _MATCH_WORK * len(self.on))))

    def results_at_once(self, row_bytes: Sequence[int]) -> int:
        """The number of results of rows of these sizes, one of each stream, that fit working memory."""
        return max(1, self.work // (2 * sum(row_bytes) + _MATCH_WORK * len(self.on)))

    @property
    def largest_row(self) -> int:
        """The bytes that a tuple may take."""
        return self.budget.limit // _LARGEST

    # -- batches that arrive ---------------------------------------------------------------------------------------------

    def accept(self, number: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return an arriving batch in the types that are kept. The first batch of a stream sets the columns of later ones.

        Whatever may be refused is looked at here, before anything changes.
        """
        if not isinstance(batch, pa.RecordBatch):
            raise BadInput(
                f"{type(batch).__name__} is no batch of {self.name(number)}; give a pyarrow.RecordBatch, such as those of"
                " Table.to_batches()"
            )
        known = self.memories[number]
        schema = plain_schema(batch.schema, self.name(number)) if known is None else known.schema
        batch = in_schema(batch, schema, self.name(number))
        if known is None:
            # A copy learns the schema first: a batch that is refused must leave no trace in the partitioning.
            deepcopy(self.partitioning).bind(number, schema)
            schemas = [None if memory is None else memory.schema for memory in self.memories]
            schemas[number] = schema
            self._make_output(schemas)  # this checks names
        if not rows_fit(batch, self.largest_row):
            raise MemoryRefused(
                f"a tuple of {self.name(number)} is larger than {format_size(self.largest_row)}, the most that a tuple may take"
                f" of {format_size(self.budget.limit)}; give more memory, or leave such tuples out"
            )
        if known is None:
            self._make_stream(number, schema, batch)
        return batch

    def _make_stream(self, number: int, schema: pa.Schema, batch: pa.RecordBatch) -> None:
        partitions, limit, n = self.partitioning.partitions, self.budget.limit, len(self.on)
        spill = Spill(self.name(number), schema, partitions, self._disk, self.budget, self._stats, self._directory)
        self.partitioning.bind(number, schema)
        each = slot_bytes(self.partitioning, self._counted)
        if not self.present:  # indexes of all streams are reserved now, since memory may be full when a stream begins
            rows = max(64, limit // (each + batch.nbytes // max(1, batch.num_rows) + 8))
            self._later = [self.budget.reserve("indexes of other streams", -(-rows // n) * 4) for _ in self.on]
        buckets = self._later[-1].nbytes // 4
        self._later.pop().release()
        self.memories[number] = SideMemory(
            number=number,
            schema=schema,
            partitioning=self.partitioning,
            budget=self.budget,
            slots=limit // each + 1,  # enough for the whole budget, which others may hold now and free later
            buckets=buckets,
            counted=self._counted,
            name=self.name(number),
        )
        self._spills[number], self._mergers[number] = spill, Merger(spill, self.partitioning, self._lists)
        self.present = [memory for memory in self.memories if memory is not None]

    def _make_output(self, schemas: Sequence[pa.Schema | None]) -> MultiWayOutput:
        return MultiWayOutput(schemas, self.on, self.suffix, ask=not self.partitioning.exact)
