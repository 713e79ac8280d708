"""``headrace relation``: make, describe, look into and verify relations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import headrace as hr
from headrace.cli.exit_codes import DAMAGED
from headrace.cli.screen import (
    plain,
    progress,
    show_facts,
    show_json,
    show_table,
)
from headrace.errors import BadInput, DamagedRelation

relation_app = typer.Typer(
    help="Make and inspect relations: the tables on disk that streams are joined with.",
    no_args_is_help=True,
)

PathArgument = Annotated[Path, typer.Argument(metavar="PATH", help="The relation's directory.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON.")]


@relation_app.command()
def create(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A Parquet file, or a directory of them.")],
    path: Annotated[Path, typer.Argument(metavar="PATH", help="Where the relation is made.")],
    key: Annotated[
        list[str],
        typer.Option("--key", "-k", help="The key column; repeat it for a composite key."),
    ],
    shards: Annotated[
        int | None, typer.Option(min=1, help="Units of parallel work and memory: 2, or 1 with --order frequency.")
    ] = None,
    page_size: Annotated[str, typer.Option(help="A multiple of 4KiB.")] = "8KiB",
    fill: Annotated[float, typer.Option(help="How full pages are made, above 0 up to 1.")] = 0.8,
    memory: Annotated[str, typer.Option(help="What sorting may hold.")] = "512MiB",
    drop_null_keys: Annotated[bool, typer.Option("--drop-null-keys", help="Leave out rows with a null key.")] = False,
    truncate_nanoseconds: Annotated[
        bool, typer.Option("--truncate-nanoseconds", help="Store nanoseconds as microseconds, which Spark has.")
    ] = False,
    order: Annotated[str, typer.Option(help="key, or frequency: the most popular keys first.")] = "key",
    frequencies: Annotated[
        Path | None,
        typer.Option(help="A Parquet file with the key columns and frequency, for --order frequency."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a relation at PATH.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Make a relation from Parquet. The source may be larger than memory."""
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
            frequencies=frequencies and _table(frequencies),
            progress=report,
        )
    if as_json:
        show_json(relation.describe())
    else:
        typer.echo(f"{plain(path)}: {relation.num_rows} rows in {relation.num_pages} pages")


@relation_app.command()
def describe(path: PathArgument, as_json: JsonOption = False) -> None:
    """Show rows, pages, bytes, fill, index, filter and version."""
    facts = hr.Relation.open(str(path)).describe()
    if as_json:
        show_json(facts)
    else:
        show_facts(facts)


@relation_app.command()
def lookup(
    path: PathArgument,
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
    """Show the rows that have the given keys."""
    from headrace.cli.keys import parse_keys

    relation = hr.Relation.open(str(path))
    found = relation.lookup(parse_keys(keys, relation.schema, relation.key))
    columns = [_readable(column) for column in found.columns]
    rows = [list(row) for row in zip(*columns, strict=True)]
    if as_json:
        show_json([dict(zip(found.column_names, row, strict=True)) for row in rows])
    elif rows:
        show_table(found.column_names, rows)
    else:
        typer.echo("no rows")


@relation_app.command()
def verify(path: PathArgument, as_json: JsonOption = False) -> None:
    """Read every byte. Exit code 1, and the place, if one is damaged."""
    try:
        relation = hr.Relation.open(str(path))
        with progress("verifying", "pages", quiet=as_json) as report:
            relation.verify(progress=report)
    except DamagedRelation as damage:
        if not as_json:
            raise
        place = {"file": damage.file, "shard": damage.shard, "page": damage.page}
        show_json({"path": str(path), "damaged": True, **place, "reason": damage.reason})
        raise typer.Exit(DAMAGED) from damage
    counts = {"pages": relation.num_pages, "rows": relation.num_rows}
    if as_json:
        show_json({"path": str(path), "damaged": False, **counts})
    else:
        typer.echo(f"{plain(path)}: all {counts['pages']} pages are as they were written")


def _table(path: Path) -> Any:
    """Read a Parquet file."""
    import pyarrow.parquet

    if not path.exists():
        raise BadInput(f"there are no frequencies at {path}; expected a Parquet file")
    return pyarrow.parquet.read_table(path)


def _readable(column: Any) -> list[Any]:
    import pyarrow as pa

    # Times are shown as text, because Python's types cannot hold nanoseconds.
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.string())
    return list(column.to_pylist())
