"""Tables of a results file, and the targets with pass or miss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import results
from benchmarks.compare.report import report_compare
from benchmarks.feeds import SECTION as FEEDS
from benchmarks.feeds.report import report_feeds
from benchmarks.metrics import (
    Creation,
    Measurement,
    best_store,
    creations,
    measurements,
    targets,
)
from benchmarks.plot import plot
from benchmarks.progressive import SECTION as PROGRESSIVE
from benchmarks.progressive.report import report_progressive
from benchmarks.sampling import SECTION as SAMPLING
from benchmarks.sampling.report import report_sampling
from benchmarks.service import SECTION as SERVICE
from benchmarks.service.report import report_service
from benchmarks.spark import SECTIONS as SPARK_SECTIONS
from benchmarks.spark import metrics as spark_metrics
from benchmarks.spark.report import report_spark
from benchmarks.systems import IN_MEMORY, LOOKUP, OURS
from benchmarks.tables import new_table, target_table
from benchmarks.xml import SECTION as XML
from benchmarks.xml.report import report_xml


def report(file: Path, console: Console) -> None:
    """Print what the file holds, and draw it beside the file."""
    raw = results.load(file)
    if "pairs" in raw:
        report_compare(raw, console)
        return
    found, created = measurements(raw), creations(raw)
    _conditions(raw, console)
    lookup = [m for m in found if m.section == "lookup"]
    memory = [m for m in found if m.section == "memory"]
    if lookup:
        console.print(_rates("Lookup joins at equal memory, thousand rows/s", lookup, list(LOOKUP)))
        if any(m.system == OURS and m.rate for m in lookup):
            console.print(_ours(lookup))
        console.print(_reads(lookup))
    if memory:
        console.print(_rates("All in memory, thousand rows/s", memory, list(IN_MEMORY)))
    if created:
        console.print(_creations(created))
    if judged := targets(found, created):
        console.print(target_table("Targets at 10 million rows, 10%", judged))
    _notes(raw, found, console)
    if lookup:
        console.print(f"Plot: {plot(file, lookup)}")
    if on_spark := spark_metrics.measurements(raw):
        report_spark(on_spark, file.with_suffix(".spark.png" if lookup else ".png"), console)
    report_progressive(raw, console)
    report_sampling(raw, console, file)
    report_xml(raw, console)
    report_feeds(raw, console)
    report_service(raw, file.with_suffix(".service.png"), console)


def _conditions(raw: dict[str, Any], console: Console) -> None:
    m, isolation = raw["machine"], raw["isolation"]
    disk = m["disk"]
    console.print(
        f"{raw['date']} · commit {m['commit'] or 'none'} · {m['cpu']} · {m['cores']} cores · "
        f"{m['memory'] / 2**30:.0f} GiB · kernel {m['kernel']} · disk {disk['device']}"
        f"{' ' + disk['model'] if disk['model'] else ''}",
        highlight=False,
    )
    if any(c["section"] not in (*SPARK_SECTIONS, SERVICE, PROGRESSIVE, SAMPLING, XML, FEEDS) for c in raw["cells"]):
        console.print(
            f"Page cache: {isolation['description']}; limit = base + budget + "
            f"{isolation['allowance'] >> 20} MiB + {isolation['allowance_per_batch_row']} B/batch row",
            highlight=False,
        )
    for system, settings in raw["settings"].items():
        console.print(
            f"  {system} {settings['version']}: {settings['access']}; {settings['options']}; "
            f"cache: {settings['cache']}",
            style="dim",
            highlight=False,
        )


def _rates(title: str, found: list[Measurement], order: list[str]) -> Table:
    systems = [s for s in order if any(m.system == s for m in found)]
    table = new_table(title, "rows", "workload", "batch", "budget", *systems)
    compare = OURS in systems
    if compare:
        table.add_column("beside best store", justify="right")
    for place in dict.fromkeys(m.place for m in found):
        here = {m.system: m for m in found if m.place == place}
        cells = [_rate(here.get(s)) for s in systems]
        if compare:
            ours, rival = here.get(OURS), best_store(found, place)
            cells.append(_ratio(ours, rival))
        table.add_row(*_place(place), *cells)
    return table


def _ours(found: list[Measurement]) -> Table:
    table = new_table(
        "Headrace",
        "rows",
        "workload",
        "batch",
        "budget",
        "MiB",
        "RSS growth MiB",
        "of budget",
        "hit ratio",
        "pages/row",
    )
    for m in found:
        if m.system == OURS and m.growth is not None and m.rate:
            table.add_row(
                *_place(m.place),
                f"{m.memory / 2**20:.1f}",
                f"{m.growth / 2**20:.1f}",
                f"{m.growth / m.memory:.0%}",
                "–" if m.hit_ratio is None else f"{m.hit_ratio:.1%}",
                "–" if m.pages_per_row is None else f"{m.pages_per_row:.3f}",
            )
    return table


def _reads(found: list[Measurement]) -> Table:
    systems = [s for s in LOOKUP if any(m.system == s for m in found)]
    table = new_table("KiB read from disk a row · RSS growth in MiB", "rows", "workload", "batch", "budget", *systems)
    for place in dict.fromkeys(m.place for m in found):
        here = {m.system: m for m in found if m.place == place}
        table.add_row(*_place(place), *(_read(here.get(s)) for s in systems))
    return table


def _creations(created: list[Creation]) -> Table:
    table = new_table("Create: read Parquet, sort, write", "rows", "system", "s", "s, on disk", "RSS growth MiB")
    for c in created:
        table.add_row(
            f"{c.rows:,}", c.system, f"{c.seconds:.2f}", f"{c.seconds_on_disk:.2f}", f"{c.growth / 2**20:.0f}"
        )
    return table


def _notes(raw: dict[str, Any], found: list[Measurement], console: Console) -> None:
    errors: dict[tuple[str, str], int] = {}
    for cell in raw["cells"]:
        if cell.get("error"):
            key = cell["system"], cell["error"].splitlines()[0]
            errors[key] = errors.get(key, 0) + 1
    for (system, error), count in errors.items():
        console.print(f"† {system}, {count} cells: {error}", highlight=False)
    if any(m.piece for m in found):
        console.print("* a whole batch would outlast the cell: fed in slices by key range")


def _place(place: tuple[int, str, int, float | None]) -> tuple[str, str, str, str]:
    rows, workload, batch, budget = place
    return f"{rows:,}", workload, f"{batch:,}", "–" if budget is None else f"{budget:.0%}"


def _rate(m: Measurement | None) -> str:
    if m is None:
        return "–"
    if m.rate is None:
        return "†"
    return f"{m.rate / 1000:,.0f}{'*' if m.piece else ''}"


def _ratio(ours: Measurement | None, rival: Measurement | None) -> str:
    if ours is None or rival is None or not ours.rate or not rival.rate:
        return "–"
    return f"{ours.rate / rival.rate:.2f} x"


def _read(m: Measurement | None) -> str:
    if m is None or m.rate is None or m.kib_per_row is None or m.growth is None:
        return "–"
    return f"{m.kib_per_row:.2f} · {m.growth / 2**20:.0f}"
