"""The systems that are measured on feeds, each in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.feeds import SECTION
from benchmarks.feeds.measure import MEASURED
from benchmarks.measured import measured

_PATIENCE = 900.0  # seconds after which a process is given up


@dataclass(frozen=True)
class Measured:
    """One measured process: a system, and what it does with so many feeds."""

    system: str
    kind: str  # "parse", "delay" or "memory"
    feeds: int

    @property
    def title(self) -> str:
        return f"{SECTION} · {self.system} · {self.kind} · {self.feeds:,} feeds"


@dataclass(frozen=True)
class FeedsPlan:
    """How many feeds there are."""

    feeds: int = 10_000

    def all(self) -> Iterator[Measured]:
        for system, kind in MEASURED:
            yield Measured(system, kind, self.feeds)


def measure(one: Measured) -> dict[str, Any]:
    """Run a measurement in a process, and return what it saw."""
    cell = {"section": SECTION, "system": one.system, "kind": one.kind}
    return {**cell, **measured("feeds.measure", [one.system, one.kind, str(one.feeds)], _PATIENCE)}
