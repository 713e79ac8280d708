"""How the time of a small micro-batch grows with the table: a committed file of figures, and the chart that it is drawn as.

A measurement replaces lines of the file and draws the chart anew. What the README and the page of benchmarks say of it is then
to be changed by hand; a test compares them with the file.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from rich.console import Console

from benchmarks import results
from benchmarks.spark import BEYOND, FORMS, JOIN, OURS
from benchmarks.spark.metrics import SMALL, best_form, measurements

DOCS = Path(__file__).parents[2] / "docs"
DATA, CHART = DOCS / "data" / "micro-batch.csv", DOCS / "micro-batch.svg"
SPARK = "spark"  # the best of Spark's forms
WORKLOAD = "zipf"
_INK = "#24292f"
_APART = 0.22  # of the width, between sizes that are named


@dataclass(frozen=True)
class _Look:
    """Of a line: what it is called, and where words stand beside it."""

    system: str
    name: str
    colour: str
    offset: tuple[int, int]  # points
    side: str


_LOOKS = (
    _Look(OURS, "Headrace", "#d9622b", (0, 9), "center"),
    _Look(SPARK, "Spark's own join", "#5f6b7a", (-7, 5), "right"),
)


@dataclass(frozen=True)
class Figure:
    """The median of a micro-batch of 10,000 Zipf-distributed rows, and how it was had."""

    rows: int  # of R
    system: str
    milliseconds: int
    memory: str  # of all processes with the page cache
    date: str
    machine: str
    command: str

    @property
    def place(self) -> tuple[int, str]:
        return self.rows, self.system


def read() -> list[Figure]:
    with DATA.open(newline="") as lines:
        kinds = {"rows": int, "milliseconds": int}
        return [Figure(**{k: kinds.get(k, str)(v) for k, v in line.items()}) for line in csv.DictReader(lines)]


def write(figures: Iterable[Figure]) -> None:
    DATA.parent.mkdir(exist_ok=True)
    with DATA.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, [f.name for f in fields(Figure)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(figure) for figure in sorted(figures, key=lambda f: f.place))


def figures(raw: dict[str, Any]) -> list[Figure]:
    """Those of a run: ours beside the best of Spark's forms; of a size with limited memory and without, the limited one."""
    found = [m for m in measurements(raw) if m.section in (BEYOND, JOIN)]
    limits = {(c["section"], c["rows"]): c["limit"] for c in raw["cells"] if c.get("method") == "cgroup"}
    there: dict[tuple[int, str], Figure] = {}
    for m in sorted(found, key=lambda m: m.section == BEYOND):
        ours = m.system == OURS
        if m.workload != WORKLOAD or m.batch != SMALL or not m.seconds or not (ours or m is best_form(found, m.place)):
            continue
        limit = limits.get((m.section, m.rows))
        figure = Figure(
            rows=m.rows,
            system=OURS if ours else SPARK,
            milliseconds=round(m.seconds * 1000),
            memory=f"{limit / 2**30:.1f} GiB" if limit else "all",
            date=raw["date"][:10],
            machine=f"{raw['machine']['cpu']}, local[2]",
            command=raw.get("command") or f"python -m benchmarks {' '.join(raw['parameters']['sections'])}",
        )
        there[figure.place] = figure
    return list(there.values())


def seconds_words(milliseconds: int) -> str:
    """As a reader of the chart sees them: two digits that count."""
    return f"{milliseconds / 1000:.{2 if milliseconds < 1000 else 1}f} s"


def draw(figures: list[Figure]) -> Path:
    """Two lines over the rows of R, both axes from 0, each line named at its end."""
    style = {"font.size": 13, "svg.hashsalt": "headrace", "text.color": _INK, "axes.edgecolor": "#8c959f"}
    with plt.rc_context(style):
        picture, axes = plt.subplots(figsize=(6.4, 3.5))
        _lines(axes, figures)
        axes.set_xlim(0, max(f.rows for f in figures) / 1e6 * 1.12)
        axes.set_ylim(0, max(f.milliseconds for f in figures) / 1000 * 1.15)
        axes.set_xticks(sorted(rows / 1e6 for rows in _named(figures)))
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:.0f} M")
        axes.yaxis.set_major_formatter(lambda y, _: f"{y:.0f} s")
        axes.yaxis.set_major_locator(matplotlib.ticker.MaxNLocator(5, integer=True))
        axes.grid(axis="y", color="#d8dee4", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(length=0, colors="#57606a")
        axes.set_xlabel("rows of the table", color="#57606a")
        axes.set_title("Time of a micro-batch of 10,000 rows", fontsize=15, loc="left", pad=12)
        picture.tight_layout()
        picture.savefig(CHART, metadata={"Date": None})
        plt.close(picture)
    return CHART


def _named(figures: list[Figure]) -> list[int]:
    """Sizes of R, largest first, that have room for words: the largest, and those far enough from it and from each other."""
    sizes = sorted({f.rows for f in figures}, reverse=True)
    named = sizes[:1]
    for rows in sizes[1:]:
        if named[-1] - rows >= _APART * sizes[0]:
            named.append(rows)
    return named


def _lines(axes: Axes, figures: list[Figure]) -> None:
    for look in _LOOKS:
        here = sorted((f for f in figures if f.system == look.system), key=lambda f: f.rows)
        points = [(f.rows / 1e6, f.milliseconds / 1000) for f in here]
        if not points:
            continue
        axes.plot(*zip(*points, strict=True), color=look.colour, linewidth=3, marker="o", markersize=7, clip_on=False)
        for x, y in [point for point, f in zip(points, here, strict=True) if f.rows in _named(figures)]:
            _say(axes, look, seconds_words(round(y * 1000)), x, y)
        x, y = ((points[-1][i] + points[-2:][0][i]) / 2 for i in (0, 1))  # the middle of the last piece
        _say(axes, look, look.name, x, y, weight="bold")


def _say(axes: Axes, look: _Look, words: str, x: float, y: float, weight: str = "normal") -> None:
    axes.annotate(
        words, (x, y), look.offset, textcoords="offset points", ha=look.side, color=look.colour, fontweight=weight
    )


def main(arguments: list[str], console: Console) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks growth", description="Take figures from raw results, if given; then draw the chart."
    )
    parser.add_argument("results", nargs="*", type=Path, help="files that `spark` or `beyond` has left")
    there = {f.place: f for f in (read() if DATA.exists() else [])}
    for file in parser.parse_args(arguments).results:
        new = figures(results.load(file))
        if not new:
            console.print(
                f"{file} has no micro-batches of {SMALL:,} {WORKLOAD} rows, of {OURS} or of {', '.join(FORMS)}"
            )
            return 2
        # One chart is of one machine: what another has measured goes, all of it.
        there = {place: f for place, f in there.items() if f.machine == new[0].machine} | {f.place: f for f in new}
    write(there.values())
    console.print(f"Figures: {DATA}\nChart: {draw(list(there.values()))}", highlight=False)
    return 0
