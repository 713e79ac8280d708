"""Matcher: makes the results of rows that meet the memory of the other side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.arrays import Bools, Int32s
from headrace.metrics import JoinStats
from headrace.progressive.logged.sharding import ShardedRows
from headrace.progressive.memory.side_memory import SideMemory
from headrace.progressive.output import BatchRows, MemoryRows, left_and_right

if TYPE_CHECKING:
    from headrace.progressive.logged.join_spec import JoinSpec

_PAIR_BYTES = 64  # bytes of a pair beside its rows: row numbers, slots, masks
_LEAST_PAIRS = 64  # made at a time, however wide rows are


class Matcher:
    """Probes a side's index in bounded steps.

    Parameters
    ----------
    spec
        The join.
    stats
        Counts results.
    chunk
        Bytes of results that are made at a time.
    """

    def __init__(self, spec: JoinSpec, stats: JoinStats, chunk: int) -> None:
        self.spec, self.stats, self.chunk = spec, stats, chunk

    def meet(
        self, number: int, rows: ShardedRows, sides: Sequence[SideMemory]
    ) -> Iterator[tuple[pa.RecordBatch, list[tuple[int, Int32s]]]]:
        """Give the results of a side's rows with the memory of the other, and the slots there that they are of."""
        other = 1 - number
        return ((out, [(other, slots)]) for out, slots in self.matches(number, rows, sides[other]))

    def matches(
        self, number: int, rows: ShardedRows, other: SideMemory, keep: Callable[[Int32s, Int32s], Bools] | None = None
    ) -> Iterator[tuple[pa.RecordBatch, Int32s]]:
        """Give the results of a side's rows with the other side's slots, and those slots.

        Parameters
        ----------
        number
            The side of the rows.
        keep
            Says which pairs of a row and a slot are wanted; all of them by default.
        """
        if not other.used or not rows.entries.row.size:
            return
        each = rows.rows.nbytes // max(1, rows.rows.num_rows) + other.row_bytes + _PAIR_BYTES
        for picked, slots in _pairs(rows, other, max(_LEAST_PAIRS, self.chunk // each)):
            if keep is not None:
                which = keep(picked, slots)
                picked, slots = picked[which], slots[which]
            if not picked.size:
                continue
            for some in other.pairs_that_fit(rows.rows, picked, slots, self.chunk):
                mine, theirs = BatchRows(rows.rows, picked[some]), MemoryRows(other, slots[some])
                out, made = self.spec.output.make(*left_and_right(number, mine, theirs))
                if out.num_rows:
                    self.stats.results += out.num_rows
                    yield out, theirs.slots if made is None else theirs.slots[made]


def _pairs(rows: ShardedRows, side: SideMemory, most: int) -> Iterator[tuple[Int32s, Int32s]]:
    """Pairs of a row and a slot of a side, slots in the order in which `side.rows` wants them."""
    for entries, slots in side.match(rows.entries.cell, rows.entries.row, rows.values, most):
        order = side.by_chunk(slots)
        yield rows.entries.row[entries[order]], slots[order]
