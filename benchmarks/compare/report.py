"""From the raw results of a comparison to ratios, a table, and whether the limit holds."""

from __future__ import annotations

from statistics import fmean, median
from typing import Any

from rich.console import Console

from benchmarks.tables import new_table

_PAGE = 4096  # bytes


def figures(section: str, cell: dict[str, Any]) -> dict[str, float]:
    """Seconds a batch, CPU seconds, and bytes that the join added to what was resident before it.

    Of the core the mean counts, for it puts off work from batch to batch; of Spark, whose scheduler is uneven, the median.
    """
    seconds = (fmean if section == "core" else median)(cell["samples"])
    return {"time": seconds, "CPU": cell["cpu"], "memory": max(_PAGE, cell["peak"] - cell["base"])}


def report_compare(raw: dict[str, Any], console: Console) -> bool:
    """Print the table; return whether the median of every case's ratios is within the limit: one round alone may be noise."""
    limit, pairs = 1 + raw["parameters"]["limit"], raw["pairs"]
    columns = ("time", "min–max", "CPU", "memory", "min–max ", "rows/s", "MiB", "")
    title = f"{raw['machine']['commit']} beside {raw['other'][:9]}: this/other, median of the rounds"
    table = new_table(title, "case", *columns)
    table.columns[0].justify = "left"
    passed = True
    for case in dict.fromkeys(p["case"] for p in pairs):
        mine, theirs = (
            [figures(p["section"], p[tree]) for p in pairs if p["case"] == case] for tree in ("this", "other")
        )
        ratios = {name: [a[name] / b[name] for a, b in zip(mine, theirs, strict=True)] for name in mine[0]}
        time, cpu, memory = (f"{median(values):.3f}" for values in ratios.values())
        spread = {name: f"{min(values):.3f}–{max(values):.3f}" for name, values in ratios.items()}
        within = max(median(ratios["time"]), median(ratios["memory"])) <= limit
        batch = next(p["this"]["batch"] for p in pairs if p["case"] == case)
        rate = f"{batch / median(m['time'] for m in mine):,.0f}"
        size = f"{median(m['memory'] for m in mine) / 2**20:.1f}"
        verdict = "[green]within[/]" if within else "[red]beyond[/]"
        table.add_row(case, time, spread["time"], cpu, memory, spread["memory"], rate, size, verdict)
        passed &= within
    console.print(table)
    console.print(f"The limit: a median of at most {limit:.3f} in time and in memory.", highlight=False)
    return passed
