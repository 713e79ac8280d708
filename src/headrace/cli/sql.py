"""``headrace sql``: a query over feeds, with results as they come."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.exit_codes import REFUSED
from headrace.cli.options import FLAG, SIZE
from headrace.cli.screen import plain, show_table
from headrace.errors import BadInput
from headrace.files import make_directory, scratch_directory
from headrace.units import parse_size

if TYPE_CHECKING:
    import pyarrow as pa

SQL_EXAMPLES = "Example:\n\nheadrace sql --once \"SELECT a.title, a.link FROM rss('https://example.org/news.xml') a\""

_OWN = ("_number", "_produced", "_id", "_places")  # columns of results that the query did not select


def sql(
    query: Annotated[str, typer.Argument(metavar="SELECT…", help="The query; - reads it from standard input.")],
    once: Annotated[
        bool, typer.Option("--once", metavar=FLAG, help="Pull each feed once, show what there is, and end.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write results to a feed (.xml, .rss, .atom, .json), to .parquet, or to a Delta table (directory)."
        ),
    ] = None,
    memory: Annotated[str, typer.Option(metavar=SIZE, help="The budget of the query.")] = "64MiB",
    state: Annotated[
        Path | None,
        typer.Option(help="Where items and results are kept, to go on later; forgotten at the end if not given."),
    ] = None,
    within: Annotated[
        str | None,
        typer.Option(help="Items of a result are seen at most so far apart, such as 1d: bounds what is kept."),
    ] = None,
    interval: Annotated[float, typer.Option(help="Seconds between two pulls of a feed.")] = 60.0,
    allow_private: Annotated[
        bool,
        typer.Option("--allow-private", metavar=FLAG, help="Pull from private, loopback and link-local addresses too."),
    ] = False,
    allow_files: Annotated[bool, typer.Option("--allow-files", metavar=FLAG, help="Pull file:// too.")] = False,
    spark: Annotated[bool, typer.Option("--spark", metavar=FLAG, help="Run on Spark.")] = False,
    master: Annotated[str, typer.Option(help="Spark's master.")] = "local[*]",
    as_json: Annotated[
        bool, typer.Option("--json", metavar=FLAG, help="Write a line of JSON for each result.")
    ] = False,
) -> None:
    """Run a query over feeds until Ctrl-C, and show results as they come."""
    from headrace.feeds.sql import BadQuery

    parse_size(memory, name="memory")  # before a feed is pulled
    text = sys.stdin.read() if query == "-" else query
    pulling = {"allow_private": allow_private, "allow_files": allow_files, "interval": interval}
    try:
        if spark:
            _run_on_spark(text, once, out, memory, state, within, pulling, master, as_json)
        else:
            _run_here(text, once, out, memory, state, within, pulling, as_json)
    except BadQuery as error:
        # The line of the query and the caret below it are lines of their own, which one message would not show.
        for number, line in enumerate(str(error).split("\n")):
            sys.stderr.write(("" if number else "headrace: ") + plain(line.replace("\t", " ")) + "\n")
        raise typer.Exit(REFUSED) from error


def _run_here(
    text: str,
    once: bool,
    out: Path | None,
    memory: str,
    state: Path | None,
    within: str | None,
    pulling: dict[str, Any],
    as_json: bool,
) -> None:
    from headrace.feeds.output import ResultOutput
    from headrace.feeds.query import FeedQuery

    found = FeedQuery(text, state=state, memory=memory, within_time=within, **pulling)
    if found.plan.explained:
        typer.echo(found.explain())
        return
    output = None if out is None else ResultOutput(out, found, once=once)
    batches = found.run(once=once)
    if once and not as_json and output is None:
        _show_snapshot(batches, found.plan.output.names)
        return
    if output is not None and not once:
        output.update()
    for batch in batches:
        _show(batch, as_json, quiet=output is not None)
        if output is not None and not once:
            output.update()
    if output is not None and once:
        output.update()


def _run_on_spark(
    text: str,
    once: bool,
    out: Path | None,
    memory: str,
    state: Path | None,
    within: str | None,
    pulling: dict[str, Any],
    master: str,
    as_json: bool,
) -> None:
    from headrace.feeds.spark.sql import sql as on_spark
    from headrace.feeds.sql import parse_query
    from headrace.spark.session import command_session, quiet_settings

    if out is not None:
        raise BadInput(
            "--out is for queries that run here; on Spark write the DataFrame of hr.sql(spark, …) where you like"
        )
    plan = parse_query(text, within_time=within)  # raises before Spark is started
    if plan.explained:
        typer.echo(plan.explain())
        return
    if once and plan.grouping is not None and state is None:
        raise BadInput(
            "on Spark a group comes when an item is seen after its window, with --once in a later run on the same state; give"
            " --state DIRECTORY, or leave --spark out, which gives windows that are open too"
        )
    with scratch_directory("headrace-feeds-") as own:
        place = own if state is None else state
        make_directory(place, parents=True)
        with command_session(place / "spark.log", quiet_settings("headrace sql", master)) as session:
            results = on_spark(session, text, state=place, memory=memory, within_time=within, **pulling)

            def show(rows: Any, _number: int) -> None:
                for batch in rows.toArrow().to_batches():
                    _show(batch, as_json)

            writer = results.writeStream.foreachBatch(show).option("checkpointLocation", str(place / "checkpoint"))
            started = (writer.trigger(availableNow=True) if once else writer).start()
            try:
                started.awaitTermination()
            finally:
                started.stop()


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[int | None, dict[str, Any], dict[str, Any]]]:
    """The number, the selected values and all values of each result."""
    for row in batch.to_pylist():
        yield row.get("_number"), {name: value for name, value in row.items() if name not in _OWN}, row


def _show(batch: pa.RecordBatch, as_json: bool, *, quiet: bool = False) -> None:
    """Write each result as a line: its number and its values, or JSON."""
    for number, values, row in _rows(batch):
        if as_json:
            typer.echo(json.dumps(_jsonable(row), allow_nan=False))
        elif not quiet:
            begin = "" if number is None else f"{number}) "
            typer.echo(begin + ", ".join("" if value is None else plain(value) for value in values.values()))


def _show_snapshot(batches: Iterable[pa.RecordBatch], names: list[str]) -> None:
    show_table(names, [list(values.values()) for batch in batches for _, values, _ in _rows(batch)])


def _jsonable(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _jsonable(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_jsonable(one) for one in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no NaN
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
