"""Rows that come by shard, joined with what the run log holds of each shard. Runs inside the executors' Python workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from headrace.errors import RunLogError
from headrace.relation.batch_versions import batch_notes, hold_versions
from headrace.runlog import RunLog
from headrace.semistream.deferred.deferral import Deferral
from headrace.semistream.deferred.join import DeferredJoin
from headrace.semistream.deferred.queued_join import AtVersion, QueuedJoin
from headrace.semistream.protocols import GroupMember, QueueingOperator
from headrace.spark.steps import Batches, SparkTask, StateKeeping

_AFTER_ALL = 1 << 62  # the micro-batch of hr.finish: later than every other


def open_log(keeping: StateKeeping, task: SparkTask, refusal: str) -> tuple[RunLog, int]:
    """The run log of a task's query, and the micro-batch's number there; refuses a task of no streaming query."""
    if task.query is None or (task.batch is None and not task.finishing):
        raise RunLogError(refusal)
    log = RunLog(keeping.directory, task.query, keeping.log, shards=keeping.shards, division=keeping.division)
    return log, _AFTER_ALL if task.batch is None else task.batch


def deferred(
    deferral: Deferral,
    keeping: StateKeeping,
    stream: pa.Schema,
    operator: GroupMember,
    batches: Batches,
    task: SparkTask,
) -> Batches:
    """The results of a task's rows, and of rows that waited in its shards; of all that wait, when the query is finished.

    Parameters
    ----------
    deferral
        Which rows may wait.
    keeping
        Where they do.
    stream
        The schema of the rows.
    operator
        The join.
    batches
        The rows, each with its shard and whether it is a heartbeat.
    """
    log, number = open_log(
        keeping,
        task,
        "this join remembers rows from one micro-batch to the next, and the task is not of a streaming query",
    )
    for shard, rows in by_shard(batches, stream, _rows):
        with log.shard(shard) as held:
            join = DeferredJoin(operator, held, deferral, number, run=task.run)
            if task.finishing:
                yield from join.finish(stream)
            else:
                yield from join.join(rows, stream)


def queued(
    deferral: Deferral,
    keeping: StateKeeping,
    stream: pa.Schema,
    operator: QueueingOperator,
    at_version: AtVersion,
    batches: Batches,
    task: SparkTask,
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """The results of a task's rows with a join that keeps its queue, each with the version of the relation that they are of.

    Parameters
    ----------
    deferral, keeping, stream, batches
        See `deferred`.
    operator
        The join.
    at_version
        Opens it with another version of the relation.
    """
    log, number = open_log(
        keeping,
        task,
        "this join keeps its queue from one micro-batch to the next, and the task is not of a streaming query",
    )
    assert task.query is not None
    notes = batch_notes(operator.relation.path, task.query)
    for shard, rows in by_shard(batches, stream, _rows):
        with log.shard(shard) as held:
            hold = partial(hold_versions, notes, f"{log.path.name}-{shard}")
            join = QueuedJoin(operator, held, deferral, number, at_version=at_version, hold=hold, run=task.run)
            for out in join.finish(stream) if task.finishing else join.join(rows, stream):
                yield out, join.version


def by_shard(
    batches: Batches, stream: pa.Schema, rows_of: Callable[[pa.RecordBatch, pa.Schema], pa.RecordBatch]
) -> Iterator[tuple[int, Batches]]:
    """The rows of each shard in a partition, as `rows_of` makes them.

    A partition has one shard as a rule. Rows of others are held until that one has ended.
    """
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
        for _ in rows:  # `finish` reads no rows, but they say which shards the rest has
            pass


def _split(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    shards = np.asarray(batch.column(batch.num_columns - 2))
    for number in np.unique(shards).tolist():
        which = shards == number
        yield number, batch if which.all() else batch.filter(pa.array(which))


def _rows(batch: pa.RecordBatch, stream: pa.Schema) -> pa.RecordBatch:
    """The stream's rows of a batch, without heartbeats and without the columns for shard and heartbeat."""
    beats = batch.column(batch.num_columns - 1)
    if beats.true_count:
        batch = batch.filter(pa.array(~np.asarray(beats)))
    columns = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for column, field in zip(batch.columns[: len(stream)], stream, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=stream)
