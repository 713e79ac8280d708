"""What a task does to give its rows surrogate keys: a left join with the lookup, and new numbers for what it does not have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import VersionGone
from headrace.etl.allocate import Lookup, surrogates_of
from headrace.relation import Relation
from headrace.relation.manifest import versions
from headrace.spark import worker
from headrace.spark.worker import Batches, Step

if TYPE_CHECKING:
    from pyspark import TaskContext


@dataclass(frozen=True, kw_only=True)
class KeyStep(Step):
    """One `assign_surrogate_keys`, as it travels to the executors."""

    meaning: Lookup
    key: tuple[str, ...]  # the lookup's key columns
    constant: pa.Scalar | None  # the source of all rows, put beside them as a last column
    same_as: str | None
    held: int  # bytes of rows that a task may hold

    def run(
        self,
        batches: Batches,
        context: TaskContext,
        report: Any,
        finish: str | None = None,
        rest: tuple[Step, ...] = (),
    ) -> Batches:
        """Rows with their surrogate keys."""
        if self.constant is not None:
            batches = (batch.append_column("", pa.repeat(self.constant, batch.num_rows)) for batch in batches)
        width = len(self.names) - (self.constant is not None)
        kept = [*range(width), len(self.names)]
        for batch in self._assigned(Step.run(self._pinned(context), batches, context, report, finish, rest)):
            yield batch.select(kept)

    def _pinned(self, context: TaskContext) -> KeyStep:
        """This step at the micro-batch's version or, where that is gone, at the latest: a number once given out stays."""
        step = self
        while True:
            try:
                worker._relation(step, context)  # which this process keeps open from now on
                return step
            except VersionGone:
                step = replace(self, version=versions(Path(self.path))[-1], follow=False)

    def _assigned(self, joined: Batches) -> Batches:
        """Rows whose key is known go on at once; the others wait for more of their kind, so that few versions are made."""
        held: list[pa.RecordBatch] = []
        size = 0
        for batch in joined:
            unknown = self._unknown(batch)
            if unknown.size == 0:
                yield batch
                continue
            if unknown.size < batch.num_rows:
                yield batch.take(pa.array(np.setdiff1d(np.arange(batch.num_rows), unknown, assume_unique=True)))
            held.append(batch.take(pa.array(unknown)))
            size += held[-1].nbytes
            if size >= self.held:
                yield from self._with_new_keys(held)
                held, size = [], 0
        if held:
            yield from self._with_new_keys(held)

    def _unknown(self, batch: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Rows that have a key and no number yet. A row without a key stays without a number."""
        unknown = pc.is_null(batch.column(batch.num_columns - 1))
        for name in self._stream_key():
            unknown = pc.and_(unknown, pc.is_valid(batch.column(name)))
        return np.flatnonzero(unknown)

    def _with_new_keys(self, held: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = pa.Table.from_batches(held)
        with Relation.open(self.path, disk=self.disk) as lookup:
            types = [lookup.schema.field(name).type for name in self.key]
            columns = [rows.column(n).cast(t) for n, t in zip(self._stream_key(), types, strict=True)]
            keys = pa.table(columns, names=list(self.key))
            if self.same_as is None:
                numbers = surrogates_of(keys, lookup, self.meaning)
            else:
                with Relation.open(self.same_as) as same:
                    numbers = surrogates_of(keys, lookup, self.meaning, same)
        at = rows.num_columns - 1
        yield from rows.set_column(at, rows.schema.field(at), numbers).combine_chunks().to_batches()

    def _stream_key(self) -> tuple[str, ...]:
        assert isinstance(self.on, dict)
        stream_of = {relation: stream for stream, relation in self.on.items()}
        return tuple(stream_of[name] for name in self.key)
