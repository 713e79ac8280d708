"""One Spark for all: two cores, a fixed heap, and the same settings whatever the system."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from headrace import tune_session

CORES = 2
HEAP = "8g"

SETTINGS = {
    "spark.driver.memory": HEAP,
    "spark.driver.maxResultSize": "0",  # or a broadcast of R would be refused before it is tried
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": str(CORES),
    # Above a micro-batch of 500,000 rows (12 MB) and below R: Spark then sends the micro-batch to R instead of
    # shuffling R. Without it the plain and the cached join take five times as long at 10 million rows.
    "spark.sql.autoBroadcastJoinThreshold": str(64 << 20),
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
    "spark.sql.streaming.stopTimeout": "60s",
    # As a user of Headrace would tune a session; Spark's own forms have the benefit of it too.
    **tune_session().at_start,
}


@contextmanager
def session(work: Path, heap: str = HEAP) -> Iterator[SparkSession]:
    """A session whose JVM has ended when the context ends; its files are in `work`."""
    # On a larger machine too the JVM's own threads and the Python workers keep to two cores.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["HEADRACE_STATE"] = str(work / "state")  # or the log of every query would stay behind
    # The workers import `benchmarks` too.
    here = str(Path(__file__).parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("benchmarks")
    places = {"spark.local.dir": str(work / "local"), "spark.sql.warehouse.dir": str(work / "warehouse")}
    for name, value in {**SETTINGS, **places, "spark.driver.memory": heap}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    gateway = SparkContext._gateway
    assert gateway is not None
    jvm = gateway.proc
    try:
        yield spark
    finally:
        spark.stop()
        gateway.shutdown()
        jvm.terminate()
        jvm.wait(60)


def describe(spark: SparkSession) -> dict[str, Any]:
    """What a report says about the Spark that every system ran on."""
    jvm = SparkContext._jvm
    assert jvm is not None
    settings = ", ".join(f"{name.removeprefix('spark.')}={value}" for name, value in SETTINGS.items())
    return {
        "version": spark.version,
        "access": f"local[{CORES}], Java {jvm.java.lang.System.getProperty('java.version')}",
        "options": settings,
        "cache": f"heap of {HEAP}; every system has the page cache as well",
    }
