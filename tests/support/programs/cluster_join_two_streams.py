"""The driver program of test_cluster.py for two streams: joins them in little memory into a Delta table; says what it saw.

    cluster_join_two_streams.py MASTER DIRECTORY FILES ROWS KEYS

So many files of each side go through undisturbed, and as many again while an executor is killed.
"""

import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import headrace as hr


def write(directory: Path, files: range, rows: int, keys: int) -> None:
    for side, factor in (("left", 7919), ("right", 104729)):
        (directory / side).mkdir(exist_ok=True)
        for n in files:
            i = np.arange(n * rows, (n + 1) * rows)
            table = pa.table({"k": i * factor % keys, "n": i, "wide": [f"{side:>150}"] * rows})
            pq.write_table(table, directory / side / f"{n:03d}.parquet")


def main(master: str, where: str, *numbers: str) -> None:
    directory, (files, rows, keys) = Path(where), map(int, numbers)
    spark = (
        SparkSession.builder.master(master)
        .appName("headrace cluster test")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.executor.cores", "1")
        .config("spark.executor.memory", "512m")
        .config("spark.executor.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.locality.wait", "0")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    beside = Path(__file__).with_name("cluster_enrich.py")
    spark.sparkContext.addPyFile(str(beside))  # for what `executors` runs on them
    from cluster_enrich import executors  # it lies beside this program, and not where tests are collected

    jvms = executors(spark)
    write(directory, range(files), rows, keys)

    def stream(side):
        reader = spark.readStream.schema("k long, n long, wide string").option("maxFilesPerTrigger", 1)
        return reader.parquet(str(directory / side))

    out = hr.progressive_join(
        stream("left"),
        stream("right"),
        hr.equal("k"),
        memory="256KiB",
        state=directory / "state",
        shards=3,
        partitions=8,
        idle="30s",
    )

    def run():
        return hr.load(out, directory / "table", checkpoint=directory / "checkpoint", trigger={"availableNow": True})

    query = run()
    query.awaitTermination()
    done = len(hr.progress(query))
    write(directory, range(files, 2 * files), rows, keys)
    query = run()
    while len(hr.progress(query)) == done:  # until a task of the next micro-batch is done
        assert query.exception() is None
        query.awaitTermination(0.005)
    os.kill(next(iter(jvms.values())), signal.SIGKILL)
    query.awaitTermination()
    seen = hr.progress(query)
    facts = {
        "rows": sum(p.rows for p in seen),
        "deferred": sum(p.stats.deferred for p in seen),
        "waiting": seen[-1].stats.waiting,
        "limits": [p.stats.memory_limit for p in seen],
        "memory": [sum(p.stats.memory.values()) for p in seen],
    }
    sys.stdout.write(json.dumps(facts) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
