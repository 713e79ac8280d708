"""Displays of a running pipeline: a live panel on a terminal, or a plain line every few seconds elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from headrace.cli.screen import plain
from headrace.clock import Clock
from headrace.units import format_duration, format_size

if TYPE_CHECKING:
    from headrace.metrics import JoinStats
    from headrace.pipeline.run import PipelineStatus

_EVERY = 5.0  # seconds between plain lines, so that a log stays short
_WIDTH = 100


class PipelineDisplay(Protocol):
    """Shows the status of a pipeline while it runs."""

    def show(self, status: PipelineStatus) -> None:
        """Show a status."""
        ...


class _Live:
    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, status: PipelineStatus) -> None:
        self._live.update(panel(status))


class Lines:
    """Prints a line every few seconds if something has changed."""

    def __init__(self, console: Console, clock: Clock) -> None:
        self._console = console
        self._clock = clock
        self._last = ""
        self._at: float | None = None

    def show(self, status: PipelineStatus) -> None:
        """Print a line if one is due and differs from the last."""
        now, words = self._clock.now(), line(status)
        # If the clock was set back, print now and not only when it has caught up.
        due = self._at is None or not 0 <= now - self._at < _EVERY
        if due and words != self._last:
            self._at, self._last = now, words
            self._console.print(Text(words), highlight=False, soft_wrap=True)


class _Nothing:
    def show(self, status: PipelineStatus) -> None:
        pass


@contextmanager
def display(console: Console, clock: Clock, *, quiet: bool) -> Iterator[PipelineDisplay]:
    """Return the display that suits the output; it leaves the terminal as it was."""
    if quiet:
        yield _Nothing()
    elif console.is_terminal:
        with Live(console=console, refresh_per_second=8, transient=True) as live:
            yield _Live(live)
    else:
        yield Lines(console, clock)


def line(status: PipelineStatus, seconds: float | None = None) -> str:
    """Format a status as one line.

    While a pipeline runs, the rate is that of its last micro-batch; given the seconds that a run took, it is the run's.

    Example:
        >>> from headrace.pipeline.run import PipelineStatus
        >>> line(PipelineStatus("sales", batches=2, batch=7, rows=5000, rate=1234.5, seconds=0.5, dead=3))
        'sales: 5,000 rows in 2 micro-batches · 1,234/s · 3 dead letters'
        >>> line(PipelineStatus("sales", batches=2, batch=7, rows=5000, rate=1234.5, seconds=0.5), seconds=10.0)
        'sales: 5,000 rows in 2 micro-batches and 10s · 500/s'
    """
    if not status.batches:
        return f"{plain(status.name)}: waiting for rows"
    words = f"{plain(status.name)}: {status.rows:,} rows in {status.batches:,} micro-batches"
    if seconds is None:
        words += f" · {_rate(status.rate)}/s"
    else:
        words += f" and {format_duration(seconds)}" + (f" · {_rate(status.rows / seconds)}/s" if seconds else "")
    for name, stats in status.joins.items():
        words += f" · {plain(name)} {_sampled(stats) or f'{stats.hit_ratio:.1%} from memory'}"
    late = _missed(status)
    for count, what in ((status.waiting, "rows wait"), (late, "missed their deadline"), (status.shed, "shed")):
        words += f" · {count:,} {what}" if count else ""
    for text in _warnings(status):
        words += f" · {plain(text)}"
    return words + (f" · {status.dead:,} dead letters" if status.dead else "")


def panel(status: PipelineStatus) -> Panel:
    """Format a status as a panel."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="cyan")
    table.add_column(justify="right", min_width=12)
    table.add_column()
    took = (
        f"micro-batch {status.batch} took {format_duration(status.seconds)}" if status.batches else "waiting for rows"
    )
    table.add_row("rows", f"{status.rows:,}", f"in {status.batches:,} micro-batches")
    table.add_row("rate", f"{status.rate:,.0f}/s", took)
    for name, stats in status.joins.items():
        share = "" if _sampled(stats) else f"{stats.hit_ratio:.1%}"
        table.add_row(Text(plain(name)), share, _sampled(stats) or _join(stats))
    late = _missed(status)
    if status.waiting or late:
        table.add_row("waiting", f"{status.waiting:,}", f"{late:,} missed their deadline")
    if status.shed:
        table.add_row("shed", f"{status.shed:,}", "put aside; headrace replay brings them back")
    table.add_row("dead letters", f"{status.dead:,}", "")
    for text in _warnings(status):
        table.add_row("warning", "", Text(plain(text), style="yellow"))
    return Panel(
        table, title=Text(f"headrace run {plain(status.name)}"), title_align="left", width=_WIDTH, padding=(1, 2)
    )


def _rate(rows: float) -> str:
    return f"{rows:,.0f}" if rows >= 10 else f"{rows:.2g}"


def _warnings(status: PipelineStatus) -> list[str]:
    return sorted({text for stats in status.joins.values() for text in stats.warnings.values()})


def _sampled(stats: JoinStats) -> str:
    """Say what a step that samples did; nothing for a join with a relation, all of whose rows are looked up."""
    if not stats.tuples_in or stats.hits + stats.misses + stats.absent + stats.nulls:
        return ""
    return f"{stats.results:,} results" + (f", {stats.late:,} rows too late" if stats.late else "")


def _missed(status: PipelineStatus) -> int:
    """Return how many rows were joined after their deadline."""
    return sum(stats.late for stats in status.joins.values() if not _sampled(stats))


def _join(stats: JoinStats) -> str:
    held = sum(stats.memory.values())
    return f"from memory; {stats.pages_read:,} pages read; {format_size(held)} of {format_size(stats.memory_limit)}"
