"""What a logged progressive join is, apart from its state: conditions, columns, time bounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

import numpy as np
import pyarrow as pa

from headrace.conditions import AllOf, Band, Condition
from headrace.errors import BadInput
from headrace.progressive.grids.partitioning import SIDES, Partitioning
from headrace.progressive.logged.checkpoint import NEVER
from headrace.progressive.output import Output
from headrace.relation.columns import Longs


@dataclass(frozen=True)
class TimeBound:
    """Pairs are at most so far apart in event time, and rows that can find no more partners expire.

    Parameters
    ----------
    columns
        The event time of the left and of the right side.
    within
        Microseconds that two rows of a pair are apart at most.
    delays
        Microseconds that rows of each side may be late; None for a side that is all there from the beginning.
    """

    columns: tuple[str, str]
    within: int
    delays: tuple[int | None, int | None]

    @property
    def condition(self) -> Band:
        """What pairs must satisfy."""
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

    def times(self, side: int, rows: pa.RecordBatch) -> Longs:
        """Event times in microseconds; a row without one has none to match, and comes before all."""
        column = rows.column(rows.schema.get_field_index(self.columns[side]))
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False).view(pa.int64())
        return np.asarray(column.fill_null(NEVER))

    def watermark(self, latest: list[int]) -> int:
        """What comes from now on is not of a time before this, or it is late."""
        marks = [at - delay for at, delay in zip(latest, self.delays, strict=True) if delay is not None]
        return max(NEVER, min(marks))


@dataclass(frozen=True)
class Pairing:
    """A join of two sides.

    Parameters
    ----------
    condition
        What pairs must satisfy, without the time bound.
    schemas
        Of the two sides.
    partitioning
        How they are divided; it is bound to them.
    ask
        What of the condition the partitioning does not answer.
    suffix
        Added to the name of a right column that the left side has too; None refuses it.
    bound
        On event times.
    capacity
        Tuples in memory at most, beside the bytes; no such limit by default.
    static
        Sides that are read once, and not a stream.
    """

    condition: Condition
    schemas: tuple[pa.Schema, pa.Schema]
    partitioning: Partitioning
    ask: Condition | None = None
    suffix: str | None = "_right"
    bound: TimeBound | None = None
    capacity: int | None = None
    static: tuple[bool, bool] = (False, False)
    output: Output = field(init=False)

    def __post_init__(self) -> None:
        for side, schema in enumerate(self.schemas):
            self.partitioning.bind(side, schema)
        ask = self.ask if self.partitioning.exact else self.condition
        if self.bound is not None:
            self.bound.check(self.schemas)
            ask = self.bound.condition if ask is None else AllOf((ask, self.bound.condition))
        object.__setattr__(self, "output", Output(self.condition, *self.schemas, ask, self.suffix))
