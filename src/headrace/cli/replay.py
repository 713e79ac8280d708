"""``headrace replay``: join and load what was shed."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options import FLAG
from headrace.cli.screen import progress, show_facts, show_json


def replay(
    state: Annotated[Path, typer.Argument(metavar="STATE", help="The state= of the query that shed.")],
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="The Delta table to load into.")],
    query: Annotated[str | None, typer.Option(help="The query's id, if only one is meant.")] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="The query's checkpoint: says whether its last micro-batch is finished.")
    ] = None,
    master: Annotated[str, typer.Option(help="Spark's master.")] = "local[*]",
    as_json: Annotated[bool, typer.Option("--json", metavar=FLAG, help="Write JSON.")] = False,
) -> None:
    """Join the rows that a query shed, as the query does, and load them. May be repeated: no row is loaded twice."""
    from headrace.shedding.ledger import Ledger
    from headrace.spark.replay import ledgers_of
    from headrace.spark.replay import replay as replay_into
    from headrace.spark.session import command_session, quiet_settings

    ledgers_of(state, query)  # raises before Spark is started, if there is nothing to replay
    with (
        progress("replaying", "rows", quiet=as_json) as report,  # from before Spark starts, which takes seconds
        command_session(state / "spark.log", quiet_settings("headrace replay", master)) as session,
    ):
        done = replay_into(state, table, session=session, query=query, checkpoint=checkpoint, progress=report)
    owed = sum(ledger.debt() for ledger in Ledger.find(state, query))
    facts = {**asdict(done), "owed": owed}
    if as_json:
        show_json(facts)
    else:
        show_facts(facts)
