"""The driver's journal of what tasks reported, by query, and the logs in which it is kept.

Tasks report through a Spark accumulator. The driver keeps the last micro-batches of each query and appends every report to
`<state>/queries/<query>.jsonl`, where a console finds it; <state> is $HEADRACE_STATE, or else ~/.local/state/headrace.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.accumulators import AccumulatorParam

from headrace import files
from headrace.files.checked_json import dump_checked, parse_checked
from headrace.paths import state_directory
from headrace.spark.reports import Progress, TaskReport

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import SparkSession

_KEPT = 500  # micro-batches of a query in memory: a console shows some hundred
_QUERIES = 50  # queries in memory; the one that reported first goes
_LOG = 1 << 20  # bytes of a log before it starts over, some thousand reports; the one before is kept

Batches = dict[tuple[int, str], dict[int, TaskReport]]  # by micro-batch and step, then by partition


class Journal:
    """Reports of tasks, by query.

    Parameters
    ----------
    directory
        Where logs are written; None for no logs.
    """

    def __init__(self, directory: Path | None) -> None:
        self.directory = directory
        self._lock = threading.Lock()
        self._reports: dict[str, Batches] = {}

    def take(self, reports: Iterable[TaskReport]) -> None:
        """Note what tasks reported. A task that ran twice counts once."""
        for report in reports:
            with self._lock:
                for name in {report.query or report.step, report.step}:
                    batches = self._reports.setdefault(name, {})
                    batches.setdefault((report.batch, report.step), {})[report.partition] = report
                    while len(batches) > _KEPT:
                        del batches[next(iter(batches))]
                while len(self._reports) > _QUERIES:
                    del self._reports[next(iter(self._reports))]
            if self.directory is not None and report.query:
                with suppress(OSError):  # a log that cannot be written must not stop the stream
                    _append(self.directory / f"{report.query}.jsonl", report)

    def progress(self, name: str) -> list[Progress]:
        """Micro-batches of a query, or of one step, oldest first."""
        with self._lock:
            batches = [list(tasks.values()) for tasks in self._reports.get(name, {}).values()]
        return [Progress.of(tasks) for tasks in batches]


def log_directory() -> Path:
    """Where logs of queries are kept."""
    return state_directory() / "queries"


def read_log(path: Path) -> Iterator[Progress]:
    """The micro-batches in a log. What is no whole line is passed over: one that a crash cut short, or that is damaged."""
    batches: Batches = {}
    for file in (path.with_suffix(".1.jsonl"), path):
        with suppress(OSError, files.TooLarge):  # it is not there, or something else is: there is nothing to show
            for line in files.read_regular(file, most=2 * _LOG).splitlines():
                with suppress(ValueError, KeyError, TypeError):
                    report = TaskReport.of(parse_checked(line))
                    if report.query != path.stem:
                        continue  # a line of another query's log
                    batches.setdefault((report.batch, report.step), {})[report.partition] = report
    return (Progress.of(list(tasks.values())) for tasks in batches.values())


def _append(path: Path, report: TaskReport) -> None:
    files.make_directory(path.parent, parents=True)
    found = files.status(path)
    if found is not None and found.st_size > _LOG:
        files.replace(path, path.with_suffix(".1.jsonl"))
    # The line before may have been cut short by a crash; this one begins on a line of its own.
    files.append(path, b"\n%s\n" % dump_checked(report.as_dict()))


# -- from tasks to the driver ------------------------------------------------------------------------------------------


class _Reports(AccumulatorParam):  # type: ignore[misc]
    """On executors a list of reports; on the driver the journal that takes them in."""

    def zero(self, value: Any) -> list[TaskReport]:
        return []

    def addInPlace(self, into: Any, reports: list[TaskReport]) -> Any:
        if isinstance(into, Journal):
            into.take(reports)
        else:
            into.extend(reports)
        return into


_journals: dict[str, Journal] = {}  # by Spark's id of the application
_reporters: dict[str, Accumulator] = {}


def reporter(session: SparkSession) -> Accumulator:
    """The accumulator that tasks of this application report to."""
    context = session.sparkContext
    name = str(context.applicationId)
    if name not in _reporters:
        _journals[name] = Journal(log_directory())
        _reporters[name] = context.accumulator(_journals[name], _Reports())
    return _reporters[name]


def reported(name: str) -> list[Progress]:
    """Micro-batches of a query or of a step that the applications of this driver reported, oldest first."""
    return [entry for journal in _journals.values() for entry in journal.progress(name)]
