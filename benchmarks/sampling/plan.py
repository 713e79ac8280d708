"""The samplers and joins that are measured, each in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.measured import measured
from benchmarks.sampling import COVERED, ESTIMATED, SAMPLERS, SECTION
from benchmarks.sampling.coverage import DATA, WINDOWS

# Rows of a side in a window, and rows of a micro-batch. Of a small micro-batch most of the time is Spark's own.
ON_SPARK = ((100_000, 100_000), (100_000, 500_000), (1_000_000, 500_000), (10_000_000, 2_000_000))
_PATIENCE = 1_200.0  # seconds after which a process is given up; a join on Spark stops by itself before


@dataclass(frozen=True)
class Measured:
    """One measured process: a sampler of one stream, or a join of two."""

    system: str
    kind: str  # "rows" or "time": the window of a sampler; "join"; "spark", a join there; "estimate"; "coverage by rows" or time
    window: int
    rows: int
    memory: int = 0  # bytes of a join's samples; 0 for a tenth of the window
    batch: int = 0  # rows of a micro-batch on Spark

    @property
    def title(self) -> str:
        rows = f"micro-batches of {self.batch:,}" if self.batch else f"{self.rows:,}"
        return f"{SECTION} · {self.system} · {self.kind} · window of {self.window:,} · {rows} rows"


@dataclass(frozen=True)
class SamplingPlan:
    """The sizes of the sampling section. Every stream is five windows long, but at least `rows`."""

    windows: tuple[int, ...] = (100_000, 10_000_000)
    rows: int = 2_000_000
    memory: int = 16 << 20
    spark: bool = True
    covered: int = COVERED
    """windows that are estimated, to see what intervals cover"""

    def all(self) -> Iterator[Measured]:
        for part in (32, 16, 8, 4, 2):
            smallest = min(self.windows)
            yield Measured("fair", "estimate", smallest, 20 * smallest, ESTIMATED * smallest // part)
        for by in WINDOWS:
            for data in DATA:
                yield Measured(data, f"coverage by {by}", 900, self.covered)
        for window in self.windows:
            for system in SAMPLERS:
                for kind in ("rows", "time"):
                    slow = (system, kind) == ("Chain", "time")
                    rows = self.rows // 20 if slow else max(self.rows, 5 * window)
                    yield Measured(system, kind, window, rows)
            for system in ("fair", "expire", "all", "duckdb"):
                yield Measured(system, "join", window, max(self.rows, 3 * window))
            yield Measured("fair", "join", window, max(self.rows, 3 * window), self.memory)
        for window, batch in ON_SPARK if self.spark else ():
            for system in ("spark", "all", "fair"):
                yield Measured(system, "spark", window, 0, batch=batch)
            yield Measured("fair", "spark", window, 0, 4 * self.memory, batch)


def measure(one: Measured) -> dict[str, Any]:
    """Run a measurement in a process, and return what it saw."""
    cell = {"section": SECTION, **asdict(one)}
    program, words = "measure", [one.system, one.kind, str(one.window), str(one.rows), str(one.memory)]
    if one.kind == "spark":
        program, words = "spark", [one.system, str(one.window), str(one.batch), str(one.memory)]
    if one.kind.startswith("coverage"):
        program, words = "coverage", [one.system, one.kind.split()[-1], str(one.rows)]
    return {**cell, **measured(f"sampling.{program}", words, _PATIENCE)}
