"""The systems that are measured, each in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measured import measured
from benchmarks.xml import SECTION
from benchmarks.xml.measure import MEASURED

_PATIENCE = 900.0  # seconds after which a process is given up


@dataclass(frozen=True)
class Measured:
    """One measured process: a system over one document."""

    system: str
    kind: str  # "tokenise", "twig", "join", "first" or "probes"
    size: int  # bytes, about
    root: str

    @property
    def title(self) -> str:
        return f"{SECTION} · {self.system} · {self.kind} · {self.size / 1e6:,.0f} MB"


@dataclass(frozen=True)
class XmlPlan:
    """The sizes of the documents of the XML section."""

    sizes: tuple[int, ...] = (20_000_000, 1_000_000_000)
    root: str = "benchmarks/.data"

    def all(self) -> Iterator[Measured]:
        for size in self.sizes:
            for system, kind in MEASURED:
                if kind != "probes" or size == self.sizes[0]:  # which are of other documents
                    yield Measured(system, kind, size, self.root)


def measure(one: Measured) -> dict[str, Any]:
    """Run a measurement in a process, and return what it saw."""
    cell = {"section": SECTION, "system": one.system, "kind": one.kind, "size": one.size}
    words = [one.system, one.kind, str(one.size), str(Path(one.root).absolute())]
    return {**cell, **measured("xml.measure", words, _PATIENCE)}
