"""A figure as PNG."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from reproduction.figure import Figure
from reproduction.run import Raw, curves_of

_MARKERS = "os^Dv*PX"


def plot(figure: Figure, raw: Raw, path: Path) -> None:
    """Draw the curves of a figure, or what it is instead."""
    if figure.draw is not None:
        figure.draw(raw, path)
        return
    fig, axes = plt.subplots(figsize=(5.4, 3.4))
    instead = curves_of(figure, raw, figure.over) if figure.over else {}
    for marker, (name, points) in zip(_MARKERS * 4, curves_of(figure, raw).items(), strict=False):
        if name in instead:
            points = [(x, y) for (_, x), (_, y) in zip(instead[name], points, strict=True)]
        if points:
            axes.plot(*zip(*points, strict=True), marker=marker, markersize=4, linewidth=1.2, label=name)
    if "x" in figure.log:
        axes.set_xscale("log")
        xs = sorted({x for points in curves_of(figure, raw).values() for x, _ in points})
        axes.set_xticks(xs[:: -(-len(xs) // 8)], [f"{x:.3g}" for x in xs[:: -(-len(xs) // 8)]])
        axes.minorticks_off()
    if "y" in figure.log:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(figure.over or figure.x)
    axes.set_ylabel(figure.y)
    axes.grid(alpha=0.3, which="both" if figure.log else "major")
    axes.legend(fontsize=8)
    fig.tight_layout()
    # No date inside: the same results give the same file.
    fig.savefig(path, dpi=90, metadata={"Software": None})
    plt.close(fig)


def draw_courses(raw: Raw, path: Path) -> None:
    """Draw the error against snapshots of the first run: a panel for each size of the sample, as in the text."""
    names = list(dict.fromkeys(cell["series"] for cell in raw["cells"]))
    sizes = sorted({cell["x"] for cell in raw["cells"]})
    fig, panels = plt.subplots(2, 3, figsize=(10, 5.6))
    for letter, size, axes in zip("abcde", sizes, panels.flat, strict=False):
        for number, name in enumerate(names):
            for cell in raw["cells"]:
                if (cell["series"], cell["x"]) == (name, size):
                    points = [(i, y) for i, y in enumerate(cell["course"], 1) if y is not None]
                    axes.plot(*zip(*points, strict=True), linewidth=1.0, color=f"C{number}", label=name)
        axes.set_title(f"({letter}) |S| = {size:g} |W|", fontsize=9)
        axes.tick_params(labelsize=7)
        axes.grid(alpha=0.3)
        axes.set_ylim(bottom=0)
    panels.flat[0].set_ylabel("MSE (a sum)", fontsize=8)
    panels.flat[3].set_ylabel("MSE (a sum)", fontsize=8)
    panels.flat[3].set_xlabel("snapshot", fontsize=8)
    panels.flat[4].set_xlabel("snapshot", fontsize=8)
    panels.flat[5].set_axis_off()
    panels.flat[5].legend(*panels.flat[0].get_legend_handles_labels(), loc="center left")
    fig.tight_layout()
    fig.savefig(path, dpi=90, metadata={"Software": None})
    plt.close(fig)
