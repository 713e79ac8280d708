"""Run a pipeline: start its query, tell how it stands, and stop it between two micro-batches."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.clock import Clock
from headrace.errors import HeadraceError
from headrace.metrics import JoinStats
from headrace.pipeline.check import refuse
from headrace.pipeline.dead_letters import count, last_done, settle
from headrace.pipeline.failures import words_of
from headrace.pipeline.models import Pipeline
from headrace.signals import Stopping

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

_LOOK = 0.2  # seconds between looks at the query
_LOOK_CLOSELY = 0.02  # while waiting for a micro-batch to end

Show = Callable[[list[str], list[list[Any]]], None]


class RunFailed(HeadraceError):
    """A pipeline that was running and gave up. What is loaded stays loaded, and another run goes on from there."""


@dataclass(frozen=True)
class Moment:
    """How a run stands."""

    name: str
    batches: int = 0
    """micro-batches with rows, in this run"""
    batch: int = -1
    """the last of them"""
    rows: int = 0
    """rows taken from the source, in this run"""
    rate: float = 0.0
    """rows a second of the last micro-batch"""
    seconds: float = 0.0
    """what it took"""
    dead: int = 0
    """dead letters, of all runs"""
    waiting: int = 0
    """rows that wait for their deadline or for a match"""
    shed: int = 0
    """rows put aside by shedding, in this run"""
    joins: dict[str, JoinStats] = field(default_factory=dict)
    """what the joins did, by relation"""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    moment: Moment
    stopped: bool
    """whether somebody asked it to stop, and not the end of the source"""
    seconds: float


Watch = Callable[[Moment], None]


def run(
    pipeline: Pipeline,
    spark: SparkSession,
    *,
    once: bool,
    watch: Watch,
    clock: Clock,
    stopping: Stopping,
    show: Show | None = None,
) -> Outcome:
    """Run until the source has no more (`once`), somebody asks to stop, or it fails.

    Args:
        pipeline: what to run.
        spark: where.
        once: whether to end when all that is there now has been taken.
        watch: told how it stands, several times a second.
        clock: times the looks.
        stopping: looked at between them.
        show: takes the rows of a console sink.
    """
    from headrace.pipeline.build import start
    from headrace.spark.finish import finish_deadlines

    with _alone(pipeline):
        begun = clock.now()
        query = start(pipeline, spark, once=once, show=show)
        meter = _Meter(pipeline, query)
        try:
            stopped = _follow(query, meter, watch, clock, stopping)
        finally:
            if query.isActive:
                query.stop()
            # A micro-batch that began as it was stopped is repeated by the next run, and so are its dead letters.
            settle(pipeline.dead_letters, last_done(pipeline.checkpoint), begin=True)
        failure = query.exception()
        if failure is not None:
            raise RunFailed(words_of(failure, pipeline))
        if once and not stopped:
            finish_deadlines(query)
        moment = meter.moment()
        watch(moment)
        # A clock that was set back while it ran must not make a run of less than no time.
        return Outcome(moment, stopped, max(0.0, clock.now() - begun))


def _follow(query: StreamingQuery, meter: _Meter, watch: Watch, clock: Clock, stopping: Stopping) -> bool:
    """Return when the query has ended (False), or was asked to stop and did (True)."""
    while query.isActive:
        watch(meter.moment())
        if stopping.wished:
            _finish(query, clock)
            return True
        clock.sleep(_LOOK)
    return False


def _finish(query: StreamingQuery, clock: Clock) -> None:
    """Let the micro-batch under way come to its end, and stop. One that begins at that very moment is left to the next run."""
    before = query.lastProgress
    while query.isActive and query.status["isTriggerActive"] and query.lastProgress == before:
        clock.sleep(_LOOK_CLOSELY)
    query.stop()


class _Meter:
    """Adds up what Spark and the joins report."""

    def __init__(self, pipeline: Pipeline, query: StreamingQuery) -> None:
        self.pipeline = pipeline
        self.query = query
        self._batches: dict[int, tuple[int, float]] = {}  # rows and seconds of each
        self._dead: tuple[int, int] = (-1, 0)  # micro-batches when dead letters were last counted, and how many

    def moment(self) -> Moment:
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
            if entry.batch not in self._batches and entry.batch >= 0:  # of an earlier run, out of its log
                continue
            name, now = Path(entry.relation).name, entry.stats
            total = joins[name] + now if name in joins else now
            # what is held and what waits are of now; the rest adds up
            joins[name] = replace(
                total,
                memory=now.memory,
                memory_limit=now.memory_limit,
                memory_peak=now.memory_peak,
                waiting=now.waiting,
            )
            waiting[name], shed = now.waiting, shed + entry.shed
        batch = max(self._batches, default=-1)
        rows, seconds = self._batches.get(batch, (0, 0.0))
        return Moment(
            self.pipeline.name,
            len(self._batches),
            batch,
            sum(r for r, _ in self._batches.values()),
            rows / seconds if seconds > 0 else 0.0,
            seconds,
            self._dead[1],
            sum(waiting.values()),
            shed,
            joins,
        )


@contextmanager
def _alone(pipeline: Pipeline) -> Iterator[None]:
    """Two runs with one checkpoint would each undo what the other notes."""
    pipeline.state.mkdir(parents=True, exist_ok=True)
    fd = os.open(pipeline.state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise refuse(
                pipeline.document,
                ("state",),
                f"another run uses {pipeline.state}; stop it first, or give another state",
            ) from None
        yield
    finally:
        os.close(fd)
