"""The steps of a pipeline file that sample: joins of two sources over windows or in limited memory, samples and estimates."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from headrace import windows
from headrace.conditions import Condition as JoinCondition
from headrace.conditions import all_of, parse_on
from headrace.pipeline.document import filled
from headrace.pipeline.fields import (
    Cell,
    Column,
    ColumnOrNone,
    Condition,
    Lateness,
    On,
    Part,
    Quantities,
    Quantity,
    RowsOrSize,
    Size,
    SourceName,
    Text,
    Window,
    filled_size,
)
from headrace.pipeline.section import Section
from headrace.sampling.approximate_join import PARTITIONS
from headrace.sampling.estimates import GROUPS

#: the budget of an approximate join of which nothing is said, as of `hr.approximate_join`
_MEMORY = "64MiB"


class JoinWindows(Section):
    """A step that joins with another source over samples of sliding windows: `hr.window_join`."""

    what: ClassVar[str] = "a window_join step"
    window_join: SourceName
    on: On = None
    condition: Condition = None
    window: Window
    time: Column | None = None
    late: Lateness = None
    sample: Part | None = None
    size: int | None = Field(None, ge=1)
    memory: Size = None
    method: Literal["fair", "expire", "winres", "reservoir", "fifo", "all"] = "fair"
    seed: int = 0
    suffix: Text = "_right"
    cell: Cell = None
    shards: int | None = Field(None, ge=1)

    @property
    def other(self) -> str:
        """The name of the source that is joined with."""
        return self.window_join


class JoinInPart(Section):
    """A step that joins with another source in limited memory and drops what does not fit: `hr.approximate_join`."""

    what: ClassVar[str] = "an approximate_join step"
    approximate_join: SourceName
    on: On = None
    condition: Condition = None
    memory: Size = None
    tuples: int | None = Field(None, ge=2)
    method: Literal["rrpj", "prob", "probhash", "raj", "rajhash", "mixture", "exact"] = "rajhash"
    allocation: Literal["fixed", "variable"] = "fixed"
    replacement: Literal["stratum", "anywhere"] = "stratum"
    quality: float | None = Field(None, ge=0, le=1)
    partitions: int = Field(PARTITIONS, ge=1)
    share: Part = 0.1
    counters: Size = None
    seed: int = 0
    suffix: Text = "_right"
    shards: int | None = Field(None, ge=1)

    @property
    def other(self) -> str:
        """The name of the source that is joined with."""
        return self.approximate_join

    @property
    def budget(self) -> int | str | None:
        """The memory of an executor; None where the number of rows is given."""
        given: int | str | None = filled_size(self.memory)
        return _MEMORY if given is None and self.tuples is None else given


class Sample(Section):
    """A step whose rows are a sample of the stream or of its window after each micro-batch: `hr.sample`."""

    what: ClassVar[str] = "a sample step"
    sample: RowsOrSize
    window: Window = None
    time: Column | None = None
    late: Lateness = None
    method: Literal["fair", "expire", "winres", "reservoir", "fifo", "chain"] | None = None
    seed: int = 0
    batch_column: ColumnOrNone = "batch"

    @property
    def other(self) -> None:
        """It joins with no other source."""
        return

    @property
    def size(self) -> int | None:
        """The rows of the sample; None where its memory is given."""
        return self.sample if isinstance(self.sample, int) else None

    @property
    def memory(self) -> str | None:
        """The memory of an executor; None where the number of rows is given."""
        return None if isinstance(self.sample, int) else self.sample


class Estimate(Section):
    """A step that estimates counts, sums and averages of a window, or of two joined: `hr.estimate`."""

    what: ClassVar[str] = "an estimate step"
    estimate: Quantities
    window_join: SourceName | None = None
    on: On = None
    condition: Condition = None
    window: Window = None
    time: Column | None = None
    late: Lateness = None
    group_by: Column | None = None
    groups: int = Field(GROUPS, ge=1)
    confidence: float = Field(0.95, gt=0, lt=1)
    sample: Part | None = None
    size: int | None = Field(None, ge=1)
    memory: Size = None
    seed: int = 0
    suffix: Text = "_right"
    cell: Cell = None
    shards: int | None = Field(None, ge=1)

    @property
    def other(self) -> str | None:
        """The name of the source that is joined with; None for the window of the stream alone."""
        return self.window_join

    @property
    def count(self) -> bool:
        """Whether rows or pairs are counted."""
        return any(one.column is None for one in self._quantities)

    def columns(self, kind: Literal["sum", "avg"]) -> list[str]:
        """The columns that are summed, or averaged."""
        return [one.column for one in self._quantities if one.column is not None and one.kind == kind]

    @property
    def _quantities(self) -> tuple[Quantity, ...]:
        return tuple(self.estimate)


SampledJoin = JoinWindows | JoinInPart | Estimate
Windowed = JoinWindows | Sample | Estimate
Sampling = JoinWindows | JoinInPart | Sample | Estimate


def condition_of(step: SampledJoin) -> JoinCondition | None:
    """What the rows of a pair must satisfy, from `on` and `condition` together; None where neither is given."""
    parts = [*([] if step.on is None else [parse_on(step.on)]), *([] if step.condition is None else [step.condition])]
    return None if not parts else parts[0] if len(parts) == 1 else all_of(*parts)


def window_of(step: Windowed) -> windows.Window | None:
    """The window of a step, with the lateness that it allows; None for none."""
    if step.window is None:
        return None
    if isinstance(step.window, int):
        return windows.rows(step.window)
    late = 0 if step.late is None else filled_size(step.late)
    return windows.time(filled(step.window), on=step.time or "", late=late)
