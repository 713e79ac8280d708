"""SampledSide: one side of a window join, a sample with an index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.arrays import Bools, Float64s, Int32s, Int64s
from headrace.kernels.sample_index import add_amounts
from headrace.progressive.grids.partitioning import CellEntries, JoinKeys, Partitioning
from headrace.sampling.event_times import TimedRows
from headrace.sampling.held_rows import HeldRows
from headrace.sampling.index import SampleIndex
from headrace.sampling.sampler import Sampler
from headrace.sampling.snapshot import Parts, SnapshotReader, write_snapshot

_SHOWN = 64  # rows at the head of a snapshot: enough to tell how wide rows are


@dataclass(frozen=True, slots=True)
class SampledRows:
    """Rows of a sample, by their slots in the order of `HeldRows.by_chunk`."""

    rows: HeldRows
    slots: Int32s

    def take(self, columns: Sequence[str] | None = None, which: Bools | None = None) -> pa.RecordBatch:
        """Copy the rows."""
        slots = self.slots if which is None else self.slots[which]
        return self.rows.rows_by_chunk(slots, None if columns is None else list(columns))


class SampledSide:
    """The sample of one side, its index by key or cell, and what its tuples have met so far.

    Parameters
    ----------
    number
        0 is left, 1 is right.
    schema, batch
        The schema of its tuples, and the first of them, by which the size of the sample is chosen if memory decides.
    sampler
        Decides which tuples stay.
    partitioning
        Divides tuples into cells.
    cells
        The number of cells of a tuple, in the mean.
    shape
        The groups and amounts of the sums of a tuple, for estimates; (0, 0) without.
    """

    def __init__(
        self,
        number: int,
        schema: pa.Schema,
        batch: pa.RecordBatch,
        sampler: Sampler,
        partitioning: Partitioning,
        cells: float,
        shape: tuple[int, int],
    ) -> None:
        self.number, self.schema, self.sampler, self._partitioning = number, schema, sampler, partitioning
        # Room doubles when it is used up, so there may be up to twice as many entries as are in use.
        sampler.beside = int(2 * max(1.0, cells) * SampleIndex.entry_bytes(partitioning))
        sampler.beside += 8 * shape[0] * shape[1]
        sampler.begin(schema, batch)
        self.index = SampleIndex(partitioning, sampler.budget.reserve("index", 0))
        self.sums: Float64s = np.empty((0, *shape))
        """for each slot, what the pairs count for that its tuple is the earlier one of: [slot, group, amount]"""
        self._sums_part = sampler.budget.reserve("sums", 0)

    def times(self, slots: Int32s) -> Int64s:
        """The times of the tuples of slots, in a window by time."""
        return self.sampler.until[slots] - self.sampler.length

    def take_in(self, batch: pa.RecordBatch, keys: JoinKeys, home: CellEntries, timed: TimedRows | None) -> None:
        """Give tuples to the sampler, and index those that stay."""
        changes = self.sampler.take_in(batch, *(() if timed is None else (timed.times, timed.now)))
        self._drop(changes.gone)
        self._drop(changes.slots)
        owner = np.full(batch.num_rows, -1, np.int32)
        owner[changes.rows] = changes.slots
        owners = owner[home.row]
        stay = owners >= 0
        self.index.insert(CellEntries(home.row[stay], home.cell[stay]), owners[stay], keys.values, self.sampler.slots)

    def forget(self, slots: Int32s) -> None:
        """Forget tuples that have expired."""
        self.sampler.forget(slots)
        self._drop(slots)

    def add(self, slots: Int32s, groups: Int64s, amounts: Float64s) -> None:
        """Add amounts, [pair, amount], to the sums of slots in groups."""
        _, count, width = self.sums.shape
        if len(self.sums) < self.sampler.slots:
            sums = np.zeros((self.sampler.slots, count, width))
            self._sums_part.resize(sums.nbytes)
            sums[: len(self.sums)] = self.sums
            self.sums = sums
        add_amounts(self.sums.reshape(-1), slots.astype(np.int64) * count + groups, amounts.reshape(-1), width)

    def sums_of(self, slots: Int32s) -> Float64s:
        """The sums of slots, [slot, group, amount]."""
        out = np.zeros((slots.size, *self.sums.shape[1:]))
        known = slots < len(self.sums)
        out[known] = self.sums[slots[known]]
        return out

    def snapshot(self) -> Parts:
        """The state, as record batches."""
        yield from write_snapshot(
            "sums", {"sums": self.sums.reshape(-1)}, [self.sampler.rows.rows(self.sampler.in_use()[:_SHOWN])]
        )
        yield from self.sampler.snapshot()

    @staticmethod
    def begin(snapshot: SnapshotReader) -> tuple[Float64s, pa.RecordBatch]:
        """Read what `restore` begins with: the sums, and a few rows that show the columns and the width."""
        snapshot.check("sums")
        sums = snapshot.arrays()["sums"]
        return sums, next(snapshot.rows())

    def restore(self, sums: Float64s, snapshot: SnapshotReader) -> None:
        """Go on from a snapshot whose sums were read: the index is made again from the rows."""
        for rows, slots in self.sampler.restore_rows(snapshot):
            keys = self._partitioning.read(self.number, rows)
            home = self._partitioning.home(self.number, keys)
            self.index.insert(home, slots[home.row], keys.values, self.sampler.slots)
        if sums.size:
            self._sums_part.resize(sums.nbytes)
            self.sums = sums.reshape(-1, *self.sums.shape[1:])

    def _drop(self, slots: Int32s) -> None:
        """Take slots out of the index, with the sums of the tuples that they held."""
        if slots.size:
            self.index.remove(slots)
            if len(self.sums):
                self.sums[slots[slots < len(self.sums)]] = 0
