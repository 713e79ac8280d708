"""The text of a twig, as a tree of query nodes: a subset of XPath. [PQP] ch. 7

    twig       = ( "/" | "//" ) step { ( "/" | "//" ) step } ;
    step       = test { predicate } ;
    test       = NAME | "*" | "@" NAME ;
    predicate  = "[" relative [ compare literal ] "]" | "[" "contains" "(" relative "," string ")" "]" ;
    relative   = [ "." ] [ "/" | "//" ] step { ( "/" | "//" ) step } ;
    compare    = "=" | "!=" | "<" | "<=" | ">" | ">=" ;
    literal    = string | number ;

Inside a predicate a leading "/" or "//" begins at the context node. No positions, "or", "not", other axes or functions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Literal

from headrace.errors import BadInput, shown

Axis = Literal["/", "//"]
_TOKEN = re.compile(
    r"""\s*(?:(?P<axis>//?)|(?P<name>[^\W\d][\w.·-]*(?::[^\W\d][\w.·-]*)?)|(?P<number>-?(?:\d+(?:\.\d*)?|\.\d+))
        |(?P<string>"[^"]*"|'[^']*')|(?P<compare>!=|<=|>=|=|<|>)|(?P<sign>[][*@.(),])|(?P<end>\Z))""",
    re.VERBOSE,
)


class BadPath(BadInput):
    """A text is not in the grammar: `at` is the character where, from 1 on, and `reason` what was expected there."""

    def __init__(self, text: str, at: int, reason: str) -> None:
        self.at, self.reason = at, reason
        super().__init__(f"the twig {shown(text)}, at character {at}: {reason}")


@dataclass(frozen=True)
class Test:
    """A comparison of a node's string value with a literal: a text, or a number."""

    operator: str  # of the grammar, or "contains"
    literal: str | float


@dataclass
class QueryNode:
    """A query node: what it matches, and how it lies under its parent."""

    name: str  # "*" for any element
    attribute: bool
    axis: Axis
    parent: int  # its number among the nodes of the twig; -1 for the root
    column: str
    predicate: bool  # inside a predicate, where a name may stand for an attribute
    test: Test | None = None
    children: list[int] = field(default_factory=list)


def parse(text: str) -> list[QueryNode]:
    """Parse a twig; returns its query nodes, parents before children.

    Example:
        >>> [(n.column, n.axis, n.parent) for n in parse("//closed_auction[itemref/id][price > 40]")]
        [('closed_auction', '//', -1), ('itemref', '/', 0), ('itemref/id', '/', 1), ('price', '/', 0)]
        >>> parse("//a[1]")
        Traceback (most recent call last):
        ...
        headrace.xml.path.BadPath: the twig '//a[1]', at character 5: a position is not supported;
            a predicate is a path, a path compared with a literal, or contains(path, "text")
    """
    if not isinstance(text, str):
        raise BadInput(f"a twig is a text such as '//item[id][name]', not {shown(text)}")
    return _Parser(text).twig()


def divide(nodes: list[QueryNode], start: int) -> tuple[list[QueryNode], list[QueryNode]]:
    """Divide the query nodes of a twig before step `start`: the steps that it lies under, and a twig of its own.

    Example:
        >>> above, twig = divide(parse("/site/regions//item[@id]"), 2)
        >>> [node.name for node in above], [(node.column, node.axis, node.parent) for node in twig]
        (['site', 'regions'], [('item', '//', -1), ('@id', '/', 0)])
    """
    for k in range(start):
        if nodes[k].children != [k + 1] or nodes[k].test is not None or nodes[k + 1].predicate:
            raise BadInput(
                f"start={start} leaves out the step {nodes[k].column!r}, which has predicates or is the last; steps before the"
                " start of a fragment only say where it lies"
            )
    below: list[QueryNode] = []
    bases: list[str] = []
    taken: set[str] = set()
    for node in nodes[start:]:
        shown_name = f"@{node.name}" if node.attribute else node.name
        if not below:
            column, base = shown_name, ""
        else:
            base = bases[node.parent - start]
            base = column = (
                f"{base}//{shown_name}" if node.axis == "//" else f"{base}/{shown_name}" if base else shown_name
            )
        bases.append(base)
        children = [child - start for child in node.children]
        below.append(
            replace(node, parent=max(node.parent - start, -1), column=_unique(column, taken), children=children)
        )
    return nodes[:start], below


def _unique(column: str, taken: set[str]) -> str:
    """Return the column, with a number behind it if a branch is repeated, and note that it is taken."""
    name, count = column, 1
    while name in taken:
        count += 1
        name = f"{column}#{count}"
    taken.add(name)
    return name


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._nodes: list[QueryNode] = []
        self._columns: set[str] = set()
        self._next()

    def twig(self) -> list[QueryNode]:
        if self._kind != "axis":
            raise self._error("a twig begins with / or //")
        parent, base = -1, ""
        while self._kind == "axis":
            parent, base = self._step(self._take_axis(), parent, base, predicate=False)
        if self._kind != "end":
            raise self._error("expected /, //, [ or the end")
        return self._nodes

    def _step(self, axis: Axis, parent: int, base: str, predicate: bool) -> tuple[int, str]:
        """Parse a step and its predicates; returns its number, and the beginning of its children's columns."""
        attribute = self._accept("@")
        if parent >= 0 and self._nodes[parent].attribute:
            raise self._error("an attribute has no children")
        if attribute and parent < 0 and axis == "/":
            raise self._error("a document has no attributes of its own; begin with //@")
        if self._accept("*"):
            if attribute:
                raise self._error("@* is not supported; name the attribute")
            name = "*"
        elif self._kind == "name":
            name = self._word
            self._next()
        else:
            raise self._error(
                "expected a name, * or @name" + (", and .. and text() are not supported" if self._word == "." else "")
            )
        shown_name = f"@{name}" if attribute else name
        if parent < 0:
            column, under = shown_name, ""
        else:
            column = f"{base}//{shown_name}" if axis == "//" else f"{base}/{shown_name}" if base else shown_name
            under = column
        number = len(self._nodes)
        self._nodes.append(QueryNode(name, attribute, axis, parent, _unique(column, self._columns), predicate))
        if parent >= 0:
            self._nodes[parent].children.append(number)
        while self._accept("["):
            if attribute:
                raise self._error("an attribute has no predicates; write [@name = …]")
            self._predicate(number, under)
        return number, under

    def _predicate(self, parent: int, base: str) -> None:
        if self._kind == "number":
            raise self._error(
                'a position is not supported; a predicate is a path, a path compared with a literal, or contains(path, "text")'
            )
        if self._kind == "name" and self._word == "contains" and self._text[self._at :].lstrip().startswith("("):
            self._next()
            self._expect("(")
            node = self._relative(parent, base)
            self._expect(",")
            if self._kind != "string":
                raise self._error("expected a text in quotes")
            self._nodes[node].test = Test("contains", self._word[1:-1])
            self._next()
            self._expect(")")
        else:
            node = self._relative(parent, base)
            if self._kind == "compare":
                operator = self._word
                self._next()
                if self._kind not in ("string", "number"):
                    raise self._error("expected a text in quotes or a number")
                literal = self._word[1:-1] if self._kind == "string" else float(self._word)
                self._nodes[node].test = Test(operator, literal)
                self._next()
        if not self._accept("]"):
            raise self._error("expected ], a comparison or a further step")

    def _relative(self, parent: int, base: str) -> int:
        dot = self._accept(".")
        if dot and self._kind != "axis":
            raise self._error("expected / or // and a step after the point")
        axis: Axis = self._take_axis() if self._kind == "axis" else "/"
        node, base = self._step(axis, parent, base, predicate=True)
        while self._kind == "axis":
            node, base = self._step(self._take_axis(), node, base, predicate=True)
        return node

    def _take_axis(self) -> Axis:
        axis: Axis = "//" if self._word == "//" else "/"
        self._next()
        return axis

    def _accept(self, sign: str) -> bool:
        if self._kind != "sign" or self._word != sign:
            return False
        self._next()
        return True

    def _expect(self, sign: str) -> None:
        if not self._accept(sign):
            raise self._error(f"expected {sign}")

    def _next(self) -> None:
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            self._start = self._at + len(self._text[self._at :]) - len(self._text[self._at :].lstrip())
            raise self._error(f"{self._text[self._start]!r} is not part of the grammar of twigs")
        self._kind = str(found.lastgroup)
        self._word = found[self._kind]
        self._start = found.start(self._kind)
        self._at = found.end()

    def _error(self, expected: str) -> BadPath:
        return BadPath(self._text, self._start + 1, expected)
