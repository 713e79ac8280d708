"""ConditionalJoin: AdaptiveJoin with a condition beside the key, as for a slowly changing dimension of type 2."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Bools, Int32s
from headrace.clock import Clock
from headrace.conditions import Condition
from headrace.errors import BadInput, MemoryRefused
from headrace.relation import Relation, Sketch
from headrace.semistream.adaptive.group import Group
from headrace.semistream.adaptive.join import AdaptiveJoin
from headrace.semistream.adaptive.memory_plan import least_memory
from headrace.semistream.base import How, On, Order, SemiStreamJoin
from headrace.semistream.matching import Matching
from headrace.semistream.plan_facts import PlanFacts
from headrace.semistream.snapshot import Snapshot
from headrace.units import format_size, parse_size

# The wrapped join gets the stream's columns and this one behind them, and gives them back before those of the relation. It is
# found by its place. No column of a user has such a name, nor one that ends with such a suffix.
_ROW_NUMBER = "\0row number"
_INNER_SUFFIX = "\0of the relation"
_SHARE = 16  # one part in so many of the budget for what is noted of the rows of a batch
_ROW_BYTES = 16  # of a row: its number, whether it has passed, and what making results of it needs
_LEAST_ROWS = 256  # that are joined together at least
_ROUNDING = 50  # one part in so many of a least budget is added: as much is lost when it is rounded to be read


class ConditionalJoin(SemiStreamJoin):
    """Join by the whole key like AdaptiveJoin, and keep the pairs that satisfy a condition.

        batch, rows numbered -> AdaptiveJoin (inner) -> pairs -> condition -> results, and which rows passed
                                                                              left, semi, anti: the rows by that

    It wraps an AdaptiveJoin, which shares its budget and knows nothing of the condition.

    A row is matched only if one of its pairs passes, so left, semi and anti do what SQL does. `join` takes each batch to its end;
    with `offer` and `advance` rows that must be read for wait, as in AdaptiveJoin, and none of their pairs has come by then.

    Parameters
    ----------
    relation, on, memory, how, columns, suffix, order, group, whole
        See AdaptiveJoin.
    condition
        What a pair must satisfy, any condition; its columns need not be among `columns`. None: nothing more.
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
        whole: bool = True,
    ) -> None:
        if flag is not None and how != "left":
            raise BadInput(f"flag={flag!r} says which rows of a left join have a match, and this is how={how!r}")
        self.condition, self.flag, self.order = condition, flag, order
        self._matching = None if condition is None else Matching(relation, condition, alone=False)
        inside = needed_columns(relation, columns if how in ("inner", "left") else (), condition)
        workers = 1 if group is None else group.workers
        limit = parse_size(memory, name="memory")
        least = self.least_memory(relation, inside, workers)
        if limit < least:
            raise MemoryRefused(
                f"memory={format_size(limit)} is too small to join with {relation.path} by a condition; give"
                f" {format_size(least)} or more"
            )
        super().__init__(relation, on, limit, how=how, columns=columns, suffix=suffix, clock=clock)
        noted = self.budget.reserve("condition", limit // _SHARE).nbytes // workers
        each = _ROW_BYTES
        if self._matching:
            each += int(self._matching.slot_bytes(0.0))
            if self._matching.tests:
                self._matching.test_room = noted = noted // 2  # the other half is for the columns of pairs
        self._most = max(_LEAST_ROWS, noted // each)  # rows that are joined together
        self._keyed = AdaptiveJoin(
            relation,
            on,
            self.budget,
            columns=inside,
            suffix=_INNER_SUFFIX,
            clock=clock,
            order=order,
            group=group,
            whole=whole,
        )
        self.stats = self._keyed.stats  # one set of counters: this join corrects those that depend on the condition
        self._inside = [column.name for column in relation.payload(inside)]  # payload columns of a pair
        self._shown = [
            self._inside.index(column.name) for column in self._payload
        ]  # those of a result, by their places
        self._handed: list[pa.RecordBatch] = []  # offered, not looked up
        self._held: list[pa.RecordBatch] = []  # looked up, to be read for

    @staticmethod
    def least_memory(relation: Relation, columns: Sequence[str], workers: int = 1) -> int:
        """A budget that is enough to give these columns to so many workers, and hardly more than that."""
        index = sum(shard.index.bytes for shard in relation.opened.manifest.shards)
        facts = PlanFacts.of(relation, relation.payload(columns), index_bytes=index)
        least = least_memory(facts, workers) * _SHARE // (_SHARE - 1)
        return least + least // _ROUNDING

    def output_schema(self, stream: pa.Schema) -> pa.Schema:
        """The schema of results for a stream of this schema; refuses what cannot be joined, by name."""
        if self._matching is not None:
            self._matching.check(stream)
        return super().output_schema(stream)

    def _right_fields(self) -> list[pa.Field]:
        flag = [pa.field(self.flag, pa.bool_())] if self.flag is not None else []
        return super()._right_fields() + flag

    def reset_stats(self) -> None:
        """Set every counter to zero; the operator keeps what it holds in memory."""
        self._keyed.reset_stats()
        self.stats = self._keyed.stats

    # -- the way of a batch --------------------------------------------------------------------------------------------------

    def join(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Join one batch to its end, in stream order if that was asked for."""
        schema = self._schema_of(batch)
        for at in range(0, max(1, batch.num_rows), self._most):
            yield from self._to_the_end(self._join_some(batch.slice(at, self._most), schema))

    def offer(self, batch: pa.RecordBatch) -> None:
        """Hand over stream rows. `advance` looks them up; those that miss wait. For order="any"."""
        self._schema_of(batch)
        self._handed.append(batch)

    def advance(self) -> Iterator[pa.RecordBatch]:
        """Look up what was offered; read for what waits when there is much of it."""
        self._check_read()
        handed, self._handed = self._handed, []
        for batch in handed:
            at = 0
            while at < batch.num_rows:
                some = batch.slice(at, max(1, min(self.wanted, self._most)))
                at += some.num_rows
                if self._held_rows + some.num_rows > self.capacity:
                    yield from self._read_for_held()
                yield from self._to_the_end(self._join_some(some, self._schema_of(batch), wait=True))

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Have every row leave."""
        yield from self.advance()
        yield from self._read_for_held()
        yield from self._keyed.drain()  # no row is in it, but it takes note of its memory

    def let_wait(self) -> pa.RecordBatch | None:
        """Give the rows that wait back: the caller keeps them, and offers them again. They count as `deferred` alone."""
        held, self._held = self._held, []
        return pa.concat_batches(held) if held else None

    def _read_for_held(self) -> Iterator[pa.RecordBatch]:
        held = self.let_wait()
        if held is not None:
            self.stats.deferred -= held.num_rows
            yield from self.join(held)

    def _join_some(self, batch: pa.RecordBatch, schema: pa.Schema, *, wait: bool = False) -> Iterator[pa.RecordBatch]:
        """Results of rows, but for those that must be read for, where they may wait."""
        stats, n, keyed = self.stats, batch.num_rows, self._keyed
        results, matched, unmatched = stats.results, stats.matched, stats.unmatched
        can = None if self._matching is None else self._matching.hold(batch)
        passed: Bools = np.zeros(n, np.bool_)
        done = emitted = 0  # rows before `done` have all their results, where they come in order
        keyed.offer(batch.append_column(_ROW_NUMBER, pa.array(np.arange(n, dtype=np.int32))))
        for pairs in keyed.advance() if wait else keyed.drain():
            rows = np.asarray(pairs.column(batch.num_columns))
            kept = self._kept(pairs, rows, can)
            passed[rows[kept]] = True
            if self.how in ("semi", "anti"):
                continue
            some = self._pairs(pairs, kept, schema)
            if self.how == "left" and self.order == "stream" and rows.size:
                last = int(rows[-1])  # of which there may be more
                none = done + np.flatnonzero(~passed[done:last])
                some, done = _merged(some, rows[kept], self._alone(batch, none, schema), none), max(done, last)
            emitted += some.num_rows
            if some.num_rows:
                yield some
        held = keyed.let_wait() if wait else None
        decided: Bools = np.ones(n, np.bool_)
        if held is not None:
            decided[np.asarray(held.column(batch.num_columns))] = False
            self._held.append(pa.RecordBatch.from_arrays(held.columns[:-1], schema=batch.schema))
        if self.how != "inner":
            wanted = passed if self.how == "semi" else ~passed & decided
            left = done + np.flatnonzero(wanted[done:])
            for a in range(0, left.size, keyed.output_rows):
                some = self._alone(batch, left[a : a + keyed.output_rows], schema)
                emitted += some.num_rows
                yield some
        found = int(passed.sum())
        stats.results, stats.matched = results + emitted, matched + found
        stats.unmatched = unmatched + int(decided.sum()) - found

    def _kept(self, pairs: pa.RecordBatch, rows: Int32s, can: Bools | None) -> Any:
        """Which pairs satisfy the condition."""
        if self._matching is None or can is None or not rows.size:
            return np.arange(rows.size)
        first = pairs.num_columns - len(self._inside)
        columns: dict[str, Any] = {name: pairs.column(first + i) for i, name in enumerate(self._inside)}
        for key, name in zip(self.relation.key, self.stream_key, strict=True):
            if key in self._matching.condition.right_columns:
                columns[key] = pairs.column(name).cast(self.relation.schema.field(key).type)
        self._matching.look_at(columns)
        some = np.flatnonzero(can[rows]).astype(np.int32)
        return self._matching.kept(some, rows[some])[0]

    def _pairs(self, pairs: pa.RecordBatch, kept: Any, schema: pa.Schema) -> pa.RecordBatch:
        """Results of pairs that passed."""
        first = pairs.num_columns - len(self._inside)
        arrays = [*pairs.columns[: first - 1], *(pairs.column(first + i) for i in self._shown)]
        if self.flag is not None:
            arrays.append(pa.repeat(True, pairs.num_rows))
        out = pa.RecordBatch.from_arrays(arrays, schema=schema)
        return out if kept.size == pairs.num_rows else out.take(pa.array(kept))

    def _alone(self, batch: pa.RecordBatch, rows: Any, schema: pa.Schema) -> pa.RecordBatch:
        """Results of rows by themselves: with nulls in place of a match, or of semi and anti joins."""
        arrays = batch.take(pa.array(rows)).columns
        for field in list(schema)[len(arrays) :]:
            arrays.append(pa.repeat(False, rows.size) if field.name == self.flag else pa.nulls(rows.size, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    # -- what the wrapped join says ------------------------------------------------------------------------------------------

    @property
    def wanted(self) -> int:
        """Rows that it looks up at a time."""
        return self._keyed.wanted

    @property
    def capacity(self) -> int:
        """Rows that may wait at the same time."""
        return self._keyed.capacity

    @property
    def buffered(self) -> int:
        """Rows offered and not looked up."""
        return self._keyed.buffered + self._handed_rows

    @property
    def waiting(self) -> int:
        """Rows offered that have not left."""
        return self._keyed.waiting + self._handed_rows + self._held_rows

    @property
    def _handed_rows(self) -> int:
        return sum(int(batch.num_rows) for batch in self._handed)

    @property
    def _held_rows(self) -> int:
        return sum(int(batch.num_rows) for batch in self._held)

    @property
    def popularity(self) -> Sketch:
        """How often the stream asked for each key lately: the counts that the hot set is chosen by."""
        return self._keyed.popularity

    @property
    def wanted_rows(self) -> int:
        """How many rows it would join at once, given them."""
        return self._keyed.wanted_rows

    @property
    def wanted_bytes(self) -> int:
        """Bytes of stream tuples that a worker may gather to be joined at once."""
        return self._keyed.wanted_bytes

    def by_page(self, batch: pa.RecordBatch) -> Int32s:
        """The rows in an order in which those of a page are neighbours."""
        return self._keyed.by_page(batch)

    def enter(self) -> bool:
        """Take part in the group, until `leave`; False if as many workers as it has room for do so already."""
        return self._keyed.enter()

    def leave(self) -> None:
        """Let another worker have the place."""
        self._keyed.leave()

    def snapshot(self) -> Snapshot:
        """What the wrapped join has learned and cached, between two batches. Results do not depend on it; hits do."""
        return self._keyed.snapshot()

    def restore(self, snapshot: Snapshot) -> None:
        """Go on as the operator did that the snapshot was taken of."""
        self._keyed.restore(snapshot)


def needed_columns(relation: Relation, columns: Sequence[str] | None, condition: Condition | None) -> list[str]:
    """Payload columns that the wrapped join must give: those of the result, and those that the condition reads."""
    names = [column.name for column in relation.payload(columns)]
    more = [] if condition is None else [n for n in condition.right_columns if n not in relation.key]
    return list(dict.fromkeys([*names, *more]))


def _merged(one: pa.RecordBatch, first: Any, other: pa.RecordBatch, second: Any) -> pa.RecordBatch:
    """Two batches of results in the order of their rows."""
    if not other.num_rows:
        return one
    order = np.argsort(np.concatenate([first, second]), kind="stable")
    return pa.concat_batches([one, other]).take(pa.array(order))
