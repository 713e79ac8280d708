"""``headrace calibrate``: measure what reads and the steps of a join take here."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options import FLAG
from headrace.cli.screen import plain, progress, show_json, show_table


def calibrate(
    directory: Annotated[Path, typer.Option(help="On the device that relations are on.")] = Path(),
    seconds: Annotated[
        float,
        typer.Option(
            help="About how long to measure reads and steps; the algorithms take a minute more, or below 3 some seconds."
        ),
    ] = 10.0,
    as_json: Annotated[bool, typer.Option("--json", metavar=FLAG, help="Write JSON.")] = False,
) -> None:
    """Measure seek, transfer, the steps of a join and what each algorithm takes besides, and keep them for `headrace tune`."""
    from headrace.bench.measure import calibrate as measure

    with progress("measuring", "figures", quiet=as_json) as report:
        found = measure(directory.resolve(), seconds=seconds, progress=report)
    path = found.save()
    if as_json:
        show_json({"file": str(path), **found.as_dict()})
        return
    rows = [
        ["seek", _micro(found.seek), "a request, one after the other"],
        ["transfer", _micro(found.transfer), "8 KiB of it"],
        ["follow", _micro(found.follow), "a request that goes on where the last one ended"],
        ["seek in flight", _micro(found.seek_in_flight), "a request among many"],
        ["transfer in flight", _micro(found.transfer_in_flight), "8 KiB of it"],
    ]
    rows += [[name, _micro(value), _STEPS[name]] for name, value in asdict(found.factors).items()]
    show_table(["cost", "µs", "of"], rows)
    show_table(
        ["algorithm", "steps, times", "an iteration, µs", "a request, µs"],
        [
            [name, f"{o.steps:.2f}", _micro(o.iteration), _micro(o.request)]
            for name, o in sorted(found.overheads.items())
        ],
    )
    if found.disk == "buffered":
        typer.echo(
            f"{plain(directory)} knows no direct reads: these are times of the system's cache, not of the device"
        )
    typer.echo(f"kept in {plain(path)}")


_STEPS = {
    "c_E": "removing a tuple from H and Q",
    "c_S": "reading a tuple from the stream",
    "c_A": "adding a tuple to H and Q",
    "c_H": "probing H with a tuple of R",
    "c_O": "making a result",
    "c_X": "looking a tuple up in the index",
}


def _micro(seconds: float) -> str:
    return f"{1e6 * seconds:.3g}"
