"""Prints the XML section: rates side by side, and the targets."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.metrics import Target, at_least
from benchmarks.tables import new_table, target_table
from benchmarks.xml import MANY, OURS, SECTION
from benchmarks.xml.measure import SMALL_CHUNK

RATE = 300e6  # bytes a second of one twig, at least, on a core
OVER_ITERPARSE = 6.0  # times lxml's iterparse
MANY_COST = 10.0  # times the cost of one twig, for a thousand
GROWTH = 64 << 20  # bytes that the process may grow by
MORE_PROBES = 0.05  # of rop, more than with selectivities known, at most


TITLES = {
    "tokenise": "Tokenising",
    "twig": "One twig with two predicates",
    "join": "A join of items with closed auctions",
    "first": "Until the first fragment",
    "probes": "Probes of a multi-way join of five documents",
}


def report_xml(raw: dict[str, Any], console: Console) -> None:
    cells = [cell for cell in raw["cells"] if cell["section"] == SECTION]
    if not cells:
        return
    for kind in TITLES:
        if of_kind := [c for c in cells if c["kind"] == kind]:
            console.print(_table(kind, of_kind))
    console.print(target_table("Targets of the XML section", targets(cells)))


def _table(kind: str, cells: list[dict[str, Any]]) -> Table:
    table = new_table(TITLES[kind], "system", "document", *_columns(kind))
    for c in cells:
        head = [c["system"], f"{c['size'] / 1e6:,.0f} MB"]
        if "error" in c:
            table.add_row(*head, c["error"])
            continue
        table.add_row(*head, *_row(kind, c))
    return table


def _columns(kind: str) -> tuple[str, ...]:
    if kind == "first":
        return "bytes read", "the end tag is at", "ms"
    if kind == "probes":
        return ("probes",)
    return (
        "MB/s",
        "MB/s of CPU",
        "grew by",
        "events" if kind == "tokenise" else "fragments" if kind == "twig" else "pairs",
    )


def _row(kind: str, c: dict[str, Any]) -> tuple[str, ...]:
    if kind == "first":
        return f"{c['results']:,}", f"{c['due']:,}", f"{1e3 * c['seconds']:.2f}"
    if kind == "probes":
        return (f"{c['results']:,}",)
    rates = [f"{c['bytes'] / c[time] / 1e6:,.0f}" for time in ("seconds", "cpu")]
    return *rates, f"{c['growth'] / 2**20:.0f} MiB" if "growth" in c else "-", f"{c['results']:,}"


def targets(cells: list[dict[str, Any]]) -> list[Target]:
    """The targets: rates, results and memory of one twig and of a join, the first fragment, a thousand twigs, and probes."""
    measured = [c for c in cells if "error" not in c]
    out = []
    for c in measured:
        others = [o for o in measured if (o["kind"], o["size"]) == (c["kind"], c["size"]) and o is not c]
        if c["system"] == OURS and c["kind"] in ("twig", "join"):
            out += _of_rates(c, {o["system"]: o for o in others})
        elif c["system"] == OURS and c["kind"] == "first":
            read, due = c["results"], c["due"]
            name = f"the first fragment, {c['size'] / 1e6:,.0f} MB: bytes after its end tag"
            out.append(Target(name, f"< {SMALL_CHUNK:,}", f"{read - due:,}", 0 <= read - due < SMALL_CHUNK))
        elif (c["system"], c["kind"]) == ("rop", "probes"):
            least = next((o["results"] for o in others if o["system"] == "apriori"), None)
            if least:
                more = c["results"] / least - 1
                wanted = f"<= {MORE_PROBES:.0%}"
                out.append(
                    Target(
                        "probes of rop, more than a-priori",
                        wanted,
                        f"{more:.1%}",
                        c["results"] <= (1 + MORE_PROBES) * least,
                    )
                )
    return out


def _of_rates(c: dict[str, Any], others: dict[str, dict[str, Any]]) -> list[Target]:
    one = c["kind"] == "twig"
    label = f"{'one twig' if one else 'join'}, {c['size'] / 1e6:,.0f} MB"
    out = [Target(f"{label}: growth", "< 64 MiB", f"{c['growth'] / 2**20:.0f} MiB", c["growth"] < GROWTH)]
    if one:
        out.append(at_least(f"{label}: bytes a second, of 300 million", c["bytes"] / c["cpu"], RATE, 1.0))
    for system, o in others.items():
        same = o["results"] == c["results"]
        if system.startswith("lxml") and one:
            out.append(at_least(f"{label}: beside {system}", 1 / c["cpu"], 1 / o["cpu"], OVER_ITERPARSE))
        found = "fragments" if one else "pairs"
        out.append(Target(f"{label}: {found} of {system}", f"{c['results']:,}", f"{o['results']:,}", same))
    if many := others.get(f"headrace, {MANY:,} twigs"):
        times = many["cpu"] / c["cpu"]
        wanted = f"<= {MANY_COST:.0f} times"
        out.append(Target(f"{label}: {MANY:,} twigs", wanted, f"{times:.1f} times", times <= MANY_COST))
    return out
