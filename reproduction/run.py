"""Measure the cells of a figure, and keep what they gave as CSV beside its page; take curves from what was kept."""

from __future__ import annotations

import csv
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import reproduction
from headrace.cli.pace import Pace
from headrace.errors import HeadraceError
from reproduction.checks import Verdict
from reproduction.figure import Figure, Paper

ROOT = Path(__file__).parent
RESULTS = ROOT / "results"  # what is not committed: relations, and pages of other scales
DOCS = ROOT.parent / "docs" / "reproduction"
DIGITS = 10  # of a number that is kept: the last of a float's 17 may be another on another processor
_WHEN = ("date", "cores", "load")  # kept of figures in real time alone: all others are the same every time
Raw = dict[str, Any]
Report = Callable[[str], None]


def scale_of(figure: Figure, scale: str | None) -> float:
    """A figure's scale: its own, the paper's ("full"), or a number."""
    return figure.scale if scale is None else 1.0 if scale == "full" else float(scale)


def data_file(paper: Paper, figure: Figure, docs: Path = DOCS) -> Path:
    """Where the raw results are: beside the page."""
    return docs / "data" / f"{paper.label}-{figure.id}.csv"


def measure(paper: Paper, figure: Figure, scale: float, directory: Path, report: Report, docs: Path = DOCS) -> Raw:
    """Run every cell and keep what it gave."""
    cells = list(figure.cells(scale))
    raw: Raw = {"scale": scale, "cells": []}
    load_before = os.getloadavg()[0]
    directory.mkdir(parents=True, exist_ok=True)
    for number, cell in enumerate(cells, 1):
        begun = time.perf_counter()
        try:
            found = cell.run(directory)
        except HeadraceError as refusal:
            found = {"refused": str(refusal).replace(f"{directory}/", "")}  # the same on every machine
        took = time.perf_counter() - begun
        raw["cells"].append({"series": cell.series, "x": cell.x, **found})
        value = found.get(figure.metric)
        shown = f"{value:,.4g}" if value is not None else "refused: " + found.get("refused", "no such value")[:90]
        report(
            f"{paper.label} {figure.id}  {number}/{len(cells)}  {cell.series} at {cell.x:g}: {shown}  ({took:.1f} s)"
        )
    if figure.alone:
        raw["date"] = time.strftime("%Y-%m-%d")
        raw["cores"], raw["load"] = os.cpu_count(), round(max(load_before, os.getloadavg()[0]), 1)
    _save(raw, data_file(paper, figure, docs))
    kept = load(paper, figure, docs)
    assert kept is not None
    return kept


def measure_all(
    paper: Paper,
    figures: list[Figure],
    scale: str | None,
    directory: Path,
    jobs: int,
    docs: Path = DOCS,
    pace: Pace | None = None,
) -> None:
    """Measure figures side by side, and those alone that take real time. `pace` counts them."""
    pace = pace or Pace(len(figures), "figures")
    together = [f.id for f in figures if not f.alone] if jobs > 1 else []
    if len(together) > 1:
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            of = (paper.name, paper.chapter, paper.clock)
            tasks = {pool.submit(_measure_by_name, *of, name, scale, directory, docs): name for name in together}
            for task in as_completed(tasks):
                task.result()
                pace.done(f"{paper.label} {tasks[task]}")
    for figure in figures:
        if len(together) < 2 or figure.alone:
            measure(paper, figure, scale_of(figure, scale), directory, _say, docs)
            pace.done(f"{paper.label} {figure.id}")


def _measure_by_name(
    name: str, chapter: str, clock: Any, figure_id: str, scale: str | None, directory: Path, docs: Path
) -> None:
    """In a process of its own, to which a figure's functions cannot be sent."""
    paper = reproduction.paper(name, chapter).on(clock)
    figure = next(f for f in paper.figures if f.id == figure_id)
    measure(paper, figure, scale_of(figure, scale), directory, _say, docs)


def _say(line: str) -> None:
    print(line, flush=True)


def load(paper: Paper, figure: Figure, docs: Path = DOCS) -> Raw | None:
    """What was kept, if anything was."""
    path = data_file(paper, figure, docs)
    if not path.exists():
        return None
    with path.open(newline="") as file:
        rows = [
            {name: text if name == "series" else _value(text) for name, text in row.items() if text != ""}
            for row in csv.DictReader(file)
        ]
    raw: Raw = {name: rows[0][name] for name in ("scale", *_WHEN) if name in rows[0]}
    apart = raw.keys()
    return raw | {"cells": [{name: value for name, value in row.items() if name not in apart} for row in rows]}


def _save(raw: Raw, path: Path) -> None:
    """A line a cell: the scale, its series and x, and what it gave by name."""
    of_all = {name: raw[name] for name in ("scale", *_WHEN) if name in raw}
    rows = [of_all | _flat(cell) for cell in raw["cells"]]
    names = list(dict.fromkeys(name for row in rows for name in row))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([_text(row[name]) if name in row else "" for name in names] for row in rows)


def _flat(found: Raw, under: str = "") -> Raw:
    """Values of a mapping inside, as `parts.output`."""
    flat: Raw = {}
    for name, value in found.items():
        flat |= _flat(value, f"{under}{name}.") if isinstance(value, dict) else {under + name: value}
    return flat


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(_rounded(value))


def _rounded(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


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
