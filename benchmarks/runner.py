"""Runs cells one after the other, each in a process of its own, and stores what they saw."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import isolation, machine
from benchmarks.cell import Cell, Task
from benchmarks.create import SYSTEMS as CREATE_SYSTEMS
from benchmarks.data import ROW_BYTES, Dataset
from benchmarks.feeds import SECTION as FEEDS
from benchmarks.feeds.plan import FeedsPlan
from benchmarks.feeds.plan import measure as measure_feeds
from benchmarks.measure import TINY_ROWS
from benchmarks.progressive import SECTION as PROGRESSIVE
from benchmarks.progressive.plan import ProgressivePlan
from benchmarks.progressive.plan import measure as measure_join
from benchmarks.sampling import SECTION as SAMPLING
from benchmarks.sampling.plan import SamplingPlan
from benchmarks.sampling.plan import measure as measure_sampling
from benchmarks.service import SECTION as SERVICE
from benchmarks.service.plan import Place, ServicePlan, measure
from benchmarks.spark import BEYOND
from benchmarks.spark import OURS as SPARK_OURS
from benchmarks.spark import SECTIONS as SPARK_SECTIONS
from benchmarks.spark.beyond import BUDGET as BEYOND_BUDGET
from benchmarks.spark.beyond import STORES as BEYOND_STORES
from benchmarks.spark.beyond import STORES_WARMUP as BEYOND_WARMUP
from benchmarks.spark.beyond import BeyondPlan
from benchmarks.spark.plan import SparkPlan
from benchmarks.spark.source import stream_directory
from benchmarks.streams import Workload, stream_file
from benchmarks.systems import IN_MEMORY, LOOKUP, OURS
from benchmarks.xml import SECTION as XML
from benchmarks.xml.plan import XmlPlan
from benchmarks.xml.plan import measure as measure_xml
from headrace.cli.pace import Pace

SEED = 7
#: What the limit grants every process beside its base and its budget: working memory of the
#: adapter, the same for all. What a process does not use of it serves as page cache.
ALLOWANCE = 16 << 20
ALLOWANCE_PER_BATCH_ROW = 64
_PATIENCE = 240.0  # seconds beyond a cell's own time: opening, loading, verifying
_SPARK_PATIENCE = 600.0  # for each stream of a Spark process, and for what comes before


class RunFailed(Exception):
    """A system gave wrong results or a process broke: the run is worth nothing."""


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """What to run."""

    sections: tuple[str, ...]
    rows: tuple[int, ...]
    batches: tuple[int, ...]
    budgets: tuple[float, ...]
    workloads: tuple[Workload, ...]
    systems: tuple[str, ...]
    seconds: float
    warmup: float
    repeats: int
    root: Path
    core: int
    service: ServicePlan
    progressive: ProgressivePlan
    sampling: SamplingPlan
    xml: XmlPlan
    feeds: FeedsPlan
    spark: SparkPlan
    beyond: BeyondPlan

    def cells(self, method: isolation.Method) -> Iterator[Cell]:
        for rows in self.rows:
            data = Dataset(rows, SEED, self.root)
            base = self._base(data, method)
            if "lookup" in self.sections:
                yield from self._lookups(base, self.budgets, self.batches, self.workloads, self._chosen(LOOKUP))
            if "memory" in self.sections:
                for workload in [w for w in self.workloads if w in ("zipf", "uniform")]:
                    for batch in self.batches:
                        for system in self._chosen(IN_MEMORY):
                            yield replace(
                                base,
                                section="memory",
                                system=system,
                                workload=workload,
                                batch=batch,
                                method="none",
                                memory=3 * data.bytes,
                            )
            if "create" in self.sections:
                for _ in range(self.repeats):
                    for system in self._chosen(dict.fromkeys(CREATE_SYSTEMS)):
                        yield replace(base, section="create", system=system, core=None, method="none")
        if "spark" in self.sections:
            yield from self.spark.cells(SEED, self.root)
        if BEYOND in self.sections:
            yield from self.beyond.cells(SEED, self.root, method)
            # Stores have no Spark around them, so that all of the memory is theirs; so it is with the join beside them.
            beside = [name for name in self._chosen(LOOKUP) if name in (OURS, *BEYOND_STORES)]
            for rows in self.beyond.rows if len(beside) > 1 else ():
                data = Dataset(rows, SEED, self.root)
                base = replace(self._base(data, method), seconds=self.beyond.seconds, warmup=BEYOND_WARMUP)
                yield from self._lookups(base, (BEYOND_BUDGET,), self.beyond.batches, self.beyond.workloads, beside)

    def _base(self, data: Dataset, method: isolation.Method) -> Cell:
        return Cell(
            section="",
            system="",
            rows=data.rows,
            seed=SEED,
            root=str(self.root),
            seconds=self.seconds,
            warmup=self.warmup,
            core=self.core,
            method=method,
        )

    def _lookups(
        self,
        base: Cell,
        budgets: tuple[float, ...],
        batches: tuple[int, ...],
        workloads: tuple[Workload, ...],
        systems: list[str],
    ) -> Iterator[Cell]:
        """Joins without Spark, each in a process of its own that has a core, and a memory limit for its page cache too."""
        size = Dataset(base.rows, SEED, self.root).bytes
        for workload, batch, budget, system in product(workloads, batches, budgets, systems):
            yield replace(
                base,
                section="lookup",
                system=system,
                workload=workload,
                batch=batch,
                budget=budget,
                memory=int(size * budget),
                allowance=ALLOWANCE + ALLOWANCE_PER_BATCH_ROW * batch,
            )

    def _chosen(self, known: dict[str, Any]) -> list[str]:
        return [s for s in known if not self.systems or s in self.systems]


@dataclass
class Runner:
    """Prepares data and systems as cells need them, and measures."""

    plan: RunPlan
    console: Console
    _ready: dict[tuple[str, int], str | None] = field(default_factory=dict)
    _unfit: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)

    def run(self, keep: Callable[[dict[str, Any]], object] = lambda raw: None) -> dict[str, Any]:
        """Measure every cell. `keep` is given what there is after each: a run that is cut short leaves the rest."""
        plan = self.plan
        plan.root.mkdir(parents=True, exist_ok=True)
        method = isolation.available()
        if set(plan.sections) - {"spark", SERVICE, PROGRESSIVE, SAMPLING, XML, FEEDS}:
            self.console.print(f"Page cache: {isolation.DESCRIPTION[method]}", highlight=False)
        started = datetime.now().astimezone()
        results: dict[str, Any] = {
            "date": started.isoformat(timespec="seconds"),
            "command": shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]]),
            "machine": machine.describe(plan.root),
            "isolation": {
                "method": method,
                "description": isolation.DESCRIPTION[method],
                "allowance": ALLOWANCE,
                "allowance_per_batch_row": ALLOWANCE_PER_BATCH_ROW,
            },
            "parameters": {**asdict(plan), "root": None, "seed": SEED, "row_bytes": ROW_BYTES},
            "settings": {},
            "cells": [],
        }
        cells = list(plan.cells(method))
        joins = list(plan.progressive.joins()) if PROGRESSIVE in plan.sections else []
        samplings = list(plan.sampling.all()) if SAMPLING in plan.sections else []
        documents = list(plan.xml.all()) if XML in plan.sections else []
        feeds = list(plan.feeds.all()) if FEEDS in plan.sections else []
        places = list(plan.service.places()) if SERVICE in plan.sections else []
        total = sum(map(len, (cells, joins, samplings, documents, feeds, places)))
        pace = Pace(total, "cells")
        with self._progress() as progress:
            task = progress.add_task("", total=total)

            def finished(title: str) -> None:
                keep(results)
                progress.advance(task)
                pace.done(title)

            for cell in cells:
                progress.update(task, description=_title(cell))
                if cell.section in SPARK_SECTIONS:
                    results["cells"] += self._measure_spark(cell, results["settings"])
                else:
                    error = self._prepare(cell, results["settings"])
                    raw = {"error": error, "left_out": True} if error else self._measure(cell)
                    results["cells"].append({**_public(cell), **raw})
                finished(_title(cell))
            for join in joins:
                progress.update(task, description=join.title)
                results["cells"].append(measure_join(join))
                finished(join.title)
            for sampling in samplings:
                progress.update(task, description=sampling.title)
                results["cells"].append(measure_sampling(sampling))
                finished(sampling.title)
            for document in documents:
                progress.update(task, description=document.title)
                results["cells"].append(measure_xml(document))
                finished(document.title)
            for feed in feeds:
                progress.update(task, description=feed.title)
                results["cells"].append(measure_feeds(feed))
                finished(feed.title)
            # Side by side: time is simulated, and what else the machine does is not in it.
            with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
                measured = pool.map(measure, places, [plan.root] * len(places))
                for place, raw_cells in zip(places, measured, strict=True):
                    progress.update(task, description=_service_title(place))
                    results["cells"] += raw_cells
                    finished(_service_title(place))
        return results

    def _measure(self, cell: Cell) -> dict[str, Any]:
        if cell.section == "create":
            return self._spawn("create", cell)
        return self._spawn("measure", cell)

    def _measure_spark(self, cell: Cell, settings: dict[str, Any]) -> list[dict[str, Any]]:
        """One process, one raw result for each stream that it went through."""
        data = Dataset(cell.rows, cell.seed, self.plan.root)
        for d in (Dataset(TINY_ROWS, cell.seed, self.plan.root), data):
            d.write()
        for workload, batch in cell.parts:
            stream_directory(data, workload, batch, int(cell.warmup))  # type: ignore[arg-type]
        key = (cell.system, cell.rows)
        failed = self._unfit.get(key)
        raw: dict[str, Any] = {}
        if not failed:
            try:
                raw = self._spawn("spark", cell, patience=_SPARK_PATIENCE * (1 + len(cell.parts)))
            except RunFailed as failure:
                if "WrongResult" in str(failure):
                    raise
                raw = {"error": str(failure)}  # a JVM that breaks is not worth the run
        for name, words in raw.get("settings", {}).items():
            settings[f"{name} on Spark" if name == SPARK_OURS else name] = words
        parts = raw.get("parts") or [dict(failed or raw) for _ in cell.parts]
        for part in parts:
            if part.get("does_not_fit"):
                self._unfit[key] = {"error": part["error"], "does_not_fit": True}
            elif part["error"]:
                part["left_out"] = True
        return [
            {**_public(replace(cell, workload=workload, batch=batch)), **part}
            for (workload, batch), part in zip(cell.parts, parts, strict=True)
        ]

    def _prepare(self, cell: Cell, settings: dict[str, Any]) -> str | None:
        """Write data, build and verify a system once. A system that cannot be built is an error."""
        data = Dataset(cell.rows, cell.seed, self.plan.root)
        for d in (Dataset(TINY_ROWS, cell.seed, self.plan.root), data):
            d.write()
        if cell.section == "create":
            return None
        stream_file(data, cell.workload)  # type: ignore[arg-type]
        key = (cell.system, cell.rows)
        if key not in self._ready:
            free = replace(cell, core=None, method="none", memory=max(cell.memory, data.bytes // 5))
            try:
                for rows in (TINY_ROWS, cell.rows):
                    self._spawn("build", replace(free, rows=rows), patience=3600)
                settings[cell.system] = self._spawn("verify", free)["settings"]
                self._ready[key] = None
            except RunFailed as failure:
                if "WrongResult" in str(failure):
                    raise
                self._ready[key] = str(failure)
                self.console.print(f"[red]{cell.system} left out:[/] {failure}", highlight=False)
        return self._ready[key]

    def _spawn(self, task: Task, cell: Cell, patience: float = _PATIENCE) -> dict[str, Any]:
        environment = {**os.environ}
        if cell.core is not None:
            environment["POLARS_MAX_THREADS"] = "1"
        limited = cell.method == "cgroup" and (task == "measure" or (task == "spark" and cell.limit > 0))
        with tempfile.TemporaryDirectory() as scratch, _group(limited) as group:
            if group is not None:
                cell = replace(cell, group=str(group.path), group_version=group.version)
            spec, result = Path(scratch, "spec.json"), Path(scratch, "result.json")
            spec.write_text(json.dumps(asdict(cell)))
            command = [sys.executable, "-m", "benchmarks.cell", task, str(spec), str(result)]
            try:
                done = subprocess.run(
                    command,
                    cwd=Path(__file__).parent.parent,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=cell.seconds + cell.warmup + patience,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return {"error": "timed out"}
            if result.exists():
                out: dict[str, Any] = json.loads(result.read_text())
                return out
            if group is not None and group.was_killed():
                return {"error": "out of memory: killed at the cgroup's limit"}
            last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            raise RunFailed(f"{task} of {_title(cell)}: {last}")

    def _progress(self) -> Progress:
        return Progress(
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=self.console,
            transient=True,
        )


@contextmanager
def _group(wanted: bool) -> Iterator[isolation.ControlGroup | None]:
    group = isolation.make_group(str(os.getpid())) if wanted else None
    try:
        yield group
    finally:
        if group is not None:
            group.remove()


_PRIVATE = ("root", "group", "group_version", "parts")


def _public(cell: Cell) -> dict[str, Any]:
    """A cell without what is only of this machine."""
    return {k: v for k, v in asdict(cell).items() if k not in _PRIVATE}


def _service_title(place: Place) -> str:
    hot = f"exponent {place.exponent:g}, {place.order}"
    return " · ".join([SERVICE, place.machine, f"{place.rows:,} rows", hot, f"{place.budget:.0%}"])


def _title(cell: Cell) -> str:
    parts = [cell.section, cell.system, f"{cell.rows:,} rows"]
    if len(cell.parts) > 1:
        parts.append(f"{len(cell.parts)} streams")
    elif cell.section != "create":
        parts += [cell.workload, f"batch {cell.batch:,}"]
    if cell.budget is not None:
        parts.append(f"{cell.budget:.0%}")
    return " · ".join(parts)
