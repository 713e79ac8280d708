"""AdaptiveJoin with a condition beside the key: a dimension's history, for one (slowly changing dimensions, type 2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.clock import Clock
from headrace.conditions import Condition
from headrace.errors import BadInput, MemoryRefused, choice
from headrace.predicates.numbers import Mask
from headrace.relation import Relation
from headrace.relation.keys import Ints
from headrace.semistream.adaptive.join import AdaptiveJoin
from headrace.semistream.adaptive.memory_plan import least_memory
from headrace.semistream.adaptive.shared_hot_set import Group
from headrace.semistream.base import How, On, Order, SemiStreamJoin
from headrace.semistream.matching import Matching
from headrace.units import format_size, parse_size

_ROW = "\0row"  # the column that numbers a batch's rows; no user's column has such a name
_SHARE = 16  # of the budget, one part in so many, for what is noted of the rows of a batch
_ROW_BYTES = 16  # of a row: its number, whether it has passed, and what making results of it needs
_LEAST_ROWS = 256


class ConditionalJoin(AdaptiveJoin):
    """Join by the whole key like AdaptiveJoin, and keep the pairs that satisfy a condition.

        batch, rows numbered -> AdaptiveJoin (inner) -> pairs -> condition -> results, and which rows passed
                                                                              left, semi, anti: the rows by that

    A row is matched only if one of its pairs passes, so left, semi and anti do what SQL does. `join` takes each batch to its end;
    with `offer` and `advance` rows that must be read for wait, as in AdaptiveJoin, and none of their pairs has come by then.

    Parameters
    ----------
    relation, on, memory, how, columns, suffix, order, group
        See AdaptiveJoin.
    condition
        What a pair must satisfy: compare, between, band, within, intersects or all_of. Its columns need not be among `columns`.
        None: nothing more.
    flag
        The name of a last column that says whether the row has a match, for how="left": payload columns may be null in a match.

    Example
    -------
    >>> import pyarrow as pa, tempfile, headrace as hr
    >>> from headrace.semistream import ConditionalJoin
    >>> prices = pa.table({"id": [1, 1], "since": [0, 10], "until": [10, None], "price": [5, 6]})
    >>> rel = hr.Relation.create(tempfile.mkdtemp() + "/prices", prices, key="id")
    >>> valid = hr.between("day", "since", "until", inclusive="low", open_ends=True)
    >>> op = ConditionalJoin(rel, on="id", memory="4MiB", condition=valid, columns=["price"])
    >>> pa.Table.from_batches(op.run([pa.record_batch({"id": [1, 1, 1], "day": [9, 10, -1]})])).to_pydict()
    {'id': [1, 1], 'day': [9, 10], 'price': [5, 6]}
    """

    def __init__(
        self,
        relation: Relation,
        on: On,
        memory: int | str = "64MiB",
        *,
        condition: Condition | None = None,
        flag: str | None = None,
        how: How = "inner",
        columns: Sequence[str] | None = None,
        suffix: str | None = "_right",
        clock: Clock | None = None,
        order: Order = "stream",
        group: Group | None = None,
    ) -> None:
        self.condition, self.flag = condition, flag
        self.outer: How = choice("how", how, ("inner", "left", "semi", "anti"))  # type: ignore[assignment]
        if flag is not None and how != "left":
            raise BadInput(f"flag={flag!r} says which rows of a left join have a match, and this is how={how!r}")
        self._matching = None if condition is None else Matching(relation, condition, alone=False)
        shown = relation.payload(columns) if how in ("inner", "left") else ()
        inside = needed_columns(relation, columns if how in ("inner", "left") else (), condition)
        workers = 1 if group is None else group.workers
        limit = parse_size(memory, name="memory")
        self._aside = limit // _SHARE
        least = self.least_memory(relation, inside, workers)
        if limit < least:
            raise MemoryRefused(
                f"memory={format_size(limit)} is too small to join with {relation.path} by a condition; give"
                f" {format_size(least)} or more"
            )
        each = _ROW_BYTES + (self._matching.slot_bytes if self._matching else 0)
        self._most = max(_LEAST_ROWS, self._aside // workers // each)  # rows that are joined together
        super().__init__(relation, on, memory, columns=inside, suffix=suffix, clock=clock, order=order, group=group)
        self.columns = columns
        self._aside_reserved = self.budget.reserve("condition", self._aside)
        names = [column.name for column in self._payload]
        self._shown = [names.index(column.name) for column in shown]
        self._outer_schemas: tuple[pa.Schema, pa.Schema] | None = None
        self._handed: list[pa.RecordBatch] = []  # offered, not looked up
        self._held: list[pa.RecordBatch] = []  # looked up, to be read for

    @staticmethod
    def least_memory(relation: Relation, columns: Sequence[str], workers: int = 1) -> int:
        """A budget that is enough to give these columns to so many workers, and hardly more than that."""
        index = sum(shard.index.bytes for shard in relation.opened.manifest.shards)
        least = least_memory(relation, relation.payload(columns), index, workers) * _SHARE // (_SHARE - 1)
        return least + least // 50  # as much as is lost when it is rounded to be read

    def output_schema(self, stream: pa.Schema) -> pa.Schema:
        """The schema of results for a stream of this schema; refuses what cannot be joined, by name."""
        if stream.names and stream.names[-1] == _ROW:  # the join inside
            return pa.schema([*stream, *(pa.field(f"\0{i}", c.type) for i, c in enumerate(self._payload))])
        if self._matching is not None:
            self._matching.check(stream)
        return super().output_schema(stream)

    def _right_fields(self) -> list[pa.Field]:
        fields = [pa.field(self._payload[i].name, self._payload[i].type) for i in self._shown]
        return [*fields, pa.field(self.flag, pa.bool_())] if self.flag is not None else fields

    def offer(self, batch: pa.RecordBatch) -> None:
        """Hand over stream rows. `advance` looks them up; those that miss wait. For order="any"."""
        if batch.schema.names[-1:] == [_ROW]:  # the join inside
            super().offer(batch)
            return
        self._schema_outside(batch.schema)
        self._handed.append(batch)

    @property
    def buffered(self) -> int:
        """Rows offered and not looked up."""
        return super().buffered + sum(int(batch.num_rows) for batch in self._handed)

    @property
    def waiting(self) -> int:
        """Rows offered that have not left."""
        return super().waiting + self._held_rows

    @property
    def _held_rows(self) -> int:
        return sum(int(batch.num_rows) for batch in self._held)

    def advance(self) -> Iterator[pa.RecordBatch]:
        """Look up what was offered; read for what waits when there is much of it."""
        handed, self._handed = self._handed, []
        for batch in handed:
            at = 0
            while at < batch.num_rows:
                some = batch.slice(at, max(1, min(self.wanted, self._most)))
                at += some.num_rows
                if self._held_rows + some.num_rows > self.capacity:
                    yield from self._read_for_held()
                yield from self._join_some(some, self._schema_outside(batch.schema), wait=True)
        yield from super().advance()

    def let_wait(self) -> pa.RecordBatch | None:
        """Give the rows that wait back: somebody else keeps them, and offers them again. They count as `deferred` alone."""
        held, self._held = self._held, []
        return pa.concat_batches(held) if held else None

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Have every row leave."""
        yield from self.advance()
        yield from self._read_for_held()
        yield from super().drain()

    def _read_for_held(self) -> Iterator[pa.RecordBatch]:
        held = self.let_wait()
        if held is not None:
            self.stats.deferred -= held.num_rows
            yield from self.join(held)

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Join every batch to its end. A stream of at least one batch gives at least one, perhaps empty."""
        return SemiStreamJoin.run(self, batches)

    def join(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Join one batch to its end, in stream order if that was asked for."""
        schema = self._schema_outside(batch.schema)
        for at in range(0, max(1, batch.num_rows), self._most):
            yield from self._join_some(batch.slice(at, self._most), schema)

    def _schema_outside(self, stream: pa.Schema) -> pa.Schema:
        if self._outer_schemas is None or not self._outer_schemas[0].equals(stream):
            self._outer_schemas = (stream, self.output_schema(stream))
        return self._outer_schemas[1]

    def _schema_for(self, stream: pa.Schema) -> pa.Schema:
        inside = stream.names[-1:] == [_ROW]
        return super()._schema_for(stream) if inside else self._schema_outside(stream)

    def _join_some(self, batch: pa.RecordBatch, schema: pa.Schema, *, wait: bool = False) -> Iterator[pa.RecordBatch]:
        """Results of rows, but for those that must be read for, where they may wait."""
        stats, n = self.stats, batch.num_rows
        results, matched, unmatched = stats.results, stats.matched, stats.unmatched
        can = None if self._matching is None else self._matching.hold(batch)
        numbers = pa.array(np.arange(n, dtype=np.int32))
        passed: Mask = np.zeros(n, np.bool_)
        done = emitted = 0  # rows before `done` have all their results, where they come in order
        numbered = batch.append_column(_ROW, numbers)
        for pairs in self._look_up_inside(numbered) if wait else super().join(numbered):
            rows = np.asarray(pairs.column(batch.num_columns))
            kept = self._kept(pairs, rows, can)
            passed[rows[kept]] = True
            if self.outer in ("semi", "anti"):
                continue
            some = self._pairs(pairs, kept, schema)
            if self.outer == "left" and self.order == "stream" and rows.size:
                last = int(rows[-1])  # of which there may be more
                none = done + np.flatnonzero(~passed[done:last])
                some, done = _merged(some, rows[kept], self._alone(batch, none, schema), none), max(done, last)
            emitted += some.num_rows
            if some.num_rows:
                yield some
        held = super().let_wait() if wait else None
        decided: Mask = np.ones(n, np.bool_)
        if held is not None:
            decided[np.asarray(held.column(batch.num_columns))] = False
            self._held.append(held.drop_columns([_ROW]))
        if self.outer != "inner":
            wanted = passed if self.outer == "semi" else ~passed & decided
            left = done + np.flatnonzero(wanted[done:])
            for a in range(0, left.size, self._parts.output_rows):
                some = self._alone(batch, left[a : a + self._parts.output_rows], schema)
                emitted += some.num_rows
                yield some
        found = int(passed.sum())
        stats.results, stats.matched = results + emitted, matched + found
        stats.unmatched = unmatched + int(decided.sum()) - found

    def _look_up_inside(self, numbered: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Pairs of rows whose tuples are in memory; the others wait in the join inside."""
        super().offer(numbered)
        yield from super().advance()

    def _kept(self, pairs: pa.RecordBatch, rows: Ints, can: Mask | None) -> Any:
        """Which pairs satisfy the condition."""
        if self._matching is None or can is None or not rows.size:
            return np.arange(rows.size)
        first = pairs.num_columns - len(self._payload)
        columns: dict[str, Any] = {c.name: pairs.column(first + i) for i, c in enumerate(self._payload)}
        for key, name in zip(self.relation.key, self.stream_key, strict=True):
            if key in self._matching.condition.right_columns:
                columns[key] = pairs.column(name).cast(self.relation.schema.field(key).type)
        self._matching.look_at(columns)
        some = np.flatnonzero(can[rows]).astype(np.int32)
        return self._matching.kept(some, rows[some])[0]

    def _pairs(self, pairs: pa.RecordBatch, kept: Any, schema: pa.Schema) -> pa.RecordBatch:
        """Results of pairs that passed."""
        first = pairs.num_columns - len(self._payload)
        arrays = [*pairs.columns[: first - 1], *(pairs.column(first + i) for i in self._shown)]
        if self.flag is not None:
            arrays.append(pa.repeat(True, pairs.num_rows))
        out = pa.RecordBatch.from_arrays(arrays, schema=schema)
        return out if kept.size == pairs.num_rows else out.take(pa.array(kept))

    def _alone(self, batch: pa.RecordBatch, rows: Any, schema: pa.Schema) -> pa.RecordBatch:
        """Rows without a match, or without what they match."""
        arrays = batch.take(pa.array(rows)).columns
        for field in list(schema)[len(arrays) :]:
            arrays.append(pa.repeat(False, rows.size) if field.name == self.flag else pa.nulls(rows.size, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def needed_columns(relation: Relation, columns: Sequence[str] | None, condition: Condition | None) -> list[str]:
    """Payload columns that the join inside must give."""
    names = [column.name for column in relation.payload(columns)]
    more = [] if condition is None else [n for n in condition.right_columns if n not in relation.key]
    return list(dict.fromkeys([*names, *more]))


def _merged(one: pa.RecordBatch, first: Any, other: pa.RecordBatch, second: Any) -> pa.RecordBatch:
    """Two batches of results in the order of their rows."""
    if not other.num_rows:
        return one
    order = np.argsort(np.concatenate([first, second]), kind="stable")
    return pa.concat_batches([one, other]).take(pa.array(order))
