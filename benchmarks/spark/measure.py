"""One process of the Spark section, measured: a system and a relation, and the streams it goes through."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import psutil
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from benchmarks import isolation, verify
from benchmarks.cell import Cell
from benchmarks.data import Dataset
from benchmarks.measure import TINY_ROWS
from benchmarks.spark import LIMITS, LOAD, beyond, load, memory, source
from benchmarks.spark.session import HEAP, describe, session
from benchmarks.spark.sinks import Noop, ParquetSink, Sink
from benchmarks.spark.systems import SparkSystem
from benchmarks.streams import Workload
from benchmarks.verify import WrongResult
from headrace.semistream.adaptive.group import HOT_SETS

MEASURED = 5  # micro-batches, at least
PATIENCE = 240.0  # seconds for one stream; what was measured by then counts
_POLL = 0.25
_TINY_MEMORY = 16 << 20
_LONGEST = 200
_CAUSE = re.compile(r"(Caused by: )?[\w.]+(Error|Exception|Refused): ")
_PREFACE = "terminated with exception: "


class TooSlow(Exception):
    """Not one micro-batch was measured within the patience."""


def measure_spark(cell: Cell) -> dict[str, Any]:
    """Verify, then measure every part. What fails is a result; a wrong result ends the run."""
    work = _work_directory(Path(cell.root))
    try:
        data = Dataset(cell.rows, cell.seed, Path(cell.root))
        heap = _limited(cell, data) if cell.limit else HEAP
        with session(work, heap) as spark:
            kind = load(cell.system)
            system = kind(spark, data, cell.memory)
            out = {"settings": {"spark": describe(spark), cell.system: system.settings()}}
            base = memory.Memory()
            try:
                if system.in_python:
                    # Imports and compiled code come before the baseline, as in the other sections.
                    tiny = kind(spark, Dataset(TINY_ROWS, cell.seed, Path(cell.root)), _TINY_MEMORY)
                    tiny.prepare()
                    _verify(tiny, cell.section, work / "tiny")
                    base = memory.now()
                start = perf_counter()
                system.prepare()
                prepared = perf_counter() - start
                _verify(system, cell.section, work / "verify")
            except WrongResult:
                raise
            except Exception as error:
                failed = {"error": _reason(error), "does_not_fit": system.optional}
                return {**out, "parts": [failed for _ in cell.parts]}
            shared = {"base": asdict(base), "prepare_seconds": prepared}
            parts: list[dict[str, Any]] = []
            for workload, batch in cell.parts:
                if parts and (parts[-1].get("does_not_fit") or parts[-1].get("too_slow")):
                    parts.append(parts[-1])  # it had a chance
                else:
                    parts.append({**shared, **_measure(system, cell, workload, batch, work / "stream")})
            return {**out, "parts": parts}
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _limited(cell: Cell, data: Dataset) -> str:
    """Keep this process and all that it starts to the cell's limit, with nothing of R in memory; returns the heap of the JVM."""
    copy = load(cell.system).build(data)
    if copy is not None:
        shutil.rmtree(copy / HOT_SETS, ignore_errors=True)  # or it would not begin cold
    isolation.evict(data.directory)
    if (group := cell.cgroup()) is not None:
        group.limit(cell.limit)
    return f"{int(beyond.HEAP * cell.limit) >> 20}m"


def _work_directory(root: Path) -> Path:
    """A directory of this process alone: another run beside this one must not lose its files. Clears what the dead left."""
    for left in root.glob("spark-work-*"):
        if not psutil.pid_exists(int(left.name.rsplit("-", 1)[1])):
            shutil.rmtree(left, ignore_errors=True)
    work = root / f"spark-work-{os.getpid()}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    return work


def _verify(system: SparkSystem, section: str, work: Path) -> None:
    """A small micro-batch through the same streaming query, into a table, compared row by row."""
    batch = verify.sample(system.data)
    frame = system.frame(source.read(system.spark, source.sample_directory(work / "stream", batch)))
    sink = system.load(work) if section == LOAD else ParquetSink(work)
    with _started(sink, frame) as query:
        if not query.awaitTermination(PATIENCE):
            raise TooSlow(f"no result for {batch.num_rows:,} rows in {PATIENCE:.0f} s")
    verify.compare(type(system).__name__, sink.committed(frame).to_table(), system.expected(batch))
    shutil.rmtree(work)


def _measure(system: SparkSystem, cell: Cell, workload: Workload, batch: int, work: Path) -> dict[str, Any]:
    """One stream from its first micro-batch; `samples` are those after the warm-up, in rows and seconds."""
    out: dict[str, Any] = {"samples": [], "error": None}
    large = int(cell.warmup)
    directory = source.stream_directory(system.data, workload, batch, large)
    frame = system.frame(source.read(system.spark, directory))
    sink = (system.load if cell.section == LOAD else Noop)(work)
    warm, _ = source.sizes(batch, large)
    try:
        with memory.Sampler() as sampler, _started(sink, frame) as query:
            _watch(query, len(warm), cell.seconds)
        out["peak"] = asdict(sampler.peak)
        progress = [p for p in (json.loads(p.json) for p in query.recentProgress) if p["numInputRows"]]
        samples = [(p["numInputRows"], p["durationMs"]["triggerExecution"] / 1000) for p in progress]
        out["warmup_samples"], out["samples"] = samples[: len(warm)], samples[len(warm) :]
        out["durations"] = progress[-1]["durationMs"] if progress else None
        out["stats"] = system.stats(query, since=len(warm))
        if not out["samples"]:
            raise TooSlow(f"{len(progress)} micro-batches in {PATIENCE:.0f} s, all of them warm-up")
        if {rows for rows, _ in out["samples"]} != {batch}:
            raise WrongResult(f"{cell.system}: micro-batches of other than {batch} rows")
        _check(cell.system, progress, sink.committed(frame), matched=workload != "absent" or cell.system in LIMITS)
    except WrongResult:
        raise
    except Exception as error:
        slow = isinstance(error, TooSlow)
        out |= {"samples": [], "error": _reason(error), "does_not_fit": system.optional, "too_slow": slow}
    shutil.rmtree(work, ignore_errors=True)
    return out


@contextmanager
def _started(sink: Sink, frame: DataFrame) -> Iterator[StreamingQuery]:
    query = sink.start(frame)
    try:
        yield query
    finally:
        query.stop()


def _watch(query: StreamingQuery, warm: int, seconds: float) -> None:
    """Wait until enough micro-batches after the first `warm` are done, or all, or too much time has passed."""
    start = perf_counter()
    measured_from: float | None = None
    while query.isActive:
        sleep(_POLL)
        now = perf_counter()
        last = query.lastProgress
        done = 0 if last is None else last.batchId + 1
        if measured_from is None and done >= warm:
            measured_from = now
        if measured_from is not None and done >= warm + MEASURED and now - measured_from >= seconds:
            break
        if now - start >= PATIENCE:
            break
    if (failure := query.exception()) is not None:
        raise failure


def _check(system: str, progress: list[dict[str, Any]], table: Any, matched: bool) -> None:
    """As many rows out as the stream says, in every micro-batch and in the table."""
    for p in progress:
        got, wanted = p["sink"]["numOutputRows"], p["numInputRows"] if matched else 0
        if got not in (-1, wanted):  # -1: a sink that does not count
            raise WrongResult(f"{system}: {got:,} rows from a micro-batch, expected {wanted:,}")
    if table is not None:
        loaded, wanted = table.count_rows(), sum(p["numInputRows"] for p in progress) if matched else 0
        # The query may have been stopped between a commit and its report.
        if loaded not in (wanted, wanted + progress[-1]["numInputRows"]):
            raise WrongResult(f"{system}: {loaded:,} rows in the table, expected {wanted:,}")


def _reason(error: Exception) -> str:
    """The innermost cause, in a line: Spark wraps what went wrong in many."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    causes = [line for line in lines if _CAUSE.match(line)]
    words = causes[-1] if causes else f"{type(error).__name__}: {lines[0].split(_PREFACE)[-1]}"
    return words.removeprefix("Caused by: ")[:_LONGEST]
