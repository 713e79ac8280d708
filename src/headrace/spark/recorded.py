"""How rows that were shed are joined later: as the query joins the others. `join.json`, beside the shed rows, says how."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from headrace.conditions import On
from headrace.files.checked_json import dump_checked
from headrace.runlog.files import read_facts, replace_facts
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
        joins = (RecordedJoin(**{n: s[n] for n in names}) if s["plain"] else None for s in body["steps"])
        return cls(body["schema"], tuple(joins))


def write_recorded(directory: Path, schema: str, joins: Sequence[RecordedJoin | None]) -> None:
    """Write it down, unless it is there already. `schema`: as JSON text."""
    steps = [{"plain": False} if join is None else {**asdict(join), "plain": True} for join in joins]
    path, facts = directory / _NAME, {"schema": json.loads(schema), "steps": steps}
    if not path.exists() or path.read_bytes() != dump_checked(facts):
        replace_facts(path, facts)  # several tasks may write it at the same moment
