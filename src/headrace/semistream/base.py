"""The driver of every semi-stream join: what goes in, what comes out, under which names. DESIGN §4

An operator says where the matches of a batch are; this file turns that into results for inner, left, semi and anti.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from headrace.clock import Clock, SystemClock
from headrace.conditions import parse_on
from headrace.errors import BadInput, choice
from headrace.kernels.store import ANTI, INNER, LEFT, SEMI, expand
from headrace.memory import MemoryBudget
from headrace.metrics import JoinStats
from headrace.relation import Relation
from headrace.relation.columns import Column
from headrace.relation.keys import Ints
from headrace.relation.store import StoreFull, TupleSources

How = Literal["inner", "left", "semi", "anti"]
On = str | Sequence[str] | Mapping[str, str]
Order = Literal["any", "stream"]

_HOW = {"inner": INNER, "left": LEFT, "semi": SEMI, "anti": ANTI}


@dataclass(frozen=True, slots=True)
class Matches:
    """Where the matches of a batch's rows are.

    uid[row] numbers the row's key among the distinct keys of the batch (-1: null); the matches of key u are tuples
    pos[u] .. pos[u] + count[u] of source src[u].
    """

    uid: Ints
    src: Ints
    pos: Ints
    count: Ints
    sources: TupleSources | None


class SemiStreamJoin(ABC):
    """Joins a stream of record batches with a relation.

    Parameters
    ----------
    relation
        An open relation; the join reads the version it was opened at, to the end.
    on
        "col", ["a", "b"], or {"stream column": "relation column"}: the relation's whole key.
    memory
        The budget in bytes, as a number or "64MiB".
    how
        inner, left, semi or anti. A null key matches nothing.
    columns
        Payload columns of the relation wanted in the result; all by default.
    suffix
        Added to the name of a payload column that the stream has too; None refuses it.
    """

    unique_keys: ClassVar[bool] = False  # whether the relation's keys must be unique
    needs_popularity: ClassVar[bool] = False  # whether the relation must be stored by popularity
    in_order: ClassVar[bool] = True  # whether results come in stream order without being asked to

    def __init__(
        self,
        relation: Relation,
        on: On | None,
        memory: int | str,
        *,
        how: How = "inner",
        columns: Sequence[str] | None = None,
        suffix: str | None = "_right",
        clock: Clock | None = None,
    ) -> None:
        self.relation = relation
        self.on = on
        self.how: How = choice("how", how, tuple(_HOW))  # type: ignore[assignment]
        self.columns = columns
        self.suffix = suffix
        self.budget = MemoryBudget(memory)
        simulated = relation.disk.kind == "simulated"
        self.clock: Clock = clock or (relation.disk.clock if simulated else SystemClock())
        self.stream_key = self._stream_key(on)
        self._wanted: tuple[Column, ...] = relation.payload(columns)
        self._payload: tuple[Column, ...] = self._wanted if self.how in ("inner", "left") else ()
        self._mark: str | None = None
        self._schemas: tuple[pa.Schema, pa.Schema] | None = None
        self.stats = JoinStats(memory_limit=self.budget.limit)

    def _stream_key(self, on: On | None) -> tuple[str, ...]:
        """The columns of the stream that must equal the relation's key, in the key's order."""
        equality, key = parse_on(on), self.relation.key  # type: ignore[arg-type]
        if sorted(equality.right) != sorted(key):
            raise BadInput(
                f"on={on!r} names {', '.join(equality.right)} of the relation, whose key is {', '.join(key)}; join on the whole"
                " key"
            )
        stream_of = dict(zip(equality.right, equality.left, strict=True))
        return tuple(stream_of[name] for name in key)

    def _right_fields(self) -> list[pa.Field]:
        """What of the relation is in a result."""
        mark = [pa.field(self._mark, pa.bool_())] if self._mark else []
        return [pa.field(column.name, column.type) for column in self._payload] + mark

    def reset_stats(self) -> None:
        """Count from zero; what is held stays as it is."""
        self.stats = JoinStats(memory_limit=self.budget.limit, left_out=self.stats.left_out)

    def output_schema(self, stream: pa.Schema) -> pa.Schema:
        """The schema of results for a stream of this schema; refuses what cannot be joined, by name."""
        for name in self.stream_key:
            if stream.names.count(name) != 1:
                raise BadInput(
                    f"the stream has {'no' if name not in stream.names else 'more than one'} column {name!r}; its columns are"
                    f" {', '.join(stream.names)}"
                )
        if self.stream_key:
            self.relation.codec.check([stream.field(name) for name in self.stream_key])
        fields = list(stream)
        taken = set(stream.names)
        for field in self._right_fields():
            name = field.name
            if name in taken:
                if self.suffix is None:
                    raise BadInput(
                        f"column {name!r} is in the stream and in the relation; pick columns=..., or give a suffix"
                    )
                name += self.suffix
                if name in taken:
                    raise BadInput(
                        f"column {field.name!r} is in the stream and in the relation, and so is {name!r}; use another suffix"
                    )
            taken.add(name)
            fields.append(pa.field(name, field.type))
        return pa.schema(fields)

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Join every batch to its end. A stream of at least one batch gives at least one, perhaps empty."""
        emitted, schema = False, None
        for batch in batches:
            schema = batch.schema
            for out in self.join(batch):
                emitted = True
                yield out
        if schema is not None and not emitted:
            yield empty(self._schema_for(schema))

    def join(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Join one batch to its end, in stream order."""
        schema = self._schema_for(batch.schema)
        self.stats.batches += 1
        self.stats.tuples_in += batch.num_rows
        for out in self._join(batch, schema):
            self.stats.results += out.num_rows
            yield out
        self.stats.memory = self.budget.held()
        self.stats.memory_peak = self.budget.peak

    @abstractmethod
    def _join(self, batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The results of one batch. The caller keeps the books of what goes in and out."""

    def _schema_for(self, stream: pa.Schema) -> pa.Schema:
        if self._schemas is None or (self._schemas[0] is not stream and not self._schemas[0].equals(stream)):
            self._schemas = (stream, self.output_schema(stream))
        return self._schemas[1]

    def _emit(
        self, batch: pa.RecordBatch, schema: pa.Schema, matches: Matches, rows: int, which: Ints | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Results of a batch, or of some of its rows, at most `rows` at a time."""
        stop = np.zeros(2, np.int64)
        uid = matches.uid if which is None else matches.uid[which]
        while stop[0] < uid.size:
            row, within = int(stop[0]), int(stop[1])
            out_row, out_src, out_pos = (np.empty(rows, np.int32) for _ in range(3))
            n = expand(
                uid,
                matches.src,
                matches.pos,
                matches.count,
                _HOW[self.how],
                row,
                within,
                stop,
                out_row,
                out_src,
                out_pos,
            )
            if n == 0:
                return
            if which is not None:
                out_row[:n] = which[out_row[:n]]
            try:
                out = self._gather(batch, schema, matches, out_row[:n], out_src[:n], out_pos[:n])
            except StoreFull:
                # Strings of this many results would not fit one Arrow array.
                stop[:] = row, within
                rows = max(1, n // 2)
                continue
            yield out

    def _gather(
        self, batch: pa.RecordBatch, schema: pa.Schema, matches: Matches, row: Ints, src: Ints, pos: Ints
    ) -> pa.RecordBatch:
        n = row.size
        if row[-1] - row[0] == n - 1 and (n == 1 or bool((row[1:] > row[:-1]).all())):
            stream = batch.slice(int(row[0]), n)  # every row once: no copy
        else:
            stream = batch.take(pa.array(row))
        arrays: list[Any] = stream.columns
        if self._payload:
            assert matches.sources is not None
            outer = self.how == "left"
            arrays += [matches.sources.gather(i, src, pos, outer=outer) for i in range(len(self._payload))]
        if self._mark:
            arrays.append(pa.array(src >= 0))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def empty(schema: pa.Schema) -> pa.RecordBatch:
    """A batch without rows."""
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)
