"""Tables as the reports print them."""

from __future__ import annotations

from rich.table import Table

from benchmarks.metrics import Target

_WORDS = {True: "[green]pass[/]", False: "[red]miss[/]", None: "–"}


def new_table(title: str, *columns: str) -> Table:
    table = Table(title=title)
    for name in columns:
        table.add_column(name, justify="left" if name in ("workload", "system") else "right")
    return table


def target_table(title: str, judged: list[Target]) -> Table:
    """Each target, the figure reached, and whether that is enough."""
    table = Table(title=title)
    for name in ("target", "wanted", "got", ""):
        table.add_column(name)
    for t in judged:
        table.add_row(t.name, t.wanted, t.got, _WORDS[t.passed])
    return table
