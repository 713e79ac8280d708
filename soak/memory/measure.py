"""Measures one cell: the child's growth over what it held when it was warm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.memory import OVERHEAD
from soak.memory.cells import Cell
from soak.memory.process_memory import Watch, held, workers_below
from soak.memory.relations import relation_for

TOLERANCE = 1.05  # of the budget
_LONGEST = 1800.0  # seconds that a cell may take beyond its time: a last batch, and the end of a join on disk


@dataclass(frozen=True)
class Measured:
    """What a cell took."""

    cell: Cell
    seconds: float
    warm: int
    """bytes held before the stream began"""
    growth: int
    """bytes held beyond that, at most"""
    by_minute: list[int]
    """likewise, of each minute"""
    looks: int
    processes: int
    """that have buffers of their own: the workers of an executor, or one"""
    facts: dict[str, Any]
    """what the operator did"""

    @property
    def allowed(self) -> int:
        """Bytes that it may grow by."""
        return int(TOLERANCE * self.cell.budget) + self.processes * OVERHEAD

    @property
    def refused(self) -> str | None:
        """Why the operator did not run, if it did not."""
        refusal: str | None = self.facts.get("refused")
        return refusal

    @property
    def fault(self) -> str | None:
        """What is not as it must be."""
        if "died" in self.facts:
            return f"{self.cell}: {self.facts['died']}"
        if self.growth > self.allowed:
            return f"{self.cell}: grew by {self.growth / 2**20:.1f} MiB, and may by {self.allowed / 2**20:.1f}"
        return None

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Measured:
        """What `as_dict` gave."""
        names = ("seconds", "warm", "growth", "by_minute", "looks", "processes", "facts")
        return cls(Cell(**found["cell"]), *(found[name] for name in names))

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {**asdict(self), "allowed": self.allowed, "overhead": OVERHEAD, "fault": self.fault}


def measure(cell: Cell, seconds: float, place: Path) -> Measured:
    """Run a cell for so many seconds."""
    relation = relation_for(cell, place).name if cell.family == "enrich" else ""
    asked = {"cell": asdict(cell), "place": str(place), "relation": relation, "seconds": seconds}
    child = subprocess.Popen(
        [sys.executable, "-m", "soak.memory.child", json.dumps(asked)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TMPDIR": str(place)},
    )
    assert child.stdin is not None and child.stdout is not None
    on_spark = cell.operator == "enrich-spark"

    def pids() -> list[int]:
        return workers_below(child.pid) if on_spark else [child.pid]

    said = child.stdout.readline()
    if said.strip() != "warm":
        _, errors = child.communicate()
        facts = json.loads(said) if said.startswith("{") else {"died": errors[-2000:] or said}
        return Measured(cell, seconds, 0, 0, [], 0, 1, facts)
    warm = held(pids())
    processes = max(1, len(pids()) - 1) if on_spark else 1  # the daemon that forks them is none of them

    def tell(minute: int, most: int) -> None:
        print(f"{cell}: minute {minute}, {(most - warm) / 2**20:.1f} MiB", file=sys.stderr, flush=True)

    with Watch(pids, tell) as watch:
        try:
            out, errors = child.communicate("go\n", timeout=seconds + _LONGEST)
        except subprocess.TimeoutExpired:
            child.kill()
            out, errors = "", f"was not done {_LONGEST:.0f} s after its time"
    lines = out.strip().splitlines()
    facts = json.loads(lines[-1]) if child.returncode == 0 and lines else {"died": errors[-2000:]}
    return Measured(
        cell=cell,
        seconds=seconds,
        warm=warm,
        growth=watch.peak - warm,
        by_minute=[most - warm for most in watch.by_minute],
        looks=watch.looks,
        processes=processes,
        facts=facts,
    )
