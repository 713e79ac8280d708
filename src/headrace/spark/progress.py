"""What enrichment did in each micro-batch: readable while the query runs, and kept in a small log.

Tasks report through Spark's accumulators. The driver keeps the last micro-batches of each query and appends every report to
`<state>/queries/<query>.jsonl`, where a console finds it; <state> is $HEADRACE_STATE, or else ~/.local/state/headrace.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from pyspark.accumulators import AccumulatorParam

from headrace.errors import BadInput
from headrace.metrics import JoinStats
from headrace.paths import state_directory
from headrace.spark.shed import report_of

_KEPT = 500  # micro-batches of a query in memory
_QUERIES = 50
_LOG = 1 << 20  # bytes of a log before it starts over; the one before is kept

Report = dict[str, Any]


@dataclass(frozen=True)
class Progress:
    """One relation's part in one micro-batch, all its tasks together."""

    batch: int
    """the micro-batch; of a batch job, Spark's number of the execution; below 0 for hr.finish"""
    relation: str
    """path of the relation"""
    version: int
    """version of the relation that it was joined with"""
    rows: int
    """stream tuples taken in"""
    seconds: float
    """time of the longest task"""
    stats: JoinStats
    """counters; `memory` is that of all executors together, by part"""
    algorithm: str = ""
    """the algorithm that joined it"""
    why: str = ""
    """why that one, where algorithm="auto" chose it"""
    shed: int = 0
    """rows put aside, to be replayed; they are not among `rows`"""
    kept_share: float = 1.0
    """the share of the rows that was kept"""
    results_share: float = 1.0
    """the share of the results that was kept, as estimated from the relation's statistics"""
    debt: int = 0
    """rows put aside in this and all earlier micro-batches, and not replayed when this one began"""

    @property
    def rate(self) -> float:
        """Stream tuples a second."""
        return self.rows / self.seconds if self.seconds else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {**asdict(self), "stats": self.stats.as_dict(), "rate": self.rate}


class Journal:
    """Reports of tasks, by query."""

    def __init__(self, directory: Path | None) -> None:
        self.directory = directory
        self._lock = threading.Lock()
        self._reports: dict[str, dict[tuple[int, str], dict[int, Report]]] = {}

    def take(self, reports: Iterable[Report]) -> None:
        """Note what tasks reported. A task that ran twice counts once."""
        for report in reports:
            with self._lock:
                for name in {report["query"] or report["step"], report["step"]}:
                    batches = self._reports.setdefault(name, {})
                    batches.setdefault((report["batch"], report["step"]), {})[report["partition"]] = report
                    while len(batches) > _KEPT:
                        del batches[next(iter(batches))]
                while len(self._reports) > _QUERIES:
                    del self._reports[next(iter(self._reports))]
            if self.directory is not None and report["query"]:
                with suppress(OSError):  # a log that cannot be written must not stop the stream
                    _append(self.directory / f"{report['query']}.jsonl", report)

    def progress(self, name: str) -> list[Progress]:
        """Micro-batches of a query, or of one step, oldest first."""
        with self._lock:
            batches = [list(parts.values()) for parts in self._reports.get(name, {}).values()]
        return [_sum(parts) for parts in batches]


def progress(query: Any) -> list[Progress]:
    """What enrichment did in each micro-batch so far, oldest first.

    The last one may be under way: it sums up the tasks that have ended.

    Parameters
    ----------
    query
        A StreamingQuery, or its id; or a batch DataFrame that `enrich` gave.
    """
    plan = getattr(query, "_headrace_plan", None)
    if plan is not None:
        return [p for step in plan.steps for journal in _journals.values() for p in journal.progress(step.id)]
    name = query if isinstance(query, str) else getattr(query, "id", None)
    if name is None:
        raise BadInput(f"query={query!r} is neither a streaming query nor a DataFrame that hr.enrich gave")
    if Path(str(name)).name != str(name) or not str(name).strip("."):  # it becomes the name of a file
        raise BadInput(f"query={query!r} is not the id of a query; give query.id")
    found = [p for journal in _journals.values() for p in journal.progress(str(name))]
    return found or list(read_log(log_directory() / f"{name}.jsonl"))


def log_directory() -> Path:
    """Where logs of queries are kept."""
    return state_directory() / "queries"


def read_log(path: Path) -> Iterator[Progress]:
    """The micro-batches in a log; what a crash left of a last line is passed over."""
    batches: dict[tuple[int, str], dict[int, Report]] = {}
    for file in (path.with_suffix(".1.jsonl"), path):
        with suppress(FileNotFoundError):
            for line in file.read_text(errors="replace").splitlines():
                with suppress(ValueError, KeyError, TypeError):
                    report = json.loads(line)
                    batches.setdefault((report["batch"], report["step"]), {})[report["partition"]] = report
    return (_sum(list(parts.values())) for parts in batches.values())


def _append(path: Path, report: Report) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        if path.stat().st_size > _LOG:
            path.replace(path.with_suffix(".1.jsonl"))
    with path.open("a") as file:
        # A line of its own even after what a crash left of the last one.
        file.write("\n" + json.dumps(report) + "\n")


def _sum(parts: list[Report]) -> Progress:
    # A log of an earlier release lacks what is counted since.
    counters = [{f.name: p["stats"][f.name] for f in fields(JoinStats) if f.name in p["stats"]} for p in parts]
    total = sum((JoinStats(**c) for c in counters[1:]), JoinStats(**counters[0]))
    # Where the workers of an executor share its memory, what each of them says is the executor's.
    executors = {p["executor"]: p["stats"] for p in parts}
    total.memory = {}
    for stats in executors.values():
        for part, size in stats["memory"].items():
            total.memory[part] = total.memory.get(part, 0) + size
    total.memory_limit = sum(s["memory_limit"] for s in executors.values())
    total.memory_peak = sum(s["memory_peak"] for s in executors.values())
    total.generations = sum(s["generations"] for s in executors.values())
    first = parts[0]
    return Progress(
        first["batch"],
        first["relation"],
        first["version"],
        total.tuples_in,
        max(p["seconds"] for p in parts),
        total,
        first.get("algorithm", ""),
        first.get("why", ""),
        **report_of(parts),
    )


# -- from tasks to the driver ------------------------------------------------------------------------------------------


class _Reports(AccumulatorParam):  # type: ignore[misc]
    """On executors a list of reports; on the driver the journal that takes them in."""

    def zero(self, value: Any) -> list[Report]:
        return []

    def addInPlace(self, into: Any, reports: list[Report]) -> Any:
        if isinstance(into, Journal):
            into.take(reports)
        else:
            into.extend(reports)
        return into


_journals: dict[str, Journal] = {}
_reporters: dict[str, Any] = {}


def reporter(session: Any) -> Any:
    """What tasks of this application report to."""
    context = session.sparkContext
    name = str(context.applicationId)
    if name not in _reporters:
        _journals[name] = Journal(log_directory())
        _reporters[name] = context.accumulator(_journals[name], _Reports())
    return _reporters[name]
