"""One cell, measured: a system, a relation, a stream, a batch size and a budget."""

from __future__ import annotations

import gc
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import isolation, process
from benchmarks.cell import Cell
from benchmarks.data import Dataset
from benchmarks.feed import Feed
from benchmarks.streams import StreamFileReader, batch_of, stream_file
from benchmarks.systems import load
from benchmarks.systems.base import System
from benchmarks.verify import WrongResult, verify

TINY_ROWS = 1_000
_TINY_MEMORY = 16 << 20


def build(cell: Cell) -> dict[str, Any]:
    """Build the system's copy of R, atomically."""
    system = _system(cell)
    final = system.path
    if not final.exists():
        system.path = final.with_name(final.name + ".partial")
        shutil.rmtree(system.path, ignore_errors=True)
        system.build()
        system.path.replace(final)
    return {}


def check(cell: Cell) -> dict[str, Any]:
    """Join a sample and compare: before anything of this system is timed."""
    system = _system(cell)
    system.open(cell.memory, cell.batch)
    verify(system, system.data)
    system.close()
    return {"settings": system.settings()}


def measure(cell: Cell) -> dict[str, Any]:
    """Warm up, measure, and say what it took. A budget refused is a result, not a failure."""
    out: dict[str, Any] = {"samples": [], "error": None}
    # Everything one-off (imports, compiled code, input buffers) comes before the baseline.
    _rehearse(cell)
    system = _system(cell)
    reader = StreamFileReader(stream_file(system.data, cell.workload), cell.batch)  # type: ignore[arg-type]
    isolation.evict(system.path)
    gc.collect()
    out["base_rss"] = process.rss()
    group = cell.cgroup()
    if group is not None:
        group.shed()
        out["base_charge"] = group.usage()
        out["limit"] = out["base_charge"] + cell.allowance + cell.memory
        group.limit(out["limit"])
    process.reset_peak()
    try:
        _join(cell, system, reader, out)
    except WrongResult:
        raise
    except Exception as error:
        out["error"] = f"{type(error).__name__}: {error}"
    out["peak_rss"] = process.peak_rss()
    if group is not None:
        out["cgroup_peak"] = group.peak()
        out["page_cache"] = group.page_cache()
    if out["error"] is None:
        verify(system, system.data)  # once more, with everything warm
        system.close()
    return out


def _join(cell: Cell, system: System, reader: StreamFileReader, out: dict[str, Any]) -> None:
    start: dict[str, Any] = {}

    def on_measure() -> None:
        start.update(read=process.bytes_read(), stats=system.stats())

    feed = Feed(
        reader=reader,
        batch=cell.batch,
        seconds=cell.seconds,
        warmup_seconds=cell.warmup,
        divisible=system.divisible,
        may_stop_early=cell.workload != "temporal",
        before_batch=isolation.drop_caches if cell.method == "drop_caches" else _nothing,
        on_measure=on_measure,
    )
    system.open(cell.memory, cell.batch)
    rows_out = 0
    for result in system.run(feed):
        rows_out += result.num_rows
    rows_in = sum(feed.warmup.rows) + sum(feed.measured.rows)
    expected = 0 if cell.workload == "absent" else rows_in
    if rows_out != expected:
        raise WrongResult(f"{system.name}: {rows_out} rows out of {rows_in}, expected {expected}")
    out["samples"] = list(zip(feed.measured.rows, feed.measured.seconds, strict=True))
    out["warmup"] = {"rows": sum(feed.warmup.rows), "seconds": feed.warmup.elapsed}
    out["piece"] = feed.piece
    out["bytes_read"] = process.bytes_read() - start["read"]
    out["stats_start"], out["stats_end"] = start["stats"], system.stats()


def _rehearse(cell: Cell) -> None:
    """A join with a tiny relation: imports, compiles and allocates what every run needs."""
    system = _system(replace(cell, rows=TINY_ROWS))
    system.open(_TINY_MEMORY, TINY_ROWS)
    verify(system, system.data)
    keys = system.data.keys(np.arange(TINY_ROWS, dtype=np.int64))
    for _ in system.run(batch_of(keys) for _ in range(3)):
        pass
    system.close()


def _system(cell: Cell) -> System:
    return load(cell.system)(Dataset(cell.rows, cell.seed, Path(cell.root)))


def _nothing() -> None:
    """Nothing to do before a batch."""
