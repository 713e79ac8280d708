"""``headrace relation``: make, describe, look into, verify, change and find relations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import headrace as hr
from headrace.cli.exit_codes import DAMAGED
from headrace.cli.option_names import OptionNamesCommand, option_names_command
from headrace.cli.options import FLAG, SIZE, FrequenciesOption, JsonOption, RelationArgument, SortingMemoryOption
from headrace.cli.relation_changes import apply, compact
from headrace.cli.relation_list import list_relations
from headrace.cli.screen import plain, progress, show_facts, show_json, show_rows
from headrace.errors import BadInput

relation_app = typer.Typer(
    help="Make, inspect and change relations: the tables on disk that streams are joined with.",
    no_args_is_help=True,
)


@relation_app.command(
    cls=option_names_command(
        {
            "key names": "--key names",
            "needs frequencies": "needs --frequencies",
            "frequencies is": "--frequencies is",
            "frequencies has": "--frequencies has",
            "null_keys='drop'": "--drop-null-keys",
            "nanoseconds='truncate'": "--truncate-nanoseconds",
            "page_size": "--page-size",
        }
    ),
    epilog=(
        "Examples:\n\n"
        "headrace relation create products.parquet products.rel --key product_id\n\n"
        "headrace relation create prices/ prices.rel -k shop -k product --memory 1g"
    ),
)
def create(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A Parquet or CSV file, or a directory of Parquet files.")
    ],
    path: Annotated[Path, typer.Argument(metavar="PATH", help="Where the relation is made.")],
    key: Annotated[
        list[str],
        typer.Option("--key", "-k", metavar="COLUMN", help="The key column; repeat it for a composite key."),
    ],
    shards: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Units of parallel work and memory: 2, or 1 with --order frequency."),
    ] = None,
    page_size: Annotated[str, typer.Option(metavar=SIZE, help="A multiple of 4KiB.")] = "8KiB",
    fill: Annotated[float, typer.Option(metavar="SHARE", help="How full pages are made, above 0 up to 1.")] = 0.8,
    memory: SortingMemoryOption = "512MiB",
    drop_null_keys: Annotated[
        bool, typer.Option("--drop-null-keys", metavar=FLAG, help="Leave out rows with a null key.")
    ] = False,
    truncate_nanoseconds: Annotated[
        bool,
        typer.Option(
            "--truncate-nanoseconds", metavar=FLAG, help="Store nanoseconds as microseconds, which Spark has."
        ),
    ] = False,
    order: Annotated[
        str, typer.Option(metavar="ORDER", help="key, or frequency: the most popular keys first.")
    ] = "key",
    frequencies: FrequenciesOption = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", metavar=FLAG, help="Replace a relation at PATH.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Make a relation from Parquet or CSV. The source may be larger than memory."""
    from headrace.cli.row_files import read_rows

    with progress("creating", "rows", quiet=as_json) as report:
        relation = hr.Relation.create(
            str(path),
            source,
            key=key[0] if len(key) == 1 else key,
            shards=shards,
            page_size=page_size,
            fill=fill,
            memory=memory,
            null_keys="drop" if drop_null_keys else "refuse",
            nanoseconds="truncate" if truncate_nanoseconds else "refuse",
            overwrite=overwrite,
            order=order,  # type: ignore[arg-type]
            frequencies=frequencies and read_rows(frequencies, None, "--frequencies"),
            progress=report,
        )
    if as_json:
        show_json(relation.describe())
    else:
        typer.echo(f"{plain(path)}: {relation.num_rows:,} rows in {relation.num_pages:,} pages")


@relation_app.command(cls=OptionNamesCommand)
def describe(path: RelationArgument, as_json: JsonOption = False) -> None:
    """Show rows, pages, bytes, fill, index, filter and version."""
    facts = hr.Relation.open(str(path)).describe()
    if as_json:
        show_json(facts)
    else:
        show_facts(facts)


@relation_app.command(
    cls=OptionNamesCommand,
    epilog=(
        "Examples:\n\n"
        "headrace relation lookup products.rel 7 8 9\n\n"
        "headrace relation lookup prices.rel 2024-12-31,7 --json"
    ),
)
def lookup(
    path: RelationArgument,
    keys: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY...",
            help="Keys to find. Values of a composite key are separated by commas: 2024-12-31,7. "
            "Write -- before keys that begin with a minus.",
        ),
    ],
    as_json: JsonOption = False,
) -> None:
    """Show the rows that have the given keys: as a table or, where that is too wide, each row as a list.

    Long values are shortened; --json has them whole.
    """
    from headrace.cli.keys import parse_keys

    relation = hr.Relation.open(str(path))
    found = relation.lookup(parse_keys(keys, relation.schema, relation.key))
    columns = [_readable(column) for column in found.columns]
    rows = [list(row) for row in zip(*columns, strict=True)]
    if as_json:
        show_json([dict(zip(found.column_names, row, strict=True)) for row in rows])
    elif rows:
        show_rows(found.column_names, rows)
    else:
        typer.echo("no rows")


@relation_app.command(
    cls=option_names_command(
        {
            "pass accept_changes=True": "give --accept-changes",
            "the source's rows have": "--repair-from has",
            "there are no source at": "there is no --repair-from at",
            "source=": "--repair-from ",
        }
    ),
    epilog=(
        "Examples:\n\n"
        "headrace relation verify products.rel --pace 64MiB/s\n\n"
        "headrace relation verify products.rel --repair-from products.parquet"
    ),
)
def verify(
    path: RelationArgument,
    pace: Annotated[
        str | None,
        typer.Option(metavar="PACE", help="The most to read a second: bytes, as in 64MiB/s, or a number of pages."),
    ] = None,
    repair_from: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help="What the relation was made of, to write damaged shards anew: Parquet, CSV, or another relation.",
        ),
    ] = None,
    accept_changes: Annotated[
        bool,
        typer.Option(
            "--accept-changes", metavar=FLAG, help="Repair although the source has other rows than the relation had."
        ),
    ] = False,
    memory: SortingMemoryOption = "512MiB",
    as_json: JsonOption = False,
) -> None:
    """Read every byte. Exit code 1, and all places, if some are damaged and not repaired.

    A repair is a new version: queries that run go on with the version they have.
    """
    if accept_changes and repair_from is None:
        raise BadInput("--accept-changes is for a repair; give --repair-from SOURCE, too")
    repaired = None
    with progress("verifying", "pages", quiet=as_json) as report:
        if repair_from is None:
            damage = hr.verify(str(path), pace=pace, progress=report)
        else:
            repaired = hr.repair(
                str(path), repair_from, accept_changes=accept_changes, memory=memory, pace=pace, progress=report
            )
            damage = repaired.damage
    facts: dict[str, Any] = {"path": str(path), "damaged": bool(damage)}
    if damage:
        places = [{"file": d.file, "shard": d.shard, "page": d.page, "reason": d.reason} for d in damage]
        facts |= {**places[0], "damage": places}
    if repaired is not None:
        facts |= {"repaired": repaired.shards, "version": repaired.version}
    if not damage or repaired is not None:
        with hr.Relation.open(str(path)) as relation:
            facts |= {"pages": relation.num_pages, "rows": relation.num_rows}
    if as_json:
        show_json(facts)
    else:
        for one in damage if repaired is not None else damage[:-1]:
            typer.echo(f"headrace: {plain(one)}", err=True)
    if damage and repaired is None:
        if as_json:
            raise typer.Exit(DAMAGED)
        raise damage[-1]
    if as_json:
        return
    if repaired is not None and repaired.shards:
        shards = ", ".join(map(str, repaired.shards))
        typer.echo(f"{plain(path)}: version {repaired.version}: shard {shards} written anew, {repaired.rows:,} rows")
    else:
        typer.echo(f"{plain(path)}: all {facts['pages']:,} pages are as they were written")


relation_app.command(
    cls=option_names_command(
        {
            "upserts have": "--upserts has",
            "upserts hold": "--upserts holds",
            # The command has only just opened it: another one came in between.
            "open the relation again and decide anew, or give on_conflict='rebase' to change the latest version whatever"
            " it holds": "run the command again",
        }
    ),
    epilog=(
        "Examples:\n\n"
        "headrace relation apply products.rel --upserts changed.parquet --deletes gone.csv\n\n"
        "headrace relation apply products.rel --deletes 7 --deletes 8"
    ),
)(apply)
relation_app.command(
    cls=option_names_command(
        {
            "popularity is given and order=None does not use it": "--frequencies is given and the order is left as it is",
            "popularity is": "--frequencies is",
            "frequencies has": "--frequencies has",
            "give popularity=join.popularity, or a table of the key columns and 'frequency', or call note_popularity first": (
                "give --frequencies FILE with the key columns and 'frequency'"
            ),
        }
    ),
    epilog="Example: headrace relation compact products.rel",
)(compact)
relation_app.command("list", cls=OptionNamesCommand, epilog="Example: headrace relation list warehouse")(list_relations)


def _readable(column: Any) -> list[Any]:
    import pyarrow as pa

    # Times are shown as text, because Python's types cannot hold nanoseconds.
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.string())
    return list(column.to_pylist())
