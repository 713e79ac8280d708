"""What a figure is: its cells, what the text reports, what shape is expected."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from headrace.bench import MeasuringOptions, RelationSpec, Stream, make_relation, service_rate
from headrace.cost import HDD, Facts, Machine, disk_of
from headrace.cost.models import mesh_cost, predict
from headrace.errors import BadInput
from headrace.relation import Relation
from reproduction.checks import Check

Clock = Literal["virtual", "real"]
WHOLE = "seconds with the clean-up"  # the value of a cell, where a progressive join finished
ONE_LOOP = MeasuringOptions(loops=1)  # on a simulated disk the second loop is like the fifth


class Cell(ABC):
    """One measurement: a point of a curve."""

    series: str
    x: float

    @abstractmethod
    def run(self, directory: Path) -> dict[str, Any]:
        """What it gives, by name; relations are kept in the directory."""


@dataclass(frozen=True)
class Measured(Cell):
    """A cell that measures a service rate.

    Parameters
    ----------
    series, x
        The curve, and the position on it.
    made, stream, memory
        The relation, the stream, and the budget in bytes.
    operator
        The name of the join in headrace.semistream.ALGORITHMS, or a function that makes one.
    options
        Passed to the operator.
    machine, method, measuring
        As for `headrace.bench.service_rate`.
    """

    series: str
    x: float
    made: RelationSpec
    stream: Stream
    memory: int
    operator: Any
    _: KW_ONLY
    options: Mapping[str, Any] = field(default_factory=dict)
    machine: Machine = HDD
    method: str = "saturated"
    measuring: MeasuringOptions = ONE_LOOP

    def run(self, directory: Path) -> dict[str, Any]:
        """The rate, and what the join did meanwhile."""
        method: Any = self.method
        with make_relation(directory, self.made, disk=disk_of(self.machine)) as relation:
            found = service_rate(
                self.operator,
                relation,
                self.stream,
                self.memory,
                method=method,
                measuring=self.measuring,
                **self.options,
            )
            return found.as_dict()


@dataclass(frozen=True)
class Predicted(Cell):
    """A rate by the cost models. `b`: with a disk buffer of so many pages, for MESHJOIN."""

    series: str
    x: float
    made: RelationSpec
    memory: int
    _: KW_ONLY
    algorithm: str = "meshjoin"
    skew: float = 0.0
    b: int | None = None
    machine: Machine = HDD

    def run(self, directory: Path) -> dict[str, Any]:
        """The rate, the parameters and the parts of the memory."""
        with make_relation(directory, self.made, disk=disk_of(self.machine)) as relation:
            return self._predict(relation)

    def _predict(self, relation: Relation) -> dict[str, Any]:
        facts = Facts.of(relation, skew=self.skew, stream_bytes=20)
        found = predict(self.algorithm, facts, self.memory)
        if self.b is None:
            return {
                "rate": found.rate,
                "parameters": dict(found.parameters),
                "parts": dict(found.parts),
                "why": found.why,
            }
        room = self.memory - found.parts["output"]
        return {"rate": mesh_cost(facts).rate(room, self.b), "parameters": {"b": self.b}}


@dataclass(frozen=True)
class Computed(Cell):
    """Whatever a function returns, given the directory that relations are kept in."""

    series: str
    x: float
    compute: Callable[[Path], Mapping[str, Any]]

    def run(self, directory: Path) -> dict[str, Any]:
        """The function's numbers by name."""
        return dict(self.compute(directory))


@dataclass(frozen=True)
class Figure:
    """A figure or table of a paper.

    Parameters
    ----------
    id, title
        Its number and what it shows.
    x
        What is on the x axis.
    cells
        Its cells at a scale; 1 is the paper's size. Those of a figure with a `real` take a `clock`, too.
    reports
        What the text says about it.
    expected
        The shape, as checks.
    differs
        Where we differ, and why.
    y, metric
        What is on the y axis, and which of a cell's values that is.
    log
        Axes with a logarithmic scale: "", "x", "y" or "xy".
    scale
        The one it has by default.
    note
        Sizes and settings, for the page.
    decimals
        Of the numbers in the table.
    alone
        Whether it takes real time, so that nothing else may run beside it.
    over
        The value of a cell that the plot has on its x axis, instead of the x of the cell; the table has it beside `metric`.
    also
        Checks of other values of the cells, by the names of these.
    real
        What is different of it in real time, as arguments of a figure; or why it is not measured in real time.
    draw
        Draws it, given its raw results and the file, where it is no curve.
    """

    id: str
    title: str
    x: str
    cells: Callable[..., Sequence[Cell]]
    _: KW_ONLY
    reports: str
    expected: tuple[Check, ...]
    differs: str
    y: str = "stream tuples a second"
    metric: str = "rate"
    log: str = ""
    scale: float = 1.0
    note: str = ""
    decimals: int = 0
    alone: bool = False
    over: str = ""
    also: Mapping[str, tuple[Check, ...]] = field(default_factory=dict)
    real: Mapping[str, Any] | str = ""
    draw: Callable[[dict[str, Any], Path], None] | None = None


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A paper or a chapter: how it is cited, on what it was measured, and its figures; `real`: and on what in real time."""

    name: str
    title: str
    setting: str
    figures: tuple[Figure, ...]
    chapter: str = ""
    real: str = ""
    clock: Clock = "virtual"

    @property
    def label(self) -> str:
        """What its files are named by, as `mesh`, `pqp-a` or `pqp-a-real`."""
        return "-".join(filter(None, (self.name, self.chapter.lower(), "real" if self.clock == "real" else "")))

    def left_out(self, figure: Figure) -> str:
        """Why a figure is not measured on this clock; nothing if it is."""
        return figure.real if self.clock == "real" and isinstance(figure.real, str) else ""

    def on(self, clock: Clock) -> Paper:
        """Return the paper with its figures measured on another clock: with the cells and texts that each figure has for it."""
        if clock == self.clock:
            return self
        if not self.real:
            raise BadInput(f"CLOCK={clock} is not there: {self.name} is measured on a {self.clock} clock alone")
        figures = tuple(
            figure
            if isinstance(figure.real, str)
            else replace(figure, cells=partial(figure.cells, clock=clock), alone=True, **figure.real)
            for figure in self.figures
        )
        return replace(self, title=f"{self.title}, in real time", setting=self.real, figures=figures, clock=clock)
