"""A streaming source of a single row: what a batch DataFrame is joined with to come into a stream once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.functions import col

from headrace.spark.jvm.source import jvm_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SOURCE = "Once"
_MADE = "_headrace_once"
_COLUMN = "__headrace_once"


def once(df: DataFrame) -> DataFrame:
    """A streaming DataFrame of the rows of a batch one, all in the first micro-batch.

    Later micro-batches do not read it: Spark joins it with nothing then, and leaves it out.
    """
    session = df.sparkSession
    # Kept with the session: several batch sides of a query have one source, now and after a restart.
    made: DataFrame | None = session.__dict__.get(_MADE)
    if made is None:
        made = session.__dict__[_MADE] = jvm_stream(session, _SOURCE).select(col("value").alias(_COLUMN))
    return df.crossJoin(made).drop(_COLUMN)
