"""The plan of a query: a variable's twigs and selections, the equality that joins the variables, and the construction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from headrace.errors import BadInput, choice
from headrace.xml.fwr.bound import BoundElements
from headrace.xml.fwr.fragments import Fragments
from headrace.xml.fwr.parser import parse_query
from headrace.xml.fwr.reader import refusal
from headrace.xml.fwr.syntax import Comparison, Query, VarPath
from headrace.xml.fwr.variable import KeyOf, Variable
from headrace.xml.path import parse

Semantics = Literal["xquery", "fragments"]
SEMANTICS = ("xquery", "fragments")


@dataclass(frozen=True)
class Plan:
    """A query that was planned; `joins` are the equalities between variables, of which there are none with one variable."""

    query: Query
    semantics: Semantics
    variables: list[Variable]
    joins: list[Comparison]

    @property
    def documents(self) -> list[str]:
        """The names of the documents, each once, in the order of the query."""
        return list(dict.fromkeys(variable.binding.document for variable in self.variables))

    def drawn(self, join: str) -> str:
        """The plan as text, from the result down to the documents. [PQP] Fig. 7.1"""
        values = [f"{{{part.text}}}" for part in self.query.element.template if isinstance(part, VarPath)]
        lines = [f"construct <{self.query.element.name}> of {', '.join(values) or 'nothing'}"]
        indent = ""
        if self.joins:
            lines.append(f"└─ join on {' and '.join(dict.fromkeys(c.text for c in self.joins))} ({join})")
            indent = "   "
        for number, variable in enumerate(self.variables):
            last = number == len(self.variables) - 1
            name = f"${variable.binding.variable}: "
            below = [*variable.describe(), f'document "{variable.binding.document}"']
            lines.append(f"{indent}{'└─' if last else '├─'} {name}{below[0]}")
            lines += [f"{indent}{' ' if last else '│'}  {' ' * len(name)}{line}" for line in below[1:]]
        return "\n".join(lines)


def plan_query(text: str, semantics: Semantics) -> Plan:
    """Parse and plan a query. What cannot be planned is refused at its place."""
    choice("semantics", semantics, SEMANTICS)
    query = parse_query(text)

    def refused(at: int, reason: str) -> BadInput:
        return refusal(text, at, reason)

    returned = [part for part in query.element.template if isinstance(part, VarPath)]
    if semantics == "xquery":
        _as_xquery(query, returned, refused)
    joins = [condition for condition in query.conditions if condition.is_join]
    keys = _keys(query, joins, semantics == "xquery", refused)
    variables: list[Variable] = []
    for binding in query.bindings:
        name = binding.variable
        conditions = [c for c in query.conditions if not c.is_join and c.left.variable == name]
        paths = list(dict.fromkeys(path for path in returned if path.variable == name))
        if semantics == "xquery":
            variables.append(BoundElements(text, binding, conditions, paths, keys.get(name)))
        else:
            variables.append(Fragments(binding, conditions, paths, keys.get(name)))
    return Plan(query, semantics, variables, joins)


def _keys(
    query: Query, joins: list[Comparison], existential: bool, refused: Callable[[int, str], BadInput]
) -> dict[str, KeyOf]:
    """The path that each variable is joined on. All variables must be connected, each by one path of its own."""
    names = [binding.variable for binding in query.bindings]
    paths: dict[str, VarPath] = {}
    partners: dict[str, set[str]] = {name: set() for name in names}
    for condition in joins:
        if condition.operator != "=":
            raise refused(condition.at, f"{condition.text} compares two variables; only = joins variables")
        left, right = condition.left, condition.right
        assert isinstance(right, VarPath)
        for path in (left, right):
            if paths.setdefault(path.variable, path) != path:
                raise refused(
                    path.at,
                    f"${path.variable} is joined on {paths[path.variable].text} and on {path.text}; all variables are joined on"
                    " one value, so each has one path",
                )
        partners[left.variable].add(right.variable)
        partners[right.variable].add(left.variable)
    reached, todo = {names[0]}, [names[0]]
    while todo:
        more = partners[todo.pop()] - reached
        reached |= more
        todo += more
    for binding in query.bindings:
        if binding.variable not in reached:
            raise refused(
                binding.at,
                f"no equality in where joins ${binding.variable} with ${names[0]}; a product of documents is not supported",
            )
    several = existential and len(names) > 2
    return {name: KeyOf(path, several and len(partners[name]) > 1) for name, path in paths.items()}


def _as_xquery(query: Query, returned: list[VarPath], refused: Callable[[int, str], BadInput]) -> None:
    """Refuse what a twig reads in another way than XQuery does."""
    if query.rooted:
        raise refused(
            query.rooted[0],
            "a predicate that begins with / or // begins at the document in XQuery, which is not supported; write [.//name]",
        )
    compared = [side for c in query.conditions for side in (c.left, c.right) if isinstance(side, VarPath)]
    for path in (*returned, *compared):
        for node in parse(f"//x{path.below}"):
            if node.test and node.test.operator in ("<", "<=", ">", ">=") and isinstance(node.test.literal, str):
                raise refused(
                    path.at, f"{path.text} compares with a text by order in a predicate; write it after where"
                )
