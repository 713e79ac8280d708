"""Which cells the section of tables beyond memory has: everybody, page cache included, in a memory cgroup of a part of R."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from benchmarks import isolation
from benchmarks.cell import Cell
from benchmarks.data import Dataset
from benchmarks.spark import BEYOND, OURS
from benchmarks.streams import Workload

SHARE = 1 / 3  # of R, for all processes and their page cache
LEAST = 3 << 29  # bytes: with less, a JVM and two Python workers hardly start
BUDGET = 0.1  # of R, for Headrace: a part of the same memory
HEAP = 0.4  # of the limit, for the JVM
LARGE_ROWS = 100_000_000
_FORMS_BYTES = 500  # of a row: Parquet, the pages of a relation, and room to make them
WARM_SPARK = 4  # micro-batches
SMALL_ROWS = 1_000_000  # rows of the relation beside which the time of a small micro-batch is judged
#: Spark's forms that R need not fit the heap for.
SYSTEMS = (OURS, "spark-plain", "spark-cached")
STORES = ("lmdb", "rocksdb")  # measured without Spark, in a tenth of R, beside our join without Spark
STORES_WARMUP = 30.0  # seconds: a cache of a tenth of R fills slowly


def beyond_rows(directory: Path) -> tuple[int, ...]:
    """Sizes of R: the larger one only where the disk has room for R in every form."""
    there = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    large = LARGE_ROWS if shutil.disk_usage(there).free > LARGE_ROWS * _FORMS_BYTES else 0
    return tuple(rows for rows in (*BeyondPlan.rows, large) if rows)


@dataclass(frozen=True)
class BeyondPlan:
    """What to run of the section. Every stream has a process of its own, which begins cold."""

    rows: tuple[int, ...] = (30_000_000,)
    batches: tuple[int, ...] = (10_000, 500_000)
    workloads: tuple[Workload, ...] = ("zipf", "uniform")
    systems: tuple[str, ...] = ()
    seconds: float = 20.0
    warmup: int = 20

    def cells(self, seed: int, root: Path, method: isolation.Method) -> Iterator[Cell]:
        """Cells of R at each size; of a small R, ours alone."""
        chosen = [s for s in SYSTEMS if not self.systems or s in self.systems]
        small = [(SMALL_ROWS, OURS, self.workloads[0], min(self.batches))] if OURS in chosen else []
        places = dict.fromkeys([*small, *product(self.rows, chosen, self.workloads, self.batches)])  # each once
        for rows, system, workload, batch in places:
            size = Dataset(rows, seed, root).bytes
            yield Cell(
                section=BEYOND,
                system=system,
                rows=rows,
                seed=seed,
                root=str(root),
                workload=workload,
                batch=batch,
                parts=((workload, batch),),
                budget=BUDGET,
                memory=max(16 << 20, int(BUDGET * size)),
                limit=max(LEAST, int(SHARE * size)),
                method=method,
                seconds=self.seconds,
                # Spark's forms keep nothing from one micro-batch to the next, and are warm when they are compiled.
                warmup=self.warmup if system == OURS else min(self.warmup, WARM_SPARK),
            )
