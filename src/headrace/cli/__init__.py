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
from headrace.cli.option_names import OptionNamesCommand, option_names_command
from headrace.cli.options import FLAG
from headrace.cli.relation import relation_app
from headrace.cli.replay import replay
from headrace.cli.run import RUN_EXAMPLES, run
from headrace.cli.sql import SQL_EXAMPLES, sql
from headrace.cli.tune import TUNE_EXAMPLES, tune

_JOINING, _TUNING, _RUNNING, _FEEDS = "Join", "Measure and tune", "Look after queries", "Query feeds"

app = typer.Typer(
    name="headrace",
    cls=ExitCodeGroup,
    help="Join fast streams with tables that do not fit in memory, inside a memory budget you set.",
    epilog=(
        "Start with a demo, or with a table of your own:\n\n"
        "headrace demo\n\n"
        "headrace relation create products.parquet products.rel --key product_id\n\n"
        "headrace relation lookup products.rel 7\n\n"
        "headrace COMMAND --help says more. --install-completion lets the shell complete commands and options."
    ),
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)
app.command(cls=OptionNamesCommand, rich_help_panel=_JOINING)(demo)
app.add_typer(relation_app, name="relation", rich_help_panel=_JOINING)
app.command(cls=OptionNamesCommand, rich_help_panel=_JOINING, epilog=RUN_EXAMPLES)(run)
app.command(cls=option_names_command({"or None": "or leave it out"}), rich_help_panel=_TUNING, epilog=TUNE_EXAMPLES)(
    tune
)
app.command(cls=OptionNamesCommand, rich_help_panel=_TUNING)(calibrate)
app.add_typer(bench_app, name="bench", rich_help_panel=_TUNING)
app.command(
    cls=option_names_command({"give the state= of a query": "give the state directory of a query"}),
    rich_help_panel=_RUNNING,
)(log)
app.command(
    cls=option_names_command({"give the state= of the query": "give the state directory of the query"}),
    rich_help_panel=_RUNNING,
    epilog="Example: headrace replay state/ warehouse/sales --checkpoint checkpoint/",
)(replay)
app.command(
    cls=option_names_command(
        {"within_time": "--within", "url": "the feed", "allow_files=True, or --allow-files": "--allow-files"}
    ),
    rich_help_panel=_FEEDS,
    epilog=SQL_EXAMPLES,
)(sql)
app.add_typer(feeds_app, name="feeds", rich_help_panel=_FEEDS)
app.command(cls=OptionNamesCommand, rich_help_panel=_FEEDS, epilog="Example: headrace console --demo")(console)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headrace {headrace.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", metavar=FLAG, callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    # Typer reads the options of `headrace` itself from here; its help is the app's.
    pass
