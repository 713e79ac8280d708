"""Rows a second by system: one panel a batch size and workload, bars in groups by the size of R."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from benchmarks.spark import FORMS, LOAD, OURS, PASS_NARROW, PASS_WIDE
from benchmarks.spark.metrics import SparkMeasurement, limit

_COLOURS = dict(zip((OURS, *FORMS), ("#d62728", "#1f77b4", "#2ca02c", "#9467bd", "#7f7f7f"), strict=True))
_LINES = {PASS_WIDE: "--", PASS_NARROW: ":"}
_WIDTH = 0.8  # of a group of bars


def plot(path: Path, found: list[SparkMeasurement]) -> Path:
    joined = [m for m in found if m.system in _COLOURS]
    workloads = list(dict.fromkeys(m.workload for m in joined))
    lines = list(dict.fromkeys((m.section, m.batch) for m in sorted(joined, key=lambda m: (m.section, m.batch))))
    figure, panels = plt.subplots(
        len(lines),
        len(workloads),
        sharey=True,
        squeeze=False,
        figsize=(max(7.0, 3.6 * len(workloads) + 1), 2.6 * len(lines) + 1),
    )
    for i, (section, batch) in enumerate(lines):
        for j, workload in enumerate(workloads):
            axes = panels[i][j]
            here = [m for m in joined if (m.section, m.batch, m.workload) == (section, batch, workload)]
            if not here:
                axes.set_axis_off()
                continue
            _bars(axes, here)
            if section != LOAD:
                _limits(axes, found, batch)
            axes.set_title(f"{'load' if section == LOAD else 'join'}, {workload}, batch {batch:,}", fontsize=9)
            if j == 0:
                axes.set_ylabel("rows/s")
    handles = {}
    for axes in panels.flat:
        handles.update(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(list(handles.values()), list(handles), loc="lower center", ncols=len(handles), fontsize=8)
    figure.suptitle("Stream joined with rows of 115 bytes on Spark, two cores", fontsize=11)
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path


def _bars(axes: Axes, here: list[SparkMeasurement]) -> None:
    rows = sorted({m.rows for m in here})
    systems = [s for s in _COLOURS if any(m.system == s for m in here)]
    width = _WIDTH / len(systems)
    for at, system in enumerate(systems):
        rates = {m.rows: m.rate for m in here if m.system == system}
        places = [i - _WIDTH / 2 + (at + 0.5) * width for i in range(len(rows))]
        axes.bar(places, [rates.get(n) or float("nan") for n in rows], width, color=_COLOURS[system], label=system)
        for place, n in zip(places, rows, strict=True):
            if n in rates and rates[n] is None:
                mark = axes.get_xaxis_transform()
                axes.text(place, 0.02, "×", transform=mark, ha="center", color=_COLOURS[system])
    axes.set_xticks(range(len(rows)), [f"{n / 1e6:.3g} M" for n in rows])
    axes.set_yscale("log")
    axes.grid(alpha=0.3, axis="y", which="both")


def _limits(axes: Axes, found: list[SparkMeasurement], batch: int) -> None:
    for system, style in _LINES.items():
        m = limit(found, system, batch)
        if m is not None and m.rate:
            axes.axhline(m.rate, color="black", linestyle=style, linewidth=1, label=system)
