"""Prints the section of the feed desk, and its targets."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.feeds import FEEDPARSER, OURS, SECTION
from benchmarks.feeds.desk import percentile
from benchmarks.metrics import Target, at_least
from benchmarks.tables import new_table, target_table

OVER_FEEDPARSER = 10.0  # times its items a second
GROWTH = 1.15  # times the budget: the growth of a join's process at most
WITHIN = 1.0  # seconds from a pull to the page, for 95% of all items


def report_feeds(raw: dict[str, Any], console: Console) -> None:
    cells = [cell for cell in raw["cells"] if cell["section"] == SECTION]
    if not cells:
        return
    parsed = [cell for cell in cells if cell["kind"] == "parse"]
    table = new_table("Parsing feeds of 50 items, on a core", "system", "feeds", "items/s", "MB/s", "grew by")
    for c in parsed:
        if "error" in c:
            table.add_row(c["system"], c["error"])
            continue
        rate, megabytes = c["items"] / c["seconds"], c["bytes"] / c["seconds"] / 1e6
        table.add_row(
            c["system"], f"{c['feeds']:,}", f"{rate:,.0f}", f"{megabytes:,.0f}", f"{c['growth'] / 2**20:.0f} MiB"
        )
    console.print(table)
    console.print(_delays([cell for cell in cells if cell["kind"] == "delay"]))
    console.print(_memory([cell for cell in cells if cell["kind"] == "memory"]))
    console.print(target_table("Targets of the feed desk", targets(cells)))


def _delays(cells: list[dict[str, Any]]) -> Table:
    table = new_table("From a pull to the page, in seconds", "system", "items", "half within", "95% within", "longest")
    for c in cells:
        if "error" in c:
            table.add_row(c["system"], c["error"])
            continue
        parts = (percentile(c["delays"], part) for part in (0.5, 0.95, 1.0))
        table.add_row(c["system"], str(len(c["delays"])), *(f"{seconds:.3f}" for seconds in parts))
    return table


def _memory(cells: list[dict[str, Any]]) -> Table:
    table = new_table(
        "A join of feeds with spill", "system", "items", "budget", "in use", "grew by", "flushed", "items/s"
    )
    for c in cells:
        if "error" in c:
            table.add_row(c["system"], c["error"])
            continue
        sizes = (f"{c[name] / 2**20:.1f} MiB" for name in ("budget", "peak", "growth"))
        rate = c["items"] / c["seconds"]
        table.add_row(c["system"], f"{c['items']:,}", *sizes, f"{c['spilled']:,} items", f"{rate:,.0f}")
    return table


def targets(cells: list[dict[str, Any]]) -> list[Target]:
    """The targets: items a second beside feedparser, the delay to the page, and the budget kept."""
    judged = []
    for c in cells:
        if c["kind"] == "delay" and "error" not in c:
            reached = percentile(c["delays"], 0.95)
            judged.append(
                Target(f"95% on the page, {c['system']}", f"within {WITHIN:g} s", f"{reached:.3f} s", reached <= WITHIN)
            )
        if c["kind"] == "memory" and "error" not in c:
            share = c["growth"] / c["budget"]
            kept = c["peak"] <= c["budget"] and share <= GROWTH and c["spilled"] > 0
            judged.append(
                Target("memory of a join, with spill", f"<= {GROWTH:.0%} of the budget", f"{share:.0%}", kept)
            )
    rates = {c["system"]: c["items"] / c["seconds"] for c in cells if c["kind"] == "parse" and "error" not in c}
    if not {OURS, FEEDPARSER} <= set(rates):
        return judged
    return [*judged, at_least("items a second, beside feedparser", rates[OURS], rates[FEEDPARSER], OVER_FEEDPARSER)]
