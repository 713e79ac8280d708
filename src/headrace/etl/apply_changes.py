"""ChangeApplier: applies a batch of changes to a relation as one version, exactly once, with the last change of each key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Int64s
from headrace.errors import BadInput, shown
from headrace.etl.merge import differing
from headrace.relation import Relation
from headrace.relation.update import Change, rows_for

APPLIED = "applied"  # the note in the relation: {application: number of its last transaction}
_APPLICATIONS = 100  # applications whose numbers are kept; the least recent writer is dropped

UPSERTS = (
    "u",
    "upsert",
    "i",
    "insert",
    "update",
    "c",
    "create",
    "r",
    "read",
)  # lower case; c, u, r and d are the codes of Debezium's change feeds
DELETES = ("d", "delete")


@dataclass(frozen=True)
class MaintainResult:
    """The result of `maintain` for a batch DataFrame."""

    version: int
    """version of the relation that has the changes"""
    upserts: int
    deletes: int
    repeated: bool
    """whether the transaction was committed before, so nothing was applied"""


class ChangeApplier:
    """Applies batches of changes to a relation. See `maintain` for the parameters."""

    def __init__(
        self,
        rel: Relation,
        op: str | None,
        sequence: str | None,
        upserts: tuple[str, ...],
        deletes: tuple[str, ...],
        null_keys: str,
    ) -> None:
        self.rel = rel
        self.op, self.sequence = op, sequence
        self.upserts, self.deletes = (tuple(word.lower() for word in words) for words in (upserts, deletes))
        self.null_keys = null_keys
        both = set(self.upserts) & set(self.deletes)
        if both:
            raise BadInput(f"{min(both)!r} is among upserts and among deletes; give it in one of them")

    @property
    def wanted(self) -> list[str]:
        """The columns that are read of changes."""
        wanted = [*self.rel.schema.names, *(c for c in (self.op, self.sequence) if c is not None)]
        return list(dict.fromkeys(wanted))

    def check(self, there: Sequence[str]) -> None:
        """Refuse changes without one of these columns."""
        for column in self.wanted:
            if list(there).count(column) != 1:
                many = "no" if column not in there else "more than one"
                raise BadInput(f"the changes have {many} column {column!r}; expected {', '.join(self.wanted)}")

    def done(self, app: str, number: int) -> bool:
        """Tell whether a numbered transaction of an application was applied before."""
        with self.rel.refresh() as latest:
            return int(latest.notes.get(APPLIED, {}).get(app, -1)) >= number

    def apply(self, changes: pa.Table, app: str | None, number: int) -> MaintainResult:
        """Commit changes as one version, unless that was done before. Changes without rows make no version."""
        last = self._last(changes)
        gone = self._is_delete(last)
        upserts = last.filter(pc.invert(gone)).select(self.rel.schema.names)
        deletes = last.filter(gone).select(self.rel.key)
        rows_for(self.rel, upserts, "the changes")  # refuses rows that do not fit before the writer's lock is taken
        repeated = []

        def decide(latest: Relation) -> Change | None:
            notes = dict(latest.notes.get(APPLIED, {}))
            if app is not None and int(notes.pop(app, -1)) >= number:
                repeated.append(True)
                return None
            if not last.num_rows:
                return None
            kept = list(notes.items())[1 - _APPLICATIONS :]
            return Change(upserts, deletes, {} if app is None else {APPLIED: {**dict(kept), app: number}})

        version = self.rel.revise(decide)
        if repeated:
            return MaintainResult(version, 0, 0, repeated=True)
        return MaintainResult(version, upserts.num_rows, deletes.num_rows, repeated=False)

    def _last(self, changes: pa.Table) -> pa.Table:
        """Return the last change of each key."""
        codec = self.rel.codec
        keys, valid = codec.encode([changes.column(name) for name in codec.names])
        if valid.size:
            if self.null_keys == "refuse":
                raise BadInput(
                    f"{int((valid == 0).sum()):,} change(s) have a null in key column(s) {', '.join(codec.names)}, which no row"
                    " has; filter them out, or pass null_keys='drop'"
                )
            there = np.flatnonzero(valid)
            changes, keys = changes.take(pa.array(there)), keys.take(there)
        if self.sequence is not None:
            if changes.column(self.sequence).null_count:
                raise BadInput(
                    f"column {self.sequence!r} is null in some changes, so nobody can tell which is the last"
                )
            order = np.asarray(pc.sort_indices(changes, sort_keys=[(self.sequence, "ascending")]))
            changes, keys = changes.take(pa.array(order)), keys.take(order)
        order = keys.argsort()
        changes, keys = changes.take(pa.array(order)), keys.take(order)
        again = keys.repeats()
        ends = np.flatnonzero(np.append(again[1:], 0) == 0) if len(keys) else np.empty(0, np.int64)
        self._refuse_ties(changes, np.flatnonzero(again))
        return changes.take(pa.array(ends))

    def _refuse_ties(self, changes: pa.Table, later: Int64s) -> None:
        """Refuse different changes of one key with the same sequence, as the result would depend on their order of arrival."""
        if not later.size:
            return
        one, other = changes.take(pa.array(later - 1)), changes.take(pa.array(later))
        tie = np.ones(later.size, np.bool_)
        if self.sequence is not None:
            tie &= np.asarray(pc.equal(one.column(self.sequence), other.column(self.sequence)))
        differ = np.zeros(later.size, np.bool_)
        for name in changes.column_names:
            differ |= np.asarray(differing(one.column(name), other.column(name)))
        wrong = np.flatnonzero(tie & differ)
        if wrong.size:
            at = int(wrong[0])
            key = ", ".join(shown(other.column(name)[at].as_py()) for name in self.rel.key)
            late = (
                ""
                if self.sequence is None
                else f" with {self.sequence}={shown(other.column(self.sequence)[at].as_py())}"
            )
            raise BadInput(
                f"key {key} has two different changes{late} in one batch; name a sequence= column that says which is the last"
            )

    def _is_delete(self, changes: pa.Table) -> Any:
        if self.op is None:
            return pa.array(np.zeros(changes.num_rows, np.bool_))
        said = pc.utf8_lower(changes.column(self.op).cast(pa.string()))
        gone = pc.is_in(said, pa.array(self.deletes, pa.string()))
        known = pc.or_(gone, pc.is_in(said, pa.array(self.upserts, pa.string())))
        strange = np.flatnonzero(~np.asarray(known))
        if strange.size:
            value = changes.column(self.op)[int(strange[0])].as_py()
            raise BadInput(
                f"column {self.op!r} says {shown(value)}; expected one of {', '.join(self.upserts)} (upserts) or"
                f" {', '.join(self.deletes)} (deletes): name others with upserts= and deletes="
            )
        return gone
