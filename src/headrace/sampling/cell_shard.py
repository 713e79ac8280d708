"""CellShard: the cells of a partitioning that belong to one shard of a join on several machines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Int32s, UInt64s
from headrace.progressive.grids.partitioning import LEFT, CellEntries, JoinKeys, Partitioning
from headrace.progressive.logged.sharding import shard_of


class CellShard(Partitioning):
    """A part of the cells of a partitioning. Rows are kept in those of their cells that are in it.

    Both sides of a pair meet in exactly one cell, and so in one shard: boxes in the cell of their reference point, vectors in the
    cell that the left one lies in, since the right one is kept in all cells within eps.

    Parameters
    ----------
    whole
        The partitioning of the whole join.
    shards
        The number of shards that cells are divided among.
    shard
        The number of this one.
    """

    def __init__(self, whole: Partitioning, shards: int, shard: int) -> None:
        super().__init__(whole.partitions)
        self.whole, self.shards, self.shard = whole, shards, shard
        self.match: Any = whole.match
        self._follow()

    def bind(self, side: int, schema: pa.Schema) -> None:
        """Learn the schema of a side."""
        self.whole.bind(side, schema)
        self._follow()

    def read(self, side: int, batch: pa.RecordBatch) -> JoinKeys:
        """Read the columns that rows are divided and matched by."""
        keys = self.whole.read(side, batch)
        self._follow()
        return keys

    def check(self, side: int, batch: pa.RecordBatch) -> None:
        """Refuse rows that `read` or `home` would refuse."""
        self.whole.check(side, batch)

    def home(self, side: int, keys: JoinKeys) -> CellEntries:
        """The cells of rows that are in this shard."""
        within = side == LEFT or self.whole.identity
        entries = self.whole.home(side, keys) if within else self.whole.reach(side, keys)
        mine = np.flatnonzero(shard_of(entries.cell, self.shards) == self.shard)
        return CellEntries(entries.row[mine], entries.cell[mine])

    def partition_of(self, cells: UInt64s) -> Int32s:
        """The partition of each cell."""
        return self.whole.partition_of(cells)

    def _follow(self) -> None:
        """Take over what the whole has learned of its columns."""
        self.exact, self.limits, self.width = self.whole.exact, self.whole.limits, self.whole.width
