"""Sharding: assigns the rows of a stream to the shards and partitions of a logged progressive join."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.arrays import Float64s, Int32s, Int64s, UInt64s
from headrace.progressive.grids.partitioning import LEFT, NO_DOUBLES, CellEntries, JoinKeys, Partitioning


@dataclass(frozen=True, slots=True)
class ShardedRows:
    """Rows of one side in one shard, sorted by partition; a row that belongs to several partitions is there several times."""

    rows: pa.RecordBatch
    partition: Int32s
    """the partition of each row"""
    entries: CellEntries
    """the cells of each row that lie in its partition"""
    values: Float64s
    """coordinates that rows are compared by; empty for keys"""

    @property
    def at(self) -> Int32s:
        """The partition of each entry."""
        return self.partition[self.entries.row]


class Sharding:
    """Says which shards, and which partitions of a shard, the rows of two streams belong to.

    Both sides of a pair meet in exactly one cell, and so in one partition of one shard: keys by their hash, boxes in the cell of
    their reference point, vectors in the cell that the left one lies in, since the right one is kept in all cells within eps.

    Parameters
    ----------
    partitioning
        The partitioning of the whole join, bound to both sides.
    shards
        How many shards cells are divided among; 0 if rows come by the hash of their key, so that this shard has all their cells.
    shard
        The number of this shard.
    """

    def __init__(self, partitioning: Partitioning, shards: int = 0, shard: int = 0) -> None:
        self.partitioning = partitioning
        self.shards, self.shard = shards, shard

    def assign(self, side: int, batch: pa.RecordBatch) -> ShardedRows:
        """Assign rows that came to the partitions of this shard; rows that belong to other shards are left out."""
        reading, entries, at = self._read(side, batch)
        # A stable sort: the rows of a partition stay in their order.
        order = np.argsort(at.astype(np.int16) if self.partitioning.partitions < 1 << 15 else at, kind="stable")
        row, at, cell = entries.row[order], at[order], entries.cell[order]
        new = np.ones(row.size, np.bool_)
        new[1:] = (row[1:] != row[:-1]) | (at[1:] != at[:-1])
        copy = np.cumsum(new, dtype=np.int32) - np.int32(1)
        rows = row[new]
        taken = batch.take(pa.array(rows)) if rows.size else batch.slice(0, 0)
        return ShardedRows(taken, at[new], CellEntries(copy.astype(np.int32), cell), self._values(reading, rows))

    def reassign(self, side: int, batch: pa.RecordBatch, partition: Int32s) -> ShardedRows:
        """Find the cells of rows that `assign` gave before, and that come from the log with their partitions."""
        reading, entries, at = self._read(side, batch)
        mine = at == partition[entries.row]
        if not mine.all():
            entries = CellEntries(entries.row[mine], entries.cell[mine])
        return ShardedRows(batch, partition, entries, reading.values)

    def shards_of(self, side: int, batch: pa.RecordBatch) -> tuple[Int32s, Int32s]:
        """Pairs of a row and a shard that it goes to, each shard of a row once; a row that can match nothing goes nowhere."""
        _, entries = self._cells(side, batch)
        pairs = np.unique(entries.row.astype(np.int64) * self.shards + shard_of(entries.cell, self.shards))
        return (pairs // self.shards).astype(np.int32), (pairs % self.shards).astype(np.int32)

    def _cells(self, side: int, batch: pa.RecordBatch) -> tuple[JoinKeys, CellEntries]:
        partitioning = self.partitioning
        reading = partitioning.read(side, batch)
        if side == LEFT or partitioning.identity:
            return reading, partitioning.home(side, reading)
        return reading, partitioning.reach(side, reading)

    def _read(self, side: int, batch: pa.RecordBatch) -> tuple[JoinKeys, CellEntries, Int32s]:
        reading, entries = self._cells(side, batch)
        if self.shards > 1:
            mine = shard_of(entries.cell, self.shards) == self.shard
            entries = CellEntries(entries.row[mine], entries.cell[mine])
        return reading, entries, self.partitioning.partition_of(entries.cell)

    def _values(self, reading: JoinKeys, rows: Int32s) -> Float64s:
        width = self.partitioning.width
        if not width:
            return NO_DOUBLES
        return np.ascontiguousarray(reading.values.reshape(-1, width)[rows]).reshape(-1)


def shard_of(cells: UInt64s, shards: int) -> Int64s:
    """The shards of cells, by a hash of the high half of their codes: neighbouring cells may share a shard."""
    mixed = (cells >> np.uint64(32)) * np.uint64(0x9E3779B97F4A7C15)
    return ((mixed >> np.uint64(33)) % np.uint64(shards)).astype(np.int64)
