"""``headrace bench``: measure joins as the papers do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import headrace as hr
from headrace.cli.option_names import OptionNamesCommand, in_options
from headrace.cli.options import FLAG, SIZE
from headrace.cli.screen import progress, show_json, show_table
from headrace.errors import BadInput, HeadraceError, choice
from headrace.files import scratch_directory
from headrace.units import format_size, parse_size

if TYPE_CHECKING:
    from headrace.relation.disk import Disk

bench_app = typer.Typer(help="Measure joins as the papers do.", no_args_is_help=True)


@bench_app.callback()
def _bench() -> None:
    # Typer makes a lone command the group itself unless there is a callback.
    pass


@bench_app.command("service-rate", cls=OptionNamesCommand)
def service_rate(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="[RELATION]", help="A relation with one integer key 0, 1, 2...; or give --rows."),
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="Make a relation of so many tuples of 120 bytes.")] = None,
    algorithms: Annotated[str, typer.Option(help="Names separated by commas, or all.")] = "all",
    memory: Annotated[
        str, typer.Option(metavar=SIZE, help="Budgets separated by commas: 4MiB, or 5% of the relation.")
    ] = "5%",
    skew: Annotated[str, typer.Option(help="Zipf exponents of the stream, separated by commas.")] = "0.5",
    order: Annotated[
        str, typer.Option(help="key: small keys are popular; permuted: popular keys lie anywhere.")
    ] = "key",
    disk: Annotated[
        str,
        typer.Option(help="hdd, hdd-2011 or ssd: simulated; direct: this machine's disk without its cache; buffered."),
    ] = "hdd",
    method: Annotated[
        str, typer.Option(help="saturated: the stream is all there. sustained: it comes at a rate.")
    ] = "saturated",
    loops: Annotated[int, typer.Option(min=1, help="Rounds over the relation before a scan is measured.")] = 4,
    as_json: Annotated[bool, typer.Option("--json", metavar=FLAG, help="Write JSON.")] = False,
) -> None:
    """The highest rate of stream tuples that each join sustains."""
    from headrace.bench import MeasuringOptions, RelationSpec, Zipf, make_relation
    from headrace.bench import service_rate as measure
    from headrace.semistream import ALGORITHMS

    with scratch_directory("headrace-bench-") as scratch:
        how: Any = choice("method", method, ("saturated", "sustained"))
        popular: Any = choice("order", order, ("key", "permuted"))
        if (path is None) == (rows is None):
            raise BadInput("give a RELATION to measure with, or --rows to make one: one of them")
        if rows is not None:
            with progress("making the relation", "rows", quiet=as_json) as report:
                relation = make_relation(scratch, RelationSpec(rows), disk=_disk(disk), progress=report)
        else:
            relation = hr.Relation.open(str(path), disk=_disk(disk))
            if len(relation.key) != 1 or not relation.codec.integer:
                raise BadInput(f"the stream's keys are whole numbers, and {path} has the key {', '.join(relation.key)}")
        names = list(ALGORITHMS) if algorithms == "all" else algorithms.split(",")
        for name in names:
            choice("algorithms", name, tuple(ALGORITHMS))
        cells = [
            (n, _memory(m, relation), _number(z, "--skew"))
            for n in names
            for m in memory.split(",")
            for z in skew.split(",")
        ]
        found: list[dict[str, Any]] = []
        with progress("measuring", "cells", quiet=as_json) as report:
            for number, (name, budget, exponent) in enumerate(cells):
                report(number, len(cells))
                stream = Zipf(relation.distinct_keys, exponent, popular)
                cell = {"algorithm": name, "memory": budget, "skew": exponent}
                try:
                    rate = measure(
                        name,
                        relation,
                        stream,
                        budget,
                        method=how,
                        measuring=MeasuringOptions(loops),
                        on={"k": relation.key[0]},
                    )
                    found.append(rate.as_dict() | cell)
                except HeadraceError as refusal:
                    why = str(refusal).replace(str(relation.path), relation.path.name)  # which may lie in scratch space
                    found.append(cell | {"refused": in_options(why, {"memory": "--memory"})})
        if as_json:
            show_json({"relation": relation.describe(), "disk": disk, "method": method, "order": order, "rates": found})
        else:
            show_table(
                ["algorithm", "memory", "skew", "tuples/s", "hits", "waits", "note"], [_row(cell) for cell in found]
            )


def _disk(name: str) -> Disk:
    from headrace.cost import MACHINES, disk_of
    from headrace.relation.disk import Disk

    choice("disk", name, (*MACHINES, "direct", "buffered"))
    return disk_of(name) if name in MACHINES else Disk("direct" if name == "direct" else "buffered")


def _memory(text: str, relation: hr.Relation) -> int:
    if text.endswith("%"):
        size = int(relation.num_pages * relation.page_size * _number(text[:-1], "--memory") / 100)
        if size < 1:
            raise BadInput(f"--memory {text} of {relation.path} is no memory")
        return size
    return parse_size(text, name="memory")


def _number(text: str, option: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadInput(f"{option} {text!r} is not a number; give one such as 0.5") from None


def _row(cell: dict[str, Any]) -> list[Any]:
    start = [cell["algorithm"], format_size(cell["memory"]), cell["skew"]]
    if "refused" in cell:
        return [*start, "", "", "", cell["refused"]]
    note = "" if cell["settled"] else "its rate had not settled"
    return [*start, f"{cell['rate']:,.0f}", f"{cell['hit_ratio']:.0%}", f"{cell['mean_wait']:.3g} s", note]
