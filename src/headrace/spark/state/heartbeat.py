"""A streaming source that ticks: without data Spark runs no micro-batch, and rows that wait could not leave. (DESIGN D7)

The source is Heartbeat.java, which runs in the driver's JVM: it says when there is a tick, and which shards get a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.functions import col

from headrace.spark.jvm.source import jvm_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCE = "Heartbeat"
_MADE = "_headrace_heartbeats"


def heartbeat(session: SparkSession, shards: int, period: float, owed: tuple[str, str] | None = None) -> DataFrame:
    """A stream of shard numbers, all of them with every tick, and a tick at the beginning of every run.

    Parameters
    ----------
    shards
        How many shards there are.
    period
        Seconds between two ticks. In a run that ends by itself more ticks come only while something is owed, without a pause.
    owed
        The directory of the run logs, and the name of the log in which tasks note that they owe something: there are no ticks
        while they do not. None: a tick after every period.
    """
    # Kept with the session: two steps of a query that ask for the same ticks have one source, now and after a restart.
    made: dict[object, DataFrame] = session.__dict__.setdefault(_MADE, {})
    name = shards, period, owed
    if name not in made:
        notes = {} if owed is None else {"directory": owed[0], "log": owed[1]}
        ticks = jvm_stream(session, SOURCE, shards=str(shards), period=repr(period), **notes)
        made[name] = ticks.select(col("value").cast("int").alias("shard"))
    return made[name]
