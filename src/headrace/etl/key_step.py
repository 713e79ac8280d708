"""KeyStep: a task's rows get surrogate keys: a left join with the lookup, and new numbers for keys that it does not have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Int64s
from headrace.errors import VersionGone
from headrace.etl.allocate import Lookup, surrogates_of
from headrace.relation import Relation
from headrace.relation.manifest import versions
from headrace.spark import worker
from headrace.spark.enrich_step import EnrichStep
from headrace.spark.steps import Batches, SparkTask


@dataclass(frozen=True, kw_only=True)
class KeyStep:
    """One `assign_surrogate_keys`, as it travels to the executors."""

    join: EnrichStep
    """the left join with the lookup; its stream has the source of all rows as a last column, where that is one"""
    on: dict[str, str]
    """the stream's columns to the lookup's key columns"""
    meaning: Lookup
    key: tuple[str, ...]
    """the lookup's key columns"""
    constant: pa.Scalar | None
    """the source of all rows; None where a column says it"""
    same_as: str | None
    """path of the relation of keys that stand for others"""
    same_identity: str
    """identity of that relation"""
    held: int
    """bytes of rows with new keys that a task may hold"""
    remembers: None = None
    """rows leave in their micro-batch"""
    shed: None = None
    """all rows get a key"""

    @property
    def id(self) -> str:
        """That of the join, whose work is what is reported."""
        return self.join.id

    @property
    def worker_memory(self) -> int:
        """Bytes of the join's budget that one worker has."""
        return self.join.worker_memory

    def with_relation(self, relation: Relation, *, follow: bool) -> KeyStep:
        """The step with its lookup as it is open."""
        return replace(self, join=self.join.with_relation(relation, follow=follow))

    def recorded(self) -> None:
        """Nothing: `replay` cannot repeat the step from what is written down."""

    def run(self, batches: Batches, task: SparkTask) -> Batches:
        """The rows of a task with their surrogate keys."""
        if self.constant is not None:
            batches = (batch.append_column("", pa.repeat(self.constant, batch.num_rows)) for batch in batches)
        columns = len(self.join.stream)
        kept = [*range(columns - (self.constant is not None)), columns]
        for batch in self._assigned(self._pinned(task).run(batches, task)):
            yield batch.select(kept)

    def _pinned(self, task: SparkTask) -> EnrichStep:
        """The join at the micro-batch's version or, where that is gone, at the latest: a number once given out stays."""
        join = self.join
        while True:
            try:
                worker.relation_at(join.join, join.version, join.follow, task)  # this process keeps it open from now on
                return join
            except VersionGone:
                join = replace(self.join, version=versions(Path(join.join.path))[-1], follow=False)

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

    def _unknown(self, batch: pa.RecordBatch) -> Int64s:
        """Rows that have a key and no number yet. A row without a key stays without a number."""
        unknown = pc.is_null(batch.column(batch.num_columns - 1))
        for name in self._stream_key():
            unknown = pc.and_(unknown, pc.is_valid(batch.column(name)))
        return np.flatnonzero(unknown)

    def _with_new_keys(self, held: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = pa.Table.from_batches(held)
        with Relation.open(self.join.join.path, disk=self.join.join.disk) as lookup:
            lookup.check_identity(self.join.join.identity)
            types = [lookup.schema.field(name).type for name in self.key]
            columns = [rows.column(n).cast(t) for n, t in zip(self._stream_key(), types, strict=True)]
            keys = pa.table(columns, names=list(self.key))
            if self.same_as is None:
                numbers = surrogates_of(keys, lookup, self.meaning)
            else:
                with Relation.open(self.same_as) as same:
                    same.check_identity(self.same_identity)
                    numbers = surrogates_of(keys, lookup, self.meaning, same)
        at = rows.num_columns - 1
        yield from rows.set_column(at, rows.schema.field(at), numbers).combine_chunks().to_batches()

    def _stream_key(self) -> tuple[str, ...]:
        stream_of = {relation: stream for stream, relation in self.on.items()}
        return tuple(stream_of[name] for name in self.key)
