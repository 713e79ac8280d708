"""What a task reports of a step, and what the tasks of a micro-batch say together.

Reports travel to the driver through Spark's accumulators, and are lines of JSON in the log of a query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from headrace.metrics import JoinStats
from headrace.spark.shed_sums import missing


@dataclass(frozen=True, kw_only=True)
class ShedReport:
    """What one task shed before a join."""

    rows: int
    """rows that came"""
    shed: int
    """rows of them put aside"""
    debt: int
    """rows put aside in earlier micro-batches and not replayed when this one began"""
    results: float
    """results that all rows would give, as estimated"""
    results_kept: float
    """results that the rows give which were kept, as estimated"""
    noted: dict[str, Any] | None = None
    """what the results count for, where that is asked for; see `shed_sums.as_facts`"""


@dataclass(frozen=True, kw_only=True)
class TaskReport:
    """What one task did in one step."""

    step: str
    """id of the step"""
    relation: str
    """path of the relation; of a join of two streams, the name of its run log"""
    version: int
    """version of the relation; 0 where there is none"""
    query: str | None
    """id of the streaming query; None for a batch DataFrame"""
    batch: int
    """see Progress"""
    partition: int
    executor: str
    """names the memory that `stats` counts: tasks that share it give the same name"""
    seconds: float
    stats: JoinStats
    algorithm: str = ""
    why: str = ""
    shed: ShedReport | None = None

    def as_dict(self) -> dict[str, Any]:
        """For a line of JSON."""
        shed = {} if self.shed is None else {"shed": asdict(self.shed)}
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("stats", "shed")}
        return {**plain, "stats": self.stats.as_dict(), **shed}

    @classmethod
    def of(cls, line: dict[str, Any]) -> TaskReport:
        """From JSON. A log of an earlier release lacks the counters that were added since, and they stay at zero."""
        plain = {f.name: line[f.name] for f in fields(cls) if f.name in line and f.name not in ("stats", "shed")}
        counters = {f.name: line["stats"][f.name] for f in fields(JoinStats) if f.name in line["stats"]}
        shed = ShedReport(**line["shed"]) if line.get("shed") else None
        return cls(**plain, stats=JoinStats(**counters), shed=shed)


@dataclass(frozen=True, kw_only=True)
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
    missing: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    """what the rows put aside would have counted for and summed up to, with `hr.Shedding(estimate=...)`: estimate, low, high"""

    @property
    def rate(self) -> float:
        """Stream tuples a second."""
        return self.rows / self.seconds if self.seconds else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {**asdict(self), "stats": self.stats.as_dict(), "rate": self.rate}

    @classmethod
    def of(cls, tasks: Sequence[TaskReport]) -> Progress:
        """The sum of what the tasks of one micro-batch and one step report."""
        first = tasks[0]
        total = sum((task.stats for task in tasks[1:]), first.stats)
        # Workers of an executor may share its memory. Each reports all of it, so it counts once for each executor.
        executors = list({task.executor: task.stats for task in tasks}.values())
        memory: dict[str, int] = {}
        for stats in executors:
            for part, size in stats.memory.items():
                memory[part] = memory.get(part, 0) + size
        stats = JoinStats() + total  # a copy: the reports stay as they are
        stats.memory = memory
        stats.memory_limit = sum(s.memory_limit for s in executors)
        stats.memory_peak = sum(s.memory_peak for s in executors)
        stats.generations = sum(s.generations for s in executors)
        kept_share = results_share = 1.0
        shed = [task.shed for task in tasks if task.shed is not None]
        rows, gone = sum(s.rows for s in shed), sum(s.shed for s in shed)
        results = sum(s.results for s in shed)
        if rows:
            kept_share = 1 - gone / rows
        if results:
            results_share = sum(s.results_kept for s in shed) / results
        return cls(
            batch=first.batch,
            relation=first.relation,
            version=first.version,
            rows=stats.tuples_in,
            seconds=max(task.seconds for task in tasks),
            stats=stats,
            algorithm=first.algorithm,
            why=first.why,
            shed=gone,
            kept_share=kept_share,
            results_share=results_share,
            debt=max((s.debt for s in shed), default=0) + gone,
            missing={
                name: (one.estimate, one.low, one.high)
                for name, one in missing([s.noted for s in shed if s.noted is not None]).items()
            },
        )
