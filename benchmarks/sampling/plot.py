"""Error of estimates against memory: how far off they are, and how wide their intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def plot(file: Path, cells: list[dict[str, Any]]) -> Path:
    """Draw the estimates of a results file."""
    cells = sorted(cells, key=lambda cell: cell["memory"])
    megabytes = [cell["memory"] / 2**20 for cell in cells]
    figure, axes = plt.subplots(figsize=(5.5, 3.6))
    axes.plot(megabytes, [100 * c["width"] for c in cells], marker="s", color="#1f77b4", label="half of a 95% interval")
    axes.plot(megabytes, [100 * c["off"] for c in cells], marker="o", color="#d62728", label="error")
    axes.set_xscale("log", base=2)
    axes.set_xlabel("memory, MiB")
    axes.set_ylabel("% of the pairs of the windows")
    axes.set_ylim(bottom=0)
    axes.set_title(f"Pairs of two windows of {cells[0]['window']:,} rows, estimated", fontsize=9)
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize=8)
    out = file.with_name(f"{file.stem}-sampling.png")
    figure.savefig(out, dpi=130, bbox_inches="tight")
    plt.close(figure)
    return out
