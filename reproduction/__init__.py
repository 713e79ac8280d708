"""The figures of the papers, measured again: `make reproduce PAPER=mesh FIGURE=10b`.

How it goes: a paper is a file of configurations (`mesh.py`, `defaults.py`, ...). Each figure says which cells it has, what the
text reports and what shape is expected. `run` measures the cells and keeps what they gave as CSV in
`docs/reproduction/data/`; only then are curves taken from it, checked against the expected shape, drawn, and written to
`docs/reproduction/<paper>.md`. What is simulated gives the same file every time, so that a change shows in a diff.
`compare` (`make reproduce CHECK=all`) measures again and compares the verdicts with those on the pages.

To add a figure, add a `Figure` to the `figures` of a paper:

    def _cells(scale: float) -> list[Cell]:
        made = MadeRelation(int(3_500_000 * scale))
        stream = Zipf(made.rows, 0.5)
        return [
            Measured(name, percent, made, stream, int(made.rows * made.tuple_bytes * percent / 100), operator=name)
            for percent in (1, 5, 10)
            for name in ("meshjoin", "ssij")
        ]

    Figure("5", "Rate against memory", "memory (% of R)", _cells, scale=0.1,
           reports="What the text says, in our words.",
           expected=(Faster("ssij", than="meshjoin", at_least=1.5),),
           differs="Where we differ, and why.")

A cell is `Measured` (a service rate by headrace.cost.service_rate), `Predicted` (by the cost models) or `Computed` (any function
that returns numbers by name). Its `series` is the curve that it belongs to, its `x` the place on it. The number on the y axis is
the cell's value called `Figure.metric`, "rate" by default. A cell that is refused for want of memory is kept as refused.

To add a paper, write a file with a `PAPER = Paper(...)` and name it in PAPERS below; a thesis has a file for each chapter, which
`CHAPTER=` picks. Sizes: a figure's function gets a scale, 1
for the paper's own size; `Figure.scale` is the one it has by default, so that a paper takes some ten minutes on two cores.
`make reproduce PAPER=... SCALE=full` runs the paper's sizes, and SCALE=0.05 any other, on a page under `results/`. Checks are in
`checks.py`; each states its tolerance, and says what it found.

Clocks: a figure that is measured on a virtual clock can be measured in real time too, if its function takes `clock="real"` and
its `real` says what is different then (axes, checks), or why it has no meaning in real time. `make reproduce PAPER=pqp
CLOCK=real` measures them one after the other, and writes a page for each chapter: `docs/reproduction/pqp-4-real.md`.
"""

from __future__ import annotations

from importlib import import_module

from reproduction.figure import Paper

#: Files by the names that `make reproduce PAPER=` knows them by.
PAPERS = {"mesh": "mesh", "def": "defaults", "ssij": "ssij", "xhj": "xhj", "models": "models", "pqp": ""}
#: Those with chapters: a file for each.
CHAPTERS = {
    "pqp": {
        "4": "pqp_4",
        "5": "pqp_5",
        "6": "pqp_6",
        "7": "pqp_7",
        "8": "pqp_8",
        "9": "pqp_9",
        "A": "pqp_a",
        "D": "pqp_d",
    }
}


def chapters_of(name: str) -> list[str]:
    """A paper's chapters; one without a name if it has none."""
    return list(CHAPTERS.get(name, {"": ""}))


def paper(name: str, chapter: str = "") -> Paper:
    """A paper's configurations, or those of one of its chapters."""
    file = CHAPTERS[name][chapter] if chapter else PAPERS[name]
    found: Paper = import_module(f"reproduction.{file}").PAPER
    return found
