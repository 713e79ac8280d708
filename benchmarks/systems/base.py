"""What a benchmarked system is: built once from R, opened with a budget, joins batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from benchmarks.data import PAYLOAD, Dataset, Records, columns_of
from benchmarks.streams import SCHEMA

if TYPE_CHECKING:  # compare runs this file with revisions that have no such module
    from headrace.arrays import Int64s

Kind = Literal["ours", "store", "engine", "memory"]

OUTPUT = pa.schema([*SCHEMA, *PAYLOAD])

#: Rows looked up at a time. It bounds what a join holds beside its cache, whatever the batch size.
SEGMENT = 8_192


#: Below one wanted row in this many, a read-ahead brings mostly pages that nobody asked for.
_SPARSE = 300


class System(ABC):
    """One system. `path` is where its files live; subclasses say what they are in `settings`."""

    name: ClassVar[str]
    kind: ClassVar[Kind]
    divisible: ClassVar[bool] = False  # whether half a batch, by key, is half the work

    def __init__(self, data: Dataset) -> None:
        self.data = data
        self.path: Path = data.directory / self.name

    @abstractmethod
    def build(self) -> None:
        """Write the system's own copy of R at `path`. Called once, in a process of its own."""

    @abstractmethod
    def open(self, memory: int, batch: int) -> None:
        """Open with a cache of `memory` bytes, for batches of `batch` rows."""

    @abstractmethod
    def join(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The inner join of one stream batch with R, in as many pieces as it likes."""

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """How the system is set up: kept with the results."""

    def is_dense(self, batch: int) -> bool:
        """Whether a sorted batch asks for nearly every page: then reading ahead pays."""
        return batch * _SPARSE > self.data.rows

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from self.join(batch)

    def stats(self) -> dict[str, Any]:
        """The system's own counters, when it has any."""
        return {}


class KeyValueSystem(System):
    """A store of packed values: one batch is sorted, its distinct keys looked up, the rest decoded.

    Subclasses look up sorted distinct keys. Results leave in key order, which spares the stores
    a second permutation.
    """

    kind: ClassVar[Kind] = "store"
    divisible: ClassVar[bool] = True

    @abstractmethod
    def lookup(self, keys: Int64s) -> tuple[np.ndarray, Records]:
        """The positions in `keys` (ascending) of those found, and their values."""

    def join(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        keys = batch.column(0).to_numpy()
        order = np.argsort(keys)
        for start in range(0, len(order), SEGMENT):
            rows = order[start : start + SEGMENT]
            part = keys[rows]
            first = np.empty(len(part), bool)
            first[0] = True
            np.not_equal(part[1:], part[:-1], out=first[1:])
            found, records = self.lookup(part[first])
            if len(found) == 0:
                continue
            slot = np.cumsum(first) - 1  # the distinct key of each row
            if len(found) < slot[-1] + 1:
                where = np.full(slot[-1] + 1, -1)
                where[found] = np.arange(len(found))
                slot = where[slot]
                rows = rows[slot >= 0]
                slot = slot[slot >= 0]
            index = None if len(slot) == len(records) else slot
            stream = [pa.array(c.to_numpy()[rows]) for c in batch.columns]
            yield pa.record_batch([*stream, *columns_of(records, index)], schema=OUTPUT)
