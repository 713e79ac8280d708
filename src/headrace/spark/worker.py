"""What runs in a Spark Python worker: the operators of this process, and the tasks that go through them.

A module that workers import lives as long as they do, and so do relations and operators here; what a closure holds is new in
every task. (DESIGN D6) A worker runs one task at a time.
"""

from __future__ import annotations

import functools
import gc
import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from pyspark import TaskContext

from headrace.clock import SystemClock
from headrace.conditions import Condition
from headrace.cost import Calibration, Observed, choose, load_calibration
from headrace.cost.calibrate import BadCalibration
from headrace.relation import Relation
from headrace.relation.disk import DiskKind
from headrace.semistream import ALGORITHMS, AdaptiveJoin, ConditionalJoin
from headrace.semistream.adaptive.conditional import needed_columns
from headrace.semistream.adaptive.group import Group
from headrace.semistream.base import How, On, Order, SemiStreamJoin
from headrace.semistream.deferred.deferral import MARK, Deferral
from headrace.spark.shed_task import Divider
from headrace.spark.state.shards import deferred
from headrace.spark.state.versions import open_at, open_for_batch

if TYPE_CHECKING:
    from headrace.spark.shed import ShedStep

_OPERATORS = 8  # kept in a worker; the least recently used goes
_SAMPLE = 1 << 17  # rows that an algorithm is chosen by

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class Step:
    """One `enrich`, as it travels to the executors."""

    id: str
    path: str
    disk: DiskKind
    on: On | None
    how: How
    algorithm: str
    order: Order
    condition: Condition | None
    memory: int
    columns: tuple[str, ...] | None
    suffix: str | None
    workers: int
    names: tuple[str, ...]  # of the stream's columns
    version: int
    follow: bool  # whether each micro-batch sees the latest version, and not `version`
    casts: tuple[tuple[int, pa.DataType], ...]  # columns of the result that Spark wants in another Arrow type
    version_column: str | None = None  # of the result: the version of the relation
    deferral: Deferral | None = None  # what may be put off; then rows come by shard, with two columns more
    stream: pa.Schema | None = None  # the types in which such rows are kept
    state: str = ""  # where
    log: str = ""  # the operator's name there
    shards: int = 0
    flag: str | None = None  # a column that says whether the row has a match
    shed: ShedStep | None = None  # what is put aside before the join

    def run(
        self,
        batches: Batches,
        context: TaskContext,
        report: Any,
        finish: str | None = None,
        rest: tuple[Step, ...] = (),
    ) -> Batches:
        """The rows of a task through this step, before the rest of them. Other steps than a join have their own."""
        return _join((self, *rest), batches, context, report, finish)


class Writer(Protocol):
    """What becomes of a task's results where they do not go back to Spark; gives what the driver is to know."""

    def write(self, batches: Batches, context: TaskContext) -> Batches:
        """Take all of them."""
        ...


@dataclass(frozen=True)
class Task:
    """What is done with the rows of a partition: joined step by step, then written, if they are to be loaded."""

    steps: tuple[Step, ...]
    files: Writer | None = None
    finish: str | None = None  # the query whose waiting rows are joined, and nothing else


_relations: dict[str, Relation] = {}
_operators: dict[tuple[str, str, int], SemiStreamJoin] = {}
_choices: dict[tuple[str, int], tuple[str, str]] = {}


def run(task: Task, batches: Batches, report: Any) -> Batches:
    """Everything that one Spark task does."""
    context = TaskContext.get()
    assert context is not None
    _settle()
    for i, step in enumerate(task.steps):
        batches = step.run(batches, context, report, task.finish, task.steps[i + 1 :])
    if task.files is not None:
        return task.files.write(batches, context)
    return (batch.rename_columns([f"c{i}" for i in range(batch.num_columns)]) for batch in batches)


@functools.cache
def _settle() -> None:
    """Once a process: what is imported is not looked at again when Python looks for garbage, which took a seventh of its time."""
    gc.collect()
    gc.freeze()


def _join(steps: tuple[Step, ...], batches: Batches, context: TaskContext, report: Any, finish: str | None) -> Batches:
    """The first of the steps."""
    clock = SystemClock()
    begun = clock.now()
    step = steps[0]
    relation = _relation(step, context)
    divider = None if step.shed is None or finish else Divider(steps, relation, context, str(executor_directory()))
    if divider is not None:
        batches = divider.kept(batches)
    renamed: Batches = batches
    if step.deferral is None:
        renamed = (batch.rename_columns(list(step.names)) for batch in batches)
    if step.algorithm == "auto":
        chosen, why, renamed = _chosen(step, relation, renamed)
        step = replace(step, algorithm=chosen)
    else:
        why = ""
    operator = _operator(step, relation)
    member = isinstance(operator, AdaptiveJoin | ConditionalJoin) and operator.enter()
    if isinstance(operator, AdaptiveJoin | ConditionalJoin) and not member:
        operator = _alone(step, relation)
    operator.reset_stats()
    try:
        results = _results(operator, renamed)
        if step.deferral is not None:
            assert isinstance(operator, AdaptiveJoin | ConditionalJoin)
            results = deferred(step, operator, batches, context, finish)
        for out in results:
            yield _versioned(_cast(out, step), step, relation)
    except BaseException:
        _operators.pop(_name(step, relation), None)  # rows of this task may still wait in it
        raise
    finally:
        if member:
            assert isinstance(operator, AdaptiveJoin | ConditionalJoin)
            operator.leave()
    seconds, stats = clock.now() - begun, operator.stats
    shed = {"shed": divider.done(seconds)} if divider is not None else {}
    if report is not None and (stats.tuples_in or stats.deferred or stats.waiting or (divider and divider.shed)):
        report.add([_report(step, context, seconds, operator, finish) | {"why": why} | shed])


def _chosen(step: Step, relation: Relation, batches: Batches) -> tuple[str, str, Batches]:
    """The algorithm for a stream that looks like the first rows of the first task, why, and the rows again."""
    if step.condition is not None or step.flag is not None:
        return "adaptive", "beside a condition it is the one that looks keys up in the index", batches
    key = (step.id, relation.version)
    if key not in _choices:
        calibration = _calibration()
        if isinstance(calibration, str):
            _choices[key] = "adaptive", calibration
        else:
            each = step.memory // step.workers
            gathered = _gathered(batches, lambda: (_SAMPLE, each // 12))
            sample = next(gathered, None)
            if sample is None:
                return "adaptive", "", iter(())
            batches = itertools.chain([sample], gathered)
            if sample.num_rows:
                assert step.on is not None
                facts = Observed.of([sample], relation, step.on).facts(
                    relation, machine=calibration.as_machine(), columns=step.columns, order=step.order
                )
                choice = choose(facts, each)
                _choices[key] = choice.algorithm, choice.why
    return *_choices.get(key, ("adaptive", "")), batches


@functools.cache
def _calibration() -> Calibration | str:
    """This machine's costs, or why there are none to choose by."""
    try:
        return load_calibration()
    except BadCalibration as error:
        return f"adaptive needs no costs to choose by, and there are none: {error}"


def _results(operator: SemiStreamJoin, batches: Batches) -> Batches:
    """A task's rows joined to their end."""
    if isinstance(operator, ConditionalJoin) or (isinstance(operator, AdaptiveJoin) and operator.order == "stream"):
        for batch in _gathered(batches, lambda: (operator.wanted_rows, operator.wanted_bytes)):
            yield from operator.join(batch)
    else:
        yield from operator.run(batches)


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


def _name(step: Step, relation: Relation) -> tuple[str, str, int]:
    return step.id, step.algorithm, relation.version


def _operator(step: Step, relation: Relation) -> SemiStreamJoin:
    key = _name(step, relation)
    operator = _operators.pop(key, None)
    if operator is None or operator.relation is not relation:
        operator = make_operator(step, relation, executor_directory())
    _operators[key] = operator
    while len(_operators) > _OPERATORS:
        del _operators[next(iter(_operators))]
    return operator


def make_operator(step: Step, relation: Relation, directory: Path) -> SemiStreamJoin:
    """The operator of a step. AdaptiveJoin shares its memory with the workers that meet in a directory; others have parts."""
    if step.algorithm in ("auto", "adaptive"):  # auto: before the stream is seen
        return _adaptive(step, relation, step.memory, Group(directory, step.workers))
    options: dict[str, Any] = {} if step.condition is None else {"condition": step.condition}
    if step.order != "any" and not ALGORITHMS[step.algorithm].in_order:
        options["order"] = step.order
    operator: SemiStreamJoin = ALGORITHMS[step.algorithm](
        relation,
        step.on,
        step.memory // step.workers,
        how=step.how,
        columns=step.columns,
        suffix=step.suffix,
        **options,
    )
    return operator


def _alone(step: Step, relation: Relation) -> AdaptiveJoin | ConditionalJoin:
    """More workers at once than there should be: this one does with the least memory, of its own."""
    shown = step.columns if step.how in ("inner", "left") else ()
    if step.condition is not None or step.flag is not None:
        least = ConditionalJoin.least_memory(relation, needed_columns(relation, shown, step.condition))
        return _adaptive(step, relation, least, None)
    return _adaptive(step, relation, AdaptiveJoin.least_memory(relation, shown), None)


def _adaptive(step: Step, relation: Relation, memory: int, group: Group | None) -> AdaptiveJoin | ConditionalJoin:
    assert step.on is not None
    options: dict[str, Any] = {"how": step.how, "columns": step.columns, "suffix": step.suffix, "order": step.order}
    if step.condition is None and step.flag is None:
        return AdaptiveJoin(relation, step.on, memory, group=group, mark=_mark(step), **options)
    flag = step.flag or _mark(step)
    return ConditionalJoin(relation, step.on, memory, condition=step.condition, flag=flag, group=group, **options)


def _mark(step: Step) -> str | None:
    return MARK if step.deferral is not None and step.deferral.sorts_out else None


def executor_directory() -> Path:
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


def _versioned(batch: pa.RecordBatch, step: Step, relation: Relation) -> pa.RecordBatch:
    if step.version_column is None:
        return batch
    return batch.append_column(step.version_column, pa.repeat(pa.scalar(relation.version), batch.num_rows))


def _report(
    step: Step, context: TaskContext, seconds: float, operator: SemiStreamJoin, finish: str | None
) -> dict[str, Any]:
    local = context.getLocalProperty
    batch, execution = local("streaming.sql.batchId"), int(local("spark.sql.execution.id") or 0)
    shared = isinstance(operator, AdaptiveJoin | ConditionalJoin)
    return {
        "step": step.id,
        "relation": step.path,
        "version": operator.relation.version,
        "query": finish or local("sql.streaming.queryId"),
        "batch": -1 - execution if finish else int(batch if batch is not None else execution),
        "partition": context.partitionId(),
        "executor": f"{executor_directory()}{'' if shared else f'/{os.getpid()}'}",
        "seconds": seconds,
        "algorithm": step.algorithm,
        "stats": operator.stats.as_dict(),
    }
