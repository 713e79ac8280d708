"""JoinSpec: the settings of a progressive join of two streams: condition, columns, time bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import numpy as np
import pyarrow as pa

from headrace.arrays import Int64s
from headrace.conditions import AllOf, Band, Condition
from headrace.errors import BadInput
from headrace.metrics import JoinStats
from headrace.progressive.grids.keys import HashPartitioning
from headrace.progressive.grids.partitioning import SIDES, Partitioning
from headrace.progressive.logged.catch_up import CatchUp
from headrace.progressive.logged.checkpoint import NEVER
from headrace.progressive.logged.matcher import Matcher
from headrace.progressive.logged.outer_output import How, OuterOutput
from headrace.progressive.logged.rows import LoggedRows
from headrace.progressive.logged.sharding import Sharding
from headrace.progressive.output import Output


@dataclass(frozen=True)
class TimeBound:
    """How far apart in event time the rows of a pair may be; rows that can find no more partners expire.

    Parameters
    ----------
    columns
        The event time columns of the left and of the right side.
    within
        Microseconds that two rows of a pair are apart at most.
    delays
        Microseconds that rows of each side may be late; None for a side that is read once, and not a stream.
    """

    columns: tuple[str, str]
    within: int
    delays: tuple[int | None, int | None]

    @property
    def condition(self) -> Band:
        """The bound as a condition on pairs."""
        apart = timedelta(microseconds=self.within)
        return Band(self.columns[0], self.columns[1], apart, apart)

    def check(self, schemas: tuple[pa.Schema, pa.Schema]) -> None:
        """Refuse columns that are not event times."""
        for side, (name, schema) in enumerate(zip(self.columns, schemas, strict=True)):
            if schema.names.count(name) != 1:
                raise BadInput(
                    f"the {SIDES[side]} side has no one column {name!r}; its columns are {', '.join(schema.names)}"
                )
            if not pa.types.is_timestamp(schema.field(name).type):
                raise BadInput(
                    f"column {name!r} of the {SIDES[side]} side has type {schema.field(name).type}; an event time is a timestamp"
                )

    def times(self, side: int, rows: pa.RecordBatch) -> Int64s:
        """The event times of rows in microseconds; NEVER for a row without one, which matches nothing."""
        column = rows.column(rows.schema.get_field_index(self.columns[side]))
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False).view(pa.int64())
        return np.asarray(column.fill_null(NEVER))

    def watermark(self, latest: list[int]) -> int:
        """The event time before which rows that come from now on are late, by the latest time of each side so far."""
        marks = [at - delay for at, delay in zip(latest, self.delays, strict=True) if delay is not None]
        return max(NEVER, min(marks))


@dataclass(frozen=True, kw_only=True)
class JoinSpec:
    """A join of two sides.

    Parameters
    ----------
    condition
        What pairs must satisfy, without the time bound.
    schemas
        The columns of the two sides.
    partitioning
        How rows are divided into partitions; it is bound to the two sides.
    ask
        The part of the condition that the partitioning does not answer.
    suffix
        Added to the name of a right column that the left side has too; None refuses it.
    bound
        The bound on event times.
    capacity
        Tuples in memory at most, beside the limit of bytes; None: no such limit.
    static
        Sides that are read once, and not a stream.
    how
        Which rows are wanted beside pairs, or instead of them. Rows of sides that this asks about have their number as a last
        column; see `numbered_schemas`.
    """

    condition: Condition
    schemas: tuple[pa.Schema, pa.Schema]
    partitioning: Partitioning
    ask: Condition | None = None
    suffix: str | None = "_right"
    bound: TimeBound | None = None
    capacity: int | None = None
    static: tuple[bool, bool] = (False, False)
    how: How = "inner"
    output: Output = field(init=False)
    results: OuterOutput | None = field(init=False)
    """makes results where not all of them are pairs; None for an inner join"""

    def __post_init__(self) -> None:
        if self.how != "inner" and not isinstance(self.partitioning, HashPartitioning):
            raise BadInput(
                f"how={self.how!r} needs an equality in the condition, such as hr.equal or hr.all_of(hr.equal(...), ...): rows of"
                " other conditions meet in several places, none of which knows all partners of a row; use how='inner'"
            )
        for side, schema in enumerate(self.schemas):
            self.partitioning.bind(side, schema)
        ask = self.ask if self.partitioning.exact else self.condition
        if self.bound is not None:
            self.bound.check(self.schemas)
            ask = self.bound.condition if ask is None else AllOf((ask, self.bound.condition))
        object.__setattr__(self, "output", Output(self.condition, *self.schemas, ask, self.suffix))
        results = None if self.how == "inner" else OuterOutput(self.how, self.output, self.schemas)
        object.__setattr__(self, "results", results)

    def parts(
        self, sharding: Sharding, rows: Sequence[LoggedRows], stats: JoinStats, batch: int, chunk: int
    ) -> tuple[Matcher, CatchUp]:
        """What joins rows with memory, and what catches up, in one micro-batch."""
        matcher = Matcher(self, stats, chunk)
        return matcher, CatchUp(matcher, sharding, rows, batch, chunk)
