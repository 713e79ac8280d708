"""What runs in a Spark Python worker: the tasks, and the relations and operators that the process keeps for later tasks.

A module that workers import lives as long as they do, and so do relations and operators here; an object that a closure holds is
new in every task. (DESIGN D6) A worker runs one task at a time.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyspark import TaskContext

from headrace.clock import SystemClock
from headrace.memory import release_freed_memory
from headrace.relation import Relation
from headrace.semistream.base import SemiStreamJoin
from headrace.semistream.protocols import GroupMember
from headrace.spark.executors import executor_directory
from headrace.spark.relation_join import OpenJoin, RelationJoin, open_alone, open_join
from headrace.spark.state.versions import open_at, open_for_batch
from headrace.spark.steps import Batches, Reporter, SparkTask, Step

_BETWEEN_NOTES = 60.0  # seconds between two notes of what keys are asked for: some hundred KiB are written
_LEAST_COUNTED, _COUNTED = 1 << 14, 4  # stream tuples that popularity is noted after: at least, and for each key of R
_OPERATORS = 8  # operators kept in a worker: a query has few, and those of queries that have ended are of no use


class Writer(Protocol):
    """Takes a task's results where they do not go back to Spark; gives what the driver is to know of them."""

    def write(self, batches: Batches, context: TaskContext) -> Batches:
        """Take all results of a task."""
        ...


@dataclass(frozen=True)
class Task:
    """What is done with the rows of a partition, as it travels to the executors.

    Parameters
    ----------
    steps
        The rows go through these, one after the other.
    files
        Takes the results, if they are to be loaded; None: they go back to Spark.
    finish
        The query whose waiting rows are joined, and nothing else.
    partitions
        Partitions of the micro-batch, where the driver knows.
    """

    steps: tuple[Step, ...]
    files: Writer | None = None
    finish: str | None = None
    partitions: int | None = None


def run(task: Task, batches: Batches, reporter: Reporter | None) -> Batches:
    """Everything that one Spark task does."""
    context = TaskContext.get()
    assert context is not None
    _freeze()
    spark = SparkTask.of(context, reporter=reporter, finish=task.finish, partitions=task.partitions)
    for i, step in enumerate(task.steps):
        batches = step.run(batches, replace(spark, following=task.steps[i + 1 :]))
    if task.files is not None:
        return _written(task.files, batches, context)
    return (batch.rename_columns([f"c{i}" for i in range(batch.num_columns)]) for batch in batches)


def _written(files: Writer, batches: Batches, context: TaskContext) -> Batches:
    """Write the results, in memory that goes back to the system.

    Arrow's own pool (mimalloc) keeps what batches and Parquet's encoders took: a worker that joined and wrote 100,000 rows of 116
    bytes grew by 19 MiB with it and by 4 with malloc. The CPU time did not differ by more than the noise of the machine.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    yield from files.write(batches, context)
    release_freed_memory()


@functools.cache
def _freeze() -> None:
    """Once a process: disables the garbage collector's scan of imported objects (gc.freeze), which took a seventh of the time."""
    gc.collect()
    gc.freeze()


# -- what a process keeps ----------------------------------------------------------------------------------------------

OperatorKey = tuple[str, str, str, int]  # step, algorithm, identity and version of the relation

_relations: dict[str, Relation] = {}
_operators: dict[OperatorKey, OpenJoin] = {}  # the least recently used first
_noted: dict[str, float] = {}  # when this process last noted the popularity of keys, by the relation's identity


def relation_at(join: RelationJoin, version: int, follow: bool, task: SparkTask) -> Relation:
    """The relation at the task's version. This process keeps it open, and so pinned, until another version is asked for.

    A relation that was made in the place of the one that the query began with is refused.

    Parameters
    ----------
    version
        The version, unless `follow` is set.
    follow
        Whether a micro-batch sees the version that its first task noted, which is the latest then.
    """
    root, current = Path(join.path), _relations.get(join.path)
    if follow:
        relation = open_for_batch(root, join.identity, task, join.disk, version, current)
    else:
        relation = open_at(root, join.identity, join.disk, version, current)
    if relation is not current:
        _relations[join.path] = relation
        for key in [k for k, kept in _operators.items() if kept.operator.relation is current]:
            del _operators[key]
    return relation


def operator_of(step: str, join: RelationJoin, algorithm: str, relation: Relation) -> OpenJoin:
    """The operator of a step and an algorithm: the one that this process has kept, or a new one."""
    key = step, algorithm, relation.identity, relation.version
    kept = _operators.pop(key, None)
    if kept is None or kept.operator.relation is not relation:
        kept = open_join(join, algorithm, relation, executor_directory())
        if isinstance(kept.operator, SemiStreamJoin):
            kept.operator.log_plan()
    _operators[key] = kept
    while len(_operators) > _OPERATORS:
        del _operators[next(iter(_operators))]
    return kept


def _note_popularity(member: GroupMember) -> None:
    """Now and then keep what the executor's workers have counted beside a relation that is stored by popularity.

    `Relation.compact(order="frequency")` orders by it. It is of use to that alone, so a directory that cannot be written to, or a
    disk that is full, is no reason to fail a task.
    """
    relation, counts, now = member.relation, member.popularity, SystemClock().now()
    enough = min(counts.horizon // 2, max(_LEAST_COUNTED, _COUNTED * relation.distinct_keys))
    if relation.order != "frequency" or counts.window < enough:
        return
    if now - _noted.get(relation.identity, -_BETWEEN_NOTES) >= _BETWEEN_NOTES:
        _noted[relation.identity] = now
        with suppress(OSError):
            relation.note_popularity(counts)


@contextmanager
def in_use(kept: OpenJoin, join: RelationJoin) -> Iterator[OpenJoin]:
    """The operator for one task. One that fails in it is not used again: rows of the task may still wait in it."""
    member = kept.member
    entered = member is not None and member.enter()
    # With more workers at a time than the group has places for, the last ones do with little memory of their own.
    used = open_alone(join, kept.operator.relation) if member is not None and not entered else kept
    used.operator.reset_stats()
    try:
        yield used
        if entered and member is not None:
            _note_popularity(member)
    except BaseException:
        for key in [k for k, v in _operators.items() if v is kept]:
            del _operators[key]
        raise
    finally:
        if entered:
            assert member is not None
            member.leave()
