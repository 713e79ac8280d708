"""What DeferredJoin remembers: why a row stays behind, the notes of a micro-batch, the rows of a decision. (DESIGN D7)"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from math import inf
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from headrace.errors import BadInput
from headrace.runlog.files import StateDraft

Unmatched = Literal["drop", "null", "dead_letter", "retry"]

WAITING, RETRY, DEAD = 0, 1, 2  # fates: waits for its deadline, for a new version of the relation, for nothing

BATCH, ARRIVED, TRIED, FATE = (f"__headrace_{name}" for name in ("batch", "arrived", "tried", "fate"))
MARK = "__headrace_matched"
#: Beside a row's own columns: its micro-batch, when it came, and the version in which it had no match (0: not looked up).
EXTRA = pa.schema({BATCH: pa.int64(), ARRIVED: pa.float64(), TRIED: pa.int64()})
#: Beside a dead letter's own columns.
LETTER = pa.schema({"_reason": pa.string(), "_batch": pa.int64(), "_relation_version": pa.int64()})


@dataclass(frozen=True)
class Deferral:
    """What may be put off, and for how long.

    Parameters
    ----------
    deadline
        Seconds within which a row is to leave; None: in its micro-batch.
    unmatched
        What becomes of a row without a match.
    retry_for
        Seconds that it is tried again, with unmatched="retry".
    period
        Seconds until the next micro-batch comes, at the latest, where nothing else is known.
    """

    deadline: float | None = None
    unmatched: Unmatched = "drop"
    retry_for: float = 3600.0
    period: float = 1.0

    @property
    def sorts_out(self) -> bool:
        """Whether rows without a match go another way."""
        return self.unmatched in ("dead_letter", "retry")

    def check(self, stream: pa.Schema) -> None:
        """Refuse columns whose names are needed."""
        taken = [*EXTRA.names, FATE, MARK, *(LETTER.names if self.sorts_out else ())]
        for name in stream.names:
            if name in taken:
                raise BadInput(f"the stream has a column {name!r}, a name that is needed for rows put aside; rename it")


@dataclass
class Notes:
    """What is known after a micro-batch without looking at rows; kept in the facts of its decision."""

    batch: int = -1
    since: int = 0
    """rows that stayed behind are in the decisions from this batch on"""
    at: float = 0.0
    """when it began"""
    run: str = ""
    interval: float = 0.0
    """seconds from one micro-batch to the next, lately at most"""
    fresh: int = 0
    """rows that it put off for their deadline"""
    waiting: int = 0
    earliest: float = inf
    """when the first of those came"""
    retrying: int = 0
    tried: int = 0
    """the oldest version in which one of those had no match"""
    oldest: float = inf
    """when the first of those came"""
    version: int = 0
    phases: dict[str, list[float]] = field(default_factory=dict)

    def as_facts(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def of(cls, facts: dict[str, Any]) -> Notes:
        """From JSON."""
        return cls(**{name: facts[name] for name in cls.__dataclass_fields__})


class Left:
    """Rows that stay behind after a micro-batch, as they are written to its decision, and what is to be noted of them."""

    def __init__(self, draft: StateDraft) -> None:
        self.draft = draft
        self.waiting = self.retrying = self.dead = 0
        self.earliest = self.oldest = inf
        self.tried = 0

    def add(self, rows: pa.RecordBatch, fate: int) -> None:
        """Rows with EXTRA columns."""
        if not rows.num_rows:
            return
        arrived = float(np.asarray(rows.column(ARRIVED)).min())
        if fate == WAITING:
            self.waiting += rows.num_rows
            self.earliest = min(self.earliest, arrived)
        elif fate == RETRY:
            tried = int(np.asarray(rows.column(TRIED)).min())
            self.tried = min(self.tried, tried) if self.retrying else tried
            self.retrying += rows.num_rows
            self.oldest = min(self.oldest, arrived)
        else:
            self.dead += rows.num_rows
        fates = pa.array(np.full(rows.num_rows, fate, np.int8))
        self.draft.add(pa.RecordBatch.from_arrays([*rows.columns, fates], schema=self.draft.schema))


def with_extra(rows: pa.RecordBatch, batch: int, arrived: float) -> pa.RecordBatch:
    """Rows that just came, with EXTRA columns."""
    n = rows.num_rows
    extra = [pa.array(np.full(n, batch)), pa.array(np.full(n, arrived)), pa.array(np.zeros(n, np.int64))]
    return pa.RecordBatch.from_arrays([*rows.columns, *extra], schema=state_schema(rows.schema))


def state_schema(stream: pa.Schema) -> pa.Schema:
    """A stream's columns and EXTRA ones."""
    return pa.schema([*stream, *EXTRA])


def decision_schema(stream: pa.Schema) -> pa.Schema:
    """Those and the fate."""
    return state_schema(stream).append(pa.field(FATE, pa.int8()))


def of_fate(rows: pa.RecordBatch, fate: int) -> pa.RecordBatch:
    """The rows of a decision that have a fate, without it."""
    which = np.asarray(rows.column(FATE)) == fate
    rest = rows.drop_columns([FATE])
    return rest if which.all() else rest.filter(pa.array(which))


def letters(
    rows: Iterator[pa.RecordBatch], stream: pa.Schema, key: tuple[str, ...], conditional: bool = False
) -> Iterator[pa.RecordBatch]:
    """Dead letters from rows with EXTRA columns."""
    without = "no match in the relation" + (" that satisfies the condition" if conditional else "")
    schema = pa.schema([*stream, *LETTER])
    for batch in rows:
        null = np.logical_or.reduce([np.asarray(batch.column(name).is_null()) for name in key])
        reason = pa.array(np.where(null, "the key is null", without), pa.string())
        own = [batch.column(name) for name in stream.names]
        yield pa.RecordBatch.from_arrays([*own, reason, batch.column(BATCH), batch.column(TRIED)], schema=schema)
