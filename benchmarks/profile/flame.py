"""A flame graph of stacks as SVG: the width of a frame is the share of samples that it was in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape

from benchmarks.profile.stages import Stack

WIDTH, ROW, LETTER = 1200, 17, 6.3  # pixels
_LEAST = 0.002  # share of the samples below which a frame is left out
_COLOURS = ("#d9622b", "#e07b39", "#e69a4c", "#c9512a", "#edb167")


@dataclass
class Frame:
    """A function, how many samples it was in, and what it called."""

    name: str
    count: int = 0
    calls: dict[str, Frame] = field(default_factory=dict)


def tree(stacks: Iterable[Stack]) -> Frame:
    """Stacks that begin alike, put together."""
    root = Frame("join")
    for stack in stacks:
        at = root
        at.count += stack.count
        for name in stack.frames:
            at = at.calls.setdefault(name, Frame(name))
            at.count += stack.count
    return root


def flame_graph(stacks: Iterable[Stack], title: str) -> str:
    """The graph, with the outermost functions at the bottom; a function's whole name is its tooltip."""
    root = tree(stacks)
    boxes: list[tuple[Frame, float, int]] = []

    def place(frame: Frame, left: float, depth: int) -> None:
        boxes.append((frame, left, depth))
        for call in sorted(frame.calls.values(), key=lambda f: f.name):
            if call.count >= _LEAST * root.count:
                place(call, left, depth + 1)
                left += call.count / root.count * WIDTH

    place(root, 0.0, 0)
    height = (max(depth for _, _, depth in boxes) + 1) * ROW + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="monospace" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fffaf3"/><text x="6" y="18" font-size="13">{escape(title)}</text>',
    ]
    for number, (frame, left, depth) in enumerate(boxes):
        width, top = frame.count / root.count * WIDTH, height - (depth + 1) * ROW
        fits = int(width / LETTER) - 1
        shown = escape(frame.name[:fits]) if fits > 3 else ""
        parts.append(
            f'<g><title>{escape(frame.name)} {frame.count / root.count:.1%}</title><rect x="{left:.1f}" y="{top}"'
            f' width="{max(0.5, width - 0.5):.1f}" height="{ROW - 1}" fill="{_COLOURS[number % len(_COLOURS)]}"/>'
            f'<text x="{left + 3:.1f}" y="{top + 12}">{shown}</text></g>'
        )
    return "\n".join([*parts, "</svg>", ""])
