"""DeadLetters: rows that found no match and are not tried again, kept for people with the reason."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from headrace.runlog import DECISION, FINISH_PART, ShardLog
from headrace.semistream.deferred.remaining import BATCH, DEAD, TRIED, of_fate
from headrace.semistream.protocols import DeferrableOperator

#: Columns of a dead letter beside the row's own.
LETTER = pa.schema({"_reason": pa.string(), "_batch": pa.int64(), "_relation_version": pa.int64()})
_KIND = "dead_letter"  # the directory of the run log that has them


class DeadLetters:
    """The dead letters of a micro-batch, in files of the run log that any Parquet reader takes.

    The decision of a micro-batch has them, so every attempt keeps the same ones. A stray is a row without a match that is in no
    decision: one of a replay, or of `finish`.

    Parameters
    ----------
    shard
        The shard of the run log, held.
    operator
        The join that found no match.
    """

    def __init__(self, shard: ShardLog, operator: DeferrableOperator) -> None:
        self.shard, self.operator = shard, operator

    def keep_decided(self, stream: pa.Schema, batch: int) -> None:
        """Keep the dead letters of a decision."""
        decided = self.shard.find(DECISION, batch)
        assert decided is not None
        self._keep((of_fate(rows, DEAD) for rows in decided.batches()), stream, batch)

    def keep_strays(self, strays: list[pa.RecordBatch], stream: pa.Schema, batch: int) -> None:
        """Keep strays of a replay: the relation's version of the first attempt is gone, and they have no match in this one."""
        if strays:
            self._keep(iter(strays), stream, batch, part=f"v{self.operator.relation.version}")

    def keep_finished(self, strays: list[pa.RecordBatch], stream: pa.Schema, batch: int) -> None:
        """Keep strays of `finish`, which may be called again and then replaces them."""
        if strays:
            self._keep(iter(strays), stream, batch, part=FINISH_PART, replace=True)
        else:
            # A finish that was stopped may have kept rows that have a match by now.
            self.shard.unkeep(batch, FINISH_PART)

    def _keep(
        self, rows: Iterator[pa.RecordBatch], stream: pa.Schema, batch: int, *, part: str = "", replace: bool = False
    ) -> None:
        counted = []

        def count() -> Iterator[pa.RecordBatch]:
            for letter in self._letters(rows, stream):
                counted.append(letter.num_rows)
                yield letter

        self.shard.keep(_KIND, batch, pa.schema([*stream, *LETTER]), count(), part=part, replace=replace)
        self.operator.stats.dead_letters += sum(counted)

    def _letters(self, rows: Iterator[pa.RecordBatch], stream: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Make dead letters from rows with EXTRA columns."""
        satisfied = " that satisfies the condition" if self.operator.condition is not None else ""
        schema = pa.schema([*stream, *LETTER])
        for batch in rows:
            null = np.logical_or.reduce([np.asarray(batch.column(name).is_null()) for name in self.operator.stream_key])
            reason = pa.array(np.where(null, "the key is null", f"no match in the relation{satisfied}"), pa.string())
            own = [batch.column(name) for name in stream.names]
            yield pa.RecordBatch.from_arrays([*own, reason, batch.column(BATCH), batch.column(TRIED)], schema=schema)
