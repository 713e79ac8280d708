"""Output of commands: text that is safe on a terminal, JSON, and progress bars."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from headrace.units import format_size

Report = Callable[[int, int | None], None]


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


def show_table(columns: list[str], rows: list[list[Any]]) -> None:
    """Write rows as a table."""
    table = Table()
    for column in columns:
        table.add_column(Text(plain(column)), overflow="fold")
    for row in rows:
        # Text and not str, so that a value such as "[red]" is not taken for markup
        table.add_row(*(Text("" if v is None else plain(_jsonable(v))) for v in row))
    Console().print(table)


@contextmanager
def progress(what: str, unit: str, *, quiet: bool = False) -> Iterator[Report]:
    """Show a progress bar on standard error, if that is a terminal."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=quiet or not console.is_terminal,
    )
    with bar:
        task = bar.add_task(what, total=None)

        def report(done: int, total: int | None) -> None:
            bar.update(task, completed=done, total=total)

        yield report


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
