"""``headrace log``: look into the run logs of queries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.screen import clean_errors, show_facts, show_json


def log(
    directory: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="The state= of a query, or the directory above.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
) -> None:
    """Show what the operators of queries remember: rows that wait, and rows kept aside."""
    from headrace.runlog.log import describe_logs

    with clean_errors():
        logs = list(describe_logs(directory))
        if as_json:
            show_json(logs)
            return
        for i, facts in enumerate(logs):
            if i:
                typer.echo("")
            show_facts(facts)
