"""`maintain`: a stream of changes keeps a relation up to date, exactly once. (DESIGN D9)

Each micro-batch becomes one version, committed together with the batch's number. A micro-batch that runs again finds its number
in the relation and does nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headrace.errors import BadInput, choice
from headrace.etl.keeper import DELETES, UPSERTS, Keeper, Maintained
from headrace.relation import Relation
from headrace.relation.manifest import versions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery


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
