"""The driver program of test_cluster.py: streams files through `enrich` into a Delta table, and says what it saw as JSON.

    cluster_enrich.py MASTER RELATION DIRECTORY FILES ROWS KEYS

So many files go through undisturbed, and as many again while an executor is killed.
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
from headrace.spark.plan import Plan


def pids(batches):
    """Where a task runs: its Python worker and the executor's JVM, and the directory that its workers share."""
    import os
    from pathlib import Path

    import pyarrow as pa

    from headrace.spark.executors import executor_directory

    def parent(pid):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

    for _ in batches:
        daemon = os.getppid()
        yield pa.record_batch({"jvm": [parent(daemon)], "directory": [str(executor_directory())]})


def executors(spark) -> dict[str, int]:
    """JVM of each executor by its directory, once both have registered."""
    found: dict[str, int] = {}
    for _ in range(60):
        rows = spark.range(0, 8, 1, 8).mapInArrow(pids, "jvm long, directory string").collect()
        found = {row.directory: row.jvm for row in rows}
        if len(found) == 2:
            return found
    raise SystemExit(f"only {found} took tasks")


def write(directory: Path, files: range, rows: int, keys: int) -> None:
    for n in files:
        k = np.arange(n * rows, (n + 1) * rows)
        draft = directory / f".{n}"
        pq.write_table(pa.table({"n": k, "k": k * 7919 % keys}), draft)
        draft.rename(directory / f"{n:03d}.parquet")


def main(master: str, relation: str, where: str, *numbers: str) -> None:
    directory, (files, rows, keys) = Path(where), map(int, numbers)
    spark = (
        SparkSession.builder.master(master)
        .appName("headrace cluster test")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.executor.cores", "1")
        .config("spark.executor.memory", "512m")
        .config("spark.executor.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.locality.wait", "0")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    jvms = executors(spark)
    write(directory, range(files), rows, keys)
    stream = spark.readStream.schema("n long, k long").option("maxFilesPerTrigger", 1).parquet(str(directory))
    out = hr.enrich(stream.repartition(4), hr.Relation.open(relation), on="k", memory="8MiB")
    query = hr.load(out, directory / "table", checkpoint=directory / "checkpoint")
    query.processAllAvailable()
    write(directory, range(files, 2 * files), rows, keys)
    while len(hr.progress(query)) == files:  # until a task of the next micro-batch is done
        assert query.exception() is None
        query.awaitTermination(0.005)
    os.kill(next(iter(jvms.values())), signal.SIGKILL)
    query.processAllAvailable()
    query.stop()
    seen = hr.progress(query)
    facts = {
        "workers": Plan.of(out).steps[0].join.workers,
        "batches": [p.batch for p in seen],
        "rows": [p.rows for p in seen],
        "limits": [p.stats.memory_limit for p in seen],
        "memory": [sum(p.stats.memory.values()) for p in seen],
        "served": [p.stats.hits + p.stats.misses + p.stats.absent + p.stats.nulls for p in seen],
        "hits": [p.stats.hits for p in seen],
    }
    sys.stdout.write(json.dumps(facts) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
