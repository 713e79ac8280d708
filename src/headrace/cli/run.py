"""``headrace run``: check, explain and run the pipeline that a file describes."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from headrace.cli.exit_codes import INTERRUPTED, exit_code, message
from headrace.cli.options import FLAG
from headrace.cli.screen import plain, show_facts, show_json, show_table
from headrace.errors import BadInput, HeadraceError, MissingExtra
from headrace.files import make_directory, remove_tree, temporary_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.pipeline.document import Document
    from headrace.pipeline.models import Pipeline
    from headrace.pipeline.noting import Checked
    from headrace.pipeline.read import Draft
    from headrace.pipeline.run import PipelineResult
    from headrace.signals import GracefulStop

_MOST_CORES = 8

RUN_EXAMPLES = "Examples:\n\nheadrace run sales.toml --check\n\nheadrace run sales.toml --once"


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline file.")],
    check: Annotated[bool, typer.Option("--check", metavar=FLAG, help="Only say whether it can run.")] = False,
    explain: Annotated[bool, typer.Option("--explain", metavar=FLAG, help="Only show the plan.")] = False,
    once: Annotated[bool, typer.Option("--once", metavar=FLAG, help="Take what is there, and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", metavar=FLAG, help="Write JSON, and nothing else.")] = False,
) -> None:
    """Run a pipeline: a source, steps, a sink, described in one file.

    Ctrl-C or SIGTERM finishes the micro-batch and stops; another run goes on from there. Ctrl-C again breaks off at once.
    """
    with _problems(as_json=as_json):
        for library in ("pydantic", "pyspark", "deltalake"):
            if importlib.util.find_spec(library) is None:
                raise MissingExtra("headrace run", library, "spark")
        from headrace.pipeline.check import check_draft
        from headrace.pipeline.read import read_draft

        draft = read_draft(file)
        with _hidden(draft.document):
            checked = check_draft(draft)
            if checked.spark and (check or explain or draft.problems):
                checked = _check_with_spark(draft)
            pipeline = draft.pipeline()
            if check or explain:
                _show_plan(pipeline, checked, explain=explain, as_json=as_json)
            else:
                _run(pipeline, checked, once=once, as_json=as_json)


def _check_with_spark(draft: Draft) -> Checked:
    """Check SQL too, which only Spark can. It leaves nothing behind, unless Spark itself fails: then its log."""
    from headrace.pipeline.document import BadPipeline
    from headrace.pipeline.noting import Checked, located
    from headrace.pipeline.spark_check import check_with_spark

    scratch, checked = temporary_directory(Path(tempfile.gettempdir()), "headrace-check-"), Checked()
    try:
        with located(draft.document, ("spark",)), _session(draft.place, scratch) as spark:
            checked = check_with_spark(draft, spark)
    except BadPipeline as error:
        draft.problems += error.problems
    else:
        remove_tree(scratch)
    return checked


def _show_plan(pipeline: Pipeline, checked: Checked, *, explain: bool, as_json: bool) -> None:
    from headrace.pipeline.explain import explain as plan_of

    if not explain:
        facts = {"file": str(pipeline.document.path), "valid": True, "needs_spark": bool(checked.spark)}
        if as_json:
            show_json(facts)
        else:
            typer.echo(f"{plain(pipeline.document.path)}: it can run")
        return
    plan = plan_of(pipeline, checked)
    if as_json:
        show_json(plan)
        return
    sources = {f"source {name}": source for name, source in plan.pop("sources", {}).items()}
    steps = {f"step {n}": step for n, step in enumerate(plan.pop("steps"), 1)}
    sink, memory = plan.pop("sink"), plan.pop("memory")
    show_facts(plan | sources | steps | {"sink": sink, "memory": memory})


def _run(pipeline: Pipeline, checked: Checked, *, once: bool, as_json: bool) -> None:
    from headrace.cli.running import display
    from headrace.clock import SystemClock
    from headrace.pipeline.run import RunFailed
    from headrace.pipeline.run import run as run_pipeline
    from headrace.pipeline.spark_check import describe_with_spark
    from headrace.signals import GracefulStop

    clock = SystemClock()
    with GracefulStop() as stopping:
        try:
            with (
                _session(pipeline, pipeline.state, stopping) as spark,
                display(Console(stderr=True), clock, quiet=as_json) as shown,
            ):
                if checked.spark:
                    describe_with_spark(pipeline, spark, checked)
                outcome = run_pipeline(
                    pipeline,
                    spark,
                    once=once,
                    watch=shown.show,
                    clock=clock,
                    stopping=stopping,
                    show=lambda columns, rows: None if as_json else show_table(columns, rows),
                )
        except RunFailed as failure:
            if as_json:
                show_json({"name": pipeline.name, "failed": True, "message": str(failure)})
            sys.stderr.write(f"headrace: {plain(pipeline.name)} failed: {plain(failure)}\n")
            raise typer.Exit(exit_code(failure)) from failure
        except KeyboardInterrupt as stop:
            sys.stderr.write(f"headrace: {plain(pipeline.name)} was broken off; another run goes on where it stopped\n")
            raise typer.Exit(INTERRUPTED) from stop
    _say(pipeline, outcome, once=once, as_json=as_json)
    if once and outcome.stopped:
        raise typer.Exit(INTERRUPTED)


def _say(pipeline: Pipeline, outcome: PipelineResult, *, once: bool, as_json: bool) -> None:
    from headrace.cli.running import line

    status = outcome.status
    if as_json:
        show_json(
            {
                "name": status.name,
                "failed": False,
                "stopped": outcome.stopped,
                "batches": status.batches,
                "rows": status.rows,
                "seconds": round(outcome.seconds, 3),
                "rate": round(outcome.rate, 1),
                "dead_letters": status.dead,
                "waiting": status.waiting,
                "shed": status.shed,
                "joins": {name: stats.as_dict() for name, stats in status.joins.items()},
            }
        )
        return
    typer.echo(f"{'stopped' if outcome.stopped else 'done'}: {line(status, outcome.seconds)}")
    if status.dead:
        typer.echo(f"{status.dead} record(s) could not be read; see {plain(pipeline.dead_letters)}")


@contextmanager
def _session(pipeline: Pipeline, directory: Path, stopping: GracefulStop | None = None) -> Iterator[SparkSession]:
    """Use the Spark session that is running, in a notebook for example, or else start one, with its files in a directory."""
    from headrace.pipeline.document import Filled, filled
    from headrace.spark.session import command_session, local_settings

    cores = pipeline.head.cores or min(_MOST_CORES, len(os.sched_getaffinity(0)))
    scratch = directory / "scratch"
    make_directory(scratch, parents=True)
    settings = local_settings(f"headrace {pipeline.name}", cores, scratch)
    settings |= {name: filled(value) for name, value in pipeline.head.spark.items()}
    private = [name for name, value in pipeline.head.spark.items() if isinstance(value, Filled)]
    with command_session(directory / "spark.log", settings, private) as spark:
        if stopping is not None:
            stopping.listen()  # PySpark's context has installed its own handler for Ctrl-C
        yield spark


@contextmanager
def _hidden(document: Document) -> Iterator[None]:
    """Remove values of the environment, and options that are secret, from whatever is raised inside."""
    from headrace.pipeline.run import RunFailed

    try:
        yield
    except HeadraceError as error:
        error.args = (document.hide(str(error)),)
        raise
    except Exception as error:
        if hasattr(error, "exit_code"):  # an exit that was told already
            raise
        raise RunFailed(document.hide(message(error))) from error


@contextmanager
def _problems(*, as_json: bool) -> Iterator[None]:
    """Show each problem of the file on a line of its own."""
    try:
        yield
    except BadInput as error:
        problems = getattr(error, "problems", None)
        if problems is None:
            raise
        if as_json:
            show_json({"valid": False, "problems": [vars(problem) for problem in problems]})
        for problem in problems:
            sys.stderr.write(f"headrace: {plain(problem)}\n")
        raise typer.Exit(exit_code(error)) from error
