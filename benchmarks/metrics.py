"""From raw results to the quantities the report speaks of, and the targets of the project."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.systems import OURS, OURS_IN_MEMORY, STORES

TARGET_ROWS = 10_000_000
TARGET_BUDGET = 0.10
STORE_FACTOR = 5.0
MEMORY_SHARE = 1 / 3
GROWTH = 1.15
CREATE_FACTOR = 3.0
CREATE_GROWTH = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One cell, in rows a second."""

    section: str
    system: str
    rows: int
    workload: str
    batch: int
    budget: float | None
    memory: int
    rate: float | None  # None: the cell failed, and `error` says why
    growth: int | None  # peak of resident memory over the baseline
    hit_ratio: float | None
    pages_per_row: float | None
    kib_per_row: float | None
    piece: int | None  # rows fed at a time, where a whole batch would have taken too long
    error: str | None

    @property
    def place(self) -> tuple[int, str, int, float | None]:
        return self.rows, self.workload, self.batch, self.budget


@dataclass(frozen=True)
class Creation:
    """Every repetition of one way to create, as medians."""

    system: str
    rows: int
    seconds: float
    seconds_on_disk: float
    growth: int


@dataclass(frozen=True)
class Target:
    """A target and what was measured; `passed` is None where nothing was measured."""

    name: str
    wanted: str
    got: str
    passed: bool | None


def measurements(raw: dict[str, Any]) -> list[Measurement]:
    return [_measurement(c) for c in raw["cells"] if c["section"] in ("lookup", "memory")]


def _measurement(cell: dict[str, Any]) -> Measurement:
    samples = cell.get("samples") or []
    rows = sum(n for n, _ in samples)
    start, end = cell.get("stats_start") or {}, cell.get("stats_end") or {}
    delta = {
        name: end[name] - start.get(name, 0)
        for name in ("hits", "misses", "absent", "pages_read")
        if isinstance(end.get(name), int)
    }
    probes = delta.get("hits", 0) + delta.get("misses", 0)
    growth = cell["peak_rss"] - cell["base_rss"] if "peak_rss" in cell else None
    piece = cell.get("piece")
    return Measurement(
        section=cell["section"],
        system=cell["system"],
        rows=cell["rows"],
        workload=cell["workload"],
        batch=cell["batch"],
        budget=cell["budget"],
        memory=cell["memory"],
        rate=rows / sum(s for _, s in samples) if rows else None,
        growth=growth,
        hit_ratio=delta["hits"] / probes if probes and "hits" in delta else None,
        pages_per_row=delta["pages_read"] / rows if rows and "pages_read" in delta else None,
        kib_per_row=cell["bytes_read"] / rows / 1024 if rows else None,
        piece=piece if piece and piece < cell["batch"] else None,
        error=cell.get("error"),
    )


def creations(raw: dict[str, Any]) -> list[Creation]:
    runs: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for cell in raw["cells"]:
        if cell["section"] == "create" and cell["error"] is None:
            runs.setdefault((cell["system"], cell["rows"]), []).append(cell)
    return [
        Creation(
            system=system,
            rows=rows,
            seconds=statistics.median(c["seconds"] for c in cells),
            seconds_on_disk=statistics.median(c["seconds_on_disk"] for c in cells),
            growth=max(c["peak_rss"] - c["base_rss"] for c in cells),
        )
        for (system, rows), cells in runs.items()
    ]


def best_store(found: list[Measurement], place: tuple[Any, ...]) -> Measurement | None:
    """The fastest key-value store under the same conditions."""
    rivals = [m for m in found if m.section == "lookup" and m.place == place and m.system in STORES and m.rate]
    return max(rivals, key=lambda m: m.rate or 0.0, default=None)


def targets(found: list[Measurement], created: list[Creation]) -> list[Target]:
    ours = {m.place: m for m in found if m.system == OURS and m.rows == TARGET_ROWS and m.budget == TARGET_BUDGET}
    out: list[Target] = []
    for place, m in ours.items():
        label = f"{m.workload}, batch {m.batch:,}"
        if m.workload == "absent":
            for (_, workload, batch, _), matched in ours.items():
                if workload != "absent" and batch == m.batch:
                    out.append(at_least(f"{label}, beside {workload}", m.rate, matched.rate, 1.0))
        else:
            rival = best_store(found, place)
            name = f"{label}, beside {rival.system if rival else 'a store'}"
            out.append(at_least(name, m.rate, rival.rate if rival else None, STORE_FACTOR))
        out.append(_growth(label, m))
    for m in found:
        if m.system == OURS_IN_MEMORY and m.rows == TARGET_ROWS:
            engine = next((d for d in found if d.system == "duckdb-memory" and d.place == m.place), None)
            name = f"all hot, {m.workload}, batch {m.batch:,}, beside DuckDB in memory"
            out.append(at_least(name, m.rate, engine.rate if engine else None, MEMORY_SHARE))
    return out + _create_targets(created)


def at_least(name: str, rate: float | None, base: float | None, factor: float) -> Target:
    wanted = f">= {factor:.2g} x"
    if rate is None or base is None:
        return Target(name, wanted, "not measured", None)
    return Target(name, wanted, f"{rate / base:.2f} x", rate >= factor * base)


def _growth(label: str, m: Measurement) -> Target:
    wanted = f"<= {GROWTH:.0%} of the budget"
    if m.growth is None or m.rate is None:
        return Target(f"memory, {label}", wanted, "not measured", None)
    share = m.growth / m.memory
    return Target(f"memory, {label}", wanted, f"{share:.0%}", share <= GROWTH)


def _create_targets(created: list[Creation]) -> list[Target]:
    at: dict[str, Creation] = {c.system: c for c in created if c.rows == TARGET_ROWS}
    if OURS not in at:
        return []
    ours = at[OURS]
    out = [Target("create, memory", "< 1 GiB", f"{ours.growth / 2**30:.2f} GiB", ours.growth < CREATE_GROWTH)]
    readings: dict[str, Callable[[Creation], float]] = {
        "until the call returns": lambda c: c.seconds,
        "until it is on disk": lambda c: c.seconds_on_disk,
    }
    for name, seconds in readings.items():
        if "polars" in at:
            ratio = seconds(ours) / seconds(at["polars"])
            out.append(
                Target(
                    f"create, {name}, beside Polars",
                    f"<= {CREATE_FACTOR:.0f} x",
                    f"{ratio:.2f} x",
                    ratio <= CREATE_FACTOR,
                )
            )
    return out
