"""How every sink of ours is asked: micro-batches of a stream, or one batch with a transaction's number."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import BadInput, shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery


def check_options(
    df: DataFrame,
    checkpoint: str | Path | None,
    trigger: Mapping[str, Any] | None,
    name: str | None,
    transaction: tuple[str, int] | None,
    done: str = "loaded",
) -> None:
    """Refuse options that are for the other kind of DataFrame. `done`: what is done with its rows."""
    if df.isStreaming:
        if checkpoint is None:
            raise BadInput(
                f"a streaming DataFrame needs checkpoint=...: without it a restart could not know what is {done}"
            )
        if transaction is not None:
            raise BadInput("transaction=... is for a batch DataFrame; a streaming one counts its micro-batches itself")
        return
    for option, value in (("checkpoint", checkpoint), ("trigger", trigger), ("name", name)):
        if value is not None:
            raise BadInput(f"{option}={shown(value)} is for a streaming DataFrame, and this is a batch one")


def check_transaction(given: tuple[str, int] | None) -> tuple[str, int]:
    """The application and the number of a batch; without them, ones that nobody else has."""
    if given is None:
        return f"headrace-{uuid.uuid4().hex}", 0
    app, number = given
    if not isinstance(app, str) or not isinstance(number, int) or not 0 <= number < 1 << 63:
        raise BadInput(f"transaction={given!r} is not a name and a number from 0 on, such as ('nightly', 17)")
    return app, number


def start(
    df: DataFrame,
    each: Callable[[DataFrame, int], None],
    checkpoint: str | Path | None,
    trigger: Mapping[str, Any] | None,
    name: str | None,
) -> StreamingQuery:
    """A query that hands each micro-batch and its number to a function."""
    where = str(checkpoint)
    if "://" not in where:  # the JVM may have been started elsewhere
        where = str(Path(where).absolute())
    writer = df.writeStream.foreachBatch(each).option("checkpointLocation", where)
    if trigger:
        writer = writer.trigger(**trigger)
    if name:
        writer = writer.queryName(name)
    return writer.start()


def application(df: DataFrame) -> str:
    """The application that the micro-batches of a query are the transactions of."""
    return f"headrace-{df.sparkSession.sparkContext.getLocalProperty('sql.streaming.queryId')}"
