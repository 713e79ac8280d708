"""The state of an operator between two batches, as arrays that can be written to a file and restored from."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.arrays import AnyArray
from headrace.errors import BadInput

Arrays = dict[str, AnyArray]


@dataclass(frozen=True)
class Snapshot:
    """The state of one operator over one version of one relation. `headrace.relation.sidecar` writes the arrays."""

    operator: str
    relation: str
    version: int
    columns: tuple[str, ...]
    arrays: Arrays

    def check(self, other: Snapshot) -> None:
        """Refuse to restore into another kind of operator, or over another relation, version or set of columns."""
        for name in ("operator", "relation", "version", "columns"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise BadInput(f"the snapshot is of {name} {mine!r}, and this operator has {name} {theirs!r}")
