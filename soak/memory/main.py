"""`make soak ARGS=memory`: every operator in a process of its own, with rows that are hard on memory, watched from outside."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from headrace.units import parse_size
from soak.memory.cells import BUDGETS, FAMILIES, OPERATORS, SHORT, Cell, all_cells
from soak.memory.measure import Measured, measure
from soak.memory.report import line, table
from soak.memory.streams import SHAPES

EACH = 20.0  # seconds of a cell


def run(argv: list[str]) -> int:
    """Exit code 1 if an operator took more than its budget and the declared overhead."""
    parser = argparse.ArgumentParser(prog="python -m soak memory", description=__doc__)
    parser.add_argument("--seconds", type=float, help=f"of all cells together; {EACH:.0f} for each by default")
    parser.add_argument("--only", default="", help=f"some of {', '.join((*FAMILIES, *OPERATORS))}")
    parser.add_argument("--shapes", default="", help=f"some of {', '.join(SHAPES)}")
    parser.add_argument("--budgets", default="", help="such as 16MiB,1GiB")
    parser.add_argument(
        "--all", action="store_true", help="every operator with all shapes and budgets, for more than an hour"
    )
    parser.add_argument(
        "--directory", type=Path, help="of relations and logs, kept when it is over; a temporary one by default"
    )
    parser.add_argument("--json", type=Path, help="a file that gets a line of JSON for each cell as it ends")
    parser.add_argument(
        "--table", type=Path, nargs="+", help="show the cells of such files as Markdown, and measure nothing"
    )
    options = parser.parse_args(argv)
    if options.table:
        lines = [text for path in options.table for text in path.read_text().splitlines()]
        print(table([Measured.from_dict(json.loads(text)) for text in lines]))
        return 0
    only, shapes = ([word for word in text.split(",") if word] for text in (options.only, options.shapes))
    for word, known in [(w, (*FAMILIES, *OPERATORS)) for w in only] + [(w, tuple(SHAPES)) for w in shapes]:
        if word not in known:
            parser.error(f"{word!r} is none of {', '.join(known)}")
    budgets = [parse_size(text, name="--budgets") for text in options.budgets.split(",") if text]
    if options.all or only or shapes or budgets:
        cells = all_cells(only, shapes, budgets or list(BUDGETS))
    else:
        cells = [Cell(*cell) for cell in SHORT]
    each = EACH if options.seconds is None else options.seconds / len(cells)
    place = options.directory or Path(tempfile.mkdtemp(prefix="headrace-memory-"))
    place.mkdir(parents=True, exist_ok=True)
    try:
        found = [_measured(cell, each, place, options.json) for cell in cells]
    finally:
        if not options.directory:
            shutil.rmtree(place, ignore_errors=True)
    faults = [measured.fault for measured in found if measured.fault]
    print("\n".join(faults) or "memory: every operator kept to its budget and the declared overhead", flush=True)
    return 1 if faults else 0


def _measured(cell: Cell, seconds: float, place: Path, raw: Path | None) -> Measured:
    measured = measure(cell, seconds, place)
    print(line(measured), file=sys.stderr, flush=True)
    if raw is not None:
        with raw.open("a") as lines:
            lines.write(json.dumps(measured.as_dict()) + "\n")
    return measured
