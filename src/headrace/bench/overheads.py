"""What algorithms take on this machine besides their reads and steps: each is run on a small relation, and the rest is fitted.

[MESH] adds up reads and steps, each measured by itself, and on its machine that is all there is. Here an iteration of a few
milliseconds has a good part of the interpreter's time in it, which differs between algorithms and belongs to no step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from headrace.bench.relations import MadeRelation, make_relation
from headrace.bench.service import Measuring, service_rate
from headrace.bench.streams import Zipf
from headrace.cost.facts import Facts, Machine
from headrace.cost.models import MODELS, predict
from headrace.cost.prediction import Work
from headrace.metrics import Overhead
from headrace.relation import Relation
from headrace.relation.disk import Disk

_ROWS, _QUICK_ROWS = 400_000, 50_000
_MEMORIES = (1 << 20, 3 << 20, 9 << 20)
_EXPONENTS = (0.0, 1.0)
_FEW = 1000
_QUICKER = 0.5  # of the disk's time, that a request may take less
_TUNED = (
    "meshjoin",
    "rmeshjoin",
    "hybridjoin",
    "xhybridjoin",
)  # choose their sizes by their cost; AMESHJOIN as MESHJOIN
_STEPS = (0.5, 3.0)  # times what factors say: beyond that they would be another machine's


def measure_overheads(
    directory: Path, disk: Disk, machine: Machine, *, quick: bool = False, report: Callable[[], None] = lambda: None
) -> dict[str, Overhead]:
    """Of every algorithm, on relations made in a directory. Quick: one memory, and fewer tuples.

    The published algorithms choose their sizes by what they take themselves to cost, on a machine that nobody has measured by a
    guess. So the model is asked for those sizes too; and since a guess may lead to iterations far shorter or longer than those to
    come, such an algorithm is run once to know about how much its overhead is, and measured with the sizes that it chooses then.
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
    """How an algorithm is measured: told the skew, or with rows that wait, where it has the choice."""
    return {"skew": exponent} if "hybrid" in algorithm else {"order": "any"} if algorithm == "adaptive" else {}


def _runs(
    algorithm: str, directory: Path, disk: Disk, machine: Machine, *, exponents: Sequence[float], quick: bool = False
) -> Iterator[tuple[Work, float]]:
    for exponent in exponents:
        rows = _QUICK_ROWS if quick else _ROWS
        stream = Zipf(rows, exponent, "permuted")
        made = MadeRelation(rows, popularity=stream if algorithm == "xhybridjoin" else None)
        with make_relation(directory, made, disk=disk) as relation:
            for memory in _MEMORIES[:1] if quick else _MEMORIES:
                total = memory + (relation.index_bytes if relation.order == "frequency" else 0)
                yield _run(algorithm, relation, stream, total, machine, quick=quick)


def _run(
    algorithm: str, relation: Relation, stream: Zipf, memory: int, machine: Machine, *, quick: bool
) -> tuple[Work, float]:
    """What a tuple takes by the model without overheads, and as measured."""
    facts = Facts.of(relation, skew=stream.exponent, stream_bytes=stream.tuple_bytes, machine=machine)
    work = predict(algorithm, facts, memory).work
    assert work is not None
    # Joins whose tuples wait: more than can wait in all of the memory, twice; INL, a few times the frames of its pool.
    many = (2 if quick else 6) * _FEW if algorithm == "inl" else max(20 * _FEW, memory // (48 if quick else 24))
    scans = algorithm.endswith("meshjoin")
    measuring = Measuring(loops=1 if quick else 3) if scans else Measuring(warm=many, tuples=many)
    options = options_of(algorithm, stream.exponent)
    found = service_rate(algorithm, relation, stream, memory, measuring=measuring, **options)
    return work, 1 / found.rate


def fitted_overhead(works: Sequence[Work], seconds: Sequence[float]) -> Overhead:
    """The overhead that brings what the model says nearest to what was measured, by least squares of the relative error.

    Of all choices of parts the best in which none is too small to be one. A request may take less than the disk's time for it:
    those of the calibration went all over a large file, one by one.

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
        for some in combinations((1, 2, 0), count):  # if runs are too few to tell, it is an iteration's
            parts = np.where(np.isin(np.arange(3), some), 0.0, [1.0, 0.0, 0.0])
            rest = (t - read - columns @ parts) / t
            free = list(some)
            parts[free] = np.linalg.lstsq(columns[:, free] / t[:, None], rest, rcond=None)[0] if free else []
            error = float((((read + columns @ parts) / t - 1) ** 2).sum())
            if (parts >= least).all() and (parts <= most).all() and error < best * (1 - 1e-9):
                best, chosen = error, parts
    return Overhead(*(float(part) for part in chosen))
