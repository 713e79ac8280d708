"""``headrace relation list``: the relations below a directory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

import headrace as hr
from headrace.cli.exit_codes import DAMAGED
from headrace.cli.options import JsonOption
from headrace.cli.relation_changes import disk_bytes
from headrace.cli.screen import plain, show_json, show_table
from headrace.errors import BadInput, DamagedRelation, NotARelation, RelationError, UnfinishedRelation
from headrace.files import is_directory, paths_in
from headrace.units import format_size


def list_relations(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to look, at any depth.")] = Path(),
    as_json: JsonOption = False,
) -> None:
    """Show every relation below a directory: path, rows, bytes on disk, version, key and when it changed.

    Exit code 1 if the manifest of one is damaged; headrace relation verify reads the rest of it.
    """
    if not is_directory(directory):
        raise BadInput(f"DIR {str(directory)!r} is not a directory; give one that has relations below it")
    found = [_facts(path) for path in relations_below(directory)]
    if as_json:
        show_json(found)
    elif not found:
        typer.echo(f"there are no relations below {plain(directory)}; headrace relation create makes one")
    else:
        rows = [_row(facts, directory) for facts in found]
        show_table(
            ["path", "rows", "on disk", "version", "key", "changed (UTC)"], rows, right=("rows", "on disk", "version")
        )
        for facts in found:
            if facts["error"]:
                typer.echo(f"headrace: {plain(facts['error'])}", err=True)
    if any(facts["damaged"] for facts in found):
        raise typer.Exit(DAMAGED)


def relations_below(directory: Path) -> Iterator[Path]:
    """Yield the directories of relations in the order of their names; does not look into them, nor follow links."""
    ahead = [directory]
    while ahead:
        place = ahead.pop()
        if _is_relation(place):
            yield place
            continue
        with suppress(OSError):  # of another user, or removed meanwhile
            ahead += [path for path in reversed(paths_in(place)) if is_directory(path, follow=False)]


def _is_relation(path: Path) -> bool:
    from headrace.relation.manifest import versions

    try:
        versions(path)
    except (NotARelation, UnfinishedRelation, OSError):
        return False
    return True


def _facts(path: Path) -> dict[str, Any]:
    facts: dict[str, Any] = {"path": str(path), "error": None, "damaged": False}
    try:
        with hr.Relation.open(str(path)) as relation:
            described = relation.describe()
            wanted = ("rows", "bytes", "version", "key", "order", "created")
            facts |= {name: described[name] for name in wanted} | {"disk_bytes": disk_bytes(path)}
    except (RelationError, OSError) as error:
        facts |= {"error": str(error), "damaged": isinstance(error, DamagedRelation)}
    facts["changed"] = facts.pop("created", None)
    return facts


def _row(facts: dict[str, Any], directory: Path) -> list[Any]:
    place = os.path.relpath(facts["path"], directory)
    name = facts["path"] if place == "." else place
    if facts["error"]:
        return [name, "damaged" if facts["damaged"] else "cannot be read", "", "", "", ""]
    changed = str(facts["changed"]).replace("T", " ")[:16]
    return [
        name,
        f"{facts['rows']:,}",
        format_size(facts["disk_bytes"]),
        facts["version"],
        ", ".join(facts["key"]),
        changed,
    ]
