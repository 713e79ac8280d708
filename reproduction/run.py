"""Measure the cells of a figure, and keep what they gave; take curves from what was kept."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.errors import HeadraceError
from reproduction.checks import Verdict
from reproduction.figure import Figure, Paper

ROOT = Path(__file__).parent
RESULTS = ROOT / "results"
Raw = dict[str, Any]
Report = Callable[[str], None]


def scale_of(figure: Figure, scale: str | None) -> float:
    """A figure's scale: its own, the paper's ("full"), or a number."""
    return figure.scale if scale is None else 1.0 if scale == "full" else float(scale)


def result_file(paper: Paper, figure: Figure, scale: float, results: Path = RESULTS) -> Path:
    """Where the raw results are."""
    return results / f"{paper.label}-{figure.id}-{scale:g}.json"


def measure(
    paper: Paper, figure: Figure, scale: float, directory: Path, report: Report, results: Path = RESULTS
) -> Raw:
    """Run every cell and keep what it gave."""
    cells = list(figure.cells(scale))
    raw: Raw = {
        "paper": paper.label,
        "figure": figure.id,
        "scale": scale,
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "cells": [],
    }
    directory.mkdir(parents=True, exist_ok=True)
    results.mkdir(parents=True, exist_ok=True)
    for number, cell in enumerate(cells, 1):
        begun = time.perf_counter()
        try:
            found = cell.run(directory)
        except HeadraceError as refusal:
            found = {"refused": str(refusal)}
        took = time.perf_counter() - begun
        raw["cells"].append({"series": cell.series, "x": cell.x, "took": round(took, 2), **found})
        value = found.get(figure.metric)
        shown = f"{value:,.4g}" if value is not None else "refused: " + found.get("refused", "no such value")[:90]
        report(
            f"{paper.label} {figure.id}  {number}/{len(cells)}  {cell.series} at {cell.x:g}: {shown}  ({took:.1f} s)"
        )
    raw["load"] = max(raw["load"], round(os.getloadavg()[0], 1))
    result_file(paper, figure, scale, results).write_text(json.dumps(raw, indent=1))
    return raw


def load(paper: Paper, figure: Figure, scale: float, results: Path = RESULTS) -> Raw | None:
    """What was kept, if anything was."""
    path = result_file(paper, figure, scale, results)
    return json.loads(path.read_text()) if path.exists() else None


def curves_of(figure: Figure, raw: Raw, metric: str | None = None) -> dict[str, list[tuple[float, float]]]:
    """The curves of a figure, or of another of its cells' values, x rising; cells that were refused are not on them."""
    curves: dict[str, list[tuple[float, float]]] = {}
    metric = metric or figure.metric
    for cell in raw["cells"]:
        curves.setdefault(cell["series"], [])
        if metric in cell:
            curves[cell["series"]].append((cell["x"], cell[metric]))
    return {name: sorted(points) for name, points in curves.items()}


def verdicts_of(figure: Figure, raw: Raw) -> list[Verdict]:
    """Every check of a figure; one that cannot look does not hold."""
    found = []
    for value, checks in {"": figure.expected, **figure.also}.items():
        curves, name = curves_of(figure, raw, value), value and f"{value}: "
        for check in checks:
            try:
                verdict = check.look(curves)
            except LookupError as missing:
                verdict = Verdict(str(check), str(missing), False)
            found.append(replace(verdict, expected=name + verdict.expected))
    return found
