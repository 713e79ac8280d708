"""The base of every semi-stream join: its parameters, the schema of its results, and the loop over a stream. DESIGN §4"""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import pyarrow as pa

from headrace.clock import Clock, SystemClock
from headrace.conditions import parse_on
from headrace.errors import BadInput, UnsupportedType, choice, kind, shown
from headrace.memory import MemoryBudget
from headrace.metrics import JoinStats
from headrace.relation import Relation, Sketch
from headrace.relation.columns import Column
from headrace.semistream.driver import BlockingSource, PolledSource, drive, drive_async
from headrace.semistream.join_key import JoinKey
from headrace.semistream.stream_input import stream_batches
from headrace.units import format_duration, format_size, parse_duration

if TYPE_CHECKING:
    from headrace.semistream.protocols import DrivenOperator

_log = logging.getLogger(__name__)

How = Literal["inner", "left", "semi", "anti"]
On = str | Sequence[str] | Mapping[str, str]
Order = Literal["any", "stream"]


class SemiStreamJoin(ABC):
    """Joins a stream of record batches with a relation.

    Parameters
    ----------
    relation
        An open relation; the join reads the version it was opened at, unless it is told to go on with another.
    on
        "col", ["a", "b"], or {"stream column": "relation column"}: the relation's whole key. A join that scans the relation
        takes any of its columns.
    memory
        The budget in bytes, as a number or "64MiB"; or a budget that others have a part of: the join uses what is left of it.
    how
        inner, left, semi or anti. A null key matches nothing.
    columns
        Payload columns of the relation wanted in the result; all by default.
    suffix
        Added to the name of a payload column that the stream has too; None refuses it.
    """

    unique_keys: ClassVar[bool] = False  # whether the relation's keys must be unique
    any_column: ClassVar[bool] = False  # whether it joins on any columns of the relation, and not on its key alone
    needs_popularity: ClassVar[bool] = False  # whether the relation must be stored by popularity
    in_order: ClassVar[bool] = True  # whether results come in stream order without being asked to

    def __init__(
        self,
        relation: Relation,
        on: On | None,
        memory: int | str | MemoryBudget,
        *,
        how: How = "inner",
        columns: Sequence[str] | None = None,
        suffix: str | None = "_right",
        clock: Clock | None = None,
    ) -> None:
        given: Any = relation
        if not isinstance(given, Relation):
            path = repr(str(given)) if isinstance(given, str | os.PathLike) else None
            what = f"relation={path} is a path" if path else f"relation is a {kind(given)}"
            raise BadInput(f"{what}, not a relation; open one with hr.Relation.open({path or 'path'})")
        self.relation = relation
        self.on = on
        self.how: How = choice("how", how, get_args(How))  # type: ignore[assignment]
        self.columns = columns
        self.suffix = suffix
        self.budget = memory if isinstance(memory, MemoryBudget) else MemoryBudget(memory)
        simulated = relation.disk.kind == "simulated"
        self.clock: Clock = clock or (relation.disk.clock if simulated else SystemClock())
        self._join_key = self._key_of(on)
        self._payload = self._payload_of(relation)
        self._schemas: tuple[pa.Schema, pa.Schema] | None = None
        self.deadline: float | None = None  # seconds after they were offered in which tuples should have left
        self.stats = JoinStats(memory_limit=self.budget.limit)
        self._unread = False  # whether a step was begun and its results were not read to the end

    def __repr__(self) -> str:
        deadline = "" if self.deadline is None else f", deadline={format_duration(self.deadline)!r}"
        return (
            f"{type(self).__name__}({str(self.relation.path)!r}, on={self.on!r}, memory={format_size(self.budget.limit)!r},"
            f" how={self.how!r}{deadline})"
        )

    @property
    def stream_key(self) -> tuple[str, ...]:
        """The columns of the stream that are joined on; none where a condition alone decides."""
        return self._join_key.stream

    def as_waiting(self) -> DrivenOperator | None:
        """This join, if its stream tuples may wait for those of later batches; None if each batch is joined to its end."""
        return None

    @property
    def batch_rows(self) -> int | None:
        """How many rows of a batch it would join at once, given them; None if it has no opinion."""
        return None

    @property
    def popularity(self) -> Sketch | None:
        """How often the stream asked for each key lately, for `Relation.compact`; None if the join does not measure it."""
        return None

    @property
    def backlog_room(self) -> int:
        """Stream tuples that may come meanwhile and wait in its own memory; 0 where it sets none aside for that."""
        return 0

    def _key_of(self, on: On | None) -> JoinKey:
        """The columns that must be equal: the relation's whole key, unless the join scans the relation."""
        equality, key, names = parse_on(on), self.relation.key, self.relation.schema.names  # type: ignore[arg-type]
        unknown = [name for name in equality.right if name not in names]
        if unknown:
            raise BadInput(
                f"on={shown(on)} names {unknown[0]!r} of the relation, which has no such column; its columns are"
                f" {', '.join(names)}, and its key is {', '.join(key)}"
            )
        if sorted(equality.right) != sorted(key) and not self.any_column:
            raise BadInput(
                f"on={shown(on)} names {', '.join(equality.right)} of the relation, whose key is {', '.join(key)};"
                f" {type(self).__name__} looks keys up, so join on the whole key, or use MeshJoin (algorithm='meshjoin'), which"
                " scans the relation and joins on any of its columns"
            )
        return JoinKey(self.relation, equality)

    def _payload_of(self, relation: Relation) -> tuple[Column, ...]:
        """The columns of a version of the relation that are in the result. Those that are joined on are the stream's."""
        if self.how not in ("inner", "left"):
            return ()
        joined = self._join_key.relation
        return tuple(column for column in relation.payload(self.columns) if column.name not in joined)

    def _right_fields(self) -> list[pa.Field]:
        """The fields of a result behind those of the stream."""
        return [pa.field(column.name, column.type) for column in self._payload]

    def reset_stats(self) -> None:
        """Set every counter to zero; the operator keeps what it holds in memory."""
        self.stats = JoinStats(memory_limit=self.budget.limit, left_out=self.stats.left_out)

    def output_schema(self, stream: pa.Schema) -> pa.Schema:
        """The schema of results for a stream of this schema; refuses what cannot be joined, by name."""
        for name in self.stream_key:
            if stream.names.count(name) != 1:
                raise BadInput(
                    f"the stream has {'no' if name not in stream.names else 'more than one'} column {name!r}; its columns are"
                    f" {', '.join(stream.names)}"
                )
        self._join_key.check(stream)
        for field in stream:
            _check_type(field)
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

    def run(
        self,
        batches: Iterable[pa.RecordBatch] | PolledSource | pa.Table | Any,
        *,
        idle: str | float | None = None,
        deadline: str | float | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Join a stream to its end. A stream of at least one batch gives at least one, perhaps empty.

        Whoever leaves it before it ends cannot go on with the join: see `_to_the_end`.

        Parameters
        ----------
        batches
            The stream: an iterable of record batches, or an object with `poll` (see PolledSource). Or rows that are there: a
            pyarrow Table or RecordBatch, a pandas or Polars frame, a DuckDB relation, or what else has `__arrow_c_stream__`.
        idle
            "200ms": when the stream has been silent for so long, tuples wait for no others, and leave. By default they wait as
            long as the algorithm says, if need be until the stream ends.
        deadline
            "5s": the results of a tuple are wanted so long after it was offered. Tuples that left later are counted in
            `stats.late`. By default the operator's own deadline, if it has one.
        """
        with self._running(deadline), self._logged():
            seen, emitted = self.stats.batches, False
            waiting = self.as_waiting()
            batches = stream_batches(batches)
            joined = self._each(batches) if waiting is None else drive(waiting, batches, _seconds(idle))
            for out in joined:
                emitted = True
                yield out
            if self.stats.batches != seen and not emitted:
                yield self._nothing()

    async def run_async(
        self,
        batches: AsyncIterable[pa.RecordBatch],
        *,
        idle: str | float | None = None,
        deadline: str | float | None = None,
    ) -> AsyncIterator[pa.RecordBatch]:
        """Join a stream that is awaited, as `run` does; while it is silent, other tasks of the event loop run."""
        with self._running(deadline), self._logged():
            seen, emitted = self.stats.batches, False
            waiting = self.as_waiting()
            joined = self._each_async(batches) if waiting is None else drive_async(waiting, batches, _seconds(idle))
            async for out in joined:
                emitted = True
                yield out
            if self.stats.batches != seen and not emitted:
                yield self._nothing()

    def log_plan(self) -> None:
        """Log how the join is made: its budget by part, how it goes about, and what the budget has no room for."""
        if _log.isEnabledFor(logging.INFO):
            held = ", ".join(f"{part} {format_size(size)}" for part, size in self.budget.held().items())
            left_out = "".join(f"; no {part}: {why}" for part, why in self.stats.left_out.items())
            _log.info("%r: %s; holds %s%s", self, self._way(), held or "nothing yet", left_out)

    def _way(self) -> str:
        """How the join goes about, in the words of a log line."""
        return "waits for many tuples to share a read" if self.as_waiting() else "joins each batch to its end"

    @contextmanager
    def _logged(self) -> Iterator[None]:
        """Log the plan before a stream is joined, and what was done after its end. A stream that is left has no end."""
        self.log_plan()
        clock = SystemClock()
        begun, stats = clock.now(), self.stats
        before = stats.tuples_in, stats.results, stats.hits, stats.pages_read
        yield
        if self.stats is stats:
            after = stats.tuples_in, stats.results, stats.hits, stats.pages_read
            counts = [f"{b - a:,}" for a, b in zip(before, after, strict=True)]
            seconds = format_duration(clock.now() - begun)
            _log.info(
                "%s: %s tuples in, %s results, %s hits, %s pages read in %s", type(self).__name__, *counts, seconds
            )

    @contextmanager
    def _running(self, deadline: str | float | None) -> Iterator[None]:
        """A stream is being joined, with this deadline if one is given."""
        self._check_read()
        before = self.deadline
        if deadline is not None:
            self.deadline = parse_duration(deadline, name="deadline")
        try:
            yield
        finally:
            self.deadline = before

    def _each(self, batches: Iterable[pa.RecordBatch] | PolledSource) -> Iterator[pa.RecordBatch]:
        """Results of a stream, batch by batch: no tuple waits, and there is nothing to be in time for."""
        source = batches if isinstance(batches, PolledSource) else BlockingSource(batches)
        while not source.ended:
            batch = source.poll(None)
            if batch is not None:
                yield from self.join(batch)

    async def _each_async(self, batches: AsyncIterable[pa.RecordBatch]) -> AsyncIterator[pa.RecordBatch]:
        async for batch in batches:
            for out in self.join(batch):
                yield out

    def _nothing(self) -> pa.RecordBatch:
        """A batch of no results, of the stream that came last."""
        assert self._schemas is not None, "a batch came"
        return empty(self._schemas[1])

    @abstractmethod
    def join(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Join one batch to its end, in stream order if that was asked for."""

    # -- steps are read to their end -------------------------------------------------------------------------------------

    def _check_read(self) -> None:
        """Refuse to go on if the results of the last step were not read to the end."""
        if self._unread:
            raise BadInput(
                f"the results of the last step of this {type(self).__name__} were not read to the end, or an error ended it, so"
                " that results would be missing or come twice; read each step to its end before the next. What it gave is right:"
                " make another join, and give it the stream again"
            )

    def _to_the_end(self, step: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Results of a step, after which the join may take another.

        In the middle of a step a part of the results of a tuple may have left. What the step has still to do is in the iterator
        alone, and lost with it: a join that went on would lose results, or give some twice.
        """
        self._check_read()
        self._unread = True
        yield from step
        self._unread = False

    def _counted(self, step: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Results of a step, which are counted as they leave."""
        for out in self._to_the_end(step):
            self.stats.results += out.num_rows
            self._note_memory()
            self.budget.freed.add(out.nbytes, out.num_rows)
            yield out
        self._note_memory()

    def _note_memory(self) -> None:
        self.stats.memory = self.budget.held()
        self.stats.memory_peak = self.budget.peak

    def _schema_of(self, batch: pa.RecordBatch) -> pa.Schema:
        """The schema of a batch's results; refuses what is no batch."""
        if not isinstance(batch, pa.RecordBatch):
            raise BadInput(
                f"the stream gave a {kind(batch)}; expected pyarrow RecordBatches, such as those of Table.to_batches()"
            )
        return self._schema_for(batch.schema)

    def _schema_for(self, stream: pa.Schema) -> pa.Schema:
        """The schema of results; it is made again only for another schema of the stream."""
        if self._schemas is None or (self._schemas[0] is not stream and not self._schemas[0].equals(stream)):
            self._schemas = (stream, self.output_schema(stream))
        return self._schemas[1]


def _check_type(field: pa.Field) -> None:
    """Refuse a stream column whose rows cannot be picked, as results and rows that wait are: Arrow itself is asked."""
    try:
        pa.array([], field.type).take(pa.array([], pa.int64()))
    except pa.ArrowNotImplementedError as error:
        raise UnsupportedType(
            f"stream column {field.name!r} has type {field.type}, whose rows Arrow cannot pick; cast it to another type before"
            " the join, a string_view to string for example"
        ) from error


def _seconds(idle: str | float | None) -> float | None:
    return None if idle is None else parse_duration(idle, name="idle", zero=True)


def empty(schema: pa.Schema) -> pa.RecordBatch:
    """A batch without rows."""
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)
