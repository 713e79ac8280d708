"""`refresh`: brings a relation up to date with the table that it was made from.

Each change of the relation holds, in the same commit, the version of the table that it leads to; a refresh that is repeated, or
that was killed, goes on from there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.errors import BadInput
from headrace.relation import Relation
from headrace.relation.update import Change
from headrace.sources.tables import NOTE, SourceTable, TableChanges
from headrace.units import parse_size


@dataclass(frozen=True)
class RefreshResult:
    """The result of a refresh."""

    version: int
    """version of the relation after it"""
    upserts: int
    """keys with new rows"""
    deletes: int
    """keys that were deleted"""
    changes: int
    """versions of the relation that were made"""


def refresh(rel: Relation, source: SourceTable, *, memory: int | str = "256MiB") -> RefreshResult:
    """Apply to a relation what changed in the table that it was made from, and only that; a repeated refresh applies nothing.

    Changes larger than `memory` become several versions of the relation, each what the table was like at some moment. `rel` stays
    at the version it was opened at; streams see the new one with their next micro-batch.

    Parameters
    ----------
    rel
        Made by ``hr.Relation.create(path, source, key=...)``; its key is unique.
    source
        The same hr.postgresql(...) or hr.delta(...).
    memory
        Bytes of changes held at a time, about. Changes of one value of `by`, or of one version of a Delta table, stay together.
    """
    budget = parse_size(memory, name="memory")
    until = source.latest()
    upserts = deletes = made = 0

    def decide(latest: Relation) -> Change | None:
        nonlocal upserts, deletes, made
        after = _version(latest, source)
        changes = source.changes(after, until, budget)
        if changes is None:
            return None
        new, gone = _last(latest, changes)
        upserts, deletes, made = upserts + new.num_rows, deletes + gone.num_rows, made + 1
        return Change(new, gone, notes={NOTE: {"name": source.name, "version": changes.version}})

    done = -1
    while made > done:
        done = made
        version = rel.revise(decide)
    return RefreshResult(version, upserts, deletes, made)


def _version(rel: Relation, source: SourceTable) -> object:
    """Return the version of the table that the relation holds."""
    note = rel.notes.get(NOTE)
    if note is None or note["name"] != source.name:
        was = "from data that have no versions" if note is None else f"from {note['name']}"
        raise BadInput(
            f"{rel.path} was made {was}, and cannot follow {source.name}; make it with hr.Relation.create(path, source, key=...)"
        )
    if not rel.unique:
        raise BadInput(f"{rel.path} has keys with several rows, and a change of one row says nothing of the others")
    return note["version"]


def _last(rel: Relation, changes: TableChanges) -> tuple[pa.Table, pa.Table]:
    """Return the last change of each key: rows to upsert, and keys to delete."""
    rows = changes.rows.combine_chunks()
    keys, valid = rel.codec.encode([rows.column(name) for name in rel.key])
    if valid.size:
        raise BadInput(
            f"the changes hold a null in key column(s) {', '.join(rel.key)}; a null key matches nothing: filter them out"
        )
    order = keys.argsort()
    repeats = keys.take(order).repeats()
    last = np.sort(order[np.append(repeats[1:] == 0, True)]) if len(keys) else order
    gone = changes.deleted.to_numpy(zero_copy_only=False)[last] if len(keys) else np.zeros(0, np.bool_)
    return rows.take(pa.array(last[~gone])), rows.select(list(rel.key)).take(pa.array(last[gone]))
