"""The entry of a measured process: isolates itself first, imports the rest after.

Run by `benchmarks.runner` as `python -m benchmarks.cell TASK SPEC.json RESULT.json`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks import isolation

Task = Literal["build", "verify", "measure", "create", "spark"]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Everything one measured process needs to know."""

    section: str
    system: str
    rows: int
    seed: int
    root: str
    workload: str = "zipf"
    batch: int = 10_000
    budget: float | None = None  # a share of R; None where the whole table is in memory
    memory: int = 0  # the budget in bytes
    allowance: int = 0  # what the limit grants every process beside base and budget
    seconds: float = 5.0
    warmup: float = 3.0  # seconds; on Spark large micro-batches
    core: int | None = None  # None: every core
    method: isolation.Method = "none"
    group: str | None = None
    group_version: Literal[1, 2] = 1
    limit: int = 0  # bytes for a Spark process, its workers and their page cache; 0: no limit
    parts: tuple[tuple[str, int], ...] = ()  # of a Spark process: workload and batch of each stream it goes through

    def cgroup(self) -> isolation.ControlGroup | None:
        return isolation.ControlGroup(Path(self.group), self.group_version) if self.group else None


def main(task: Task, spec: Path, result: Path) -> None:
    cell = Cell(**json.loads(spec.read_text()))
    if cell.core is not None:
        isolation.pin(cell.core)
    if (group := cell.cgroup()) is not None:
        group.enter()

    # Only now: what is allocated from here on is charged to the group.
    out: dict[str, Any]
    if task == "create":
        from benchmarks.create import measure_create

        out = measure_create(cell)
    elif task == "spark":
        from benchmarks.spark.measure import measure_spark

        out = measure_spark(cell)
    else:
        from benchmarks import measure

        out = {"build": measure.build, "verify": measure.check, "measure": measure.measure}[task](cell)
    result.write_text(json.dumps(out))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))  # type: ignore[arg-type]
