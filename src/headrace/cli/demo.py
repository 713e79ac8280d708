"""``headrace demo``: a retail warehouse, fed by a bursty stream of sales, that proves what it loaded."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headrace.cli.exit_codes import FAILED, INTERRUPTED
from headrace.cli.options import FLAG, SIZE
from headrace.cli.screen import plain, show_json
from headrace.units import format_duration, format_size, parse_size

if TYPE_CHECKING:
    from headrace.demo.job import DemoResult
    from headrace.demo.warehouse import Warehouse

_MEMORY = "24MiB"
_MOST_CORES = 8
_QUERY = (
    "from deltalake import DeltaTable; "
    'sales = DeltaTable({table}).to_pyarrow_table(columns=["category", "quantity", "line_total"]); '
    'print(*sales.group_by("category").aggregate([("quantity", "sum"), ("line_total", "sum")]).to_pylist(), sep="\\n")'
)


def demo(
    rate: Annotated[int | None, typer.Option(help="Mean sales a second.", show_default="60000")] = None,
    seconds: Annotated[float | None, typer.Option(help="For how long sales arrive.", show_default="40")] = None,
    products: Annotated[int | None, typer.Option(help="Products in the relation.", show_default="1000000")] = None,
    memory: Annotated[
        str, typer.Option(metavar=SIZE, help="The join's budget; the products take about 120 bytes each.")
    ] = _MEMORY,
    skew: Annotated[
        float | None, typer.Option(help="Exponent of Zipf's distribution; 0 is uniform.", show_default="1")
    ] = None,
    cores: Annotated[int | None, typer.Option(help="Cores for Spark.", show_default="all, up to 8")] = None,
    seed: Annotated[int | None, typer.Option(help="Another seed, other sales.", show_default="1")] = None,
    warehouse: Annotated[Path, typer.Option(metavar="DIR", help="Where it all goes.")] = Path("headrace-demo"),
    resume: Annotated[
        bool, typer.Option("--resume", metavar=FLAG, help="Go on where an interrupted demo stopped.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", metavar=FLAG, help="Begin anew over a demo that did not finish.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", metavar=FLAG, help="Write JSON, and nothing else.")] = False,
) -> None:
    """A retail warehouse: sales stream in, get their products, and are loaded into a Delta table.

    It takes about a minute, and then proves that the table holds exactly what was sold. Ctrl-C stops it; --resume goes on.
    """
    chosen = {"rate": rate, "seconds": seconds, "products": products, "skew": skew, "seed": seed}
    _run(chosen, memory, _cores(cores), warehouse, resume=resume, overwrite=overwrite, as_json=as_json)


def _run(
    chosen: dict[str, Any], memory: str, cores: int, path: Path, *, resume: bool, overwrite: bool, as_json: bool
) -> None:
    from headrace.clock import SystemClock
    from headrace.demo.display import display
    from headrace.demo.scenario import Scenario
    from headrace.demo.warehouse import Warehouse
    from headrace.errors import BadInput, missing_extra
    from headrace.signals import GracefulStop, Interrupted

    parse_size(memory, name="memory")
    if resume and overwrite:
        raise BadInput("--resume goes on and --overwrite begins anew; give one of them")
    try:
        from headrace.demo.job import run
    except ModuleNotFoundError as error:
        raise missing_extra("the demo", error) from error

    clock = SystemClock()
    given = {name: value for name, value in chosen.items() if value is not None}
    place = Warehouse.resume(path, **given) if resume else Warehouse.start(path, Scenario(**given), overwrite=overwrite)
    with place, GracefulStop() as stopping:
        shown = display(Console(stderr=True), clock, quiet=as_json)
        try:
            with shown:
                outcome = run(place, memory=memory, cores=cores, watch=shown.show, clock=clock, stopping=stopping)
        except (Interrupted, KeyboardInterrupt) as stop:
            _say_interrupted(place, path, as_json=as_json)
            raise typer.Exit(INTERRUPTED) from stop
    if as_json:
        show_json(_facts(place, outcome))
    else:
        _summarise(place, outcome)
    if not outcome.holds:
        wrong = "; ".join(f"{c.claim}: {c.found}, expected {c.expected}" for c in outcome.checks if not c.holds)
        sys.stderr.write(f"headrace: the proof fails: {plain(wrong)}\n")
        raise typer.Exit(FAILED)


def _cores(wanted: int | None) -> int:
    from headrace.errors import BadInput

    if wanted is None:
        return min(_MOST_CORES, len(os.sched_getaffinity(0)))
    if wanted < 1:
        raise BadInput(f"--cores {wanted} is too few; give 1 or more, or leave it out for all")
    return wanted


def _say_interrupted(place: Warehouse, path: Path, *, as_json: bool) -> None:
    again = f"headrace demo --resume --warehouse {shlex.quote(str(path))}"
    if as_json:
        show_json({"finished": False, "interrupted": True, "warehouse": str(place.path), "resume": again})
    else:
        sys.stderr.write(f"Stopped. What is loaded stays loaded; go on with:\n  {plain(again)}\n")


def _facts(place: Warehouse, outcome: DemoResult) -> dict[str, Any]:
    return {
        "finished": outcome.holds,
        "interrupted": False,
        "warehouse": str(place.path),
        "table": str(place.table),
        "scenario": place.scenario.as_dict(),
        "sales": place.scenario.sales,
        "loaded_before": outcome.before,
        "loaded": outcome.loaded,
        "seconds": round(outcome.seconds, 3),
        "rate": round(outcome.rate, 1),
        "most_behind_seconds": round(outcome.most_behind, 3),
        "batches": outcome.batches,
        "stats": outcome.stats.as_dict(),
        "proof": [check.as_dict() for check in outcome.checks],
        "query": query_command(place),
    }


def query_command(place: Warehouse) -> str:
    """Return a command that shows the table with a tool that is installed here."""
    return f"{shlex.quote(sys.executable)} -c {shlex.quote(_QUERY.format(table=json.dumps(str(place.table))))}"


def _summarise(place: Warehouse, outcome: DemoResult) -> None:
    table = Table(title="The table against the generator", title_justify="left", title_style="bold")
    for name in ("", "", "generator", "table"):
        table.add_column(name, justify="right" if name else "left")
    for check in outcome.checks:
        mark = Text("✓", style="green") if check.holds else Text("✗", style="bold red")
        number = "{:016x}" if check.name == "checksum" else "{:,}"
        table.add_row(mark, check.claim, number.format(check.expected), number.format(check.found))
    console = Console(highlight=False)
    console.print(table)
    for name, fact in _figures(outcome).items():
        console.print(Text(f"{name:<12}", style="cyan"), Text(fact), soft_wrap=True)
    console.print(Text(f"{'table':<12}", style="cyan"), Text(plain(place.table)), soft_wrap=True)
    console.print(Text(f"{'query it':<12}", style="cyan"), Text(plain(query_command(place))), soft_wrap=True)


def _figures(outcome: DemoResult) -> dict[str, str]:
    from headrace.demo.display import memory_parts

    stats = outcome.stats
    if not outcome.loaded:
        return {"loaded": f"nothing: all {outcome.before:,} sales were there"}
    earlier = f", after {outcome.before:,} by earlier runs" if outcome.before else ""
    unknown = f"{stats.absent:,} of unknown products turned away by the filter"
    return {
        "loaded": f"{outcome.loaded:,} sales in {format_duration(outcome.seconds)}, {outcome.rate:,.0f} a second{earlier}",
        "batches": f"{outcome.batches} micro-batches; the longest that a sale waited was {outcome.most_behind:.1f} s",
        "from memory": f"{stats.hit_ratio:.1%} of sales; {unknown}",
        "pages": f"{stats.pages_read:,} in {stats.reads:,} reads, {format_size(stats.bytes_read)}",
        "memory": f"at most {format_size(stats.memory_peak)} of {format_size(stats.memory_limit)}: {memory_parts(stats)}",
    }
