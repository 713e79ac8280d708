"""PathReader: reads the paths of a query, and has them checked as twigs."""

from __future__ import annotations

import re

from headrace.xml.fwr.reader import Reader
from headrace.xml.fwr.syntax import Binding, Step, VarPath
from headrace.xml.path import BadPath, QueryNode, parse

_INSIDE = re.compile(r'"[^"]*"|' + r"'[^']*'|\[|\]")  # what ends or begins a predicate, and texts in it
_ROOTED = re.compile(r"(?:\[|contains\s*\()\s*/")
_CONTEXT = "//x"  # a path of a variable is checked as one that continues this


class PathReader:
    """Reads paths from a query's text. `bindings` are the variables so far, `rooted` places of predicates that begin with /."""

    def __init__(self, reader: Reader) -> None:
        self._r = reader
        self.bindings: dict[str, Binding] = {}
        self.rooted: list[int] = []

    def varpath(self) -> VarPath:
        """Read a path that begins at a variable."""
        r = self._r
        if not r.accept("$"):
            raise r.error("a path of a variable, as $s/title")
        at = r.at - 1
        variable = r.name("the name of a variable")
        if variable not in self.bindings:
            known = ", ".join(f"${name}" for name in self.bindings)
            raise r.refusal(f"${variable} is not bound by a for; the variables are {known}", at)
        begin = r.at
        steps = self.steps()
        if steps:
            self.check(begin, _CONTEXT)
        last = (steps or self.bindings[variable].steps)[-1].test
        return VarPath(variable, steps, last[1:] if last.startswith("@") else None, at)

    def steps(self) -> tuple[Step, ...]:
        """Read steps up to what cannot belong to them; what is in them is checked afterwards."""
        r = self._r
        steps = []
        while r.sees("/"):
            axis = "//" if r.accept("//") else "/"
            if axis == "/":
                r.expect("/")
            r.skip()
            at = r.at
            if r.sees("."):
                raise r.refusal("'.' and '..' are not supported in a path", at)
            test = "@" if r.accept("@") else ""
            test += "*" if r.accept("*") else r.name("a name, * or @name")
            if r.sees("("):
                raise r.refusal(f"the function or node test {test}() is not supported in a path", at)
            if r.sees("::"):
                raise r.refusal(f"the axis {test}:: is not supported; / and // are", at)
            predicates = []
            while r.sees("["):
                predicates.append(self._predicate())
            steps.append(Step(axis, test, tuple(predicates)))
        return tuple(steps)

    def _predicate(self) -> str:
        """Read a predicate to its closing bracket."""
        r = self._r
        begin, depth = r.at, 0
        for found in _INSIDE.finditer(r.text, begin):
            depth += (found[0] == "[") - (found[0] == "]")
            if depth == 0:
                r.at = found.end()
                inside = r.text[begin : r.at]
                plain = re.sub(r'"[^"]*"' + r"|'[^']*'", lambda text: "'" * len(text[0]), inside)
                self.rooted += [begin + place.start() for place in _ROOTED.finditer(plain)]
                return inside[1:-1].strip()
        raise r.refusal("'[' is not closed by ']'", begin)

    def check(self, begin: int, context: str) -> list[QueryNode]:
        """Parse the path that was read as that of a twig, and refuse what is not in its grammar at its place in the query."""
        r = self._r
        try:
            return parse(context + r.text[begin : r.at])
        except BadPath as error:
            raise r.refusal(error.reason, begin + error.at - 1 - len(context)) from None
