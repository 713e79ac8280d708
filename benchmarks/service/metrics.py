"""From the raw results of the service section to rates side by side, and its targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.metrics import Target, at_least
from benchmarks.service import AUTO, FREE_INDEX, OURS, PUBLISHED, SECTION, SYSTEMS

SSIJ_FACTOR = 1.5
AUTO_SHARE = 0.9
SKEWED = 1.0  # the exponent at which hot keys are hot


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of the table: the rate of every system for one workload; None if its memory budget was refused."""

    machine: str
    rows: int
    exponent: float
    order: str
    budget: float
    rates: dict[str, float | None]
    chosen: str | None
    unsettled: tuple[str, ...]

    @property
    def label(self) -> str:
        return f"{self.machine}, exponent {self.exponent:g}{_order(self)}, {self.budget:.0%}"

    @property
    def best(self) -> tuple[str, float] | None:
        """The published algorithm that is fastest within the memory."""
        there = [(name, rate) for name in PUBLISHED if (rate := self.rates.get(name))]
        return max(there, key=lambda pair: pair[1], default=None)

    def ratio(self, system: str, to: str) -> float | None:
        ours, other = self.rates.get(system), self.rates.get(to)
        return ours / other if ours and other else None


def _order(row: Row) -> str:
    return "" if row.exponent == 0 else f" {row.order}"


def rows_of(raw: dict[str, Any]) -> list[Row]:
    places: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for cell in raw["cells"]:
        if cell["section"] == SECTION:
            key = tuple(cell[name] for name in ("machine", "rows", "exponent", "order", "budget"))
            places.setdefault(key, []).append(cell)
    return [_row(place, cells) for place, cells in places.items()]


def _row(place: tuple[Any, ...], cells: list[dict[str, Any]]) -> Row:
    found = {cell["system"]: cell.get("measured") for cell in cells}
    rates = {name: m["rate"] if (m := found[name]) else None for name in SYSTEMS if name in found}
    chosen = next((cell["chosen"] for cell in cells if cell["system"] == AUTO), None)
    unsettled = tuple(name for name, m in found.items() if m and not m["settled"] and name != AUTO)
    machine, rows, exponent, order, budget = place
    return Row(
        machine=machine,
        rows=rows,
        exponent=exponent,
        order=order,
        budget=budget,
        rates=rates,
        chosen=chosen,
        unsettled=unsettled,
    )


def targets(rows: list[Row]) -> list[Target]:
    """AdaptiveJoin beside the best, beside SSIJ where hot keys lie anywhere; and auto beside the best of all."""
    out = []
    for row in rows:
        ours, best = row.rates.get(OURS), row.best
        if best:
            out.append(at_least(f"{row.label}: {OURS} beside {best[0]}", ours, best[1], 1.0))
        if row.exponent == SKEWED and row.order == "permuted":
            out.append(at_least(f"{row.label}: {OURS} beside ssij", ours, row.rates.get("ssij"), SSIJ_FACTOR))
        if AUTO in row.rates:
            every = [rate for name, rate in row.rates.items() if rate and name not in (AUTO, FREE_INDEX)]
            most = max(every, default=None)
            out.append(
                at_least(f"{row.label}: {AUTO} ({row.chosen}) beside the best", row.rates[AUTO], most, AUTO_SHARE)
            )
    return out
