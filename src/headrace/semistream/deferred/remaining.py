"""Remaining: the rows that stay behind after a micro-batch, as its decision holds them."""

from __future__ import annotations

from math import inf

import numpy as np
import pyarrow as pa

from headrace.runlog import DecisionDraft

# The fates of a row that stays behind: it waits for its deadline, for a new version of the relation, or becomes a dead letter.
WAITING, RETRY, DEAD = 0, 1, 2

BATCH, ARRIVED, TRIED, FATE = (f"__headrace_{name}" for name in ("batch", "arrived", "tried", "fate"))
#: Columns beside a row's own: its micro-batch, when it came (seconds), and the version of the relation in which it had no match
#: (0: it was not looked up).
EXTRA = pa.schema({BATCH: pa.int64(), ARRIVED: pa.float64(), TRIED: pa.int64()})


class Remaining:
    """Adds rows to a decision, and counts them by their fate.

    Parameters
    ----------
    draft
        The decision; its rows have the columns of `decision_schema`.
    """

    def __init__(self, draft: DecisionDraft) -> None:
        self.draft = draft
        self.waiting = self.retrying = self.dead = 0  # rows
        self.earliest = inf  # when the first row came that waits
        self.oldest = inf  # when the first row came that is tried again
        self.tried = 0  # the oldest version in which one of those had no match

    def add(self, rows: pa.RecordBatch, fate: int) -> None:
        """Add rows with EXTRA columns that share a fate."""
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
    """Add EXTRA columns to rows that have just come."""
    n = rows.num_rows
    extra = [pa.array(np.full(n, batch)), pa.array(np.full(n, arrived)), pa.array(np.zeros(n, np.int64))]
    return pa.RecordBatch.from_arrays([*rows.columns, *extra], schema=state_schema(rows.schema))


def state_schema(stream: pa.Schema) -> pa.Schema:
    """A stream's columns and EXTRA ones."""
    return pa.schema([*stream, *EXTRA])


def decision_schema(stream: pa.Schema) -> pa.Schema:
    """A stream's columns, EXTRA ones, and the fate."""
    return state_schema(stream).append(pa.field(FATE, pa.int8()))


def of_fate(rows: pa.RecordBatch, fate: int) -> pa.RecordBatch:
    """Select the rows of a decision that have a fate, and drop the column that says so."""
    which = np.asarray(rows.column(FATE)) == fate
    rest = rows.drop_columns([FATE])
    return rest if which.all() else rest.filter(pa.array(which))
