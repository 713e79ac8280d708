"""Which operators are watched with which rows and budgets."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.units import format_size
from soak.memory.streams import SHAPES

#: Families, their operators, and what is measured of each.
FAMILIES = {
    "enrich": ("enrich-whole", "enrich-hot", "enrich-stream-order", "enrich-spark"),
    "progressive": ("progressive-key", "progressive-box", "progressive-vector", "progressive-logged"),
    "sampling": ("reservoir", "fair-window", "window-join", "approximate-join"),
}
OPERATORS = tuple(name for names in FAMILIES.values() for name in names)
BUDGETS = (16 << 20, 64 << 20, 256 << 20, 1 << 30)

#: What `make soak` has time for: each operator once, with the rows and the budget that were hardest on it.
SHORT = (
    ("enrich-whole", "many", 16 << 20),
    ("enrich-hot", "wide", 16 << 20),
    ("enrich-hot", "long", 64 << 20),
    ("enrich-spark", "wide", 64 << 20),
    ("progressive-key", "long", 16 << 20),
    ("progressive-box", "wide", 16 << 20),
    ("progressive-vector", "columns", 16 << 20),
    ("progressive-logged", "long", 64 << 20),
    ("reservoir", "long", 16 << 20),
    ("fair-window", "long", 16 << 20),
    ("window-join", "many", 64 << 20),
    ("approximate-join", "wide", 16 << 20),
)


@dataclass(frozen=True)
class Cell:
    """One measurement: an operator in a process of its own."""

    operator: str
    shape: str
    budget: int

    def __str__(self) -> str:
        return f"{self.operator}, {self.shape}, {format_size(self.budget)}"

    @property
    def family(self) -> str:
        """The family of the operator."""
        return next(family for family, names in FAMILIES.items() if self.operator in names)


def all_cells(only: list[str], shapes: list[str], budgets: list[int]) -> list[Cell]:
    """Every operator named, or of a family named, with every shape and budget."""
    chosen = [name for name in OPERATORS if not only or name in only or any(name in FAMILIES.get(o, ()) for o in only)]
    return [Cell(operator, shape, budget) for operator in chosen for shape in shapes or SHAPES for budget in budgets]
