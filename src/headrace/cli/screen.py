"""Output of commands: text that is safe on a terminal, JSON, and progress bars."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from headrace.units import format_duration, format_size

Report = Callable[[int, int | None], None]

_LONGEST_VALUE = 200  # characters of a value in a table of rows
_ANY_WIDTH = 1 << 20  # of a terminal on which nothing is cut: what a table would like to have
_SHORTEST_VALUE = 24  # characters of a value that are shown however narrow the terminal is


def plain(value: object) -> str:
    r"""Return `value` as text with control characters escaped, so that data cannot control the terminal.

    Example:
        >>> plain("a\x1b[31mb")
        'a\\x1b[31mb'
    """
    text = str(value)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def show_json(value: object) -> None:
    """Write `value` as one JSON document."""
    typer.echo(json.dumps(_jsonable(value), indent=2, allow_nan=False))


def show_facts(facts: Mapping[str, Any]) -> None:
    """Write names and values, one per line; nested ones are indented."""
    for depth, name, value in _walk(facts):
        is_size = isinstance(value, int) and any(w in name for w in ("bytes", "size", "memory"))
        shown = f"{format_size(value)} ({value})" if is_size and value >= 1024 else plain(value)
        typer.echo(f"{'  ' * depth}{plain(name):<{24 - 2 * depth}} {shown}".rstrip())


def show_table(columns: list[str], rows: list[list[Any]], *, right: Collection[str] = ()) -> None:
    """Write rows as a table; numbers, and the columns named in `right`, are aligned at their right."""
    Console().print(_table(columns, rows, right))


def show_rows(columns: list[str], rows: list[list[Any]]) -> None:
    """Write rows of data as a table or, where that would not fit the terminal, each row as a list of names and values."""
    console = Console()
    shown = [["null" if v is None else shorten(v, _LONGEST_VALUE) for v in row] for row in rows]
    numbers = {name for name, values in zip(columns, zip(*rows, strict=True), strict=True) if _are_numbers(values)}
    table = _table(columns, shown, numbers)
    if Console(width=_ANY_WIDTH).measure(table).maximum <= console.width:
        console.print(table)
        return
    widest = min(max(cell_len(plain(name)) for name in columns), console.width // 2)
    for number, row in enumerate(rows, 1):
        console.print(Rule(Text(f"row {number:,} of {len(rows):,}"), align="left", style="dim"))
        for name, value in zip(columns, row, strict=True):
            label = Text(plain(name), style="cyan")
            label.truncate(widest, overflow="ellipsis", pad=True)
            room = max(_SHORTEST_VALUE, console.width - widest - 2)
            text = Text("null", style="dim") if value is None else Text(shorten(value, room))
            console.print(label, text, sep="  ", soft_wrap=True)


def shorten(value: object, most: int) -> str:
    """Return a value as text of at most so many characters; what is left out is counted.

    Example:
        >>> shorten("a" * 30, 24), shorten(7, 24)
        ('aaaaaaa… (30 characters)', '7')
    """
    text = plain(_jsonable(value))
    if cell_len(text) <= most:
        return text
    end = f"… ({len(text):,} characters)"
    return set_cell_size(text, max(1, most - len(end))).rstrip() + end


def watched() -> bool:
    """Tell whether somebody may be looking: standard error is a terminal that can move its cursor."""
    return sys.stderr.isatty() and not Console(stderr=True).is_dumb_terminal


@contextmanager
def progress(what: str, unit: str, *, quiet: bool = False) -> Iterator[Report]:
    """Show a progress bar on standard error, if that is a terminal: done, total, rate and time left, as far as known."""
    if quiet or not watched():
        yield lambda done, total: None
        return
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=12),
        _Done(unit),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(what, total=None)

        def report(done: int, total: int | None) -> None:
            bar.update(task, completed=done, total=total)

        yield report


class _Done(ProgressColumn):
    """How much is done of how much, how fast, and how long it will take; or how long it has taken, where the total is unknown."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        """Return the words for a task."""
        passed = task.elapsed or 0.0
        if not task.completed and not task.total:
            return Text(f"{passed:.0f} s")
        words = f"{task.completed:,.0f}" + (f" of {task.total:,.0f}" if task.total else "") + f" {self._unit}"
        if task.speed and task.speed >= 1:  # figures and cells take seconds each: their rate says nothing
            words += f" · {task.speed:,.0f}/s"
        left = task.time_remaining
        if left is not None and passed >= 1:
            return Text(f"{words} · {format_duration(max(1, round(left)))} left")
        return Text(f"{words} · {passed:.0f} s")


def _table(columns: list[str], rows: list[list[Any]], right: Collection[str]) -> Table:
    table = Table()
    for i, column in enumerate(columns):
        numbers = column in right or _are_numbers([row[i] for row in rows])
        table.add_column(Text(plain(column)), overflow="fold", justify="right" if numbers else "left")
    for row in rows:
        # Text and not str, so that a value such as "[red]" is not taken for markup
        table.add_row(*(Text("" if v is None else plain(_jsonable(v))) for v in row))
    return table


def _are_numbers(values: Sequence[Any]) -> bool:
    there = [v for v in values if v is not None]
    return bool(there) and all(isinstance(v, int | float) and not isinstance(v, bool) for v in there)


def _walk(facts: Mapping[str, Any], depth: int = 0) -> Iterator[tuple[int, str, Any]]:
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield depth, name, ""
            yield from _walk(value, depth + 1)
        elif isinstance(value, list | tuple):
            yield depth, name, ", ".join(str(v) for v in value)
        else:
            yield depth, name, value


def _jsonable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _jsonable(v) for name, v in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(v) for v in value]
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no NaN
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)
