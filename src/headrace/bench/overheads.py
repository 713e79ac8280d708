"""Overheads: the time of algorithms on this machine besides reads and steps, fitted to runs on a small relation.

[MESH] adds up reads and steps, each measured by itself, which explains the time on its machine. Here a good part of an iteration
of a few milliseconds is the interpreter's time, which differs between algorithms and belongs to no step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from headrace.bench.relations import RelationSpec, make_relation
from headrace.bench.service import MeasuringOptions, service_rate
from headrace.bench.streams import Zipf
from headrace.cost.facts import Facts, Machine
from headrace.cost.models import MODELS, predict
from headrace.cost.prediction import Work
from headrace.metrics import Overhead
from headrace.relation import Relation
from headrace.relation.disk import Disk

_ROWS, _QUICK_ROWS = 400_000, 50_000  # tuples of the relations
_MEMORIES = (1 << 20, 3 << 20, 9 << 20)  # bytes of the budgets: 2% to 20% of the larger relation
_EXPONENTS = (0.0, 1.0)  # skews of the streams: uniform, and Zipf's law
_FEW = 1000  # stream tuples: the unit of the lengths of runs
_QUICKER = 0.5  # share of the disk's time by which a request may be faster than calibrated
_TUNED = (
    "meshjoin",
    "rmeshjoin",
    "hybridjoin",
    "xhybridjoin",
)  # algorithms that choose their sizes by their cost; AMESHJOIN takes the overhead of MESHJOIN
_STEPS = (0.5, 3.0)  # plausible factors on the time of steps; beyond them a fit is rejected


def measure_overheads(
    directory: Path, disk: Disk, machine: Machine, *, quick: bool = False, report: Callable[[], None] = lambda: None
) -> dict[str, Overhead]:
    """Measure the overhead of every algorithm on relations made in a directory. `quick` uses one budget and fewer tuples.

    The published algorithms choose their sizes by their own cost, which includes an overhead that is not known yet. So such an
    algorithm is run once with a guess, which gives a rough overhead, and then measured with the sizes that it chooses by that.
    """
    found: dict[str, Overhead] = {}
    for algorithm in MODELS:
        about: dict[str, Overhead] = {}
        if algorithm == "ameshjoin":
            about = {algorithm: found["meshjoin"]}
        elif algorithm in _TUNED:
            about = {algorithm: disk.overhead(algorithm)}
            if not quick:
                here = replace(machine, overheads=about)
                about = {algorithm: _fit(_runs(algorithm, directory, disk, here, exponents=_EXPONENTS[:1]))}
        there, here = replace(disk, overheads=about), replace(machine, overheads=about)
        exponents = _EXPONENTS[1:] if quick else _EXPONENTS
        found[algorithm] = _fit(_runs(algorithm, directory, there, here, exponents=exponents, quick=quick))
        report()
    return found


def _fit(runs: Iterator[tuple[Work, float]]) -> Overhead:
    seen = list(runs)
    return fitted_overhead([work for work, _ in seen], [seconds for _, seconds in seen])


def options_of(algorithm: str, exponent: float) -> dict[str, Any]:
    """Return the options that an algorithm is measured with: the skew, or the unordered execution."""
    return {"skew": exponent} if "hybrid" in algorithm else {"order": "any"} if algorithm == "adaptive" else {}


def _runs(
    algorithm: str, directory: Path, disk: Disk, machine: Machine, *, exponents: Sequence[float], quick: bool = False
) -> Iterator[tuple[Work, float]]:
    for exponent in exponents:
        rows = _QUICK_ROWS if quick else _ROWS
        stream = Zipf(rows, exponent, "permuted")
        made = RelationSpec(rows, popularity=stream if algorithm == "xhybridjoin" else None)
        with make_relation(directory, made, disk=disk) as relation:
            for memory in _MEMORIES[:1] if quick else _MEMORIES:
                total = memory + (relation.index_bytes if relation.order == "frequency" else 0)
                yield _run(algorithm, relation, stream, total, machine, quick=quick)


def _run(
    algorithm: str, relation: Relation, stream: Zipf, memory: int, machine: Machine, *, quick: bool
) -> tuple[Work, float]:
    """Return the cost of a tuple by the model without overheads, and its time as measured."""
    facts = Facts.of(relation, skew=stream.exponent, stream_bytes=stream.tuple_bytes, machine=machine)
    work = predict(algorithm, facts, memory).work
    assert work is not None
    # A window join gets twice as many tuples as its memory holds; INL a few times the frames of its pool.
    many = (2 if quick else 6) * _FEW if algorithm == "inl" else max(20 * _FEW, memory // (48 if quick else 24))
    scans = algorithm.endswith("meshjoin")
    measuring = MeasuringOptions(loops=1 if quick else 3) if scans else MeasuringOptions(warm=many, tuples=many)
    options = options_of(algorithm, stream.exponent)
    found = service_rate(algorithm, relation, stream, memory, measuring=measuring, **options)
    return work, 1 / found.rate


def fitted_overhead(works: Sequence[Work], seconds: Sequence[float]) -> Overhead:
    """Fit the overhead to measured times by least squares of the relative error.

    Every subset of the three parts is tried, and the best fit with plausible parts wins. A request may take less than the
    calibrated time of the disk, because the calibration reads at random places of a large file.

    Example
    -------
    >>> some = [Work(1e-6, 1e-6, 1 / w, 2 / w) for w in (10, 100, 1000)] + [Work(5e-6, 3e-6, 0.01, 0.1)]
    >>> found = fitted_overhead(some, [work.seconds(Overhead(2.0, 1e-4, 3e-4)) for work in some])
    >>> round(found.steps, 3), round(found.iteration, 6), round(found.request, 6)
    (2.0, 0.0001, 0.0003)
    """
    t = np.array(seconds)
    read = np.array([work.read for work in works])
    columns = np.array([[work.steps, work.iterations, work.requests] for work in works])
    quicker = max((-_QUICKER * work.read / work.requests for work in works if work.requests), default=0.0)
    least, most = np.array([_STEPS[0], 0.0, quicker]), np.array([_STEPS[1], np.inf, np.inf])
    best, chosen = np.inf, np.array([1.0, 0.0, 0.0])
    for count in range(4):
        for some in combinations(
            (1, 2, 0), count
        ):  # the iteration first: it is preferred if the runs are too few to tell
            parts = np.where(np.isin(np.arange(3), some), 0.0, [1.0, 0.0, 0.0])
            rest = (t - read - columns @ parts) / t
            free = list(some)
            parts[free] = np.linalg.lstsq(columns[:, free] / t[:, None], rest, rcond=None)[0] if free else []
            error = float((((read + columns @ parts) / t - 1) ** 2).sum())
            if (parts >= least).all() and (parts <= most).all() and error < best * (1 - 1e-9):
                best, chosen = error, parts
    return Overhead(*(float(part) for part in chosen))
