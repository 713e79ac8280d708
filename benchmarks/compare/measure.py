"""One measured process: it joins with the headrace that PYTHONPATH leads to, and writes down what it saw.

`benchmarks.compare.cli` runs it as `python -m benchmarks.compare.measure TASK.json RESULT.json`, with the `benchmarks` of this
tree and the `headrace` of either. It must run on both, so it uses public names of headrace only.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import pkgutil
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time, sleep
from typing import Any

import psutil
import pyarrow as pa

import headrace as hr
from benchmarks import process
from benchmarks.data import Dataset
from benchmarks.measure import TINY_ROWS
from benchmarks.streams import StreamFileReader, stream_file
from benchmarks.verify import WrongResult

SEED = 7
BUDGET = 0.1  # share of R
BATCH = 100_000  # rows of a batch of the core
WARM, MEASURED = 15, 25  # batches of the core: the hot set is full after the warm-up
LARGE = 3  # micro-batches of 500,000 rows that warm up the JVM and fill the hot set
MICRO_BATCHES = {10_000: 30, 500_000: 6}  # rows of a micro-batch, and how many are measured
_TINY_MEMORY = 16 << 20  # bytes
_POLL = 0.1  # seconds


@dataclass(frozen=True)
class Task:
    """What one process does. `tree` is the directory that headrace must come from."""

    section: str  # "prepare", "core" or "spark"
    rows: int
    root: str
    order: str = "any"
    tree: str = ""
    relation: str = ""

    @property
    def data(self) -> Dataset:
        return Dataset(self.rows, SEED, Path(self.root))

    @property
    def memory(self) -> int:
        return int(BUDGET * self.data.bytes)


def prepare(task: Task) -> list[dict[str, Any]]:
    """Compile every kernel of the tree, and make the relation where it has none that it can read."""
    for module in pkgutil.walk_packages(hr.__path__, "headrace."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    shared = task.data.directory / "compare"
    for path in (shared, shared.with_name(f"compare-{Path(task.tree).name}")):
        if not path.exists():
            partial = path.with_name(path.name + ".partial")
            shutil.rmtree(partial, ignore_errors=True)
            hr.Relation.create(partial, str(task.data.parquet), key="k", shards=2)
            partial.replace(path)
        with contextlib.suppress(hr.RelationError):  # its format may be that of another revision
            hr.Relation.open(path)
            return [{"relation": str(path)}]
    raise hr.RelationError(f"{path} is of another format than this revision's: remove it")


def measure_core(task: Task) -> list[dict[str, Any]]:
    """Seconds of each batch, and the peak of resident memory beside what all code and the open relation take."""
    from headrace.semistream import AdaptiveJoin

    samples, cpu = [], []

    def batches(count: int, rows: int) -> Iterator[pa.RecordBatch]:
        for _ in range(count):
            batch = reader.read(rows)
            wall, used = perf_counter(), process_time()
            yield batch
            samples.append(perf_counter() - wall)
            cpu.append(process_time() - used)

    def rows_joined(relation: hr.Relation, memory: int, count: int, rows: int) -> int:
        join = AdaptiveJoin(relation, on="k", memory=memory, how="inner", order=task.order)
        return sum(out.num_rows for out in join.run(batches(count, rows)))

    reader = StreamFileReader(stream_file(task.data, "zipf"), BATCH)
    with tempfile.TemporaryDirectory() as scratch:  # a join with a tiny relation loads the code
        tiny = Dataset(TINY_ROWS, SEED, Path(scratch)).write()
        rows_joined(hr.Relation.create(Path(scratch, "r"), str(tiny), key="k", shards=2), _TINY_MEMORY, 1, TINY_ROWS)
    relation = _open(task)
    gc.collect()
    pa.default_memory_pool().release_unused()
    base = process.rss()
    process.reset_peak()
    rows = rows_joined(relation, task.memory, WARM + MEASURED, BATCH)
    if rows != BATCH * (WARM + MEASURED):
        raise WrongResult(f"{rows:,} rows out of {BATCH * (WARM + MEASURED):,}, all of which have a match")
    memory = {"base": base, "peak": max(base, process.peak_rss())}  # the kernel's two counters differ by some pages
    return [{"batch": BATCH, "samples": samples[-MEASURED:], "cpu": sum(cpu[-MEASURED:]), **memory}]


def measure_spark(task: Task) -> list[dict[str, Any]]:
    """For each size of a micro-batch: seconds of each, CPU of all processes, and the peak of the Python workers' memory."""
    from benchmarks.spark import memory, source
    from benchmarks.spark.session import session
    from benchmarks.spark.sinks import Noop

    out: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=task.root) as work, session(Path(work)) as spark:
        for row in spark.range(8, numPartitions=2).mapInArrow(_imported, "file string").collect():
            check_tree(row.file, task.tree, "a Spark worker")
        base = memory.now().once  # workers have imported headrace, and nothing else has happened
        relation = _open(task)
        for batch, measured in MICRO_BATCHES.items():
            frame = source.read(spark, source.stream_directory(task.data, "zipf", batch, LARGE))
            joined = hr.enrich(frame, relation, on="k", how="inner", memory=task.memory)
            warm = len(source.sizes(batch, LARGE)[0])
            query = Noop(Path(work, str(batch))).start(joined)
            try:
                _wait(query, warm)
                before = _cpu_seconds()
                with memory.Sampler() as sampler:
                    _wait(query, warm + measured)
                cpu = _cpu_seconds() - before
            finally:
                query.stop()
            for p in hr.progress(query):
                if p.stats.results != p.rows:
                    raise WrongResult(f"{p.stats.results:,} rows out of {p.rows:,}, all of which have a match")
            done = [json.loads(p.json)["durationMs"]["triggerExecution"] / 1000 for p in query.recentProgress]
            samples = done[warm : warm + measured]
            out.append({"batch": batch, "samples": samples, "cpu": cpu, "base": base, "peak": sampler.peak.once})
    return out


def _open(task: Task) -> hr.Relation:
    """The relation, with its files in the page cache."""
    files = [str(path) for path in Path(task.relation).rglob("*") if path.is_file()]
    subprocess.run(["cat", *files], stdout=subprocess.DEVNULL, check=True)  # which costs this process no memory
    return hr.Relation.open(task.relation)


def _wait(query: Any, micro_batches: int) -> None:
    while (query.lastProgress.batchId if query.lastProgress else -1) + 1 < micro_batches:
        if not query.isActive:
            raise query.exception() or RuntimeError(f"the stream ended before micro-batch {micro_batches}")
        sleep(_POLL)


def _cpu_seconds() -> float:
    """Of the JVM and its Python workers, so far."""
    return sum(sum(p.cpu_times()[:2]) for p in psutil.Process().children(recursive=True))


def _imported(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.record_batch({"file": [importlib.import_module("headrace").__file__]})


def check_tree(file: str, tree: str, where: str) -> None:
    """Raise unless headrace was imported from the tree: a measurement of the wrong one would look like a good one."""
    if not Path(file).resolve().is_relative_to(Path(tree).resolve()):
        raise ImportError(f"{where} imported {file}, which is not in {tree}")


if __name__ == "__main__":
    given = Task(**json.loads(Path(sys.argv[1]).read_text()))
    check_tree(str(hr.__file__), given.tree, "the measured process")
    run = {"prepare": prepare, "core": measure_core, "spark": measure_spark}[given.section]
    Path(sys.argv[2]).write_text(json.dumps(run(given)))
