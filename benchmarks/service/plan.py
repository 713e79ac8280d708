"""Which cells the service section has, and how one is measured."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.service import AUTO, FREE_INDEX, OURS, PUBLISHED, SECTION
from headrace.bench import MeasuringOptions, RelationSpec, Zipf, make_relation, service_rate
from headrace.bench.streams import KEY, KeyOrder
from headrace.cost import Facts, Observed, choose, disk_of
from headrace.errors import MemoryRefused
from headrace.relation import Relation

_SAMPLED, _SAMPLE_BATCH = 20_000, 5_000  # tuples of the stream that `auto` sees before it chooses


@dataclass(frozen=True)
class Place:
    """What the operators of a row of the table have in common."""

    machine: str
    rows: int
    exponent: float
    order: KeyOrder
    budget: float

    @property
    def stream(self) -> Zipf:
        return Zipf(self.rows, self.exponent, self.order)

    @property
    def memory(self) -> int:
        return int(self.budget * self.rows * RelationSpec(self.rows).tuple_bytes)


@dataclass(frozen=True)
class ServicePlan:
    """What to run of the service section."""

    rows: int
    budgets: tuple[float, ...]
    exponents: tuple[float, ...]
    machines: tuple[str, ...] = ("ssd", "hdd")
    orders: tuple[KeyOrder, ...] = ("key", "permuted")

    def places(self) -> Iterator[Place]:
        for machine, exponent, order, budget in product(self.machines, self.exponents, self.orders, self.budgets):
            if exponent or order == self.orders[0]:  # where all keys are alike there is no order of the hot ones
                yield Place(machine, self.rows, exponent, order, budget)


def measure(place: Place, root: Path) -> list[dict[str, Any]]:
    """Every operator at a place, and what `auto` comes to."""
    rates = {system: _measured(system, place, root) for system in (*PUBLISHED, FREE_INDEX, OURS)}
    rates[AUTO] = _chosen(place, root, rates)
    return [
        {"section": SECTION, "system": system, **asdict(place), "memory": place.memory, **raw}
        for system, raw in rates.items()
    ]


def _measured(system: str, place: Place, root: Path, skew: float | None = None) -> dict[str, Any]:
    algorithm = "xhybridjoin" if system == FREE_INDEX else system
    options: dict[str, Any] = {}
    if algorithm == OURS:
        options["order"] = "any"
    if algorithm in ("hybridjoin", "xhybridjoin"):
        options["skew"] = place.exponent if skew is None else skew
    if system == FREE_INDEX:
        options["count_index"] = False
    relation = _relation(algorithm, place, root)
    begun = time.process_time()
    try:
        found = service_rate(
            algorithm, relation, place.stream, place.memory, measuring=_measuring(algorithm, place), **options
        )
    except MemoryRefused as refusal:
        return {"refused": str(refusal)}
    finally:
        relation.close()
    return {"measured": found.as_dict(), "cpu_seconds": time.process_time() - begun}


def _measuring(algorithm: str, place: Place) -> MeasuringOptions:
    """Joins that take in a few tuples at a time are slow to run and steady: twice what can wait in their memory is enough."""
    few = algorithm in ("hybridjoin", "xhybridjoin", "inl", "ssij")
    return MeasuringOptions(tuples=max(4_000, place.memory // 30) if few else None)


def _chosen(place: Place, root: Path, rates: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What `choose` takes from a sample of the stream, measured.

    A run on a simulated disk is the same every time, so that of the algorithm is taken where it was told nothing else.
    """
    relation = _relation(AUTO, place, root)
    try:
        seen = Observed.of(place.stream.batches(_SAMPLED, _SAMPLE_BATCH), relation, KEY)
        facts: Facts = seen.facts(relation, in_batches=False)
        best = choose(facts, place.memory)
    finally:
        relation.close()
    raw = _measured(best.algorithm, place, root, seen.skew) if "hybrid" in best.algorithm else rates[best.algorithm]
    predictions = {p.algorithm: p.rate for p in best.predictions}
    return {**raw, "chosen": best.algorithm, "why": best.why, "skew": seen.skew, "predicted": predictions}


def _relation(algorithm: str, place: Place, root: Path) -> Relation:
    popular = place.stream if algorithm == "xhybridjoin" else None
    return make_relation(root / SECTION, RelationSpec(place.rows, popularity=popular), disk=disk_of(place.machine))
