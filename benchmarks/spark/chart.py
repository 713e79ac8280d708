"""The chart of tables beyond memory: the time of a micro-batch, ours beside the best of Spark's forms."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from benchmarks.spark import BEYOND, OURS
from benchmarks.spark.beyond import SMALL_ROWS
from benchmarks.spark.metrics import SparkMeasurement, best_form

_OURS, _SPARK = "#d9622b", "#9aa5b1"
_HEIGHT = 0.38  # of a bar


def chart(path: Path, found: list[SparkMeasurement]) -> Path | None:
    """Draw a pair of bars for each stream; None if there is none that both have joined."""
    ours = [m for m in found if m.section == BEYOND and m.system == OURS and m.rows > SMALL_ROWS and m.seconds]
    pairs = [(m, rival) for m in ours if (rival := best_form(found, m.place)) is not None and rival.seconds]
    if not pairs:
        return None
    figure, axes = plt.subplots(figsize=(8, 1.1 + 0.62 * len(pairs)))
    longest = max(rival.seconds or 0.0 for _, rival in pairs)
    for number, (mine, rival) in enumerate(reversed(pairs)):
        assert mine.seconds and rival.seconds
        axes.barh(number + _HEIGHT / 2, mine.seconds, _HEIGHT, color=_OURS, label="Headrace" if number == 0 else None)
        label = "Spark's own join" if number == 0 else None
        axes.barh(number - _HEIGHT / 2, rival.seconds, _HEIGHT, color=_SPARK, label=label)
        axes.text(mine.seconds + longest / 100, number + _HEIGHT / 2, f"{mine.seconds:.2f} s", va="center", fontsize=9)
        ratio = f"{rival.seconds:.1f} s: {rival.seconds / mine.seconds:.1f} ×"
        axes.text(rival.seconds + longest / 100, number - _HEIGHT / 2, ratio, va="center", fontsize=9)
    names = [f"{m.rows / 1e6:.0f} million rows, {m.workload}\nmicro-batches of {m.batch:,}" for m, _ in reversed(pairs)]
    axes.set_yticks(range(len(pairs)), names, fontsize=9)
    axes.set_xlim(right=longest * 1.3)
    axes.set_xlabel("seconds of a micro-batch")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, fontsize=9, frameon=False)
    axes.set_title("A table beyond memory", fontsize=11, loc="left")
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path
