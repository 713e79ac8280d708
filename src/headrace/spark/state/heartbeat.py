"""A streaming source that ticks: without data Spark runs no micro-batch, and rows that wait could not leave. (DESIGN D7)

The source is Heartbeat.java, which runs in the driver's JVM: it says when there is a tick, and which shards get a row.
"""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

from py4j.java_gateway import JavaObject
from pyspark.sql.functions import col

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = "headrace.Heartbeat"
_SOURCE = "Heartbeat.java"
_MADE = "_headrace_heartbeats"
_LOADER = "_headrace_heartbeat_loader"


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
        reader = session.readStream.format(FORMAT).options(shards=str(shards), period=repr(period))
        if owed is not None:
            reader = reader.options(directory=owed[0], log=owed[1])
        jvm = session.sparkContext._jvm
        assert jvm is not None
        thread = jvm.java.lang.Thread.currentThread()
        before = thread.getContextClassLoader()
        thread.setContextClassLoader(class_loader(session))  # where Spark looks for the class of a format
        try:
            made[name] = reader.load().select(col("value").cast("int").alias("shard"))
        finally:
            thread.setContextClassLoader(before)
    return made[name]


def class_loader(session: SparkSession) -> JavaObject:
    """The class loader that has the source, compiled once for a SparkContext."""
    context = session.sparkContext
    if _LOADER not in context.__dict__:
        jvm = context._jvm
        assert jvm is not None
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
        compiler.cook(resources.files(__package__).joinpath(_SOURCE).read_text(encoding="utf-8"))
        context.__dict__[_LOADER] = compiler.getClassLoader()
    loader: JavaObject = context.__dict__[_LOADER]
    return loader
