"""From the raw results of the Spark section to rates and memory, and its targets."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.data import ROW_BYTES
from benchmarks.metrics import Target, at_least
from benchmarks.spark import BEYOND, BROADCAST, FORMS, JOIN, LOAD, OUR_BROADCAST, OURS, PASS_WIDE, SECTIONS
from benchmarks.spark.beyond import SMALL_ROWS
from benchmarks.spark.plan import TARGET_ROWS
from headrace.cost.broadcast import BroadcastAdvice

LARGE, SMALL = 500_000, 10_000  # the batch sizes that targets speak of
LARGE_FACTOR = 2.5
SMALL_FACTOR = 5.0
SMALL_FACTOR_AT = {TARGET_ROWS: SMALL_FACTOR, 30_000_000: 10.0}
LIMIT_SHARE = 0.8
ABSENT_SHARE = 0.9
FLAT = 1.2
FLAT_ROWS = (1_000_000, 30_000_000)
LOAD_FACTOR = 3.0
FITTING_ROWS, FITTING_FACTOR = 1_000_000, 1.2  # a relation that fits the budget, beside Spark's broadcast join
DEFAULT_MEMORY, DEFAULT_SHARE = (
    64 << 20,
    0.9,
)  # the budget by default, beside the best of Spark's forms, for any relation
GROWTH = 1.15
BEYOND_SMALL = 10.0  # times Spark with small micro-batches of a table beyond memory, and with large ones by the keys
BEYOND_LARGE = {"zipf": 5.0, "uniform": 3.0}

Place = tuple[str, int, str, int]


@dataclass(frozen=True, kw_only=True)
class SparkMeasurement:
    """One system on one stream."""

    section: str
    system: str
    rows: int
    workload: str
    batch: int
    memory: int
    cold: (
        float | None
    )  # seconds of the first micro-batch, a large one, with nothing of R in memory where that is limited
    seconds: float | None  # the median of a micro-batch; None: nothing was measured, and `error` says why
    batches: int
    base: dict[str, int]  # the executor's memory before the stream: see `benchmarks.spark.memory`
    peak: dict[str, int]
    hit_ratio: float | None
    error: str | None
    does_not_fit: bool

    @property
    def place(self) -> Place:
        return self.section, self.rows, self.workload, self.batch

    @property
    def rate(self) -> float | None:
        return self.batch / self.seconds if self.seconds else None


@dataclass(frozen=True)
class Growth:
    """The executor's memory beside that of the widest pass-through, in bytes."""

    once: int  # every resident page once
    warm: int  # the same, but without what imports and compiled code take in either


def measurements(raw: dict[str, Any]) -> list[SparkMeasurement]:
    return [_measurement(c) for c in raw["cells"] if c["section"] in SECTIONS]


def _measurement(cell: dict[str, Any]) -> SparkMeasurement:
    samples = cell.get("samples") or []
    stats = cell.get("stats") or {}
    names = ("section", "system", "rows", "workload", "batch", "memory")
    return SparkMeasurement(
        **{name: cell[name] for name in names},
        cold=(cell.get("warmup_samples") or [(0, None)])[0][1],
        seconds=statistics.median(s for _, s in samples) if samples else None,
        batches=len(samples),
        base=cell.get("base") or {},
        peak=cell.get("peak") or {},
        hit_ratio=stats["hits"] / stats["tuples_in"] if stats.get("tuples_in") else None,
        error=cell.get("error"),
        does_not_fit=cell.get("does_not_fit", False),
    )


def find(found: list[SparkMeasurement], system: str, place: Place) -> SparkMeasurement | None:
    return next((m for m in found if m.system == system and m.place == place), None)


def best_form(found: list[SparkMeasurement], place: Place) -> SparkMeasurement | None:
    """The fastest of Spark's own forms under the same conditions."""
    rivals = [m for m in found if m.system in FORMS and m.place == place and m.rate]
    return max(rivals, key=lambda m: m.rate or 0.0, default=None)


def limit(found: list[SparkMeasurement], system: str, batch: int) -> SparkMeasurement | None:
    """The pass-through of the same batch size: it knows no relation and no keys."""
    return next((m for m in found if m.system == system and m.batch == batch), None)


def growth(found: list[SparkMeasurement], m: SparkMeasurement) -> Growth | None:
    base = limit(found, PASS_WIDE, m.batch)
    if base is None or not base.peak or not m.peak:
        return None
    grown = m.peak["once"] - base.peak["once"]
    return Growth(grown, warm=grown - (m.base["once"] - base.base["once"]))


def targets(found: list[SparkMeasurement]) -> list[Target]:
    ours = [m for m in found if m.system == OURS]
    joins = [m for m in ours if m.section == JOIN]
    out = [t for m in joins for t in (*_speed(found, m), *_fitting(found, m))]
    out += [t for m in joins for t in _absent(joins, m)]
    out += [t for m in joins for t in _flat(joins, m)]
    out += [t for m in ours if m.section == BEYOND and m.rows > SMALL_ROWS for t in _beyond(found, m)]
    for m in ours:
        if m.section == LOAD and m.rows == TARGET_ROWS:
            out.append(_beside_spark(found, m, LOAD_FACTOR))
    return out + [t for m in joins if m.rows == TARGET_ROWS for t in _growth(found, m)]


def _speed(found: list[SparkMeasurement], m: SparkMeasurement) -> Iterator[Target]:
    if m.batch == SMALL and m.rows in SMALL_FACTOR_AT:
        yield _beside_spark(found, m, SMALL_FACTOR_AT[m.rows])
    if m.batch == LARGE and m.rows == TARGET_ROWS:
        yield _beside_spark(found, m, LARGE_FACTOR)
        if m.workload != "absent":  # nothing is returned, so the limit is another
            wide = limit(found, PASS_WIDE, m.batch)
            yield at_least(f"{_label(m)}, beside {PASS_WIDE}", m.rate, wide and wide.rate, LIMIT_SHARE)


def _beyond(found: list[SparkMeasurement], m: SparkMeasurement) -> Iterator[Target]:
    """A table beyond memory: rates, the first micro-batch, and that a small one takes no longer than with a small table."""
    factor = BEYOND_SMALL if m.batch == SMALL else BEYOND_LARGE.get(m.workload)
    if factor is not None:
        yield _beside_spark(found, m, factor)
    rival = best_form(found, m.place)
    if rival is not None and m.cold and rival.cold:
        ratio = m.cold / rival.cold
        yield Target(f"{_label(m)}, first micro-batch beside {rival.system}", "<= 1 x", f"{ratio:.2f} x", ratio <= 1)
    small = find(found, OURS, (m.section, SMALL_ROWS, m.workload, m.batch))
    if small is not None and small.seconds and m.seconds:
        ratio = m.seconds / small.seconds
        name = f"{_label(m)}, time beside {SMALL_ROWS / 1e6:.0f} M"
        yield Target(name, f"<= {FLAT} x", f"{ratio:.2f} x", ratio <= FLAT)


def _fitting(found: list[SparkMeasurement], m: SparkMeasurement) -> Iterator[Target]:
    """Targets of runs whose budget was given as a size."""
    if m.rows == FITTING_ROWS and m.memory > FITTING_ROWS * ROW_BYTES:
        rival = find(found, BROADCAST, m.place)
        yield at_least(f"{_label(m)}, beside {BROADCAST}", m.rate, rival and rival.rate, FITTING_FACTOR)
    if m.memory == DEFAULT_MEMORY:
        yield _beside_spark(found, m, DEFAULT_SHARE)
        advised = find(found, OUR_BROADCAST, m.place)
        if advised is not None and BroadcastAdvice(m.rows, m.rows * ROW_BYTES).words(m.batch):
            yield _beside_spark(found, advised, DEFAULT_SHARE)


def _beside_spark(found: list[SparkMeasurement], m: SparkMeasurement, factor: float) -> Target:
    rival = best_form(found, m.place)
    what = "" if m.system == OURS else f", {m.system}"
    name = f"{_label(m)}{what}, beside {rival.system if rival else 'Spark'}"
    return at_least(name, m.rate, rival and rival.rate, factor)


def _absent(joins: list[SparkMeasurement], m: SparkMeasurement) -> Iterator[Target]:
    if m.workload == "absent" and m.rows == TARGET_ROWS:
        for matched in joins:
            if matched.workload != "absent" and (matched.rows, matched.batch) == (m.rows, m.batch):
                yield at_least(f"{_label(m)}, beside {matched.workload}", m.rate, matched.rate, ABSENT_SHARE)


def _flat(joins: list[SparkMeasurement], m: SparkMeasurement) -> Iterator[Target]:
    small, large = FLAT_ROWS
    if m.batch == SMALL and m.rows == large:
        at_small = find(joins, OURS, (m.section, small, m.workload, m.batch))
        if at_small is not None and at_small.seconds and m.seconds:
            ratio = m.seconds / at_small.seconds
            name = f"{_label(m)}, time beside {small / 1e6:.0f} M"
            yield Target(name, f"<= {FLAT} x", f"{ratio:.2f} x", ratio <= FLAT)


def _growth(found: list[SparkMeasurement], m: SparkMeasurement) -> Iterator[Target]:
    """Two readings: all that the executor holds more than the pass-through, and without imports as in other sections."""
    wanted = f"<= {GROWTH:.0%} of the budget"
    grown = growth(found, m)
    readings = {"executor memory": grown and grown.once, "executor memory after imports": grown and grown.warm}
    for name, size in readings.items():
        if size is None:
            yield Target(f"{_label(m)}, {name}", wanted, "not measured", None)
        else:
            yield Target(f"{_label(m)}, {name}", wanted, f"{size / m.memory:.0%}", size <= GROWTH * m.memory)


def _label(m: SparkMeasurement) -> str:
    what = {LOAD: "load", BEYOND: "beyond memory"}.get(m.section, "join")
    return f"{what}, {m.rows / 1e6:.3g} M, {m.workload}, batch {m.batch:,}"
