"""Spark's own join of two streams beside ours: ``python -m benchmarks.progressive.spark SYSTEM BATCH MEMORY``. Prints JSON.

BATCH is the rows of a micro-batch, of both sides. Equality and a bound on event time, since Spark joins no streams without one.
Spark's state is in RocksDB in format 4, its newest and fastest; the same files, micro-batches, cores and heap, and results
counted by the same sink.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEED = 11
WARM = 6  # micro-batches that are not counted: code is compiled in them, and state grows to its size
PARTS = 18  # micro-batches in all; a quarter of an hour of event time is some three of them
MINUTES = 5  # of event time in a micro-batch
WITHIN = "10 minutes"
HEAP = "1g"  # of both JVMs, as it is by default: a larger one is filled by whatever runs, and says nothing of a join
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def write(directory: Path, rows: int, parts: int = PARTS, minutes: float = MINUTES) -> None:
    """Two directories of files, each a micro-batch of one side. A row finds one in four on average, 10 minutes around it."""
    rng, n, micros_of_part = np.random.default_rng(SEED), rows // 2 // parts, int(minutes * 60 * 10**6)
    keys = int(16 * n * MINUTES / minutes)
    for side, column in (("left", "a"), ("right", "b")):
        (directory / side).mkdir()
        for part in range(parts):
            micros = (part * micros_of_part + np.sort(rng.integers(0, micros_of_part, n))).astype(np.int64)
            table = pa.table(
                {
                    "k": rng.integers(0, keys, n),
                    "t": pa.array(micros, pa.timestamp("us", "UTC")),
                    column: rng.integers(0, 1 << 40, n),
                    f"{column}x": rng.random(n),
                }
            )
            pq.write_table(table, directory / side / f"{part:04d}.parquet")


def stream(session: SparkSession, directory: Path) -> DataFrame:
    schema = session.read.parquet(str(directory)).schema
    return session.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(directory))


def sparks(session: SparkSession, left: DataFrame, right: DataFrame, memory: int, state: Path) -> DataFrame:
    """Spark's stream-stream join."""
    from pyspark.sql.functions import col, expr

    session.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    session.conf.set("spark.sql.streaming.join.stateFormatVersion", 4)
    a = left.withWatermark("t", "0 seconds").alias("l")
    b = right.withWatermark("t", "0 seconds").alias("r")
    near = f"l.k = r.k and l.t >= r.t - interval {WITHIN} and l.t <= r.t + interval {WITHIN}"
    joined = a.join(b, expr(near))
    return joined.select(col("l.k"), col("l.t"), "a", "ax", col("r.t").alias("t_right"), "b", "bx")


def ours(session: SparkSession, left: DataFrame, right: DataFrame, memory: int, state: Path) -> DataFrame:
    """hr.progressive_join."""
    import headrace as hr

    a, b = left.withWatermark("t", "0 seconds"), right.withWatermark("t", "0 seconds")
    return hr.progressive_join(a, b, hr.equal("k"), memory=memory, within_time=WITHIN, state=state)


System = Callable[["SparkSession", "DataFrame", "DataFrame", int, Path], "DataFrame"]
SYSTEMS: dict[str, System] = {"spark": sparks, "headrace": ours}


def run(
    join: System,
    batch: int,
    memory: int,
    parts: int = PARTS,
    warm: int = WARM,
    minutes: float = MINUTES,
    limit: float | None = None,
    heap: str = HEAP,
) -> dict[str, Any]:
    """Measure a join of two streams of files, `parts` micro-batches of `batch` rows of both sides.

    A join that takes longer than `limit` seconds is stopped, and the later half of its micro-batches is counted: by then it
    has less state than it would have at the end, and is faster.
    """
    from benchmarks.spark.memory import Sampler, now
    from benchmarks.spark.session import session

    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        write(work, batch * parts, parts, minutes)
        with session(work, heap) as spark:
            spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 10_000)  # as it is by default
            left, right = stream(spark, work / "left"), stream(spark, work / "right")
            joined = join(spark, left, right, memory, work / "log")
            results: list[int] = []
            before = now()
            with Sampler() as sampler:
                query = (
                    joined.writeStream.foreachBatch(lambda df, _: results.append(df.count()))
                    .option("checkpointLocation", str(work / "checkpoint"))
                    .trigger(availableNow=True)
                    .start()
                )
                query.awaitTermination(limit)
                query.stop()
            batches = [p for p in query.recentProgress if p["numInputRows"] >= batch]
            seconds = [p["durationMs"]["triggerExecution"] / 1000 for p in batches]
            counted = [p["numInputRows"] for p in batches]
    if len(batches) < parts:
        warm = min(warm, len(batches) // 2)
    return {
        "results": sum(results),
        "seconds": sum(seconds[warm:]),
        "counted": sum(counted[warm:]),
        "first": None,
        "batches": len(batches),
        "growth": sampler.peak.total - before.total,
        "total": sampler.peak.total,
        "jvm": sampler.peak.jvm,
        "python": sampler.peak.pss,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(SYSTEMS[sys.argv[1]], int(sys.argv[2]), int(sys.argv[3]))))
