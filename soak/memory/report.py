"""What was measured, as lines and as a table."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.units import format_size
from soak.memory.cells import OPERATORS
from soak.memory.measure import Measured
from soak.memory.streams import SHAPES


def verdict(measured: Measured) -> str:
    """One word or two."""
    if measured.refused:
        return "refused"
    return "exceeded" if measured.fault else "kept"


def line(measured: Measured) -> str:
    """One cell, for whoever waits."""
    said = f" ({measured.refused})" if measured.refused else ""
    counted = measured.facts.get("counted", 0)
    return (
        f"{measured.cell!s:42} {measured.growth / 2**20:8.1f} MiB of {measured.allowed / 2**20:7.1f}"
        f" (counted {counted / 2**20:7.1f}, {measured.facts.get('bytes_in', 0) / 2**20:8.0f} MiB in,"
        f" {measured.facts.get('results', 0):,} results) {verdict(measured)}{said}"
        + (f"\n{measured.fault}" if measured.fault else "")
    )


def table(found: Sequence[Measured]) -> str:
    """Cells as Markdown; of a cell that was measured more than once, the last."""
    cells = {m.cell: m for m in found}
    lines = [
        "| Operator | Rows | Budget | Peak growth | Allowed | Share | Verdict |",
        "|---|---|---:|---:|---:|---:|---|",
    ]
    for m in sorted(
        cells.values(),
        key=lambda m: (OPERATORS.index(m.cell.operator), list(SHAPES).index(m.cell.shape), m.cell.budget),
    ):
        seen = "– | – | –" if m.refused else f"{_mib(m.growth)} | {_mib(m.allowed)} | {m.growth / m.allowed:.0%}"
        lines.append(f"| {m.cell.operator} | {m.cell.shape} | {format_size(m.cell.budget)} | {seen} | {verdict(m)} |")
    return "\n".join(lines)


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.1f} MiB"
