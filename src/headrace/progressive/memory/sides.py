"""Sides: both sides of a progressive join, their memory and their segments on disk, and the budget they share."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from headrace.conditions import Condition
from headrace.errors import BadInput
from headrace.memory import MemoryBudget, Reservation, trim_malloc
from headrace.progressive.grids.partitioning import SIDES, Partitioning
from headrace.progressive.grids.partitioning_for import partitioning_for
from headrace.progressive.memory.side_memory import SideMemory, slot_bytes
from headrace.progressive.memory.spill import Spill
from headrace.progressive.output import Output, plain_schema
from headrace.progressive.stats import ProgressiveStats
from headrace.relation.disk import Disk

_WORK = 8  # 1/8 of the budget is working memory: the arriving batch, results, and rows that are read from disk
_GRID_WORK = 4  # 1/4 of it with a grid, for the cells to probe and the coordinates to compare
_PARTS = 8  # working memory is divided into this many parts; an arriving piece or a batch of results takes one
_ROW_WORK = 96  # bytes of an arriving row beside the row itself: its cells, its partition, what it compares by
_CELL_WORK = 32  # bytes of a cell that a row probes
_PAIR_WORK = 48  # bytes of a pair beside its rows


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
        self.suffix = suffix
        self.budget = budget
        self.work = budget.limit // _WORK // _PARTS
        """bytes of one part of working memory"""
        budget.reserve("work", budget.limit // (_GRID_WORK if self.partitioning.width else _WORK))
        self.present: list[SideMemory] = []
        """the sides that have seen a batch, left before right"""
        self._memories: list[SideMemory | None] = [None, None]
        self._spills: list[Spill | None] = [None, None]
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

    @property
    def output(self) -> Output:
        """What makes results. Both sides must have seen a batch."""
        if self._output is None:
            self._output = self._make_output(self.memory(0).schema, self.memory(1).schema)
        return self._output

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

    # -- batches that arrive ---------------------------------------------------------------------------------------------

    def accept(self, number: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return an arriving batch in the types that are kept. The first batch of a side sets the columns of later ones."""
        if self._memories[number] is None:
            self._make_side(number, batch)
        schema = self.memory(number).schema
        if batch.schema.names != schema.names:
            raise BadInput(
                f"a batch of the {SIDES[number]} side has columns {', '.join(batch.schema.names)}, where the first had"
                f" {', '.join(schema.names)}"
            )
        columns = []
        for column, field in zip(batch.columns, schema, strict=True):
            if pa.types.is_dictionary(column.type):
                column = column.dictionary_decode()
            if column.type != field.type:
                raise BadInput(
                    f"column {field.name!r} of the {SIDES[number]} side has type {column.type} in a batch, where the first had"
                    f" {field.type}"
                )
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _make_side(self, number: int, batch: pa.RecordBatch) -> None:
        schema = plain_schema(batch.schema, number)
        self.partitioning.bind(number, schema)
        other = self._memories[1 - number]
        if other is not None:  # making the output checks names and condition, before anything is joined
            self._make_output(*((schema, other.schema) if number == 0 else (other.schema, schema)))
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
        self._spills[number] = Spill(number, schema, self._disk, self.budget, self._stats, self._directory)
        self.present = [side for side in self._memories if side is not None]

    def _make_output(self, left: pa.Schema, right: pa.Schema) -> Output:
        ask = self._ask if self.partitioning.exact else self.condition
        return Output(self.condition, left, right, ask, self.suffix)
