"""What runs in a Spark Python worker: the operators of this process, and the tasks that go through them.

A module that workers import lives as long as they do, and so do relations and operators here; what a closure holds is new in
every task. (DESIGN D6) A worker runs one task at a time.
"""

from __future__ import annotations

import functools
import gc
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext

from headrace.clock import SystemClock
from headrace.relation import Relation
from headrace.relation.disk import DiskKind
from headrace.semistream import AdaptiveJoin
from headrace.semistream.base import How, On
from headrace.semistream.shared import Group
from headrace.semistream.split import least_memory
from headrace.spark.versions import open_at, open_for_batch

if TYPE_CHECKING:
    from headrace.spark.table import TableFiles

_OPERATORS = 8  # kept in a worker; the least recently used goes

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class Step:
    """One `enrich`, as it travels to the executors."""

    id: str
    path: str
    disk: DiskKind
    on: On
    how: How
    memory: int
    columns: tuple[str, ...] | None
    suffix: str | None
    workers: int
    names: tuple[str, ...]  # of the stream's columns
    version: int
    follow: bool  # whether each micro-batch sees the latest version, and not `version`
    casts: tuple[tuple[int, pa.DataType], ...]  # columns of the result that Spark wants in another Arrow type


@dataclass(frozen=True)
class Task:
    """What is done with the rows of a partition: joined step by step, then written, if they are to be loaded."""

    steps: tuple[Step, ...]
    files: TableFiles | None = None


_relations: dict[str, Relation] = {}
_operators: dict[tuple[str, int], AdaptiveJoin] = {}


def run(task: Task, batches: Batches, report: Any) -> Batches:
    """Everything that one Spark task does."""
    context = TaskContext.get()
    assert context is not None
    _settle()
    for step in task.steps:
        batches = _join(step, batches, context, report)
    if task.files is not None:
        return task.files.write(batches, context)
    return (batch.rename_columns([f"c{i}" for i in range(batch.num_columns)]) for batch in batches)


@functools.cache
def _settle() -> None:
    """Once a process: what is imported is not looked at again when Python looks for garbage, which took a seventh of its time."""
    gc.collect()
    gc.freeze()


def _join(step: Step, batches: Batches, context: TaskContext, report: Any) -> Batches:
    relation = _relation(step, context)
    operator = _operator(step, relation)
    member = operator.enter()
    if not member:
        operator = _alone(step, relation)
    operator.reset_stats()
    clock = SystemClock()
    begun = clock.now()
    try:
        for batch in _gathered(batches, lambda: (operator.wanted_rows, operator.wanted_bytes)):
            for out in operator.join(batch.rename_columns(list(step.names))):
                yield _cast(out, step)
    finally:
        if member:
            operator.leave()
    if report is not None and operator.stats.tuples_in:
        report.add([_report(step, context, clock.now() - begun, operator)])


def _relation(step: Step, context: TaskContext) -> Relation:
    """The relation at the task's version. This process keeps it open, and so pinned, until another version is asked for."""
    root, current = Path(step.path), _relations.get(step.path)
    if step.follow:
        relation = open_for_batch(root, context, step.disk, step.version, current)
    else:
        relation = open_at(root, step.disk, step.version, current)
    if relation is not current:
        _relations[step.path] = relation
        for key in [k for k, op in _operators.items() if op.relation is current]:
            del _operators[key]
    return relation


def _operator(step: Step, relation: Relation) -> AdaptiveJoin:
    key = (step.id, relation.version)
    operator = _operators.pop(key, None)
    if operator is None or operator.relation is not relation:
        operator = AdaptiveJoin(
            relation, step.on, step.memory, how=step.how, columns=step.columns, suffix=step.suffix,
            group=Group(_executor(), step.workers),
        )  # fmt: skip
    _operators[key] = operator
    while len(_operators) > _OPERATORS:
        del _operators[next(iter(_operators))]
    return operator


def _alone(step: Step, relation: Relation) -> AdaptiveJoin:
    """More workers at once than there should be: this one does with the least memory, of its own."""
    payload = relation.payload(step.columns) if step.how in ("inner", "left") else ()
    least = least_memory(relation, payload, relation.index_bytes)
    return AdaptiveJoin(relation, step.on, least, how=step.how, columns=step.columns, suffix=step.suffix)


def _executor() -> Path:
    """A directory that the Python workers of this executor, and no others, have in common."""
    local = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return Path(local or tempfile.gettempdir(), "headrace" if local else f"headrace-{os.getppid()}")


def _gathered(batches: Batches, wanted: Callable[[], tuple[int, int]]) -> Batches:
    """Batches put together, up to so many rows and bytes: keys that are joined together share reads."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        most_rows, most_bytes = wanted()
        if held and (rows + batch.num_rows > most_rows or size + batch.nbytes > most_bytes):
            yield held[0] if len(held) == 1 else pa.concat_batches(held)
            held, rows, size = [], 0, 0
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
    if held:
        yield held[0] if len(held) == 1 else pa.concat_batches(held)


def _cast(batch: pa.RecordBatch, step: Step) -> pa.RecordBatch:
    for i, type_ in step.casts:
        batch = batch.set_column(i, batch.schema.field(i).with_type(type_), batch.column(i).cast(type_))
    return batch


def _report(step: Step, context: TaskContext, seconds: float, operator: AdaptiveJoin) -> dict[str, Any]:
    local = context.getLocalProperty
    batch = local("streaming.sql.batchId")
    return {
        "step": step.id, "relation": step.path, "version": operator.relation.version, "query": local("sql.streaming.queryId"),
        "batch": int(batch if batch is not None else local("spark.sql.execution.id") or 0),
        "partition": context.partitionId(), "executor": str(_executor()), "seconds": seconds,
        "stats": operator.stats.as_dict(),
    }  # fmt: skip
