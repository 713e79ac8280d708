"""From sampled stacks to stages of a join: which part of a row's time is spent where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

#: Stages by the functions that they are found by, as "function (file" in a stack. The innermost frame that is listed counts.
STAGES: dict[str, tuple[str, ...]] = {
    "reads": ("start (headrace/relation/disk.py", "wait (headrace/relation/disk.py"),
    "checks of pages": ("__call__ (headrace/relation/reader.py", "of (headrace/relation/reader.py"),
    "plan of reads": ("runs (headrace/relation/disk.py", "read (headrace/relation/reader.py"),
    "keys in pages": ("find (headrace/relation/reader.py",),
    "results from pages": ("_from_pages (", "add (headrace/semistream/adaptive/page_results.py", "flush ("),
    "tuples to the young store": ("copy_to (headrace/relation/reader.py", "_keep ("),
    "look-up in the hot set": ("probe (headrace/semistream/adaptive/hot_set.py",),
    "results from the hot set": ("emit (headrace/semistream/results.py", "gather (headrace/semistream/results.py"),
    "distinct keys": ("distinct (headrace/semistream/adaptive/lookup.py", "_encode ("),
    "index": ("pages (headrace/semistream/adaptive/lookup.py", "pairs (headrace/relation/reader.py"),
    "counts of keys": ("learn (headrace/semistream/adaptive/lookup.py",),
    "order of rows that wait": ("by_page (headrace/semistream/adaptive/lookup.py", "_put_together (", "first_places ("),
    "new generations": ("publish (headrace/semistream/adaptive/memory.py",),
}
_PLACES = [(name, stage) for stage, names in STAGES.items() for name in names]
OTHER = "the rest of the join"
INSIDE = "headrace/semistream/"  # a stack without it is none of the join: start, input
IMPORTING = "importlib"


@dataclass(frozen=True)
class Stack:
    """A sampled stack, outermost frame first, and how often it was seen."""

    frames: tuple[str, ...]
    count: int


def read_stacks(lines: Iterable[str]) -> list[Stack]:
    """Stacks in the form "frame;frame;frame count", one a line."""
    stacks = []
    for line in lines:
        frames, _, count = line.strip().rpartition(" ")
        if frames:
            stacks.append(Stack(tuple(frames.split(";")), int(count)))
    return stacks


def joining(stacks: Iterable[Stack]) -> list[Stack]:
    """The stacks of the join, from its own first frame on."""
    found = []
    for stack in stacks:
        first = next((i for i, frame in enumerate(stack.frames) if INSIDE in frame), None)
        if first is not None and not any(IMPORTING in frame for frame in stack.frames):
            found.append(Stack(stack.frames[first:], stack.count))
    return found


def stage_of(stack: Stack) -> str:
    """The stage that a stack of the join is in."""
    for frame in reversed(stack.frames):
        for name, stage in _PLACES:
            if name in frame:
                return stage
    return OTHER


def shares(stacks: Iterable[Stack]) -> list[tuple[str, float]]:
    """The share of each stage in the samples, the largest first."""
    counts: Counter[str] = Counter()
    for stack in stacks:
        counts[stage_of(stack)] += stack.count
    total = counts.total()
    return [(stage, count / total) for stage, count in counts.most_common()]
