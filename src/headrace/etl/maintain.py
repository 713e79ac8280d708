"""`maintain`: a stream of changes keeps a relation up to date, exactly once. (DESIGN D9)

Each micro-batch becomes one version, committed together with the batch's number. A micro-batch that runs again finds its number
in the relation and does nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import BadInput, choice
from headrace.etl.snapshot import differing
from headrace.relation import Relation
from headrace.relation.columns import Longs
from headrace.relation.manifest import versions
from headrace.relation.update import Change, rows_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

APPLIED = "applied"  # the note: {application: number of its last change}
_APPLICATIONS = 100  # whose numbers are kept; the one that wrote longest ago goes

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
)  # c, u, r, d: as change feeds of databases write them
DELETES = ("d", "delete")


@dataclass(frozen=True)
class Maintained:
    """What `maintain` did with a batch DataFrame."""

    version: int
    """version of the relation that holds the changes"""
    upserts: int
    deletes: int
    repeated: bool
    """whether the transaction was committed before, so nothing was applied"""


def maintain(
    changes: DataFrame,
    rel: Relation,
    *,
    op: str | None = "op",
    sequence: str | None = None,
    upserts: Sequence[str] = UPSERTS,
    deletes: Sequence[str] = DELETES,
    null_keys: Literal["refuse", "drop"] = "refuse",
    checkpoint: str | Path | None = None,
    trigger: Mapping[str, Any] | None = None,
    name: str | None = None,
    transaction: tuple[str, int] | None = None,
) -> StreamingQuery | Maintained:
    """Apply a DataFrame of changes, streaming or batch, to a relation, exactly once.

    A micro-batch becomes one version: queries that enrich with the relation see all of it or nothing, from their next micro-batch
    on. It is gathered on the driver, so it must fit there: bound it at the source (maxFilesPerTrigger, maxOffsetsPerTrigger).

    Parameters
    ----------
    changes
        Rows with the relation's columns, and those named by `op` and `sequence`; others are ignored. Of a delete only the key
        counts.
    rel
        The relation to change.
    op
        The column that says what a row is: one of `upserts` or of `deletes`, in upper or lower case. None: all are upserts.
    sequence
        The column that orders the changes of a key; the last one in a micro-batch wins. Without it, or where two changes of a key
        are equally late, they must be the same.
    upserts, deletes
        What the column `op` says.
    null_keys
        "refuse" changes without a key, or "drop" them.
    checkpoint, trigger, name
        Of a streaming DataFrame: see `load`.
    transaction
        Of a batch DataFrame: the application's name and a number. A number that is not higher than the last one of that
        application is not applied again.

    Returns
    -------
    StreamingQuery | Maintained
        The started query of a streaming DataFrame; what was done of a batch one.
    """
    if not isinstance(rel, Relation):
        raise BadInput(f"rel={rel!r} is not a relation; open one with hr.Relation.open(path)")
    if rel.order != "key":
        raise BadInput(f"{rel.path} is stored by popularity and cannot be changed; create it with order='key'")
    choice("null_keys", null_keys, ("refuse", "drop"))
    keeper = Keeper(rel, op, sequence, tuple(upserts), tuple(deletes), null_keys)
    wanted = keeper.columns(changes.columns)
    changes = changes.select(*(f"`{column.replace('`', '``')}`" for column in wanted))
    if changes.isStreaming:
        if checkpoint is None:
            raise BadInput(
                "a streaming DataFrame needs checkpoint=...: without it a restart could not know what is applied"
            )
        if transaction is not None:
            raise BadInput("transaction=... is for a batch DataFrame; a streaming one counts its micro-batches itself")
        return _start(changes, keeper, checkpoint, trigger, name)
    for option, value in (("checkpoint", checkpoint), ("trigger", trigger), ("name", name)):
        if value is not None:
            raise BadInput(f"{option}={value!r} is for a streaming DataFrame, and this is a batch one")
    if transaction is None:
        return keeper.apply(changes.toArrow(), None, 0)
    app, number = transaction
    if not isinstance(app, str) or not isinstance(number, int) or number < 0:
        raise BadInput(f"transaction={transaction!r} is not a name and a number from 0 on, such as ('nightly', 17)")
    if keeper.done(app, number):
        return Maintained(versions(rel.path)[-1], 0, 0, repeated=True)
    return keeper.apply(changes.toArrow(), app, number)


def _start(
    changes: DataFrame, keeper: Keeper, checkpoint: str | Path, trigger: Mapping[str, Any] | None, name: str | None
) -> StreamingQuery:  # fmt: skip
    def each(rows: DataFrame, batch: int) -> None:
        app = f"headrace-{rows.sparkSession.sparkContext.getLocalProperty('sql.streaming.queryId')}"
        if not keeper.done(app, batch):
            keeper.apply(rows.toArrow(), app, batch)

    where = str(checkpoint) if "://" in str(checkpoint) else str(Path(checkpoint).absolute())
    writer = changes.writeStream.foreachBatch(each).option("checkpointLocation", where)
    if trigger:
        writer = writer.trigger(**trigger)
    if name:
        writer = writer.queryName(name)
    return writer.start()


class Keeper:
    """Applies batches of changes to a relation. See `maintain` for the parameters."""

    def __init__(
        self, rel: Relation, op: str | None, sequence: str | None, upserts: tuple[str, ...], deletes: tuple[str, ...],
        null_keys: str,
    ) -> None:  # fmt: skip
        self.rel = rel
        self.op, self.sequence = op, sequence
        self.upserts, self.deletes = (tuple(word.lower() for word in words) for words in (upserts, deletes))
        self.null_keys = null_keys
        both = set(self.upserts) & set(self.deletes)
        if both:
            raise BadInput(f"{min(both)!r} is among upserts and among deletes; give it in one of them")
        if op in rel.schema.names:
            raise BadInput(f"op={op!r} is a column of the relation; rename the column that says what a change is")

    def columns(self, there: Sequence[str]) -> list[str]:
        """The columns of changes that are read; refuses where one is missing."""
        wanted = [*self.rel.schema.names, *(c for c in (self.op, self.sequence) if c is not None)]
        for column in wanted:
            if list(there).count(column) != 1:
                many = "no" if column not in there else "more than one"
                raise BadInput(
                    f"the changes have {many} column {column!r}; expected {', '.join(dict.fromkeys(wanted))}"
                )
        return list(dict.fromkeys(wanted))

    def done(self, app: str, number: int) -> bool:
        """Whether a numbered change was applied before."""
        with self.rel.refresh() as latest:
            return int(latest.notes.get(APPLIED, {}).get(app, -1)) >= number

    def apply(self, changes: pa.Table, app: str | None, number: int) -> Maintained:
        """Commit changes as one version, unless that was done before. Changes of no rows make no version."""
        last = self._last(changes)
        gone = self._is_delete(last)
        upserts = last.filter(pc.invert(gone)).select(self.rel.schema.names)
        deletes = last.filter(gone).select(self.rel.key)
        rows_for(self.rel, upserts, "the changes")  # refused by what they are, before the lock is taken
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
            return Maintained(version, 0, 0, repeated=True)
        return Maintained(version, upserts.num_rows, deletes.num_rows, repeated=False)

    def _last(self, changes: pa.Table) -> pa.Table:
        """The last change of each key."""
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

    def _refuse_ties(self, changes: pa.Table, later: Longs) -> None:
        """Changes of one key that are equally late and not the same: the result would depend on the order they come in."""
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
            key = ", ".join(str(other.column(name)[at].as_py()) for name in self.rel.key)
            late = "" if self.sequence is None else f" with {self.sequence}={other.column(self.sequence)[at].as_py()}"
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
                f"column {self.op!r} says {value!r}; expected one of {', '.join(self.upserts)} (upserts) or"
                f" {', '.join(self.deletes)} (deletes): name others with upserts= and deletes="
            )
        return gone
