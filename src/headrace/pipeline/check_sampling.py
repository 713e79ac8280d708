"""Checks of the steps that sample. The core's operators are made and given batches without rows, so that no Spark is needed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.conditions import Condition, parse_on
from headrace.errors import BadInput
from headrace.pipeline.document import Key, filled, near
from headrace.pipeline.fields import filled_size
from headrace.pipeline.noting import Checked, Columns, Noting, column_names
from headrace.pipeline.read import Draft
from headrace.pipeline.sampling_parts import (
    Estimate,
    JoinInPart,
    JoinWindows,
    Sample,
    SampledJoin,
    Sampling,
    condition_of,
    window_of,
)
from headrace.progressive.grids.partitioning import SIDES, Partitioning
from headrace.progressive.grids.partitioning_for import unbounded_partitioning_for
from headrace.sampling.approximate_join import ApproximateJoin
from headrace.sampling.estimates import asked_of, field_of
from headrace.sampling.sampler import Sampler
from headrace.sampling.sampler_for import default_method, sampler_for
from headrace.sampling.shard_operators import Quantities
from headrace.sampling.window_join import WindowJoin
from headrace.spark.column_names import ColumnNames
from headrace.spark.sampling_memory import sampling_memory
from headrace.windows import RowWindow, TimeWindow, Window

BATCH = "batch"  # the column of estimates with the number of the micro-batch
_CELLS = 64  # partitions of a grid; a check puts nothing into them
_ARGUMENT = re.compile(r"(\w+)=")
_TO_JOIN = ("on", "condition", "sample", "suffix", "cell")  # keys of an estimate step for two windows joined


def check_sampling(
    draft: Draft, number: int, step: Sampling, columns: Columns | None, checked: Checked
) -> Columns | None:
    """Check a step that samples; returns the columns after it as far as they are known."""
    at: Key = ("step", number)
    sides: tuple[Columns | None, ...] = (columns,)
    if step.other is not None:
        key = (*at, "approximate_join" if isinstance(step, JoinInPart) else "window_join")
        if step.other not in draft.sources:
            table = f"; describe it in a table [sources.{step.other}]"
            expected = f"; {near(step.other, draft.sources)}" if draft.sources else ""
            draft.note(key, f"there is no source {step.other!r}{expected or table}")
        sides = (columns, checked.sources.get(step.other))
    return _SamplingCheck(draft, at, step, sides, column_names(draft)).columns_after()


class _NotingArguments(Noting):
    """Note errors at the key of the argument that their message begins with."""

    def __init__(self, draft: Draft, at: Key, step: Sampling) -> None:
        super().__init__(draft, at)
        self.step = step

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        found = _ARGUMENT.match(str(error))
        name = found[1] if found else ""
        if isinstance(self.step, Sample) and name in ("size", "memory"):
            name = "sample"
        if name in type(self.step).model_fields:
            self.key = (*self.key, name)
        return super().__exit__(kind, error, trace)


@dataclass(frozen=True)
class _SamplingCheck:
    """The check of one step."""

    draft: Draft
    at: Key
    step: Sampling
    sides: tuple[Columns | None, ...]
    """the columns of the stream, and of the source that is joined with"""
    names: ColumnNames

    def columns_after(self) -> Columns | None:
        """Note every mistake; returns the columns after the step as far as they are known."""
        draft, step, before = self.draft, self.step, len(self.draft.problems)
        condition, window = self._check_condition(), self._check_window()
        with _NotingArguments(draft, self.at, step):
            self._memory()  # looked at by itself, so that no other mistake hides one in it
        whole: Columns | None = self.sides[0]  # what is sampled: the stream, or what it is joined to
        if step.other is not None:
            whole = self._joined_at_most()
        if not draft.is_faulty(self.at) and len(draft.problems) == before:
            with _NotingArguments(draft, self.at, step):
                operator = self._operator(condition, window)
                schema = self._put_nothing_into(operator)
                whole = whole if schema is None else Columns.of(schema)
        if isinstance(step, Sample):
            return self._with_batch(whole)
        return self._estimates(step, whole, window) if isinstance(step, Estimate) else whole

    # -- what is joined on, and over which windows -----------------------------------------------------------------------

    def _check_condition(self) -> Condition | None:
        """Note columns to join on that are not there; returns the condition with the names that the sides have."""
        step, at = self.step, self.at
        if isinstance(step, Sample) or step.other is None:
            for name in _TO_JOIN if isinstance(step, Estimate) else ():
                if name in step.model_fields_set:
                    self.draft.note((*at, name), "is for two windows joined; name the other source with window_join")
            return None
        if step.on is None and step.condition is None:
            self.draft.note((*at, "on"), f"is missing in {step.what}: say which columns to join on")
            return None
        for key, named in self._conditions(step):
            for side, found in enumerate((named.left_columns, named.right_columns)):
                for name in found:
                    self._check_column((*at, key), name, side)
        left, right = self.sides
        condition = condition_of(step)
        if condition is not None and left is not None and right is not None:
            with Noting(self.draft, at):
                return self.names.resolve_condition(condition, left.names, right.names)
        return condition

    def _conditions(self, step: SampledJoin) -> Iterator[tuple[str, Condition]]:
        """The conditions of a step, and the keys that they are of."""
        if step.on is not None:
            yield "on", parse_on(step.on)
        if step.condition is not None:
            yield "condition", step.condition

    def _check_column(self, key: Key, name: str, side: int) -> None:
        """Note a column that a side does not have."""
        columns = self.sides[side]
        if columns is None:
            return
        with Noting(self.draft, key):
            if self.names.resolve(name, columns.names) not in columns.names:
                whose = "there is" if side == 0 else f"source {self.step.other!r} has"
                self.draft.note(key, f"{whose} no column {name!r}; {near(name, columns.names)}")

    def _check_window(self) -> Window | None:
        """Note what does not fit the window; returns it, on the column as the stream has it."""
        step, draft, at = self.step, self.draft, self.at
        if isinstance(step, JoinInPart) or draft.is_faulty((*at, "window")):
            return None
        if step.window is None and step.other is not None:
            draft.note(
                (*at, "window"), f"is missing in {step.what}: streams are joined over windows, of rows or by time"
            )
        by_time = isinstance(step.window, str)
        for key, missing in (
            ("time", "name the column with the time of a row"),
            ("late", 'say how late rows may come, such as "10 seconds"'),
        ):
            given = getattr(step, key) is not None
            if by_time and not given:
                draft.note((*at, key), f"is missing in {step.what} with a window by time: {missing}")
            elif given and not by_time:
                draft.note((*at, key), 'is for a window by time, such as window = "10 minutes"')
        if not by_time or step.time is None or step.late is None:
            return None if by_time else window_of(step)
        return self._on_time(step.time, window_of(step))

    def _on_time(self, time: str, window: Window | None) -> Window | None:
        """Check the column with the time of rows, of each side."""
        left, key = self.sides[0], (*self.at, "time")
        if left is not None:
            with Noting(self.draft, key):
                time = self.names.resolve(time, left.names)
        types: list[pa.DataType] = []
        for side, columns in enumerate(self.sides):
            self._check_column(key, time, side)
            if columns is not None and columns.schema is not None and time in columns.schema.names:
                types.append(columns.schema.field(time).type)
        for type_ in dict.fromkeys(types):
            if not pa.types.is_timestamp(type_):
                self.draft.note(key, f"column {time!r} has type {type_}; a window by time is on a timestamp")
        assert isinstance(window, TimeWindow)
        return TimeWindow(window.length, time, window.late)

    # -- the operator ----------------------------------------------------------------------------------------------------

    def _operator(self, condition: Condition | None, window: Window | None) -> Sampler | WindowJoin | ApproximateJoin:
        """Make the operator of one shard. Whatever its arguments can be refused for is refused."""
        step, memory = self.step, self._memory()
        if isinstance(step, JoinInPart):
            assert condition is not None
            return self._approximate_join(step, condition, memory)
        shards = 1 if isinstance(step, Sample) else step.shards or 1
        size = None if step.size is None else -(-step.size // shards)
        if isinstance(window, RowWindow):
            window = RowWindow(-(-window.size // shards))
        if isinstance(step, Sample) or step.other is None:
            method = (step.method if isinstance(step, Sample) else None) or default_method(window)
            return sampler_for(method, size=size, window=window, memory=memory, seed=step.seed)
        assert condition is not None and window is not None
        return WindowJoin(
            condition,
            window=window,
            sample=step.sample,
            size=size,
            memory=memory,
            method=step.method if isinstance(step, JoinWindows) else "fair",
            seed=step.seed,
            suffix=filled(step.suffix),
            divide=self._divide,
        )

    def _memory(self) -> int | None:
        """The memory of the operator in one of the workers of an executor."""
        step, head = self.step, self.draft.head
        budget = step.budget if isinstance(step, JoinInPart) else filled_size(step.memory)
        return sampling_memory(budget, 1 if head is None else head.cores or 1)

    def _approximate_join(self, step: JoinInPart, condition: Condition, memory: int | None) -> ApproximateJoin:
        if step.tuples is not None and step.memory is not None:
            raise BadInput("memory= and tuples= both say how much is kept; leave one out")
        shards = step.shards or 1
        return ApproximateJoin(
            condition,
            memory=memory,
            tuples=None if step.tuples is None else -(-step.tuples // shards),
            method=step.method,
            seed=step.seed,
            allocation=step.allocation,
            replacement=step.replacement,
            quality=step.quality,
            partitions=step.partitions,
            share=step.share,
            counters=filled_size(step.counters),
            suffix=filled(step.suffix),
        )

    def _divide(self, condition: Condition) -> tuple[Partitioning, Condition | None]:
        step: Any = self.step
        return unbounded_partitioning_for(condition, _CELLS, step.cell)

    def _put_nothing_into(self, operator: Sampler | WindowJoin | ApproximateJoin) -> pa.Schema | None:
        """Have an operator look at the columns of its sides; returns those of its results, None where some are not known."""
        schemas = [None if columns is None else columns.schema for columns in self.sides]
        for side, schema in enumerate(schemas):
            if schema is not None:
                nothing = pa.RecordBatch.from_pylist([], schema)
                if isinstance(operator, Sampler):
                    operator.insert(nothing)
                else:
                    list(operator.insert(SIDES[side], nothing))
        if None in schemas:
            return None
        return schemas[0] if isinstance(operator, Sampler) else operator.output.schema

    # -- the columns after the step --------------------------------------------------------------------------------------

    def _joined_at_most(self) -> Columns | None:
        """The names that a join gives at most, where a mistake hides which."""
        left, right = self.sides
        if left is None or right is None:
            return None
        step: Any = self.step
        suffixed = (f"{name}{filled(step.suffix)}" for name in right.names)
        return Columns(tuple(dict.fromkeys((*left.names, *right.names, *suffixed))))

    def _with_batch(self, columns: Columns | None) -> Columns | None:
        """The columns of a sample."""
        step = self.step
        assert isinstance(step, Sample)
        name = step.batch_column
        if columns is None or name is None:
            return columns
        if self.names.taken(name, columns.names):
            self.draft.note((*self.at, "batch_column"), f"{name!r} is a column already; give another name, or false")
            return Columns(columns.names)
        if columns.schema is None:
            return Columns((*columns.names, name))
        return Columns.of(columns.schema.append(pa.field(name, pa.int64())))

    def _estimates(self, step: Estimate, whole: Columns | None, window: Window | None) -> Columns:
        """The columns of estimates. Notes what cannot be summed or grouped by."""
        before = len(self.draft.problems)
        names = (*step.columns("sum"), *step.columns("avg"))
        for name in dict.fromkeys(names):
            self._check_estimated("estimate", name, whole)
        group: pa.Field | None = None
        if step.group_by is not None:
            group = self._check_estimated("group_by", step.group_by, whole)
        schema = None if whole is None else whole.schema
        timeless = (
            isinstance(window, TimeWindow) and schema is not None and window.on not in schema.names
        )  # noted before
        if schema is None or timeless or len(self.draft.problems) > before or self.draft.is_faulty(self.at):
            grouped = () if step.group_by is None else (step.group_by, "other")
            times = ("at",) if isinstance(step.window, str) else ()
            return Columns((BATCH, *grouped, "quantity", "estimate", "low", "high", "rows", "kept", *times))
        asked = asked_of(step.count, step.columns("sum"), step.columns("avg"), step.confidence)
        time = schema.field(window.on).type if isinstance(window, TimeWindow) else None
        given = Quantities(asked, group, step.groups, time).schema
        return Columns.of(pa.schema([pa.field(BATCH, pa.int64()), *given]))

    def _check_estimated(self, key: str, name: str, whole: Columns | None) -> pa.Field | None:
        """Note a column that is not there, or cannot be summed or grouped by; returns its field if it is known."""
        if whole is None:
            return None
        if name not in whole.names:
            self.draft.note((*self.at, key), f"there is no column {name!r}; {near(name, whole.names)}")
        elif whole.schema is not None:
            with Noting(self.draft, (*self.at, key)):
                return field_of(whole.schema, name, summed=key == "estimate")
        return None
