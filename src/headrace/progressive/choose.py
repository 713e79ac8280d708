"""From a condition to a partitioning, and what remains to be asked."""

from __future__ import annotations

from headrace.conditions import Condition, Equal
from headrace.errors import BadInput
from headrace.progressive.keys import HashPartitioning
from headrace.progressive.partitioning import Partitioning


def divide(condition: Condition) -> tuple[Partitioning, Condition | None]:
    """The partitioning for a condition."""
    if isinstance(condition, Equal):
        return HashPartitioning(condition), None
    raise BadInput(f"{condition!r}")
