"""Sides: both sides of a progressive join, their memory and their segments on disk, and the budget they share."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import pyarrow as pa

from headrace.arrays import Float64s, Int32s, Int64s
from headrace.conditions import Condition
from headrace.errors import BadInput, MemoryRefused
from headrace.memory import MemoryBudget, Reservation, trim_malloc
from headrace.progressive.grids.partitioning import NO_DOUBLES, SIDES, CellEntries, Partitioning
from headrace.progressive.grids.partitioning_for import partitioning_for
from headrace.progressive.memory.meetings import Meetings
from headrace.progressive.memory.merge import Merger, most_partitions
from headrace.progressive.memory.side_memory import SideMemory, slot_bytes
from headrace.progressive.memory.spill import Spill, SpilledRows
from headrace.progressive.output import Output, all_rows, in_schema, plain_schema, side_name
from headrace.progressive.stats import ProgressiveStats
from headrace.relation.disk import Disk
from headrace.units import format_size

_WORK = 8  # 1/8 of the budget is working memory: the arriving batch, results, and rows that are read from disk
_GRID_WORK = 4  # 1/4 of it with a grid, for the cells to probe and the coordinates to compare
_PARTS = 8  # working memory is divided into this many parts; an arriving piece or a batch of results takes one
_ROW_WORK = 96  # bytes of an arriving row beside the row itself: its cells, its partition, what it compares by
_CELL_WORK = 32  # bytes of a cell that a row probes
_PAIR_WORK = 48  # bytes of a pair beside its rows
_WIDEST = 4  # the cells of a tuple take at most 1/4 of the budget
_DIVIDES = 8  # what the partitioning itself holds, such as pivots, takes at most 1/8 of the budget
_LARGEST = 4  # a tuple takes at most 1/4 of the budget, which is always free when nothing else is in memory


class Sides:
    """Both sides of a join. Each is made when its first batch arrives, which has its schema.

    Parameters
    ----------
    condition, partitioning, suffix
        See ProgressiveJoin.
    budget
        The budget of both sides together.
    counted
        Whether the results of each tuple are counted.
    disk, directory
        See Spill.
    stats
        Where reads and writes are counted.
    """

    def __init__(
        self,
        condition: Condition,
        partitioning: Partitioning | None,
        suffix: str | None,
        budget: MemoryBudget,
        *,
        counted: bool,
        disk: Disk,
        directory: Path | None,
        stats: ProgressiveStats,
    ) -> None:
        usual, self._ask = partitioning_for(condition)
        self.condition = condition
        self.partitioning = partitioning or usual
        self.partitioning.coarsen(
            budget.limit // _WIDEST // slot_bytes(self.partitioning, counted),
            most_partitions(budget.limit),
            budget.limit // _DIVIDES,
        )
        self.suffix = suffix
        self.budget = budget
        self.work = budget.limit // _WORK // _PARTS
        """bytes of one part of working memory"""
        budget.reserve("work", budget.limit // (_GRID_WORK if self.partitioning.width else _WORK))
        self._divides = budget.reserve("partitioning", 0)
        self.present: list[SideMemory] = []
        """the sides that have seen a batch, left before right"""
        self._memories: list[SideMemory | None] = [None, None]
        self._spills: list[Spill | None] = [None, None]
        self._mergers: list[Merger | None] = [None, None]
        self.meetings = Meetings(self.partitioning.partitions, self.partitioning.identity)
        """what tuples in memory have met on disk"""
        self._counted, self._disk, self._directory, self._stats = counted, disk, directory, stats
        self._output: Output | None = None
        self._later: Reservation | None = None

    @property
    def both_present(self) -> bool:
        """Whether both sides have seen a batch."""
        return len(self.present) == 2

    @property
    def held(self) -> int:
        """The number of tuples in memory; one in several cells counts in each."""
        return sum(side.used for side in self.present)

    def memory(self, number: int) -> SideMemory:
        """The memory of a side that has seen a batch."""
        memory = self._memories[number]
        assert memory is not None
        return memory

    def spill(self, number: int) -> Spill:
        """The segments on disk of a side that has seen a batch."""
        spill = self._spills[number]
        assert spill is not None
        return spill

    def merger(self, number: int) -> Merger:
        """What keeps the segments of a side few."""
        merger = self._mergers[number]
        assert merger is not None
        return merger

    @property
    def output(self) -> Output:
        """What makes results. Both sides must have seen a batch."""
        if self._output is None:
            self._output = self._make_output(self.memory(0).schema, self.memory(1).schema)
        return self._output

    def name(self, number: int) -> str:
        """The name of a side in messages."""
        return side_name(number)

    def swept(self, number: int, partitions: Int32s, arrived: Int64s) -> Int32s:
        """For tuples in a side's memory: partitions of the other side before this number have met the tuple on disk."""
        return self.meetings.swept(number, partitions, arrived)

    def clear(self) -> None:
        """Free the memory of both sides, for good; working memory grows to half of the budget."""
        for side in self.present:
            side.clear()
        trim_malloc()
        self.work = self.budget.limit // _PARTS // 2

    # -- how much at a time ----------------------------------------------------------------------------------------------

    @property
    def block_bytes(self) -> int:
        """The bytes of segments that are read together; half with a grid, since coordinates take as much again as the rows."""
        return self.work // 2 if self.partitioning.width else self.work

    @property
    def cells_at_once(self) -> int:
        """The number of cells to probe that fit working memory."""
        return max(1, self.work // _CELL_WORK)

    def rows_at_once(self, batch: pa.RecordBatch) -> int:
        """The number of rows of a batch that fit working memory."""
        each: int = batch.nbytes // max(1, batch.num_rows) + 1
        copies = self.partitioning.cells_per_row if self.partitioning.identity else 1
        beside = int(_CELL_WORK * (copies - 1)) + _ROW_WORK + 8 * self.partitioning.width
        return max(1, self.work // (2 * each + beside))

    def pairs_at_once(self, row_bytes: int, other_row_bytes: int) -> int:
        """The number of pairs of rows of these sizes that fit working memory."""
        return max(64, self.work // (row_bytes + other_row_bytes + _PAIR_WORK))

    def probes(self, number: int, block: SpilledRows) -> Iterator[tuple[CellEntries, Float64s]]:
        """The cells of the other side that rows of a side, read from disk, probe, and what these rows compare by.

        They are given for as many rows at a time as fit working memory.
        """
        partitioning = self.partitioning
        if partitioning.identity:
            values = partitioning.read(number, block.rows).values if partitioning.width else NO_DOUBLES
            yield CellEntries(all_rows(block.cell.size), block.cell), values
            return
        keys = partitioning.read(number, block.rows)
        for some in partitioning.reach_in_steps(number, keys, self.cells_at_once):
            yield some, keys.values

    # -- batches that arrive ---------------------------------------------------------------------------------------------

    def accept(self, number: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return an arriving batch in the types that are kept. The first batch of a side sets the columns of later ones.

        Whatever may be refused is looked at here, before anything changes.
        """
        if not isinstance(batch, pa.RecordBatch):
            raise BadInput(
                f"{type(batch).__name__} is no batch of the {SIDES[number]} side; give a pyarrow.RecordBatch, such as those of"
                " Table.to_batches()"
            )
        known = self._memories[number]
        schema = plain_schema(batch.schema, side_name(number)) if known is None else known.schema
        batch = in_schema(batch, schema, side_name(number))
        partitioning = self.partitioning
        if known is None:
            # A copy learns the schema first: a batch that is refused must leave no trace in the partitioning.
            partitioning = deepcopy(partitioning)
            partitioning.bind(number, schema)
            other = self._memories[1 - number]
            if other is not None:  # making the output checks names and condition
                self._make_output(*((schema, other.schema) if number == 0 else (other.schema, schema)))
        step = self.rows_at_once(batch)
        for at in range(0, batch.num_rows, step):
            partitioning.check(number, batch.slice(at, step))
        if not rows_fit(batch, self.largest_row):
            raise MemoryRefused(
                f"a tuple of the {SIDES[number]} side is larger than {format_size(self.largest_row)}, the most that a tuple may"
                f" take of {format_size(self.budget.limit)}; give more memory, or leave such tuples out"
            )
        if known is None:
            self._make_side(number, schema, batch)
        return batch

    @property
    def largest_row(self) -> int:
        """The bytes that a tuple may take."""
        return self.budget.limit // _LARGEST

    def _make_side(self, number: int, schema: pa.Schema, batch: pa.RecordBatch) -> None:
        partitions = self.partitioning.partitions
        spill = Spill(SIDES[number], schema, partitions, self._disk, self.budget, self._stats, self._directory)
        self.partitioning.bind(number, schema)
        self._divides.resize(self.partitioning.nbytes)
        each, room = slot_bytes(self.partitioning, self._counted), self.budget.limit
        rows = max(64, room // (each + batch.nbytes // max(1, batch.num_rows) + 8))
        slots = (
            self.budget.limit // each + 1
        )  # enough for the whole budget, which the other side may hold now and free later
        if self._later is None:  # the index of the other side is reserved now, since memory may be full when it arrives
            buckets = rows // 2
            self._later = self.budget.reserve("index of the other side", buckets * 4)
        else:
            buckets = self._later.nbytes // 4
            self._later.release()
        self._memories[number] = SideMemory(
            number=number,
            schema=schema,
            partitioning=self.partitioning,
            budget=self.budget,
            slots=slots,
            buckets=buckets,
            counted=self._counted,
        )
        self._spills[number], self._mergers[number] = spill, Merger(spill, self.partitioning, self.budget.limit)
        self.present = [side for side in self._memories if side is not None]

    def _make_output(self, left: pa.Schema, right: pa.Schema) -> Output:
        ask = self._ask if self.partitioning.exact else self.condition
        return Output(self.condition, left, right, ask, self.suffix)


def rows_fit(batch: pa.RecordBatch, most: int) -> bool:
    """Whether each row of a batch takes at most so many bytes."""
    if batch.nbytes <= most:
        return True
    half = batch.num_rows // 2
    return half > 0 and rows_fit(batch.slice(0, half), most) and rows_fit(batch.slice(half), most)
