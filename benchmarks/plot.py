"""Rows a second against the budget: one panel a workload and batch size, one line a system."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.artist import Artist

from benchmarks.metrics import Measurement
from benchmarks.systems import LOOKUP, OURS

_COLOURS = dict(zip(LOOKUP, ("#d62728", "#1f77b4", "#2ca02c", "#9467bd", "#7f7f7f"), strict=True))


def plot(file: Path, found: list[Measurement]) -> Path:
    """Draw the lookup section of a results file; the largest relation of the run."""
    rows = max(m.rows for m in found)
    here = [m for m in found if m.rows == rows and m.rate and m.budget]
    workloads = list(dict.fromkeys(m.workload for m in found))
    batches = sorted({m.batch for m in found})
    figure, panels = plt.subplots(
        len(batches),
        len(workloads),
        sharex=True,
        sharey=True,
        squeeze=False,
        figsize=(3.2 * len(workloads) + 1, 2.8 * len(batches) + 0.8),
    )
    for i, batch in enumerate(batches):
        for j, workload in enumerate(workloads):
            axes = panels[i][j]
            for system, colour in _COLOURS.items():
                line = sorted(
                    (m.budget or 0.0, m.rate or 0.0)
                    for m in here
                    if (m.system, m.workload, m.batch) == (system, workload, batch)
                )
                if line:
                    axes.plot(
                        [100 * b for b, _ in line],
                        [r for _, r in line],
                        marker="o",
                        color=colour,
                        label=system,
                        linewidth=2.4 if system == OURS else 1.3,
                    )
            axes.set_yscale("log")
            axes.set_title(f"{workload}, batch {batch:,}", fontsize=9)
            axes.grid(alpha=0.3, which="both")
            if i == len(batches) - 1:
                axes.set_xlabel("memory, % of R")
            if j == 0:
                axes.set_ylabel("rows/s")
    handles: dict[str, Artist] = {}
    for axes in panels.flat:
        handles.update(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(list(handles.values()), list(handles), loc="lower center", ncols=len(_COLOURS))
    figure.suptitle(f"Stream joined with {rows:,} rows of 115 bytes on disk, one core")
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    path = file.with_suffix(".png")
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path
