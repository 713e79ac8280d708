"""The two sides of a progressive join together: their memory, their segments on disk, and what a result looks like."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from headrace.conditions import Condition
from headrace.errors import BadInput
from headrace.memory import MemoryBudget, Reservation, trim_malloc
from headrace.progressive.grids.partitioning import SIDES, Partitioning
from headrace.progressive.grids.partitioning_for import divide
from headrace.progressive.memory.side_memory import Side, slot_bytes
from headrace.progressive.memory.spill import Spill
from headrace.progressive.output import Output, plain
from headrace.progressive.stats import ProgressiveStats
from headrace.relation.disk import Disk

_WORK = 8  # such a part of memory is for the batch that comes in, results and what is read from disk
_GRID_WORK = 4  # with a grid: cells to look in, what is compared
_PARTS = 8  # of which each of these has such a part
_ROW_WORK = 96  # bytes of an arriving row beside the row itself: its cells, partition, what it compares by
_CELL_WORK = 32  # bytes of a cell that a row is looked for in
_PAIR_WORK = 48  # bytes of a pair beside its rows


class Both:
    """Two sides, each made when its first batch says what it looks like.

    Parameters
    ----------
    condition, partitioning, suffix
        See ProgressiveJoin.
    budget
        Of both.
    counted
        Whether results are counted by tuple.
    disk, directory, stats
        Of the segments.
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
        divided, self._ask = divide(condition)
        self.condition = condition
        self.partitioning = partitioning or divided
        self.suffix = suffix
        self.budget = budget
        self.work = budget.limit // _WORK // _PARTS
        """bytes of a piece that comes in, and of results"""
        budget.reserve("work", budget.limit // (_GRID_WORK if self.partitioning.width else _WORK))
        self.sides: list[Side] = []
        self._sides: list[Side | None] = [None, None]
        self._spills: list[Spill | None] = [None, None]
        self._counted, self._disk, self._directory, self._stats = counted, disk, directory, stats
        self._output: Output | None = None
        self._later: Reservation | None = None

    @property
    def there(self) -> bool:
        """Whether both have seen a batch."""
        return len(self.sides) == 2

    @property
    def held(self) -> int:
        """Tuples in memory; one in several cells counts in each."""
        return sum(side.used for side in self.sides)

    @property
    def block(self) -> int:
        """Bytes of a block that is read: what rows of boxes and vectors compare by takes as much again."""
        return self.work // 2 if self.partitioning.width else self.work

    def clear(self) -> None:
        """Memory is not needed any more: it is all for work."""
        for side in self.sides:
            side.clear()
        trim_malloc()
        self.work = self.budget.limit // _PARTS // 2

    def side(self, number: int) -> Side:
        """A side that has seen a batch."""
        side = self._sides[number]
        assert side is not None
        return side

    def spill(self, number: int) -> Spill:
        """Its segments."""
        spill = self._spills[number]
        assert spill is not None
        return spill

    @property
    def output(self) -> Output:
        """What makes results, once both have seen a batch."""
        if self._output is None:
            ask = self._ask if self.partitioning.exact else self.condition
            self._output = Output(self.condition, self.side(0).schema, self.side(1).schema, ask, self.suffix)
        return self._output

    def rows_at_once(self, batch: pa.RecordBatch) -> int:
        """Rows of a batch that fit the memory for work."""
        each: int = batch.nbytes // max(1, batch.num_rows) + 1
        copies = self.partitioning.fan if self.partitioning.identity else 1
        beside = int(_CELL_WORK * (copies - 1)) + _ROW_WORK + 8 * self.partitioning.width
        return max(1, self.work // (2 * each + beside))

    @property
    def cells_at_once(self) -> int:
        """Cells to look into that fit it."""
        return max(1, self.work // _CELL_WORK)

    def pairs_at_once(self, each: int, other: int) -> int:
        """Pairs of rows of so many bytes that fit it."""
        return max(64, self.work // (each + other + _PAIR_WORK))

    def accept(self, number: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch in the types that are kept."""
        if self._sides[number] is None:
            self._make(number, batch)
        schema = self.side(number).schema
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

    def _make(self, number: int, batch: pa.RecordBatch) -> None:
        schema = plain(batch.schema, number)
        self.partitioning.bind(number, schema)
        other = self._sides[1 - number]
        if other is not None:  # names and conditions are checked before anything is joined
            left, right = (schema, other.schema) if number == 0 else (other.schema, schema)
            Output(self.condition, left, right, self._ask if self.partitioning.exact else self.condition, self.suffix)
        each, room = slot_bytes(self.partitioning, self._counted), self.budget.limit
        rows = max(64, room // (each + batch.nbytes // max(1, batch.num_rows) + 8))
        most = self.budget.limit // each + 1  # the other side may have it all now, and leave it later
        if self._later is None:  # when the other side comes, memory may be full
            buckets = rows // 2
            self._later = self.budget.reserve("index of the other side", buckets * 4)
        else:
            buckets = self._later.nbytes // 4
            self._later.release()
        side = Side(number, schema, self.partitioning, self.budget, most, buckets, self._counted)
        self._sides[number] = side
        self._spills[number] = Spill(number, schema, self._disk, self.budget, self._stats, self._directory)
        self.sides = [side for side in self._sides if side is not None]
