"""EnrichStep: one `enrich`, in the executors' Python workers. A task's rows go through it from top to bottom.

rows -> open    the relation at the micro-batch's version     worker.py, state/versions.py
     -> shed    rows put aside under overload                 shed_task.py
     -> choose  the algorithm, once for the query             choice.py
     -> join    to the end                                    relation_join.py
        or defer  with what waits in the run log              state/shards.py
        or queue  with the queue that the run log keeps       state/shards.py
     -> cast    to the types that Spark wants                 schemas.py
     -> report  what the task did                             reports.py
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from headrace.clock import SystemClock
from headrace.errors import MemoryRefused
from headrace.metrics import JoinStats
from headrace.relation import Relation
from headrace.semistream.deferred.deferral import Deferral
from headrace.semistream.protocols import QueueingOperator
from headrace.spark import worker
from headrace.spark.choice import Algorithm, choose_once
from headrace.spark.executors import executor_directory
from headrace.spark.recorded import RecordedJoin
from headrace.spark.relation_join import ADAPTIVE, OpenJoin, RelationJoin, joined, open_join, queue_of
from headrace.spark.reports import TaskReport
from headrace.spark.schemas import ResultColumns
from headrace.spark.shed import ShedStep
from headrace.spark.shed_sums import ResultSums
from headrace.spark.shed_task import Divider
from headrace.spark.state.choices import Chosen
from headrace.spark.state.shards import deferred, queued
from headrace.spark.state.versions import open_at
from headrace.spark.steps import Batches, SparkTask, StateKeeping

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Waiting:
    """Which rows may wait, and the run log in which they do."""

    deferral: Deferral
    log: StateKeeping


@dataclass(frozen=True, kw_only=True)
class EnrichStep:
    """One `enrich`, as it travels to the executors."""

    id: str
    join: RelationJoin
    algorithm: Algorithm
    stream: pa.Schema
    """of the rows; where rows may wait, two columns follow: the shard, and whether it is a heartbeat"""
    version: int
    follow: bool
    """whether each micro-batch sees the latest version, and not `version`"""
    result: ResultColumns
    waiting: Waiting | None = None
    shed: ShedStep | None = None

    @property
    def remembers(self) -> StateKeeping | None:
        """The run log of rows that wait."""
        return None if self.waiting is None else self.waiting.log

    @property
    def worker_memory(self) -> int:
        """Bytes of its budget that one worker has."""
        return self.join.worker_memory + (0 if self.shed is None else self.shed.held)

    def with_relation(self, relation: Relation, *, follow: bool) -> EnrichStep:
        """The step with its relation as it is open."""
        join = replace(self.join, identity=relation.identity)
        return replace(self, join=join, version=relation.version, follow=follow)

    def recorded(self) -> RecordedJoin | None:
        """How `replay` repeats the step. A column that flags duplicates is not written down."""
        join = self.join
        if join.flag is not None:
            return None
        return RecordedJoin(
            path=join.path,
            on=join.on,
            how=join.how,
            algorithm=join.algorithm,
            order=join.order,
            memory=self.join.workers * self.worker_memory,
            columns=None if join.columns is None else list(join.columns),
            suffix=join.suffix,
            version_column=self.result.version_column,
            condition=None if join.condition is None else str(join.condition),
            unmatched=None if self.waiting is None else self.waiting.deferral.unmatched,
        )

    def run(self, batches: Batches, task: SparkTask) -> Batches:
        """The results of a task's rows."""
        clock = SystemClock()
        begun = clock.now()
        relation = worker.relation_at(self.join, self.version, self.follow, task)
        divider = self._divider(relation, task)
        if divider is not None:
            batches = divider.kept(batches)
        if self.waiting is None:
            batches = (batch.rename_columns(self.stream.names) for batch in batches)
        sums = None if divider is None or divider.step.estimate is None else ResultSums(divider.step.estimate)
        if sums is not None:
            batches = sums.numbered(batches)
        chosen, batches = choose_once(self.algorithm, self.id, self.join, relation, batches, task)
        stats, shared = JoinStats(), False
        if chosen is not None:  # otherwise there are no rows
            chosen, kept = self._operator(chosen, relation)
            with worker.in_use(kept, self.join) as opened:
                for out, version in self._results(opened, batches, task):
                    yield self.result.cast(out if sums is None else sums.added(out), version)
            stats, shared = opened.operator.stats, opened.member is not None
        seconds = clock.now() - begun
        _log.debug(
            "micro-batch %s, task %d: %d rows, %d results, %d hits, %d pages read in %.3fs",
            task.number,
            task.partition,
            stats.tuples_in,
            stats.results,
            stats.hits,
            stats.pages_read,
            seconds,
        )
        shed = None if divider is None else divider.done(seconds, sums)
        if task.reporter is None or not (stats.tuples_in or stats.deferred or stats.waiting or (shed and shed.shed)):
            return
        report = TaskReport(
            step=self.id,
            relation=self.join.path,
            version=relation.version,
            query=task.query,
            batch=task.number,
            partition=task.partition,
            # Workers that share their memory report all of it under the executor's name.
            executor=f"{executor_directory()}{'' if shared else f'/{os.getpid()}'}",
            seconds=seconds,
            stats=JoinStats() + stats,  # a copy: the operator goes on counting
            algorithm="" if chosen is None else chosen.algorithm,
            # Of the micro-batch this task knows its own rows; others have as many, and at least as many tasks as workers run.
            why=self.algorithm.why(chosen, stats.tuples_in * (task.partitions or self.join.workers)),
            shed=shed,
        )
        task.reporter.add([report])

    def _divider(self, relation: Relation, task: SparkTask) -> Divider | None:
        """Divides rows into those that are joined now and those that are put aside; None if all are joined."""
        if self.shed is None or task.finishing:
            return None
        joins = [step.recorded() for step in (self, *task.following)]
        return Divider(self.shed, self.stream.names, joins, relation, task, str(executor_directory()))

    def _operator(self, chosen: Chosen, relation: Relation) -> tuple[Chosen, OpenJoin]:
        """The operator of the chosen algorithm, and that algorithm."""
        try:
            return chosen, worker.operator_of(self.id, self.join, chosen.algorithm, relation)
        except MemoryRefused as error:
            if self.algorithm.chooser is None or chosen.algorithm == ADAPTIVE:
                raise
            # The relation has grown since the choice. All tasks of the micro-batch see the same version, and do the same.
            fallback = Chosen(ADAPTIVE, f"adaptive: {chosen.algorithm}, chosen at first, no longer fits: {error}")
            return fallback, worker.operator_of(self.id, self.join, ADAPTIVE, relation)

    def _results(self, opened: OpenJoin, batches: Batches, task: SparkTask) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Rows joined to their end or, where rows may wait, with what the run log holds; and the version of the relation."""
        waiting, version = self.waiting, opened.operator.relation.version
        if waiting is None:
            return ((out, version) for out in joined(opened, self.join, batches))
        if opened.member is not None:
            outs = deferred(waiting.deferral, waiting.log, self.stream, opened.member, batches, task)
            return ((out, version) for out in outs)
        return queued(waiting.deferral, waiting.log, self.stream, queue_of(opened), self._at_version, batches, task)

    @contextmanager
    def _at_version(self, version: int) -> Iterator[QueueingOperator]:
        """The same join with another version of the relation, as long as it is needed."""
        join = self.join
        relation = open_at(Path(join.path), join.identity, join.disk, version, None)
        try:
            yield queue_of(open_join(join, self.algorithm.default.algorithm, relation, executor_directory()))
        finally:
            relation.close()
