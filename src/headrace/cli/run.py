"""``headrace run``: check, explain and run the pipeline that a file describes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from headrace.cli.screen import FAILED, clean_errors, plain, show_facts, show_json, show_table
from headrace.errors import BadInput

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.pipeline.models import Pipeline
    from headrace.pipeline.run import PipelineResult
    from headrace.signals import GracefulStop

GAVE_UP = 3  # exit code of a pipeline that failed while it ran
INTERRUPTED = 130  # exit code of a run that was interrupted, or of --once stopped before its end

_MOST_CORES = 8


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline file.")],
    check: Annotated[bool, typer.Option("--check", help="Only say whether it can run.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Only show the plan.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Take what is there, and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON, and nothing else.")] = False,
) -> None:
    """Run a pipeline: a source, steps, a sink, described in one file.

    Ctrl-C or SIGTERM finishes the micro-batch and stops; another run goes on from there. Ctrl-C again breaks off at once.
    """
    with clean_errors(), _problems(as_json=as_json):
        try:
            from headrace.pipeline.check import check_pipeline
            from headrace.pipeline.read import read_pipeline
        except ModuleNotFoundError as error:
            raise BadInput(
                f"headrace run needs {error.name}; install it with: pip install 'headrace[spark]'"
            ) from error

        pipeline = read_pipeline(file)
        checked = check_pipeline(pipeline)
        if check or explain:
            if checked.spark:
                # Only Spark can check SQL; it also fills in the columns of the plan.
                from headrace.pipeline.build import describe_with_spark

                with _session(pipeline) as spark:
                    describe_with_spark(pipeline, spark, checked)
            _show_plan(pipeline, checked, explain=explain, as_json=as_json)
            return
        _run(pipeline, once=once, as_json=as_json)


def _show_plan(pipeline: Pipeline, checked: Any, *, explain: bool, as_json: bool) -> None:
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
    steps = {f"step {n}": step for n, step in enumerate(plan.pop("steps"), 1)}
    sink, memory = plan.pop("sink"), plan.pop("memory")
    show_facts(plan | steps | {"sink": sink, "memory": memory})


def _run(pipeline: Pipeline, *, once: bool, as_json: bool) -> None:
    from headrace.cli.running import display
    from headrace.clock import SystemClock
    from headrace.pipeline.run import RunFailed
    from headrace.pipeline.run import run as run_pipeline
    from headrace.signals import GracefulStop

    clock = SystemClock()
    with GracefulStop() as stopping:
        try:
            with _session(pipeline, stopping) as spark, display(Console(stderr=True), clock, quiet=as_json) as shown:
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
            raise typer.Exit(GAVE_UP) from failure
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
                "dead_letters": status.dead,
                "waiting": status.waiting,
                "shed": status.shed,
                "joins": {name: stats.as_dict() for name, stats in status.joins.items()},
            }
        )
        return
    typer.echo(f"{'stopped' if outcome.stopped else 'done'}: {line(status)}")
    if status.dead:
        typer.echo(f"{status.dead} record(s) could not be read; see {plain(pipeline.dead_letters)}")


@contextmanager
def _session(pipeline: Pipeline, stopping: GracefulStop | None = None) -> Iterator[SparkSession]:
    """Use the Spark session that is running, in a notebook for example, or else start one for the pipeline."""
    from pyspark.sql import SparkSession

    from headrace.pipeline.document import filled
    from headrace.spark.session import local_settings, own_session

    there = SparkSession.getActiveSession()
    if there is not None:
        yield there
        return
    cores = pipeline.head.cores or min(_MOST_CORES, len(os.sched_getaffinity(0)))
    scratch = pipeline.state / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    settings = local_settings(f"headrace {pipeline.name}", cores, scratch)
    settings |= {name: filled(value) for name, value in pipeline.head.spark.items()}
    with own_session(pipeline.state / "spark.log", settings) as spark:
        if stopping is not None:
            stopping.listen()  # PySpark's context has installed its own handler for Ctrl-C
        yield spark


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
        raise typer.Exit(FAILED) from error
