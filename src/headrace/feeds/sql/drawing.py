"""Trees as text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Node:
    """A line of a tree, and what is below it."""

    line: str
    below: tuple[Node, ...] = ()


def draw(node: Node) -> str:
    """Draw a tree.

    Example:
        >>> print(draw(Node("a", (Node("b", (Node("c"),)), Node("d")))))
        a
        ├─ b
        │  └─ c
        └─ d
    """
    lines = [node.line]
    for number, child in enumerate(node.below):
        last = number == len(node.below) - 1
        first, *rest = draw(child).split("\n")
        lines.append(("└─ " if last else "├─ ") + first)
        lines += [("   " if last else "│  ") + line for line in rest]
    return "\n".join(lines)
