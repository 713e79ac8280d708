"""``headrace tune``: the best rate for a memory, or the least memory for a rate, for every algorithm."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import headrace as hr
from headrace.cli.screen import plain, show_json, show_table
from headrace.errors import BadInput
from headrace.units import format_size, parse_size

if TYPE_CHECKING:
    from headrace.cost.facts import Machine
    from headrace.cost.prediction import Prediction
    from headrace.cost.tune import TuningResult


def tune(
    path: Annotated[Path, typer.Argument(metavar="RELATION", help="The relation's directory.")],
    rate: Annotated[
        float | None, typer.Option(help="Stream tuples a second to keep up with: asks for the least memory.")
    ] = None,
    memory: Annotated[str | None, typer.Option(help="A budget, as 64MiB: asks for the best rate.")] = None,
    skew: Annotated[float, typer.Option(help="Zipf exponent of the stream's keys; 0 is even.")] = 0.0,
    stream_bytes: Annotated[float, typer.Option(help="Size of a stream tuple.")] = 20.0,
    absent: Annotated[float, typer.Option(help="Share of the stream without a match, 0 to 1.")] = 0.0,
    batch_rows: Annotated[
        int | None, typer.Option(help="Tuples of a batch that is joined to its end; without it, a stream without end.")
    ] = None,
    machine: Annotated[
        str,
        typer.Option(help="calibrated: as `headrace calibrate` measured; default: as the code assumes; or hdd, ssd."),
    ] = "calibrated",
    plot_to: Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Draw the curves as PNG.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
) -> None:
    """Tell what every algorithm would need, or reach, and which to choose."""
    from headrace.cost.facts import Facts
    from headrace.cost.tune import best_rates, least_memories, plot

    if (rate is None) == (memory is None):
        raise BadInput("give --rate for the least memory, or --memory for the best rate: one of them")
    relation = hr.Relation.open(str(path))
    facts = Facts.of(
        relation,
        skew=skew,
        stream_bytes=stream_bytes,
        absent=absent,
        batch_rows=batch_rows,
        machine=_machine(machine, path),
    )
    if memory is not None:
        answer = best_rates(facts, parse_size(memory, name="memory"))
    else:
        assert rate is not None
        answer = least_memories(facts, rate)
    if plot_to is not None:
        plot(facts, answer, plot_to)
    if as_json:
        show_json(asdict(answer))
    else:
        _show(answer)


def _show(answer: TuningResult) -> None:
    rows: list[list[Any]] = [_row(p) for p in answer.predictions]
    show_table(["algorithm", "tuples/s", "memory", "parameters", "why"], rows)
    asked = (
        f"in {format_size(int(answer.given))}" if answer.asked == "rate" else f"for {answer.given:,.0f} tuples a second"
    )
    typer.echo(f"{asked}: {answer.recommended or 'none can'}")


def _row(found: Prediction) -> list[Any]:
    if not found.rate:
        return [found.algorithm, "-", "-", "", found.why]
    parameters = ", ".join(f"{name}={value}" for name, value in found.parameters.items())
    return [found.algorithm, f"{found.rate:,.0f}", format_size(found.memory), parameters, found.why]


def _machine(name: str, path: Path) -> Machine | None:
    """Return a machine by name; None stands for the relation's own disk with its default costs."""
    from headrace.cost.calibrate import BadCalibration, calibration_file, load_calibration
    from headrace.cost.machines import MACHINES

    if name == "default":
        return None
    if name != "calibrated":
        if name not in MACHINES:
            known = ", ".join(["calibrated", "default", *MACHINES])
            raise BadInput(f"machine={name!r} is not known; choose one of {known}")
        return MACHINES[name]
    if not calibration_file().exists():
        typer.echo("no calibration: costs are those the code assumes; `headrace calibrate` measures them", err=True)
        return None
    try:
        return load_calibration(directory=path).as_machine()
    except BadCalibration as error:
        typer.echo(f"headrace: {plain(error)}; costs are those the code assumes", err=True)
        return None
