"""Displays of a run's status: a live panel on a terminal, or a plain line every few seconds elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from headrace.clock import Clock
from headrace.demo.status import RunStatus, Stage
from headrace.metrics import JoinStats
from headrace.units import format_duration, format_size

_STAGES: dict[Stage, tuple[str, str]] = {
    "products": ("making the products", "products"),
    "spark": ("starting Spark", ""),
    "sales": ("loading sales", "sales"),
    "proof": ("proving the table", "rows"),
}
_BARS = "▁▂▃▄▅▆▇█"
_EVERY = 5.0  # seconds between plain lines, so that a log stays short
_WIDTH = 100
_BAR = 40


class Display(Protocol):
    """Shows the status of a run. Used as a context manager, it leaves the terminal as it was."""

    def show(self, status: RunStatus) -> None:
        """Show a status."""
        ...

    def __enter__(self) -> Display: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class LiveDisplay:
    """Shows a panel that is updated in place on the terminal."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, refresh_per_second=8, transient=True)

    def show(self, status: RunStatus) -> None:
        """Update the panel."""
        self._live.update(panel(status))

    def __enter__(self) -> LiveDisplay:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()


class PlainDisplay:
    """Prints a line every few seconds, and one for every new stage."""

    def __init__(self, console: Console, clock: Clock) -> None:
        self._console = console
        self._clock = clock
        self._stage: Stage | None = None
        self._next = 0.0

    def show(self, status: RunStatus) -> None:
        """Print a line if one is due."""
        now = self._clock.now()
        if status.stage != self._stage or now >= self._next:
            self._stage, self._next = status.stage, now + _EVERY
            self._console.print(line(status), highlight=False, soft_wrap=True)

    def __enter__(self) -> PlainDisplay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class NoDisplay(PlainDisplay):
    """Shows nothing."""

    def show(self, status: RunStatus) -> None:
        """Ignore the status."""


def display(console: Console, clock: Clock, *, quiet: bool) -> Display:
    """Return the display that suits the output: terminal, file or JSON."""
    if quiet:
        return NoDisplay(console, clock)
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(console, clock)


def line(status: RunStatus) -> str:
    """Format a status as one line.

    Example:
        >>> line(RunStatus("products", 200_000, 1_000_000))
        'making the products: 200,000 of 1,000,000'
    """
    words = _STAGES[status.stage][0]
    if status.total:
        words += f": {status.done:,} of {status.total:,}"
    if status.stage == "sales":
        words += f" · arriving {status.arriving:,}/s · loading {status.loading:,.0f}/s"
        words += f" · behind {status.behind:.1f} s, {status.waiting:,} sales"
    if status.batches and status.stats is not None:
        held, limit = sum(status.stats.memory.values()), status.stats.memory_limit
        words += f" · {status.stats.hit_ratio:.1%} from memory · {status.stats.pages_read:,} pages"
        words += f" in {status.stats.reads:,} reads · memory {format_size(held)} of {format_size(limit)}"
    return words


def panel(status: RunStatus) -> Panel:
    """Format a status as a panel."""
    words, unit = _STAGES[status.stage]
    head = Table.grid(padding=(0, 2))
    count = f"{status.done:,} of {status.total:,} {unit}" if status.total else ""
    pulse = not status.total
    bar = ProgressBar(total=status.total or 100, completed=status.done, width=_BAR, pulse=pulse)
    head.add_row(Text(words, style="bold"), bar, count)
    parts: list[Table | Text] = [head]
    if status.stage == "sales" and status.stats is not None:
        parts += [Text(), _facts(status, status.stats)]
    return Panel(Group(*parts), title="headrace demo", title_align="left", width=_WIDTH, padding=(1, 2))


def sparkline(values: Sequence[int]) -> str:
    """Draw values as a small bar chart of characters.

    Example:
        >>> sparkline([0, 1, 2, 7])
        '▁▂▃█'
    """
    most = max(values, default=0) or 1
    return "".join(_BARS[min(len(_BARS) - 1, value * len(_BARS) // (most + 1))] for value in values)


def _facts(status: RunStatus, stats: JoinStats) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="cyan")
    table.add_column(justify="right", min_width=12)
    table.add_column()
    unknown = stats.absent / stats.tuples_in if stats.tuples_in else 0.0
    held = sum(stats.memory.values())
    table.add_row("arriving", f"{status.arriving:,}/s", Text(sparkline(status.bursts), style="green"))
    table.add_row("loading", f"{status.loading:,.0f}/s", _batch(status))
    table.add_row("behind", f"{status.behind:.1f} s", f"{status.waiting:,} sales have arrived and are not loaded yet")
    table.add_row("from memory", f"{stats.hit_ratio:.1%}", f"{unknown:.1%} are of unknown products: the filter says so")
    table.add_row("pages", f"{stats.pages_read:,}", f"in {stats.reads:,} reads, {format_size(stats.bytes_read)}")
    table.add_row("memory", format_size(held), ProgressBar(total=stats.memory_limit or 1, completed=held, width=_BAR))
    table.add_row("", f"of {format_size(stats.memory_limit)}", memory_parts(stats))
    return table


def memory_parts(stats: JoinStats) -> str:
    """Format the memory by part, the largest first.

    Example:
        >>> memory_parts(JoinStats(memory={"index": 2048, "hot set": 4096, "queue": 0}))
        'hot set 4KiB, index 2KiB'
    """
    parts = sorted(stats.memory.items(), key=lambda part: -part[1])
    return ", ".join(f"{name} {format_size(nbytes)}" for name, nbytes in parts if nbytes)


def _batch(status: RunStatus) -> str:
    if status.batch < 0:
        return "the first micro-batch is under way"
    return f"micro-batch {status.batch}: {status.batch_rows:,} sales in {format_duration(status.batch_seconds)}"
