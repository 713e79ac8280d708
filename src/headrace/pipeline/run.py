"""The run of a pipeline: starts its query, reports its status, and stops it between two micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.clock import Clock
from headrace.errors import HeadraceError, OutsideFailure
from headrace.files import locked, make_directory
from headrace.metrics import JoinStats
from headrace.pipeline.dead_letters import count, last_done, settle
from headrace.pipeline.failures import found_damage, words_of
from headrace.pipeline.models import Pipeline
from headrace.pipeline.noting import refuse
from headrace.signals import GracefulStop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

_POLL = 0.2  # seconds between looks at the query: often enough for a display
_POLL_CLOSELY = 0.02  # seconds between looks while a micro-batch is about to end

Show = Callable[[list[str], list[list[Any]]], None]


class RunFailed(OutsideFailure):
    """A running pipeline failed. What is loaded stays loaded, and the next run continues from there."""

    damaged: bool = False
    """whether it failed because a relation is damaged"""


@dataclass(frozen=True)
class PipelineStatus:
    """The progress of a run."""

    name: str
    _: KW_ONLY
    batches: int = 0
    """micro-batches of this run that had rows"""
    batch: int = -1
    """number of the last micro-batch"""
    rows: int = 0
    """rows read from the source in this run"""
    rate: float = 0.0
    """rows per second of the last micro-batch"""
    seconds: float = 0.0
    """seconds of the last micro-batch"""
    dead: int = 0
    """dead letters of all runs"""
    waiting: int = 0
    """rows that wait for their deadline or for a match"""
    shed: int = 0
    """rows that were shed in this run"""
    joins: dict[str, JoinStats] = field(default_factory=dict)
    """counters of the joins, by relation"""


@dataclass(frozen=True)
class PipelineResult:
    """The result of a run."""

    status: PipelineStatus
    stopped: bool
    """whether a stop was requested before the end of the source"""
    seconds: float
    """how long the run took, from the start of its query to its end"""

    @property
    def rate(self) -> float:
        """Rows per second of the run, where `status.rate` is of its last micro-batch."""
        return self.status.rows / self.seconds if self.seconds > 0 else 0.0


Watch = Callable[[PipelineStatus], None]


def run(
    pipeline: Pipeline,
    spark: SparkSession,
    *,
    once: bool,
    watch: Watch,
    clock: Clock,
    stopping: GracefulStop,
    show: Show | None = None,
) -> PipelineResult:
    """Run until the source has no more (`once`), a stop is requested, or the query fails.

    Args:
        pipeline: the pipeline to run.
        spark: the session to run it on.
        once: whether to end when all data that are available now have been read.
        watch: called with the status several times a second.
        clock: times the calls of `watch`.
        stopping: checked between them.
        show: called with the rows of a console sink.
    """
    from headrace.pipeline.build import start
    from headrace.spark.finish import finish_deadlines

    with _alone(pipeline), _failing(pipeline):
        begun = clock.now()
        query = start(pipeline, spark, once=once, show=show)
        meter = _Meter(pipeline, query)
        try:
            stopped = _follow(query, meter, watch, clock, stopping)
        finally:
            if query.isActive:
                query.stop()
            # A micro-batch that started while the query was stopped is repeated by the next run, with its dead letters.
            settle(pipeline.dead_letters, last_done(pipeline.checkpoint), begin=True)
        failure = query.exception()
        if failure is not None:
            raise _failed(failure, pipeline)
        if once and not stopped:
            finish_deadlines(query)
        status = meter.status()
        watch(status)
        # The clock may have been set back during the run; a duration is not negative.
        return PipelineResult(status, stopped, max(0.0, clock.now() - begun))


@contextmanager
def _failing(pipeline: Pipeline) -> Iterator[None]:
    """Turn errors of Spark and of other libraries into `RunFailed`, in words and without secrets."""
    try:
        yield
    except HeadraceError:
        raise
    except Exception as error:
        raise _failed(error, pipeline) from error


def _failed(failure: Exception, pipeline: Pipeline) -> RunFailed:
    failed = RunFailed(words_of(failure, pipeline))
    failed.damaged = found_damage(failure)
    return failed


def _follow(query: StreamingQuery, meter: _Meter, watch: Watch, clock: Clock, stopping: GracefulStop) -> bool:
    """Follow the query until it has ended; returns whether a stop was requested."""
    while query.isActive:
        watch(meter.status())
        if stopping.requested:
            _finish(query, clock)
            return True
        clock.sleep(_POLL)
    return False


def _finish(query: StreamingQuery, clock: Clock) -> None:
    """Let the current micro-batch end, and stop the query. A micro-batch that starts just then is left to the next run."""
    before = query.lastProgress
    while query.isActive and query.status["isTriggerActive"] and query.lastProgress == before:
        clock.sleep(_POLL_CLOSELY)
    query.stop()


class _Meter:
    """Adds up the reports of Spark and of the joins."""

    def __init__(self, pipeline: Pipeline, query: StreamingQuery) -> None:
        self.pipeline = pipeline
        self.query = query
        self._batches: dict[int, tuple[int, float]] = {}  # rows and seconds of each
        self._dead: tuple[int, int] = (
            -1,
            0,
        )  # number of micro-batches at the last count of dead letters, and that count

    def status(self) -> PipelineStatus:
        from headrace.spark.progress import progress

        for report in self.query.recentProgress:
            rows = int(report["numInputRows"])
            if rows:
                seconds = report["durationMs"].get("triggerExecution", 0) / 1000
                self._batches[int(report["batchId"])] = rows, seconds
        if self._dead[0] != len(self._batches):
            self._dead = len(self._batches), count(self.pipeline.dead_letters)
        joins: dict[str, JoinStats] = {}
        waiting, shed = {}, 0
        for entry in progress(self.query):
            if entry.batch not in self._batches and entry.batch >= 0:  # from the log of an earlier run
                continue
            name, now = Path(entry.relation).name, entry.stats
            total = joins[name] + now if name in joins else now
            # memory, waiting rows and warnings are current values; the other counters add up
            joins[name] = replace(
                total,
                memory=now.memory,
                memory_limit=now.memory_limit,
                memory_peak=now.memory_peak,
                waiting=now.waiting,
                warnings=now.warnings,
            )
            waiting[name], shed = now.waiting, shed + entry.shed
        batch = max(self._batches, default=-1)
        rows, seconds = self._batches.get(batch, (0, 0.0))
        return PipelineStatus(
            self.pipeline.name,
            batches=len(self._batches),
            batch=batch,
            rows=sum(r for r, _ in self._batches.values()),
            rate=rows / seconds if seconds > 0 else 0.0,
            seconds=seconds,
            dead=self._dead[1],
            waiting=sum(waiting.values()),
            shed=shed,
            joins=joins,
        )


@contextmanager
def _alone(pipeline: Pipeline) -> Iterator[None]:
    """Lock the state directory, since two runs with one checkpoint would overwrite each other's progress."""
    make_directory(pipeline.state, parents=True)
    with locked(pipeline.state / "lock") as alone:
        if not alone:
            raise refuse(
                pipeline.document,
                ("state",),
                f"another run uses {pipeline.state}; stop it first, or give another state",
            )
        yield
