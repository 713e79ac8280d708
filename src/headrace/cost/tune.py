"""Tuning of [MESH] §3.3 for every algorithm: the best rate for a memory budget, and the least memory for a rate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from headrace.cost.choose import preferred
from headrace.cost.facts import Facts
from headrace.cost.models import MODELS, least_memory, mesh_cost, predict
from headrace.cost.prediction import Prediction, refused
from headrace.errors import BadInput, HeadraceError, choice
from headrace.semistream.mesh.mesh_cost import candidate_buffers
from headrace.units import format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_POINTS = 25  # of a curve: smooth enough for a plot


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
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise HeadraceError("a plot needs matplotlib, which is not installed; pip install matplotlib") from error
    figure = Figure(figsize=(10, 4))
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    there = [p for p in answer.predictions if p.rate]
    middle = answer.given if answer.asked == "rate" else (there[0].memory if there else 1 << 26)
    for found in there:
        points = [p for p in curve(found.algorithm, facts, memories_around(middle, facts)) if p.rate]
        left.plot([p.memory / 2**20 for p in points], [p.rate for p in points], label=found.algorithm)
    if answer.asked == "rate":
        left.axvline(answer.given / 2**20, color="grey", linewidth=0.8)
    else:
        left.axhline(answer.given, color="grey", linewidth=0.8)
    left.set(xscale="log", yscale="log", xlabel="memory, MiB", ylabel="stream tuples a second")
    if there:
        left.legend(fontsize=8)
    left.grid(alpha=0.3, which="both")
    _draw_buffers(facts, answer, right)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    return path


def _draw_buffers(facts: Facts, answer: TuningResult, axes: Axes) -> None:
    """Draw MESHJOIN against b, the right half of the plot."""
    axes.set(xscale="log", xlabel="b: pages of MESHJOIN's disk buffer")
    try:
        if answer.asked == "rate":
            points = buffer_curve(facts, memory=int(answer.given))
            axes.set(ylabel="stream tuples a second", title=f"MESHJOIN in {format_size(int(answer.given))}")
        else:
            points = [(b, m / 2**20) for b, m in buffer_curve(facts, rate=answer.given)]
            axes.set(yscale="log", ylabel="memory, MiB", title=f"MESHJOIN for {answer.given:,.0f} tuples/s")
    except BadInput as error:
        axes.set(title=str(error))
        return
    axes.plot([b for b, _ in points], [y for _, y in points])
    axes.grid(alpha=0.3, which="both")


def _named(algorithms: Iterable[str] | None) -> list[str]:
    return list(MODELS) if algorithms is None else [choice("algorithm", name, MODELS) for name in algorithms]
