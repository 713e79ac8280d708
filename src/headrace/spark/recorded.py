"""How rows that were shed are joined later: as the query joins the others. `join.json`, beside the shed rows, says how."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from headrace.conditions import On
from headrace.files.checked_json import dump_checked, read_checked
from headrace.runlog.files import IN_LOG, read_facts, replace_facts, understood
from headrace.semistream.base import How, Order
from headrace.semistream.deferred.deferral import Unmatched

_NAME = "join.json"
_CURE = "restore it from a copy, or let the query run on: its next micro-batch writes it again"


@dataclass(frozen=True, kw_only=True)
class RecordedJoin:
    """One `enrich`, as it is written down for `replay`."""

    path: str
    on: On | None
    how: How
    algorithm: str
    order: Order
    memory: int
    columns: list[str] | None
    suffix: str | None
    version_column: str | None
    condition: str | None
    """what it says, for people: a condition cannot be made again from it"""
    unmatched: Unmatched | None


@dataclass(frozen=True)
class Recorded:
    """What `join.json` holds.

    Parameters
    ----------
    schema
        Of the shed rows, as Spark writes it as JSON.
    joins
        The `enrich` that shed them and the steps after it; None for a step that cannot be repeated.
    """

    schema: dict[str, Any]
    joins: tuple[RecordedJoin | None, ...]

    @classmethod
    def read(cls, directory: Path) -> Recorded:
        """What is written in a directory."""
        body = read_facts(directory / _NAME, _CURE)
        names = [f.name for f in fields(RecordedJoin)]
        with understood(directory / _NAME, _CURE):
            joins = [RecordedJoin(**{n: s[n] for n in names}) if s["plain"] else None for s in body["steps"]]
            return cls(dict(body["schema"]), tuple(joins))


def write_recorded(directory: Path, schema: str, joins: Sequence[RecordedJoin | None]) -> None:
    """Write it down, unless it is there already. `schema`: as JSON text."""
    steps = [{"plain": False} if join is None else {**asdict(join), "plain": True} for join in joins]
    path, facts = directory / _NAME, {"schema": json.loads(schema), "steps": steps}
    if not _says(path, facts):
        replace_facts(path, facts, IN_LOG - 1)  # several tasks may write it at the same moment


def _says(path: Path, facts: dict[str, Any]) -> bool:
    try:
        return dump_checked(read_checked(path)) == dump_checked(facts)
    except (OSError, ValueError):  # it is not there, or damaged
        return False
