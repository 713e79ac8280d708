"""Tuning of [MESH] §3.3 for every algorithm: the best rate for a memory budget, and the least memory for a rate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from headrace.cost.choose import preferred
from headrace.cost.facts import Facts
from headrace.cost.models import MODELS, least_memory, mesh_cost, predict
from headrace.cost.prediction import Prediction, refused
from headrace.errors import BadInput, choice, missing_extra
from headrace.semistream.mesh.mesh_cost import candidate_buffers
from headrace.units import format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_POINTS = 25  # of a curve: smooth enough for a plot
_DASHES = ("-", "--", "-.", ":")


@dataclass(frozen=True)
class TuningResult:
    """The predictions of every algorithm, the best first.

    Parameters
    ----------
    asked
        "rate" for the best rate in a memory budget, "memory" for the least memory for a rate.
    given
        The memory budget in bytes, or the rate.
    predictions
        One per algorithm; one that cannot run has a rate of 0, and `why` has the reason.
    recommended
        The algorithm to choose; None if none can run.
    """

    asked: Literal["rate", "memory"]
    given: float
    predictions: tuple[Prediction, ...]
    recommended: str | None


def best_rates(facts: Facts, memory: int, algorithms: Iterable[str] | None = None) -> TuningResult:
    """Predict the best rate of every algorithm in a memory budget."""
    found = sorted((predict(name, facts, memory) for name in _named(algorithms)), key=lambda p: -p.rate)
    return TuningResult("rate", memory, tuple(found), preferred(found).algorithm if found[0].rate else None)


def least_memories(facts: Facts, rate: float, algorithms: Iterable[str] | None = None) -> TuningResult:
    """Predict the least memory in which each algorithm keeps up with a rate."""
    if not 0 < rate < float("inf"):
        raise BadInput(f"rate={rate!r} is not a number of tuples a second; give more than 0")
    found = []
    for name in _named(algorithms):
        try:
            found.append(least_memory(name, facts, rate))
        except BadInput as error:
            found.append(refused(name, 0, str(error)))
    found.sort(key=lambda p: (p.rate == 0, p.memory))
    return TuningResult("memory", rate, tuple(found), found[0].algorithm if found[0].rate else None)


def curve(algorithm: str, facts: Facts, memories: Sequence[int]) -> list[Prediction]:
    """Predict the rate of an algorithm for several memory budgets."""
    return [predict(algorithm, facts, memory) for memory in memories]


def memories_around(memory: float, facts: Facts) -> list[int]:
    """Return the memory budgets of a curve: from a tenth of `memory` to ten times it, but not beyond twice the relation."""
    most = max(2 * memory, min(10 * memory, 2.0 * facts.pages * facts.page_size))
    return [int(m) for m in np.geomspace(max(1.0, memory / 10), most, _POINTS)]


def buffer_curve(facts: Facts, *, memory: int | None = None, rate: float | None = None) -> list[tuple[int, float]]:
    """Return the curve of MESHJOIN against b, [MESH] Fig. 5: its rate in a memory budget, or the memory it needs for a rate."""
    if (memory is None) == (rate is None):
        raise BadInput("give memory for the rate against b, or rate for the memory against b: one of them")
    cost = mesh_cost(facts)
    if memory is not None:
        return [(b, cost.rate(memory, b)) for b in candidate_buffers(facts.pages, int(memory / facts.page_bytes))]
    assert rate is not None
    free = 1 - rate * (cost.stream + cost.matches * cost.output)
    if free <= 0:
        raise BadInput(f"rate={rate:,.0f} is more than MESHJOIN keeps up with in any memory")
    points = []
    for b in candidate_buffers(facts.pages, facts.pages):
        w = ceil(rate * cost.loop(0, b) / free)
        points.append((b, cost.memory(w, b)))
    return points


def plot(facts: Facts, answer: TuningResult, path: str | Path) -> Path:
    """Draw rate against memory for every algorithm, and MESHJOIN against b, as PNG."""
    path = Path(path)
    if path.suffix != ".png":
        raise BadInput(f"plot={str(path)!r} does not end in .png; plots are written as PNG")
    draw(facts, answer).savefig(path, dpi=110)  # files: the user's own plot, which Matplotlib writes
    return path


def draw(facts: Facts, answer: TuningResult) -> Figure:
    """Return the figure that `plot` writes."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise missing_extra("a plot", error) from None
    figure = Figure(figsize=(12, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    _draw_algorithms(facts, answer, left)
    _draw_buffers(facts, answer, right)
    return figure


def _draw_algorithms(facts: Facts, answer: TuningResult, axes: Axes) -> None:
    """Draw rate against memory, the left half of the plot."""
    there = [p for p in answer.predictions if p.rate]
    if not there:
        in_memory = f"no algorithm can run in {format_size(int(answer.given))}"
        _say_instead(
            axes, in_memory if answer.asked == "rate" else f"no algorithm keeps up with {answer.given:,.0f} tuples/s"
        )
        return
    middle = answer.given if answer.asked == "rate" else there[0].memory
    names = list(MODELS)
    for found in there:
        points = [p for p in curve(found.algorithm, facts, memories_around(middle, facts)) if p.rate]
        # An algorithm looks the same in every plot. Curves may lie on each other: widths and dashes let the lower one show.
        number = names.index(found.algorithm)
        look: dict[str, Any] = {
            "color": f"C{number}",
            "linestyle": _DASHES[number % len(_DASHES)],
            "linewidth": 2.6 - 0.2 * number,
            "zorder": 2 + number,
        }
        axes.plot([p.memory for p in points], [p.rate for p in points], label=found.algorithm, **look)
    if answer.asked == "rate":
        axes.axvline(answer.given, color="grey", linewidth=0.8, label=f"budget: {format_size(int(answer.given))}")
    else:
        axes.axhline(answer.given, color="grey", linewidth=0.8, label=f"wanted: {answer.given:,.0f}/s")
    axes.set(xscale="log", yscale="log", xlabel="memory", ylabel="stream tuples a second")
    _label_sizes(axes.xaxis)
    _label_numbers(axes.yaxis)
    axes.set_title("Rate against memory")
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=9, frameon=False, borderaxespad=0)
    axes.grid(alpha=0.3)


def _draw_buffers(facts: Facts, answer: TuningResult, axes: Axes) -> None:
    """Draw MESHJOIN against b, the right half of the plot."""
    in_memory = answer.asked == "rate"
    within = format_size(int(answer.given)) if in_memory else f"{answer.given:,.0f} tuples/s"
    try:
        points = buffer_curve(facts, memory=int(answer.given)) if in_memory else buffer_curve(facts, rate=answer.given)
    except BadInput:
        points = []
    points = [(b, y) for b, y in points if y > 0]
    if not points:
        cannot = f"meshjoin cannot run in {within}" if in_memory else f"meshjoin keeps up with {within} in no memory"
        _say_instead(axes, cannot)
        return
    axes.plot([b for b, _ in points], [y for _, y in points], color=f"C{list(MODELS).index('meshjoin')}", marker=".")
    axes.set(xscale="log", xlabel="b: pages of meshjoin's disk buffer")
    _label_numbers(axes.xaxis)
    if in_memory:
        axes.set(ylabel="stream tuples a second", title=f"meshjoin in {within}, by b", ylim=(0, None))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    else:
        axes.set(yscale="log", ylabel="memory", title=f"meshjoin for {within}, by b")
        _label_sizes(axes.yaxis)
    axes.grid(alpha=0.3)


def _label_sizes(axis: Axis) -> None:
    """Label a logarithmic axis of bytes with few sizes in powers of two, between which nothing is labelled."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_major_locator(LogLocator(base=2, numticks=7))
    axis.set_major_formatter(FuncFormatter(lambda value, _: format_size(round(value))))
    axis.set_minor_locator(NullLocator())


def _label_numbers(axis: Axis) -> None:
    """Label a logarithmic axis with 1, 2 or 5 times a power of ten, written out."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    low, high = axis.get_view_interval()
    close = high < 100 * max(low, 1e-9)
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if close else (1.0,), numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def _say_instead(axes: Axes, text: str) -> None:
    """Say why there is nothing to draw."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", wrap=True)


def _named(algorithms: Iterable[str] | None) -> list[str]:
    return list(MODELS) if algorithms is None else [choice("algorithm", name, MODELS) for name in algorithms]
