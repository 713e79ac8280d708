"""Partitions of equal keys. [PQP] ch. 4"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.conditions import Equal
from headrace.errors import BadInput, UnsupportedType
from headrace.kernels.cells import match_codes
from headrace.kernels.hashing import shards_of
from headrace.progressive.grids.partitioning import NO_DOUBLES, SIDES, Entries, Partitioning, Reading
from headrace.relation.columns import plain_type
from headrace.relation.keys import Hashes, Ints, KeyCodec


class HashPartitioning(Partitioning):
    """Tuples with equal keys are in one cell: the hash of the key. A partition is a range of hashes.

    Choose it for equality. Integer-like keys are told apart by their hashes alone, which are all different; keys of strings and
    of several columns are compared again, since two might have the same hash.

    Parameters
    ----------
    condition
        The columns that are equal in pairs: integers, strings, binary, dates, timestamps or decimals.
    partitions
        How many there are, of each side.

    Deviations from [PQP] Table 3.1: a mixed hash and not the key modulo the number of partitions, so that keys with a common
    divisor do not share a partition.
    """

    match = staticmethod(match_codes)

    def __init__(self, condition: Equal, partitions: int = 64) -> None:
        super().__init__(partitions)
        if partitions < 1:
            raise BadInput(f"partitions={partitions!r} is not a number of partitions; give 1 or more")
        self.condition = condition
        self.columns = condition.left, condition.right
        self._codec: KeyCodec | None = None

    def bind(self, side: int, schema: pa.Schema) -> None:
        """Both sides' keys must be of one type; integers may differ in width."""
        names = self.columns[side]
        for name in names:
            if schema.names.count(name) != 1:
                many = "no" if name not in schema.names else "more than one"
                raise BadInput(
                    f"the {SIDES[side]} side has {many} column {name!r}; its columns are {', '.join(schema.names)}"
                )
        types = [plain_type(name, schema.field(name).type) for name in names]
        if self._codec is None:
            try:
                self._codec = KeyCodec(names, [_widest(type_) for type_ in types])
            except UnsupportedType as error:
                raise UnsupportedType(f"the {SIDES[side]} side: {error}") from error
            self.exact = self._codec.integer
            self._first = side
            return
        for name, type_, there, wanted in zip(names, types, self._codec.names, self._codec.types, strict=True):
            if _widest(type_) != wanted:
                raise BadInput(
                    f"column {name!r} of the {SIDES[side]} side has type {type_}, and {there!r} of the other has {wanted}; cast"
                    " one to the type of the other"
                )

    def read(self, side: int, batch: pa.RecordBatch) -> Reading:
        """Hashes of the keys."""
        assert self._codec is not None
        keys, valid = self._codec.encode([batch.column(name) for name in self.columns[side]])
        there = valid == 1 if valid.size else np.ones(batch.num_rows, np.bool_)
        return Reading(keys.hashes(), NO_DOUBLES, there)

    def home(self, side: int, reading: Reading) -> Entries:
        """One cell a row."""
        if reading.valid.all():
            return Entries(np.arange(reading.codes.size, dtype=np.int32), reading.codes)
        rows = np.flatnonzero(reading.valid).astype(np.int32)
        return Entries(rows, reading.codes[rows])

    def partition_of(self, cells: Hashes) -> Ints:
        """A range of hashes each."""
        out = np.empty(cells.size, np.int32)
        shards_of(cells, self.partitions, out)
        return out


def _widest(type_: pa.DataType) -> pa.DataType:
    """The type to compare in."""
    return pa.int64() if pa.types.is_integer(type_) and not pa.types.is_uint64(type_) else type_
