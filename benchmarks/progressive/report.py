"""Prints the progressive section: times of all systems side by side, and the targets."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.metrics import Target, at_least
from benchmarks.progressive import FIRST, ON_SPARK, OURS, SECTION
from benchmarks.tables import new_table, target_table

RATE = 1_000_000  # tuples a second in memory, at least
SOONER = 20.0  # times: how much sooner the first results must come than from a join that waits for its input
GROWTH = 1.15  # times the budget: the growth of the process at most
ON_SPARK_FACTORS = {10_000: 2.5, 100_000: 5.0}  # times the rows a second of Spark's own join, by rows of a micro-batch


def report_progressive(raw: dict[str, Any], console: Console) -> None:
    cells = [cell for cell in raw["cells"] if cell["section"] == SECTION]
    if not cells:
        return
    console.print(_table(cells))
    console.print(target_table("Targets of the progressive section", targets(cells)))


def _table(cells: list[dict[str, Any]]) -> Table:
    table = new_table(
        "Joins of two streams",
        "system",
        "kind",
        "tuples",
        "memory",
        "arriving",
        f"first {FIRST:,}",
        "all",
        "tuples/s",
        "results",
        "early",
        "grew by",
    )
    for c in cells:
        head = [c["system"], c["kind"], f"{c['rows']:,}", f"{c['memory'] >> 20} MiB"]
        head.append(f"{c['pace']:,}/s" if c["pace"] else "all there")
        if "error" in c:
            table.add_row(*head, c["error"])
            continue
        early = f"{c['early'] / max(1, c['results']):.0%}" if "early" in c else "–"
        table.add_row(
            *head,
            _seconds(c["first"]),
            _seconds(c["seconds"]),
            f"{c.get('counted', c['rows']) / c['seconds']:,.0f}",
            f"{c['results']:,}",
            early,
            f"{c['growth'] / 2**20:.0f} MiB",
        )
    return table


def targets(cells: list[dict[str, Any]]) -> list[Target]:
    """The targets: rate in memory, time of the first results, results equal to those of other systems, and memory."""
    found = [c for c in cells if "error" not in c]
    ours = [c for c in found if c["system"] == OURS]
    theirs = [c for c in found if c["system"] == "spark"]
    out = []
    for c in ours:
        if c["kind"] == ON_SPARK:
            out += _on_spark(c, next((o for o in theirs if o["rows"] == c["rows"]), None))
            continue
        others = [o for o in found if (o["kind"], o["rows"], o["pace"]) == (c["kind"], c["rows"], c["pace"])]
        label = f"{c['kind']}, {c['memory'] >> 20} MiB"
        if c["kind"] == "keys" and not c["flushes"] and not c["pace"]:
            out.append(
                at_least(f"{label}: tuples a second in memory, of 1 million", c["rows"] / c["arrived"], RATE, 1.0)
            )
        for o in others:
            if o["system"] != OURS:
                out.append(_same(f"{label}: results of {o['system']}", c["results"], o["results"]))
            if o["system"] != OURS and c["pace"]:
                name = f"{label}: first {FIRST:,} results sooner than {o['system']}, {c['pace']:,} tuples/s arriving"
                out.append(at_least(name, 1 / c["first"], 1 / o["first"], SOONER))
        if c["flushes"]:
            share = c["growth"] / c["memory"]
            out.append(Target(f"{label}: memory", f"<= {GROWTH:.0%} of the budget", f"{share:.0%}", share <= GROWTH))
    return out


def _on_spark(ours: dict[str, Any], theirs: dict[str, Any] | None) -> list[Target]:
    """The targets on Spark: rows a second compared with Spark's own join, in no more memory."""
    factor, label = ON_SPARK_FACTORS[ours["rows"]], f"keys on Spark, micro-batches of {ours['rows']:,}"
    if theirs is None:
        return [Target(label, f">= {factor} x", "not measured", None)]
    rate, other = (c["counted"] / c["seconds"] for c in (ours, theirs))
    total = Target(
        f"{label}: memory of JVM and Python workers",
        f"<= {theirs['total'] >> 20} MiB",
        f"{ours['total'] >> 20} MiB",
        ours["total"] <= theirs["total"],
    )
    return [
        at_least(f"{label}: rows/s beside Spark's join with RocksDB, state format 4", rate, other, factor),
        total,
        _same(f"{label}: results", ours["results"], theirs["results"]),
    ]


def _same(name: str, mine: int, theirs: int) -> Target:
    return Target(name, f"{theirs:,}", f"{mine:,}", mine == theirs)


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f} s"
