"""What a query is made of: variables and their documents, conditions, and the element that is returned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal


@dataclass(frozen=True)
class Step:
    """A step of a path: its axis, its test, and its predicates as they are written."""

    axis: str
    test: str
    predicates: tuple[str, ...] = ()

    @property
    def bare(self) -> str:
        """The step without predicates."""
        return self.axis + self.test

    @property
    def text(self) -> str:
        """The step as a twig has it."""
        return self.bare + "".join(f"[{predicate}]" for predicate in self.predicates)


@dataclass(frozen=True)
class VarPath:
    """A path that begins at a variable's element; without steps it is the element itself."""

    variable: str
    steps: tuple[Step, ...] = ()
    attribute: str | None = None  # the name of the attribute that it leads to
    at: int = field(default=0, compare=False)

    @property
    def below(self) -> str:
        """Its steps, as they continue a path."""
        return "".join(step.text for step in self.steps)

    @property
    def branch(self) -> str:
        """Its steps, as a predicate has them."""
        return self.below if self.below.startswith("//") else self.below[1:]

    @property
    def text(self) -> str:
        """The path as it is written."""
        return f"${self.variable}{self.below}"


@dataclass(frozen=True)
class Binding:
    """A variable, and the path of a document whose elements it is bound to, one after the other."""

    variable: str
    document: str
    steps: tuple[Step, ...]
    at: int

    @property
    def text(self) -> str:
        """The path as it is written."""
        return "".join(step.text for step in self.steps)


@dataclass(frozen=True)
class Comparison:
    """A condition: a path compared with another, or with a text or number; or contains(path, text)."""

    left: VarPath
    operator: str  # of comparisons, or "contains"
    right: VarPath | str | float
    at: int

    @property
    def is_join(self) -> bool:
        """Whether it compares two variables."""
        return isinstance(self.right, VarPath) and self.right.variable != self.left.variable

    @property
    def text(self) -> str:
        """The condition as it is written."""
        right = self.right
        shown = right.text if isinstance(right, VarPath) else literal(right)
        return (
            f"contains({self.left.text}, {shown})"
            if self.operator == "contains"
            else f"{self.left.text} {self.operator} {shown}"
        )


@dataclass(frozen=True)
class Element:
    """An element that is constructed: attributes, then texts, paths and elements."""

    name: str
    attributes: tuple[VarPath, ...]
    content: tuple[str | VarPath | Element, ...]

    @property
    def template(self) -> Iterator[str | VarPath]:
        """The element as texts, escaped already, and paths whose values come between them."""
        yield f"<{self.name}"
        yield from self.attributes
        yield ">"
        for part in self.content:
            if isinstance(part, Element):
                yield from part.template
            elif isinstance(part, str):
                yield part.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\r", "&#13;")
            else:
                yield part
        yield f"</{self.name}>"


@dataclass(frozen=True)
class Query:
    """A query of the grammar; `rooted` are places of predicates that begin with / or //."""

    source: str
    bindings: tuple[Binding, ...]
    conditions: tuple[Comparison, ...]
    element: Element
    rooted: tuple[int, ...]


def literal(value: str | float) -> str:
    """A literal as twigs have it: a text with both kinds of quotes cannot be written, and is refused before."""
    if isinstance(value, str):
        return f"'{value}'" if '"' in value else f'"{value}"'
    return str(int(value)) if value.is_integer() else f"{Decimal(repr(value)):f}"
