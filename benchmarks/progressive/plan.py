"""The joins of two streams that are measured, each in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.measured import measured
from benchmarks.progressive import ON_SPARK, SECTION

_PATIENCE = 900.0  # seconds after which a process is given up


@dataclass(frozen=True)
class Join:
    """One measured process."""

    system: str
    kind: str
    rows: int
    memory: int
    pace: int = 0

    @property
    def title(self) -> str:
        return f"{SECTION} · {self.system} · {self.kind} · {self.rows:,} tuples · {self.memory >> 20} MiB"


@dataclass(frozen=True)
class ProgressivePlan:
    """The sizes of the progressive section.

    Each kind is joined with memory for all of the data, then for a tenth. DuckDB joins boxes and vectors by brute force, which is
    quadratic, so there are fewer of them.
    """

    keys: int = 2_000_000
    boxes: int = 200_000
    vectors: int = 40_000
    on_spark: tuple[int, ...] = (10_000, 100_000)
    """rows of a micro-batch"""
    pace: int = 400_000

    def joins(self) -> Iterator[Join]:
        enough, tenth = 512 << 20, max(1 << 20, self.keys * 24 // 10)
        for system in ("headrace", "duckdb"):
            yield Join(system, "keys", self.keys, enough)
            yield Join(system, "keys", self.keys, enough, self.pace)
        yield Join("headrace", "keys", self.keys, tenth)
        for system in ("headrace", "shapely", "duckdb"):
            yield Join(system, "boxes", self.boxes, enough)
        yield Join("headrace", "boxes", self.boxes, max(2 << 20, self.boxes * 40 // 10))
        for system in ("headrace", "duckdb"):
            yield Join(system, "vectors", self.vectors, enough)
        yield Join("headrace", "vectors", self.vectors, max(2 << 20, self.vectors * 32 // 10))
        for batch in self.on_spark:
            for system in ("headrace", "spark"):
                yield Join(system, ON_SPARK, batch, 64 << 20)


def measure(join: Join) -> dict[str, Any]:
    """Run a join in a process, and return its measurements."""
    module = "measure"
    words = [join.system, join.kind, str(join.rows), str(join.memory), str(join.pace)]
    if join.kind == ON_SPARK:
        module, words = "spark", [join.system, str(join.rows), str(join.memory)]
    cell = {"section": SECTION, **asdict(join)}
    return {**cell, **measured(f"progressive.{module}", words, _PATIENCE)}
