"""The twig machine in plain Python, for parsers that call back: what one would write on top of expat or lxml."""

from __future__ import annotations

from itertools import product
from typing import Any

from headrace.xml.path import QueryNode, parse


class PythonMachine:
    """Counts the fragments of one twig without comparisons; a name in a predicate stands for an attribute too."""

    def __init__(self, twig: str) -> None:
        self.fragments = 0
        self._nodes: list[QueryNode] = parse(twig)
        self._stacks: list[list[dict[str, Any]]] = [[] for _ in self._nodes]
        self._level = 0
        self._by_name: dict[str, list[int]] = {}
        for k, node in enumerate(self._nodes):
            self._by_name.setdefault(node.name, []).append(k)

    def start(self, name: str, attributes: Any) -> None:
        """An element begins."""
        self._level += 1
        for k in self._by_name.get(name, ()):
            if self._fits(k):
                children = self._nodes[k].children
                entry: dict[str, Any] = {"level": self._level, "lists": {child: [] for child in children}, "text": []}
                self._stacks[k].append(entry)
                for child in children:
                    value = attributes.get(self._nodes[child].name)
                    if value is not None and not self._nodes[child].children:
                        entry["lists"][child].append((value,))

    def text(self, data: str) -> None:
        """Text comes, for every open leaf."""
        for k, node in enumerate(self._nodes):
            if not node.children:
                for entry in self._stacks[k]:
                    entry["text"].append(data)

    def end(self, name: str) -> None:
        """An element ends."""
        for k in reversed(self._by_name.get(name, ())):
            stack = self._stacks[k]
            if not stack or stack[-1]["level"] != self._level:
                continue
            entry = stack.pop()
            own = ("".join(entry["text"]),)
            solutions = [own + sum(parts, ()) for parts in product(*entry["lists"].values())]
            if k == 0:
                self.fragments += len(solutions)
                continue
            for parent in self._stacks[self._nodes[k].parent]:
                if self._nodes[k].axis == "//" or parent["level"] == self._level - 1:
                    parent["lists"][k] += solutions
        self._level -= 1

    def _fits(self, k: int) -> bool:
        node = self._nodes[k]
        if node.parent < 0:
            return node.axis == "//" or self._level == 1
        return any(node.axis == "//" or entry["level"] == self._level - 1 for entry in self._stacks[node.parent])
