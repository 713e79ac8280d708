"""`Relation.create` beside Polars reading, sorting and writing the same Parquet, on every core."""

from __future__ import annotations

import gc
import os
import shutil
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks import isolation, process
from benchmarks.cell import Cell
from benchmarks.data import Dataset
from benchmarks.measure import TINY_ROWS

SYSTEMS = ("headrace", "polars")


def measure_create(cell: Cell) -> dict[str, Any]:
    """Seconds until the call returns and until its files are on disk, and the peak of memory."""
    root = Path(cell.root)
    work = root / "create"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    out: dict[str, Any] = {"error": None}
    try:
        _create(cell.system, Dataset(TINY_ROWS, cell.seed, root), work / "tiny")
        data = Dataset(cell.rows, cell.seed, root)
        isolation.evict(data.parquet)
        gc.collect()
        out["base_rss"] = process.rss()
        process.reset_peak()
        start = perf_counter()
        _create(cell.system, data, work / "full")
        out["seconds"] = perf_counter() - start
        isolation.evict(work / "full")  # flushes every file
        out["seconds_on_disk"] = perf_counter() - start
        out["peak_rss"] = process.peak_rss()
        files = [f for f in (work / "full").rglob("*") if f.is_file()] or [work / "full"]
        out["bytes_written"] = sum(f.stat().st_size for f in files)
    except Exception as error:
        out["error"] = f"{type(error).__name__}: {error}"
    shutil.rmtree(work, ignore_errors=True)
    out["cores"] = len(os.sched_getaffinity(0))
    return out


def _create(system: str, data: Dataset, path: Path) -> None:
    if system == "headrace":
        from benchmarks.systems.headrace_join import create_relation

        create_relation(path, data)
    else:
        import polars as pl

        # Uncompressed, as the source and as our pages are: the faster of Polars' choices.
        pl.read_parquet(data.parquet).sort("k").write_parquet(path, compression="uncompressed")
