"""``headrace log``: look into the run logs of queries, and see what waits now."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.options import FLAG
from headrace.cli.screen import plain, show_facts, show_json, show_table
from headrace.clock import WallClock
from headrace.units import format_duration

if TYPE_CHECKING:
    from headrace.semistream.deferred.waiting_now import ShardWaiting


def log(
    directory: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="The state= of a query, or the directory above.")
    ],
    as_json: Annotated[bool, typer.Option("--json", metavar=FLAG, help="Write JSON.")] = False,
) -> None:
    """Show what waits now, shard by shard, and what else the operators of queries remember: rows kept aside, rows shed."""
    from headrace.runlog.log import find_logs
    from headrace.semistream.deferred.waiting_now import waiting_now
    from headrace.shedding.ledger import Ledger

    now, logs = WallClock().now(), []
    shed = {ledger.path: ledger.debt() for ledger in Ledger.find(directory)}
    for found in find_logs(directory):
        # Decisions of a shed table are about what to put aside, and no row waits for one.
        shards = [] if found.path in shed else waiting_now(found)
        waiting = {"shed_rows_to_replay": shed[found.path]} if found.path in shed else _total(shards, now)
        logs.append((found.describe() | {"waiting": waiting}, shards))
    if as_json:
        show_json([facts | {"shards_waiting": [asdict(s) for s in shards]} for facts, shards in logs])
        return
    for i, (facts, shards) in enumerate(logs):
        if i:
            typer.echo("")
        show_facts(facts)
        if any(shard.owed for shard in shards):
            show_table(
                ["shard", "wait", "for a deadline", "for a match", "oldest", "first leaves", "after batch", "stay for"],
                [_row(shard, now) for shard in shards if shard.owed],
            )
        for text in sorted({shard.warning for shard in shards if shard.warning}):
            typer.echo(f"warning: {plain(text)}")


def _total(shards: list[ShardWaiting], now: float) -> dict[str, Any]:
    """Return what all shards of a log owe together."""
    oldest = min((s.oldest for s in shards if s.oldest is not None), default=None)
    due = min((s.due for s in shards if s.due is not None), default=None)
    return {
        "rows": sum(s.owed for s in shards),
        "oldest_seconds": None if oldest is None else round(max(0.0, now - oldest), 3),
        "first_leaves_in_seconds": None if due is None else round(due - now, 3),
    }


def _row(shard: ShardWaiting, now: float) -> list[Any]:
    oldest = "" if shard.oldest is None else f"{format_duration(max(0.0, now - shard.oldest))} ago"
    leaves = ""
    if shard.due is not None:
        away = format_duration(abs(shard.due - now))
        leaves = f"in {away}" if shard.due >= now else f"{away} too late by now"
    stay = "" if shard.delay is None else f"{shard.delay:,.1f} batches"
    return [shard.shard, shard.owed, shard.for_deadline, shard.for_match, oldest, leaves, shard.batch, stay]
