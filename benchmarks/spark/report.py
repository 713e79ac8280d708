"""What the Spark section prints: rates and times side by side, memory, targets; and its plot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.metrics import Target
from benchmarks.spark import BEYOND, FORMS, JOIN, LIMITS, LOAD, OURS, PASS_WIDE, SYSTEMS
from benchmarks.spark.chart import chart
from benchmarks.spark.metrics import SparkMeasurement, best_form, find, growth, limit, targets
from benchmarks.spark.plot import plot
from benchmarks.tables import new_table, target_table

_TITLES = {
    JOIN: "Stream joined with R on Spark, two cores",
    LOAD: "The same with a load: Spark's Parquet sink, Delta by hr.load",
    BEYOND: "Stream joined with R on Spark, everybody and the page cache in a third of R's bytes (1.5 GiB at least)",
}


def report_spark(found: list[SparkMeasurement], picture: Path, console: Console) -> None:
    for section, title in _TITLES.items():
        here = [m for m in found if m.section == section]
        if here:
            console.print(_rates(f"{title}: thousand rows/s", here))
            console.print(_times(f"{title}: median ms of a micro-batch", here, lambda m: m.seconds))
        if section == BEYOND and here:
            console.print(_times(f"{title}: ms of the first micro-batch, cold", here, lambda m: m.cold))
    ours = [m for m in found if m.system == OURS and m.section == JOIN and growth(found, m) is not None]
    if ours:
        console.print(_memory(found, ours))
    judged: list[Target] = targets(found)
    if judged:
        console.print(target_table("Targets on Spark", judged))
    drawn = chart(picture.with_suffix(".chart.png"), found)
    if drawn is not None:
        console.print(f"Chart: {drawn}")
    if any(m.rate for m in found):
        console.print(f"Plot: {plot(picture, found)}")


def _rates(title: str, found: list[SparkMeasurement]) -> Table:
    systems = _systems(found)
    table = new_table(title, "rows", "workload", "batch", *systems, "beside best form", f"of {PASS_WIDE}")
    for place in _places(found):
        here = [_at(found, system, place) for system in systems]
        ours, rival, wide = find(found, OURS, place), best_form(found, place), limit(found, PASS_WIDE, place[-1])
        table.add_row(*_words(place), *map(_rate, here), _ratio(ours, rival, "{:.2f} x"), _ratio(ours, wide, "{:.0%}"))
    return table


def _times(title: str, found: list[SparkMeasurement], seconds: Callable[[SparkMeasurement], float | None]) -> Table:
    systems = _systems(found)
    table = new_table(title, "rows", "workload", "batch", *systems)
    for place in _places(found):
        table.add_row(*_words(place), *(_time(_at(found, system, place), seconds) for system in systems))
    return table


def _memory(found: list[SparkMeasurement], ours: list[SparkMeasurement]) -> Table:
    table = new_table(
        f"Memory of the executor's Python workers in MiB, {OURS} beside {PASS_WIDE}",
        "rows",
        "workload",
        "batch",
        "budget",
        "peak",
        "growth",
        "of budget",
        "after imports",
        "hit ratio",
    )
    for m in ours:
        grown = growth(found, m)
        assert grown is not None
        table.add_row(
            *_words(m.place),
            _mib(m.memory),
            _mib(m.peak["once"]),
            _mib(grown.once),
            f"{grown.once / m.memory:.0%}",
            f"{grown.warm / m.memory:.0%}",
            "–" if m.hit_ratio is None else f"{m.hit_ratio:.1%}",
        )
    return table


def _systems(found: list[SparkMeasurement]) -> list[str]:
    return [s for s in SYSTEMS if any(m.system == s for m in found)]


def _places(found: list[SparkMeasurement]) -> list[tuple[str, int, str, int]]:
    return list(dict.fromkeys(m.place for m in found if m.system in (OURS, *FORMS)))


def _at(found: list[SparkMeasurement], system: str, place: tuple[str, int, str, int]) -> SparkMeasurement | None:
    return limit(found, system, place[-1]) if system in LIMITS else find(found, system, place)


def _words(place: tuple[str, int, str, int]) -> tuple[str, str, str]:
    _, rows, workload, batch = place
    return f"{rows / 1e6:.3g} M", workload, f"{batch:,}"


def _rate(m: SparkMeasurement | None) -> str:
    if m is None or m.rate is None:
        return _missing(m)
    return f"{m.rate / 1000:,.0f}"


def _time(m: SparkMeasurement | None, seconds: Callable[[SparkMeasurement], float | None]) -> str:
    took = None if m is None else seconds(m)
    return _missing(m) if took is None else f"{took * 1000:,.0f}"


def _missing(m: SparkMeasurement | None) -> str:
    if m is None:
        return "–"
    return "does not fit" if m.does_not_fit else "†"


def _ratio(ours: SparkMeasurement | None, other: SparkMeasurement | None, form: str) -> str:
    if ours is None or other is None or not ours.rate or not other.rate:
        return "–"
    return form.format(ours.rate / other.rate)


def _mib(size: int) -> str:
    return f"{size / 2**20:,.0f}"
