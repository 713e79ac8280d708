"""The display: how a run stands, live on a terminal, or as a plain line now and then elsewhere."""

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
from headrace.demo.status import Moment, Stage
from headrace.metrics import JoinStats
from headrace.units import format_duration, format_size

_STAGES: dict[Stage, tuple[str, str]] = {
    "products": ("making the products", "products"),
    "spark": ("starting Spark", ""),
    "sales": ("loading sales", "sales"),
    "proof": ("proving the table", "rows"),
}
_BARS = "▁▂▃▄▅▆▇█"
_EVERY = 5.0  # seconds between plain lines
_WIDTH = 100
_BAR = 40


class Display(Protocol):
    """Shows moments. Used as a context manager, it leaves the terminal as it was."""

    def show(self, moment: Moment) -> None:
        """Show how it stands."""
        ...

    def __enter__(self) -> Display: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class LiveDisplay:
    """A panel that stays in its place on the terminal."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, refresh_per_second=8, transient=True)

    def show(self, moment: Moment) -> None:
        """Replace what is shown."""
        self._live.update(panel(moment))

    def __enter__(self) -> LiveDisplay:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()


class PlainDisplay:
    """A line every few seconds, and one for every new stage."""

    def __init__(self, console: Console, clock: Clock) -> None:
        self._console = console
        self._clock = clock
        self._stage: Stage | None = None
        self._next = 0.0

    def show(self, moment: Moment) -> None:
        """Write a line, if it is time for one."""
        now = self._clock.now()
        if moment.stage != self._stage or now >= self._next:
            self._stage, self._next = moment.stage, now + _EVERY
            self._console.print(line(moment), highlight=False, soft_wrap=True)

    def __enter__(self) -> PlainDisplay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class NoDisplay(PlainDisplay):
    """Shows nothing."""

    def show(self, moment: Moment) -> None:
        """Nothing."""


def display(console: Console, clock: Clock, *, quiet: bool) -> Display:
    """The display that suits where the output goes."""
    if quiet:
        return NoDisplay(console, clock)
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(console, clock)


def line(moment: Moment) -> str:
    """A moment in one line.

    Example:
        >>> line(Moment("products", 200_000, 1_000_000))
        'making the products: 200,000 of 1,000,000'
    """
    words = _STAGES[moment.stage][0]
    if moment.total:
        words += f": {moment.done:,} of {moment.total:,}"
    if moment.stage == "sales":
        words += f" · arriving {moment.arriving:,}/s · loading {moment.loading:,.0f}/s"
        words += f" · behind {moment.behind:.1f} s, {moment.waiting:,} sales"
    if moment.batches and moment.stats is not None:
        held, limit = sum(moment.stats.memory.values()), moment.stats.memory_limit
        words += f" · {moment.stats.hit_ratio:.1%} from memory · {moment.stats.pages_read:,} pages"
        words += f" in {moment.stats.reads:,} reads · memory {format_size(held)} of {format_size(limit)}"
    return words


def panel(moment: Moment) -> Panel:
    """A moment as a panel."""
    words, unit = _STAGES[moment.stage]
    head = Table.grid(padding=(0, 2))
    count = f"{moment.done:,} of {moment.total:,} {unit}" if moment.total else ""
    pulse = not moment.total
    bar = ProgressBar(total=moment.total or 100, completed=moment.done, width=_BAR, pulse=pulse)
    head.add_row(Text(words, style="bold"), bar, count)
    parts: list[Table | Text] = [head]
    if moment.stage == "sales" and moment.stats is not None:
        parts += [Text(), _facts(moment, moment.stats)]
    return Panel(Group(*parts), title="headrace demo", title_align="left", width=_WIDTH, padding=(1, 2))


def sparkline(values: Sequence[int]) -> str:
    """A small picture of how values go up and down.

    Example:
        >>> sparkline([0, 1, 2, 7])
        '▁▂▃█'
    """
    most = max(values, default=0) or 1
    return "".join(_BARS[min(len(_BARS) - 1, value * len(_BARS) // (most + 1))] for value in values)


def _facts(moment: Moment, stats: JoinStats) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="cyan")
    table.add_column(justify="right", min_width=12)
    table.add_column()
    unknown = stats.absent / stats.tuples_in if stats.tuples_in else 0.0
    held = sum(stats.memory.values())
    table.add_row("arriving", f"{moment.arriving:,}/s", Text(sparkline(moment.bursts), style="green"))
    table.add_row("loading", f"{moment.loading:,.0f}/s", _batch(moment))
    table.add_row("behind", f"{moment.behind:.1f} s", f"{moment.waiting:,} sales have arrived and are not loaded yet")
    table.add_row("from memory", f"{stats.hit_ratio:.1%}", f"{unknown:.1%} are of unknown products: the filter says so")
    table.add_row("pages", f"{stats.pages_read:,}", f"in {stats.reads:,} reads, {format_size(stats.bytes_read)}")
    table.add_row("memory", format_size(held), ProgressBar(total=stats.memory_limit or 1, completed=held, width=_BAR))
    table.add_row("", f"of {format_size(stats.memory_limit)}", memory_parts(stats))
    return table


def memory_parts(stats: JoinStats) -> str:
    """What the memory is used for, the largest part first.

    Example:
        >>> memory_parts(JoinStats(memory={"index": 2048, "hot set": 4096, "queue": 0}))
        'hot set 4KiB, index 2KiB'
    """
    parts = sorted(stats.memory.items(), key=lambda part: -part[1])
    return ", ".join(f"{name} {format_size(nbytes)}" for name, nbytes in parts if nbytes)


def _batch(moment: Moment) -> str:
    if moment.batch < 0:
        return "the first micro-batch is under way"
    return f"micro-batch {moment.batch}: {moment.batch_rows:,} sales in {format_duration(moment.batch_seconds)}"
