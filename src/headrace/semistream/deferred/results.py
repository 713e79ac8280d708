"""The results of DeferredJoin, and what becomes of rows without a match."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from headrace.semistream.deferred.deferral import (
    ARRIVED,
    DEAD,
    EXTRA,
    LETTER,
    MARK,
    RETRY,
    TRIED,
    letters,
    of_fate,
    state_schema,
)
from headrace.semistream.deferred.memory import DECISION, DeferredMemory


class DeferredResults(DeferredMemory):
    """Results leave without the columns that only the log needs; rows without a match may go another way."""

    def _out(self, results: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Results as they leave; rows without a match are sorted out."""
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
        n = rows.num_rows
        tried = np.asarray(rows.column(TRIED))
        self._again += int((tried > 0).sum())
        columns = rows.columns[: len(self._stream) + len(EXTRA)]
        columns[-1] = pa.array(np.full(n, self._version))
        rows = pa.RecordBatch.from_arrays(columns, schema=state_schema(self._stream))
        if self._left is None:
            self._strays.append(rows)
            return
        hopeless = np.full(n, self.deferral.unmatched == "dead_letter")
        hopeless |= np.asarray(rows.column(ARRIVED)) + self.deferral.retry_for <= self._now
        for name in self.operator.stream_key:
            hopeless |= np.asarray(rows.column(name).is_null())
        self._left.add(rows.filter(pa.array(hopeless)), DEAD)
        self._left.add(rows.filter(pa.array(~hopeless)), RETRY)

    def _write_letters(self) -> None:
        """From the decision, not from what this attempt saw: they are the same in every attempt."""
        decided = self.shard.find(DECISION, self.batch)
        assert decided is not None
        self._keep_letters((of_fate(batch, DEAD) for batch in decided.batches()), self.batch)

    def _keep_letters(
        self, rows: Iterator[pa.RecordBatch], batch: int, *, part: str = "", replace: bool = False
    ) -> None:
        counted = []

        def count() -> Iterator[pa.RecordBatch]:
            conditional = self.operator.condition is not None
            for letter in letters(rows, self._stream, self.operator.stream_key, conditional):
                counted.append(letter.num_rows)
                yield letter

        schema = pa.schema([*self._stream, *LETTER])
        self.shard.keep("dead_letter", batch, schema, count(), part=part, replace=replace)
        self.operator.stats.dead_letters += sum(counted)
