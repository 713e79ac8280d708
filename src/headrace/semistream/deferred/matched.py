"""MatchedRows: results leave; rows without a match are sorted out, to be tried again or to become dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from headrace.semistream.deferred.deferral import MARK, Deferral
from headrace.semistream.deferred.phase_timing import PhaseTiming
from headrace.semistream.deferred.remaining import DEAD, EXTRA, RETRY, TRIED, Remaining, state_schema
from headrace.semistream.protocols import DeferrableOperator


class MatchedRows:
    """The way of an operator's results out of a DeferredJoin.

    Parameters
    ----------
    operator
        The join; its results have a column MARK where rows are sorted out.
    deferral
        What becomes of rows without a match.
    timing
        Says for how long rows have been tried again.
    """

    def __init__(self, operator: DeferrableOperator, deferral: Deferral, timing: PhaseTiming) -> None:
        self.operator, self.deferral, self.timing = operator, deferral, timing
        self.stream = pa.schema([])
        self.remaining: Remaining | None = None
        """where rows without a match go; None unless this is the first attempt, which decides"""
        self.strays: list[pa.RecordBatch] = []
        """rows without a match of other attempts and of `finish`, which decide nothing"""
        self.retried_in_vain = 0  # rows that were tried again and had no match again

    def out(self, results: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give results without the columns that only the log needs."""
        for out in results:
            if self.deferral.sorts_out:
                mark = out.column(MARK)
                if mark.true_count < out.num_rows:
                    self._sort_out(out.filter(pa.array(~np.asarray(mark))))
                    out = out.filter(mark)
                out = out.drop_columns([MARK])
            if out.num_rows:
                yield out.drop_columns(EXTRA.names)

    def _sort_out(self, rows: pa.RecordBatch) -> None:
        n, version = rows.num_rows, self.operator.relation.version
        self.retried_in_vain += int((np.asarray(rows.column(TRIED)) > 0).sum())
        columns = rows.columns[: len(self.stream) + len(EXTRA)]
        columns[-1] = pa.array(np.full(n, version))
        rows = pa.RecordBatch.from_arrays(columns, schema=state_schema(self.stream))
        if self.remaining is None:
            self.strays.append(rows)
            return
        hopeless = np.full(n, self.deferral.unmatched == "dead_letter") | self.timing.retries_over(rows)
        for name in self.operator.stream_key:
            hopeless |= np.asarray(rows.column(name).is_null())
        self.remaining.add(rows.filter(pa.array(hopeless)), DEAD)
        self.remaining.add(rows.filter(pa.array(~hopeless)), RETRY)
