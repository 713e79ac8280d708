"""Which cells the Spark section has: systems, relations, streams and batch sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from benchmarks.cell import Cell
from benchmarks.data import Dataset
from benchmarks.spark import DEFAULT, FORMS, JOIN, LIMITS, LOAD, OUR_BROADCAST, OURS, SYSTEMS
from benchmarks.streams import Workload

BUDGET = 0.10
TARGET_ROWS = 10_000_000


@dataclass(frozen=True)
class SparkPlan:
    """What to run of the Spark section."""

    rows: tuple[int, ...]
    batches: tuple[int, ...]
    workloads: tuple[Workload, ...]
    systems: tuple[str, ...]  # empty: the default ones
    seconds: float
    warmup: int  # large micro-batches before a stream is measured
    memory: int | None = None  # bytes of the budget; None: the share BUDGET of R
    loads: bool = True  # whether to measure loads, too

    def cells(self, seed: int, root: Path) -> Iterator[Cell]:
        """One cell a process. `parts` are the streams it goes through, one after the other.

        Spark's own forms go through all streams in one process: caching a large table takes longer than a
        cell, and a warmer JVM is to their advantage. Headrace and the pass-through get a process a stream,
        since their memory is measured and what the stream before left behind would count.
        """
        for section, rows, system in product((JOIN, LOAD) if self.loads else (JOIN,), self.rows, self._chosen()):
            parts = list(product(self._workloads(section, rows, system), self.batches))
            size = Dataset(rows, seed, root).bytes
            memory = int(size * BUDGET) if self.memory is None else self.memory
            base = Cell(
                section=section,
                system=system,
                rows=rows,
                seed=seed,
                root=str(root),
                budget=memory / size,
                seconds=self.seconds,
                warmup=self.warmup,
                memory=memory,
            )
            for group in [parts] if system in FORMS else [[part] for part in parts]:
                if group:
                    yield replace(base, parts=tuple(group), workload=group[0][0], batch=group[0][1])

    def _chosen(self) -> list[str]:
        return [s for s in SYSTEMS if s in (self.systems or DEFAULT)]

    def _workloads(self, section: str, rows: int, system: str) -> tuple[Workload, ...]:
        one_size = rows == (TARGET_ROWS if TARGET_ROWS in self.rows else self.rows[-1])
        if system in LIMITS:
            # No join: the relation and the keys do not matter, so once a batch size is enough.
            return self.workloads[:1] if section == JOIN and one_size else ()
        if section == LOAD and system == OUR_BROADCAST:
            return ()
        if section == LOAD:
            # One size of R, and not the stream that loads nothing: the full product would take hours.
            return tuple(w for w in self.workloads if w != "absent") if one_size else ()
        assert system in (OURS, OUR_BROADCAST, *FORMS)
        return self.workloads
