"""`maintain`: keeps a relation up to date with a stream of changes, exactly once. (DESIGN D9)

Each micro-batch becomes one version, committed together with the batch's number. A micro-batch that runs again finds its number
in the relation and does nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql.functions import col

from headrace.errors import BadInput, choice
from headrace.etl.apply_changes import DELETES, UPSERTS, ChangeApplier, MaintainResult
from headrace.relation import Relation
from headrace.relation.manifest import versions
from headrace.spark.batches import application, check_options, check_transaction, start
from headrace.spark.column_names import ColumnNames

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
) -> StreamingQuery | MaintainResult:
    """Apply a DataFrame of changes, streaming or batch, to a relation, exactly once.

    A micro-batch becomes one version: queries that enrich with the relation see all of it or nothing, from their next micro-batch
    on. The driver collects it, so it must fit into its memory: bound it at the source (maxFilesPerTrigger, maxOffsetsPerTrigger).

    Parameters
    ----------
    changes
        Rows with the relation's columns, and those named by `op` and `sequence`; others are ignored. Of a delete only the key
        counts. Names are compared as spark.sql.caseSensitive says.
    rel
        The relation to change.
    op
        The column that tells upserts from deletes, by the words below in any case. None if all rows are upserts.
    sequence
        The column that orders the changes of a key; the last one in a micro-batch wins. Without it, or where two changes of a key
        are equally late, they must be the same.
    upserts, deletes
        The words of the column `op` for upserts and for deletes.
    null_keys
        "refuse" changes without a key, or "drop" them.
    checkpoint, trigger, name
        Options of a streaming DataFrame, as for `load`.
    transaction
        The application's name and a number, for a batch DataFrame. A number that is not higher than the last one of that
        application is not applied again.

    Returns
    -------
    StreamingQuery | MaintainResult
        The started query for a streaming DataFrame, the result for a batch one.
    """
    if not isinstance(rel, Relation):
        raise BadInput(f"rel={rel!r} is not a relation; open one with hr.Relation.open(path)")
    choice("null_keys", null_keys, ("refuse", "drop"))
    names = ColumnNames.of(changes.sparkSession)
    if op is not None and names.taken(op, rel.schema.names):
        raise BadInput(f"op={op!r} is a column of the relation; rename the column that says what a change is")
    if sequence is not None:
        sequence = names.resolve(sequence, rel.schema.names)
    applier = ChangeApplier(rel, op, sequence, tuple(upserts), tuple(deletes), null_keys)
    # Names as the relation and the parameters spell them; a column that is not there keeps its name, and is refused.
    found = {names.resolve(column, changes.columns): column for column in applier.wanted}
    applier.check([found.get(column, column) for column in changes.columns])
    changes = changes.select(*(col(f"`{there.replace('`', '``')}`").alias(column) for there, column in found.items()))
    check_options(changes, checkpoint, trigger, name, transaction, "applied")
    if changes.isStreaming:

        def each(rows: DataFrame, batch: int) -> None:
            if not applier.done(application(rows), batch):
                applier.apply(rows.toArrow(), application(rows), batch)

        return start(changes, each, checkpoint, trigger, name)
    if transaction is None:
        return applier.apply(changes.toArrow(), None, 0)
    app, number = check_transaction(transaction)
    if applier.done(app, number):
        return MaintainResult(versions(rel.path)[-1], 0, 0, repeated=True)
    return applier.apply(changes.toArrow(), app, number)
