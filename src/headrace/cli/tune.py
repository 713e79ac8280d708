"""``headrace tune``: the best rate for a memory, or the least memory for a rate, for every algorithm."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import headrace as hr
from headrace.cli.option_names import in_options
from headrace.cli.options import FLAG, SIZE
from headrace.cli.screen import plain, show_json, show_table
from headrace.errors import BadInput
from headrace.files import exists, is_directory
from headrace.units import format_size, parse_size

if TYPE_CHECKING:
    from headrace.cost.facts import Machine
    from headrace.cost.prediction import Prediction
    from headrace.cost.tune import TuningResult


TUNE_EXAMPLES = (
    "Examples:\n\n"
    "headrace tune products.rel --memory 64m\n\n"
    "headrace tune products.rel --rate 200000 --skew 1 --plot curves.png"
)


def tune(
    path: Annotated[Path, typer.Argument(metavar="RELATION", help="The relation's directory.")],
    rate: Annotated[
        float | None, typer.Option(help="Stream tuples a second to keep up with: asks for the least memory.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar=SIZE, help="A budget, as 64MiB: asks for the best rate.")
    ] = None,
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
    as_json: Annotated[bool, typer.Option("--json", metavar=FLAG, help="Write JSON.")] = False,
) -> None:
    """Tell what every algorithm would need, or reach, and which to choose."""
    from headrace.cost.facts import Facts
    from headrace.cost.tune import best_rates, least_memories, plot

    if (rate is None) == (memory is None):
        raise BadInput("give --rate for the least memory, or --memory for the best rate: one of them")
    budget = None if memory is None else parse_size(memory, name="memory")
    if plot_to is not None and not is_directory(plot_to.absolute().parent):
        raise BadInput(f"plot={str(plot_to)!r} is in no directory; make {str(plot_to.parent)!r} first")
    relation = hr.Relation.open(str(path))
    known, note = _machine(machine, path)
    facts = Facts.of(
        relation,
        skew=skew,
        stream_bytes=stream_bytes,
        absent=absent,
        batch_rows=batch_rows,
        machine=known,
    )
    if budget is not None:
        answer = best_rates(facts, budget)
    else:
        assert rate is not None
        answer = least_memories(facts, rate)
    if plot_to is not None:
        drawn = plot(facts, answer, plot_to)
    if note:
        typer.echo(note, err=True)
    if as_json:
        show_json(asdict(answer))
    else:
        _show(answer)
    if plot_to is not None:
        # With --json, standard output is the document.
        typer.echo(f"curves drawn in {plain(drawn)}", err=as_json)


def _show(answer: TuningResult) -> None:
    rows: list[list[Any]] = [_row(p) for p in answer.predictions]
    show_table(["algorithm", "tuples/s", "memory", "parameters", "why"], rows, right=("tuples/s", "memory"))
    asked = (
        f"in {format_size(int(answer.given))}" if answer.asked == "rate" else f"for {answer.given:,.0f} tuples a second"
    )
    typer.echo(f"choose {answer.recommended} {asked}" if answer.recommended else f"{asked}: none can")


def _row(found: Prediction) -> list[Any]:
    if not found.rate:
        return [found.algorithm, "-", "-", "", _typed(found.why)]
    parameters = ", ".join(f"{name}={value}" for name, value in found.parameters.items())
    return [found.algorithm, f"{found.rate:,.0f}", format_size(found.memory), parameters, _typed(found.why)]


def _typed(why: str) -> str:
    return in_options(why, {"order": "--order"})


def _machine(name: str, path: Path) -> tuple[Machine | None, str]:
    """Return a machine by name, and what to say about it; None stands for the relation's own disk with its default costs."""
    from headrace.cost.calibrate import BadCalibration, calibration_file, load_calibration
    from headrace.cost.machines import MACHINES

    if name == "default":
        return None, ""
    if name != "calibrated":
        if name not in MACHINES:
            known = ", ".join(["calibrated", "default", *MACHINES])
            raise BadInput(f"machine={name!r} is not known; choose one of {known}")
        return MACHINES[name], ""
    if not exists(calibration_file()):
        return None, "no calibration: costs are those the code assumes; `headrace calibrate` measures them"
    try:
        return load_calibration(directory=path).as_machine(), ""
    except BadCalibration as error:
        return None, f"headrace: {plain(error)}; costs are those the code assumes"
