"""``headrace relation apply`` and ``compact``: new versions of a relation."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import headrace as hr
from headrace.cli.options import FrequenciesOption, JsonOption, RelationArgument, SortingMemoryOption
from headrace.cli.screen import plain, progress, show_json, show_table
from headrace.errors import BadInput, VersionConflict
from headrace.files import paths_in, status
from headrace.units import format_size

if TYPE_CHECKING:
    import pyarrow as pa


def apply(
    path: RelationArgument,
    upserts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Rows that replace all rows with their key, or are added: Parquet, or CSV with a line of names.",
        ),
    ] = None,
    deletes: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE|KEY",
            help="Keys that lose their rows: a Parquet or CSV file with the key columns, or a key; repeat it for more.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Change rows of a relation, as a new version. Queries that run go on with the version they have."""
    from headrace.cli.row_files import read_rows

    if upserts is None and not deletes:
        raise BadInput("nothing to apply; give --upserts FILE, --deletes FILE|KEY, or both")
    with _changing(path) as change:
        relation = change.relation
        new = None if upserts is None else read_rows(upserts, relation.schema, "--upserts")
        gone = _deleted_keys(relation, deletes or [])
        with progress("applying", "rows", quiet=as_json):
            # Counted at the version that the change is for: apply refuses to change any other.
            deleted = 0 if gone is None else relation.lookup(gone, columns=[]).num_rows
            relation.apply(new, gone)
    upserted, rows, pages = 0 if new is None else new.num_rows, change.after["rows"], change.after["pages"]
    facts = {
        "path": str(path),
        "version": change.after["version"],
        "upserted": upserted,
        "replaced": change.before["rows"] + upserted - deleted - rows,
        "deleted": deleted,
        "unchanged": rows - upserted,
        "rows": rows,
        "pages": pages,
        "pages_written": change.pages_written,
        "versions_removed": change.removed,
    }
    if as_json:
        show_json(facts)
        return
    typer.echo(
        f"{plain(path)}: version {facts['version']}: {upserted:,} rows upserted, {deleted:,} deleted,"
        f" {facts['unchanged']:,} unchanged; {change.pages_written:,} of {pages:,} pages written"
    )


def compact(
    path: RelationArgument,
    order: Annotated[
        str | None,
        typer.Option(metavar="ORDER", help="key, or frequency: the most popular keys first. As it is, by default."),
    ] = None,
    frequencies: FrequenciesOption = None,
    memory: SortingMemoryOption = "512MiB",
    as_json: JsonOption = False,
) -> None:
    """Write all rows anew, in order, as a new version: the room that changes took is free again."""
    from headrace.cli.row_files import read_rows

    popularity = None if frequencies is None else read_rows(frequencies, None, "--frequencies")
    with _changing(path) as change, progress("compacting", "rows", quiet=as_json) as report:
        change.relation.compact(
            order=order,  # type: ignore[arg-type]
            popularity=popularity,
            memory=memory,
            progress=report,
        )
    sizes = {"pages": "pages", "bytes": "bytes of pages", "fill": "fill", "disk_bytes": "bytes on disk"}
    if as_json:
        before, after = ({name: facts[name] for name in sizes} for facts in (change.before, change.after))
        version = change.after["version"]
        show_json(
            {
                "path": str(path),
                "version": version,
                "before": before,
                "after": after,
                "versions_removed": change.removed,
            }
        )
        return
    rows = [[said, _shown(name, change.before[name]), _shown(name, change.after[name])] for name, said in sizes.items()]
    show_table(["", "before", "after"], rows, right=("before", "after"))
    kept = "no older one removed, as queries have them open"
    removed = f"{len(change.removed)} older removed" if change.removed else kept
    typer.echo(f"{plain(path)}: version {change.after['version']}; {removed}")


@dataclass
class _Change:
    """A relation that is changed, described before and after it."""

    relation: hr.Relation
    before: dict[str, Any]
    after: dict[str, Any] = field(default_factory=dict)
    removed: list[int] = field(default_factory=list)  # versions that are gone
    pages_written: int = 0


@contextmanager
def _changing(path: Path) -> Iterator[_Change]:
    """Open a relation to change it; afterwards remove the versions that nobody reads, this command's own among them."""
    from headrace.relation.manifest import remove_old, versions, writing

    with hr.Relation.open(str(path)) as relation:
        change = _Change(relation, _described(relation))
        existed = versions(relation.path)
        yield change
        known = _page_files(relation)
    # Another writer, if there is one, removes them when it is done.
    with suppress(VersionConflict), writing(relation.path):
        remove_old(relation.path)
    with relation.refresh() as changed:
        change.after = _described(changed)
        written = sum(size for name, size in _page_files(changed).items() if name not in known)
        change.pages_written = written // changed.page_size
    change.removed = sorted({*existed} - {*versions(relation.path)})


def _described(relation: hr.Relation) -> dict[str, Any]:
    return relation.describe() | {"disk_bytes": disk_bytes(relation.path)}


def _page_files(relation: hr.Relation) -> dict[str, int]:
    """Return the bytes of the files with pages, by name."""
    return {file.name: file.bytes for shard in relation.opened.manifest.shards for file in shard.files}


def _deleted_keys(relation: hr.Relation, given: list[str]) -> pa.Table | None:
    import pyarrow as pa

    from headrace.cli.keys import parse_keys
    from headrace.cli.row_files import is_row_file, read_rows

    if not given:
        return None
    schema = pa.schema([relation.schema.field(name) for name in relation.key])
    files = [text for text in given if is_row_file(text)]
    typed = [text for text in given if text not in files]
    tables = [read_rows(Path(text), schema, "--deletes", only=True) for text in files]
    if typed:
        tables.append(parse_keys(typed, relation.schema, relation.key))
    return pa.concat_tables(tables)


def disk_bytes(path: Path) -> int:
    """Return what all files of a relation take: every version, with indexes and filters."""
    total = 0
    for file in paths_in(path):
        found = status(file, follow=False)  # None: a writer removes old versions
        if found is not None and stat.S_ISREG(found.st_mode):
            total += found.st_size
    return total


def _shown(name: str, value: Any) -> str:
    return format_size(value) if "bytes" in name else f"{value:.0%}" if name == "fill" else f"{value:,}"
