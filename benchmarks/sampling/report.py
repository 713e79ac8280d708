"""Prints the sampling section: rates and memory side by side, and the targets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.metrics import Target, at_least
from benchmarks.sampling import SECTION
from benchmarks.sampling.plot import plot
from benchmarks.tables import new_table, target_table

RATE = 1_000_000  # tuples a second of every sampler, but Chain over a window by time, at least
ON_SPARK = 5.0  # times the rows a second of Spark's exact join, for a sample of a tenth
GROWTH = 1.15  # times the budget: the growth of a join's process at most


def report_sampling(raw: dict[str, Any], console: Console, file: Path) -> None:
    cells = [cell for cell in raw["cells"] if cell["section"] == SECTION]
    if not cells:
        return
    console.print(_table("Samplers of a tenth of a window", [c for c in cells if c["kind"] in ("rows", "time")]))
    console.print(_table("Window joins", [c for c in cells if c["kind"] == "join"]))
    console.print(_table("Window joins on Spark", [c for c in cells if c["kind"] == "spark"]))
    estimated = [c for c in cells if c["kind"] == "estimate" and "width" in c]
    if estimated:
        console.print(_estimates(estimated))
        console.print(f"Plot: {plot(file, estimated)}")
    covered = [c for c in cells if "coverage" in c]
    if covered:
        console.print(_coverage(covered))
    console.print(target_table("Targets of the sampling section", targets(cells)))


def _table(title: str, cells: list[dict[str, Any]]) -> Table:
    table = new_table(title, "system", "window", "by", "tuples", "tuples/s", "held", "grew by", "results")
    for c in cells:
        memory = f", {c['memory'] >> 20} MiB" if c["memory"] else ""
        by = f"micro-batches of {c['batch']:,}" if c.get("batch") else c["kind"]
        head = [c["system"] + memory, f"{c['window']:,}", by, f"{c['rows']:,}"]
        if "error" in c:
            table.add_row(*head, c["error"])
            continue
        table.add_row(
            *head,
            f"{c['rows'] / c['seconds']:,.0f}",
            f"{c['held'] / 2**20:.1f} MiB",
            f"{c['growth'] / 2**20:.0f} MiB",
            f"{c['results']:,}" if "results" in c else "–",
        )
    return table


def _estimates(cells: list[dict[str, Any]]) -> Table:
    table = new_table("Pairs of two windows, estimated", "window", "memory", "error", "half width", "covered")
    for c in cells:
        head = f"{c['window']:,}", f"{c['memory'] / 2**20:.1f} MiB"
        table.add_row(*head, f"{c['off']:.2%}", f"{c['width']:.2%}", f"{c['covered']} of {c['of']}")
    return table


def _coverage(cells: list[dict[str, Any]]) -> Table:
    quantities = list(cells[0]["coverage"])
    table = new_table("What intervals of 95% cover, and half of their width", "data", "window", "windows", *quantities)
    for c in cells:
        shown = [f"{c['coverage'][q]:.1%}, ±{c['widths'][q]:.1%}" for q in quantities]
        table.add_row(c["system"], c["kind"].removeprefix("coverage "), f"{c['rows']:,}", *shown)
    return table


def targets(cells: list[dict[str, Any]]) -> list[Target]:
    """The targets: the rate of samplers, results of the exact join, and memory of the join with a budget."""
    out = []
    for c in [c for c in cells if "error" not in c and c["kind"] != "estimate"]:
        label = f"{c['system']}, window of {c['window']:,} by {c['kind']}"
        if "coverage" in c:
            low, high = min(c["coverage"].values()), max(c["coverage"].values())
            of = f"{c['system']} data, {c['kind']} of intervals of 95%"
            out.append(Target(of, "94% to 96%", f"{low:.1%} to {high:.1%}", low >= 0.94 and high <= 0.96))
        elif c["kind"] == "spark":
            out += _on_spark(c, cells)
        elif c["kind"] != "join":
            if (c["system"], c["kind"]) != ("Chain", "time"):
                out.append(at_least(f"{label}: tuples a second, of 1 million", c["rows"] / c["seconds"], RATE, 1.0))
        elif c["system"] == "all":
            for o in cells:
                if (o["system"], o["window"]) == ("duckdb", c["window"]) and "error" not in o:
                    same = c["results"] == o["results"]
                    out.append(Target(f"{label}: results of DuckDB", f"{o['results']:,}", f"{c['results']:,}", same))
        elif c["memory"]:
            share = c["growth"] / c["memory"]
            out.append(Target(f"{label}: memory", f"<= {GROWTH:.0%} of the budget", f"{share:.0%}", share <= GROWTH))
    return out


def _on_spark(cell: dict[str, Any], cells: list[dict[str, Any]]) -> list[Target]:
    """A sample of a tenth beside Spark's exact join, and the results of all beside Spark's."""
    other = [
        o
        for o in cells
        if (o["system"], o["kind"], o["window"], o["batch"]) == ("spark", "spark", cell["window"], cell["batch"])
        and "error" not in o
    ]
    if not other or cell["system"] == "spark" or cell["memory"]:
        return []
    label = f"{cell['system']} on Spark, window of {cell['window']:,}, micro-batches of {cell['batch']:,}"
    if cell["system"] == "all":
        if cell["batches"] != other[0]["batches"]:
            return []  # one of them was stopped
        same = cell["results"] == other[0]["results"]
        return [Target(f"{label}: results of Spark's join", f"{other[0]['results']:,}", f"{cell['results']:,}", same)]
    rates = [c["rows"] / c["seconds"] for c in (cell, other[0])]
    return [at_least(f"{label}: rows a second beside Spark's exact join", *rates, ON_SPARK)]
