"""What the service section prints: rates side by side, ratios, targets; and its plot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.artist import Artist
from rich.console import Console
from rich.table import Table

from benchmarks.service import AUTO, FREE_INDEX, OURS, SECTION, SYSTEMS
from benchmarks.service.metrics import Row, rows_of, targets
from benchmarks.tables import new_table, target_table


def report_service(raw: dict[str, Any], picture: Path, console: Console) -> None:
    rows = rows_of(raw)
    if not rows:
        return
    console.print(_rates(rows))
    console.print(_ratios(rows))
    judged = targets(rows)
    missed = [t for t in judged if t.passed is False]
    console.print(f"Targets of the service section: {sum(bool(t.passed) for t in judged)} of {len(judged)} hold")
    if missed:
        console.print(target_table("Targets of the service section that are missed", missed))
    refusals: dict[str, int] = {}
    for cell in raw["cells"]:
        if cell["section"] == SECTION and cell.get("refused"):
            refusals[cell["system"]] = refusals.get(cell["system"], 0) + 1
    for system, count in refusals.items():
        console.print(
            f"refused: {system} in {count} cells, whose memory is less than its index and buffers need", highlight=False
        )
    console.print(
        f"{FREE_INDEX}: X-HYBRIDJOIN with its index beside the memory and not in it, as in [XHJ]; it is in no target"
    )
    if any(row.unsettled for row in rows):
        console.print("* the rate still changed by more than 3% from window to window when it was measured")
    console.print(f"Plot: {_plot(picture, rows)}")


def _rates(rows: list[Row]) -> Table:
    systems = [s for s in SYSTEMS if any(s in row.rates for row in rows)]
    table = new_table(
        f"Service rate, tuples/s; {rows[0].rows:,} rows of 120 bytes, tuples of 20",
        "disk",
        "exponent",
        "hot keys",
        "memory",
        *systems,
    )
    for row in rows:
        table.add_row(*_place(row), *(_rate(row, s) for s in systems))
    return table


def _ratios(rows: list[Row]) -> Table:
    table = new_table(
        "AdaptiveJoin and auto beside the others",
        "disk",
        "exponent",
        "hot keys",
        "memory",
        "best published",
        f"{OURS} / best",
        f"{OURS} / ssij",
        f"{OURS} / {FREE_INDEX}",
        "auto chose",
        "auto / best of all",
    )
    for row in rows:
        best = row.best
        ours, auto = row.rates.get(OURS), row.rates.get(AUTO)
        most = max(filter(None, [ours, best[1] if best else None]), default=None)
        table.add_row(
            *_place(row),
            best[0] if best else "–",
            _times(ours / best[1] if ours and best else None),
            _times(row.ratio(OURS, "ssij")),
            _times(row.ratio(OURS, FREE_INDEX)),
            row.chosen or "–",
            _times(auto / most if auto and most else None),
        )
    return table


def _plot(path: Path, rows: list[Row]) -> Path:
    """Rate against memory: one panel a stream and disk, one line a system."""
    machines = list(dict.fromkeys(row.machine for row in rows))
    streams = list(dict.fromkeys((row.exponent, row.order) for row in rows))
    systems = [s for s in SYSTEMS if s != AUTO]
    colours = plt.get_cmap("tab10")
    figure, panels = plt.subplots(
        len(machines),
        len(streams),
        sharex=True,
        sharey="row",
        squeeze=False,
        figsize=(2.9 * len(streams) + 1, 2.9 * len(machines) + 0.9),
    )
    for i, machine in enumerate(machines):
        for j, stream in enumerate(streams):
            axes = panels[i][j]
            here = [row for row in rows if (row.machine, (row.exponent, row.order)) == (machine, stream)]
            for number, system in enumerate(systems):
                line = sorted((100 * row.budget, rate) for row in here if (rate := row.rates.get(system)))
                if line:
                    axes.plot(
                        [x for x, _ in line],
                        [y for _, y in line],
                        marker="o",
                        markersize=3,
                        color=colours(number),
                        label=system,
                        linewidth=2.4 if system == OURS else 1.2,
                        linestyle=":" if system == FREE_INDEX else "-",
                    )
            axes.set_yscale("log")
            axes.set_title(f"{machine}, {_hot(here[0])}", fontsize=9)
            axes.grid(alpha=0.3, which="both")
            if i == len(machines) - 1:
                axes.set_xlabel("memory, % of R")
            if j == 0:
                axes.set_ylabel("stream tuples/s")
    handles: dict[str, Artist] = {}
    for axes in panels.flat:
        handles.update(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(list(handles.values()), list(handles), loc="lower center", ncols=5, fontsize=8)
    figure.suptitle(f"Service rate on simulated disks, {rows[0].rows:,} rows of 120 bytes")
    figure.tight_layout(rect=(0, 0.09, 1, 1))
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path


def _hot(row: Row) -> str:
    return "exponent 0" if row.exponent == 0 else f"exponent {row.exponent:g}, {row.order}"


def _place(row: Row) -> tuple[str, str, str, str]:
    return row.machine, f"{row.exponent:g}", "–" if row.exponent == 0 else row.order, f"{row.budget:.0%}"


def _rate(row: Row, system: str) -> str:
    if system not in row.rates:
        return "–"
    rate = row.rates[system]
    if rate is None:
        return "refused"
    return f"{rate:,.0f}{'*' if system in row.unsettled else ''}"


def _times(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.2f} x"
