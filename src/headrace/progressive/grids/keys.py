"""HashPartitioning: partitions by the hash of a key. [PQP] ch. 4"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.arrays import Int32s, UInt64s
from headrace.conditions import Equal
from headrace.errors import BadInput, UnsupportedType
from headrace.kernels.cells import match_codes
from headrace.kernels.hashing import shards_of
from headrace.progressive.grids.partitioning import (
    LEFT,
    NO_DOUBLES,
    RIGHT,
    CellEntries,
    JoinKeys,
    Partitioning,
    stream_name,
)
from headrace.relation.columns import plain_type
from headrace.relation.keys import KeyCodec


class HashPartitioning(Partitioning):
    """Puts tuples with equal keys into one cell, the hash of the key. A partition is a range of hashes.

    Choose it for equality. Integer-like keys have different hashes, so equal hashes mean equal keys; keys of strings and of
    several columns are compared again, since two of them might have the same hash.

    Parameters
    ----------
    condition
        The columns that are equal in pairs: integers, strings, binary, dates, timestamps or decimals.
    partitions
        The number of partitions of each side. A join has fewer if a list of them would take too much of its memory.

    Deviations from [PQP] Table 3.1: a mixed hash and not the key modulo the number of partitions, so that keys with a common
    divisor do not share a partition.
    """

    match = staticmethod(match_codes)

    def __init__(self, condition: Equal, partitions: int = 64) -> None:
        super().__init__(partitions)
        if partitions < 1:
            raise BadInput(f"partitions={partitions!r} is not a number of partitions; give 1 or more")
        self.condition = condition
        self.columns: tuple[tuple[str, ...], ...] = condition.left, condition.right
        self._names = tuple(stream_name(side, 2) for side in (LEFT, RIGHT))  # of the sides, in messages
        self._codec: KeyCodec | None = None

    @classmethod
    def of_streams(cls, columns: Sequence[str], partitions: int = 64) -> HashPartitioning:
        """Divide several streams by one column of each."""
        made = cls(Equal((columns[0],), (columns[1],)), partitions)
        made.columns = tuple((name,) for name in columns)
        made._names = tuple(f"stream {number}" for number in range(len(columns)))
        return made

    def bind(self, side: int, schema: pa.Schema) -> None:
        """Learn the key columns of a side. Both sides must have the same types; integers may differ in width."""
        names = self.columns[side]
        for name in names:
            if schema.names.count(name) != 1:
                many = "no" if name not in schema.names else "more than one"
                raise BadInput(
                    f"{self._names[side]} has {many} column {name!r}; its columns are {', '.join(schema.names)}"
                )
        types = [plain_type(name, schema.field(name).type) for name in names]
        if self._codec is None:
            try:
                self._codec = KeyCodec(names, [_widest(type_) for type_ in types])
            except UnsupportedType as error:
                raise UnsupportedType(f"{self._names[side]}: {error}") from error
            self.exact = self._codec.integer
            self._first = side
            return
        for name, type_, there, wanted in zip(names, types, self._codec.names, self._codec.types, strict=True):
            if _widest(type_) != wanted:
                raise BadInput(
                    f"column {name!r} of {self._names[side]} has type {type_}, and {there!r} of the other has {wanted}; cast"
                    " one to the type of the other"
                )

    def read(self, side: int, batch: pa.RecordBatch) -> JoinKeys:
        """Hash the keys."""
        assert self._codec is not None
        keys, valid = self._codec.encode([batch.column(name) for name in self.columns[side]])
        there = valid == 1 if valid.size else np.ones(batch.num_rows, np.bool_)
        return JoinKeys(keys.hashes(), NO_DOUBLES, there)

    def coarsen(self, cells: int, partitions: int, memory: int) -> None:
        """Divide into fewer partitions, if there are more."""
        self.partitions = min(self.partitions, partitions)

    def check(self, side: int, batch: pa.RecordBatch) -> None:
        """Do nothing: every key can be hashed."""

    def home(self, side: int, keys: JoinKeys) -> CellEntries:
        """The hash of each row with a key."""
        if keys.valid.all():
            return CellEntries(np.arange(keys.codes.size, dtype=np.int32), keys.codes)
        rows = np.flatnonzero(keys.valid).astype(np.int32)
        return CellEntries(rows, keys.codes[rows])

    def partition_of(self, cells: UInt64s) -> Int32s:
        """The range that each hash is in."""
        out = np.empty(cells.size, np.int32)
        shards_of(cells, self.partitions, out)
        return out


def _widest(type_: pa.DataType) -> pa.DataType:
    """The type that keys of a type are compared in."""
    return pa.int64() if pa.types.is_integer(type_) and not pa.types.is_uint64(type_) else type_
