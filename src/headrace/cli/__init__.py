"""The command line. Every command calls the public API and shows what it returns."""

from __future__ import annotations

from typing import Annotated

import typer

import headrace
from headrace.cli.bench import bench_app
from headrace.cli.calibrate import calibrate
from headrace.cli.console import console
from headrace.cli.demo import demo
from headrace.cli.exit_codes import ExitCodeGroup
from headrace.cli.feeds import feeds_app
from headrace.cli.log import log
from headrace.cli.relation import relation_app
from headrace.cli.replay import replay
from headrace.cli.run import run
from headrace.cli.sql import sql
from headrace.cli.tune import tune

app = typer.Typer(
    name="headrace",
    cls=ExitCodeGroup,
    help="Join fast streams with tables that do not fit in memory, inside a memory budget you set.",
    epilog="Start with: headrace relation create products.parquet products.rel --key product_id",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
app.command()(demo)
app.command()(run)
app.command()(console)
app.command()(calibrate)
app.command()(tune)
app.command()(log)
app.command()(replay)
app.command()(sql)
app.add_typer(relation_app, name="relation")
app.add_typer(feeds_app, name="feeds")
app.add_typer(bench_app, name="bench")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headrace {headrace.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    # Typer reads the options of `headrace` itself from here; its help is the app's.
    pass
