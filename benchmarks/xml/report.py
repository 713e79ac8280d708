"""Prints the XML section: rates side by side, and the targets."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.metrics import Target, at_least
from benchmarks.tables import new_table, target_table
from benchmarks.xml import MANY, SECTION

RATE = 300e6  # bytes a second of one twig, at least, on a core
OVER_ITERPARSE = 6.0  # times lxml's iterparse
MANY_COST = 10.0  # times the cost of one twig, for a thousand
GROWTH = 64 << 20  # bytes that the process may grow by


def report_xml(raw: dict[str, Any], console: Console) -> None:
    cells = [cell for cell in raw["cells"] if cell["section"] == SECTION]
    if not cells:
        return
    for kind, title in (("tokenise", "Tokenising"), ("twig", "One twig with two predicates")):
        console.print(_table(title, [c for c in cells if c["kind"] == kind]))
    console.print(target_table("Targets of the XML section", targets(cells)))


def _table(title: str, cells: list[dict[str, Any]]) -> Table:
    table = new_table(title, "system", "document", "MB/s", "MB/s of CPU", "grew by", "events or fragments")
    for c in cells:
        head = [c["system"], f"{c['size'] / 1e6:,.0f} MB"]
        if "error" in c:
            table.add_row(*head, c["error"])
            continue
        rates = (f"{c['bytes'] / c[time] / 1e6:,.0f}" for time in ("seconds", "cpu"))
        table.add_row(*head, *rates, f"{c['growth'] / 2**20:.0f} MiB", f"{c['results']:,}")
    return table


def targets(cells: list[dict[str, Any]]) -> list[Target]:
    """The targets: the rate of one twig, alone and beside lxml, its results and memory, and the cost of a thousand."""
    out = []
    for c in cells:
        if (c["system"], c["kind"]) != ("headrace", "twig") or "error" in c:
            continue
        label = f"one twig, {c['size'] / 1e6:,.0f} MB"
        others = {o["system"]: o for o in cells if (o["kind"], o["size"]) == ("twig", c["size"]) and "error" not in o}
        out.append(at_least(f"{label}: bytes a second, of 300 million", c["bytes"] / c["cpu"], RATE, 1.0))
        out.append(Target(f"{label}: growth", "< 64 MiB", f"{c['growth'] / 2**20:.0f} MiB", c["growth"] < GROWTH))
        for system, o in others.items():
            same = o["results"] == c["results"]
            if system.startswith("lxml"):
                out.append(at_least(f"{label}: beside {system}", 1 / c["cpu"], 1 / o["cpu"], OVER_ITERPARSE))
            out.append(Target(f"{label}: fragments of {system}", f"{c['results']:,}", f"{o['results']:,}", same))
        if many := others.get(f"headrace, {MANY:,} twigs"):
            times = many["cpu"] / c["cpu"]
            out.append(
                Target(
                    f"{label}: {MANY:,} twigs", f"<= {MANY_COST:.0f} times", f"{times:.1f} times", times <= MANY_COST
                )
            )
    return out
