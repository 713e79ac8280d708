"""Rows that come by shard, joined with what the run log holds of each shard. Runs inside the executors' Python workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.errors import RunLogError
from headrace.runlog import RunLog
from headrace.semistream.deferred.join import DeferredJoin
from headrace.semistream.protocols import DeferrableOperator

if TYPE_CHECKING:
    from pyspark import TaskContext

    from headrace.spark.worker import Step

Batches = Iterator[pa.RecordBatch]
_AFTER_ALL = 1 << 62  # later than every micro-batch


def deferred(
    step: Step, operator: DeferrableOperator, batches: Batches, context: TaskContext, finish: str | None
) -> Batches:
    """The results of a task: its rows, and what waited of its shards. With `finish`, all that waits in that query's log."""
    local = context.getLocalProperty
    query, batch = finish or local("sql.streaming.queryId"), local("streaming.sql.batchId")
    if query is None or (batch is None and not finish):
        raise RunLogError(
            "this join remembers rows from one micro-batch to the next, and the task is not of a streaming query"
        )
    assert step.deferral is not None and step.stream is not None
    log = RunLog(step.state, query, step.log, shards=step.shards)
    number = _AFTER_ALL if finish else int(batch)
    for shard, rows in by_shard(batches, step.stream, _rows):
        with log.shard(shard) as held:
            join = DeferredJoin(operator, held, step.deferral, number, run=local("spark.jobGroup.id") or "")
            if finish:
                yield from join.finish(step.stream)
            else:
                yield from join.join(rows, step.stream)


def by_shard(
    batches: Batches, stream: pa.Schema, rows_of: Callable[[pa.RecordBatch, pa.Schema], pa.RecordBatch]
) -> Iterator[tuple[int, Batches]]:
    """The rows of each shard, as `rows_of` makes them. A partition has one shard; rows of others are put by meanwhile."""
    others: dict[int, list[pa.RecordBatch]] = {}

    def of(shard: int) -> Batches:
        """Rows of a shard, while those of others go to their lists."""
        while others.get(shard):
            yield rows_of(others[shard].pop(0), stream)
        for batch in batches:
            for number, part in _split(batch):
                if number == shard:
                    yield rows_of(part, stream)
                else:
                    others.setdefault(number, []).append(part)

    done: set[int] = set()
    for batch in batches:
        for number, part in _split(batch):
            others.setdefault(number, []).append(part)
        break
    while todo := sorted(set(others) - done):
        done.add(todo[0])
        rows = of(todo[0])
        yield todo[0], rows
        for _ in rows:  # `finish` wants none, but the shards of the rest
            pass


def _split(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    shards = np.asarray(batch.column(batch.num_columns - 2))
    for number in np.unique(shards).tolist():
        which = shards == number
        yield number, batch if which.all() else batch.filter(pa.array(which))


def _rows(batch: pa.RecordBatch, stream: pa.Schema) -> pa.RecordBatch:
    """Without heartbeats, and without the columns that say so."""
    beats = batch.column(batch.num_columns - 1)
    if beats.true_count:
        batch = batch.filter(pa.array(~np.asarray(beats)))
    columns = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for column, field in zip(batch.columns[: len(stream)], stream, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=stream)
