"""The program that is killed: queries of one driver, each to the end of its input.

    sales    files -> surrogate keys -> enriched by a deadline, shed when there are too many -> Delta table
    orders   Kafka -> enriched; without a match tried again, then dead letters -> PostgreSQL
    pairs    two streams of files joined progressively in little memory -> Delta table
    samples  files -> a sample of a window, with a seed -> Delta table

python -m soak.job DIRECTORY MASTER QUERY...      what waits is joined in the end, and what was shed is brought back
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from pathlib import Path
from typing import Any

from soak.places import PAIR_KEYS, SAMPLE_SIZE, SAMPLE_WINDOW, TOPIC, Places

RATE = 2000  # rows a second that the query is told it can sustain: less than a micro-batch of four files brings
SEED = 17  # of the sample
QUERIES = ("sales", "orders", "pairs", "samples")
KAFKA, POSTGRESQL = "HEADRACE_SOAK_KAFKA", "HEADRACE_SOAK_POSTGRESQL"


def main(root: Path, master: str, queries: list[str]) -> None:
    """One life of the driver."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # the harness asks where it stands before it gives up
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    import headrace as hr
    from soak.servers import connector_jars

    places = Places(root)
    builder = SparkSession.builder.master(master).appName("headrace soak")
    checkpoints = "spark.sql.streaming.checkpointFileManagerClass"
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.jars": ",".join(map(str, connector_jars())) if "orders" in queries else "",
        "spark.task.maxFailures": "20",  # executors are killed too, faster than they fail in earnest
        "spark.executor.memory": "512m",
        "spark.excludeOnFailure.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.scheduler.mode": "FAIR",  # or a query waits for the micro-batches of all others
        "spark.python.daemon.module": "headrace.spark.daemon",  # or each worker imports Headrace for itself, in seconds
        checkpoints: hr.tune_session().at_start[checkpoints],
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }.items():
        if value:
            builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    with hr.Relation.open(places.relation) as products, hr.Relation.open(places.lookup) as lookup:
        make: dict[str, Any] = {
            "sales": lambda: _sales(spark, places, products, lookup),
            "orders": lambda: _orders(spark, places, products),
            "pairs": lambda: _pairs(spark, places),
            "samples": lambda: _samples(spark, places),
        }
        running = {name: make[name]() for name in queries}
        for query in running.values():
            query.awaitTermination()
        for name, query in running.items():
            if name != "samples":  # of which nothing waits
                hr.finish(query)
        if "sales" in queries:
            hr.replay(places.state, places.table, session=spark, checkpoint=places.checkpoint("sales"))
    spark.stop()


def _files(spark: Any, schema: str, directory: Path, many: int = 1) -> Any:
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", many).parquet(str(directory))


def _load(df: Any, path: Path, checkpoint: Path) -> Any:
    import headrace as hr

    return hr.load(df, path, checkpoint=checkpoint, trigger={"availableNow": True})


def _sales(spark: Any, places: Places, products: Any, lookup: Any) -> Any:
    import headrace as hr

    df = _files(spark, "id bigint, source string, product bigint, amount bigint", places.input / "sales", 4)
    df = hr.assign_surrogate_keys(df, lookup, key="product", source_column="source", partitions=2)
    df = hr.enrich(
        df,
        products,
        on="product",
        how="left",
        columns=["price"],
        memory="16MiB",
        version_column="version",
        defer=hr.Defer(deadline="3s", state=places.state, shards=2),
        shed=hr.Shedding("sample", rate=RATE, target_delay="1s", state=places.state),
    )
    return _load(df, places.table, places.checkpoint("sales"))


def _orders(spark: Any, places: Places, products: Any) -> Any:
    import headrace as hr

    options = {
        "kafka.bootstrap.servers": os.environ[KAFKA],
        "subscribe": TOPIC,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "200",
    }
    rows = spark.readStream.format("kafka").options(**options).load()
    rows = rows.selectExpr("from_json(CAST(value AS STRING), 'id long, product long') AS row").select("row.*")
    defer = hr.Defer(unmatched="retry", retry_for="4s", state=places.state, shards=2)
    df = hr.enrich(
        rows, products, on="product", columns=["price"], memory="8MiB", version_column="version", defer=defer
    )
    return hr.load_postgresql(
        df,
        "orders",
        url=f"env:{POSTGRESQL}",
        checkpoint=places.checkpoint("orders"),
        trigger={"availableNow": True},
    )


def _pairs(spark: Any, places: Places) -> Any:
    import headrace as hr

    left = _files(spark, "k bigint, a bigint", places.input / "left")
    right = _files(spark, "k bigint, b bigint", places.input / "right")
    df = hr.progressive_join(
        left, right, hr.equal("k"), memory="1MiB", state=places.state, shards=2, partitions=min(8, PAIR_KEYS)
    )
    return _load(df, places.pairs, places.checkpoint("pairs"))


def _samples(spark: Any, places: Places) -> Any:
    import headrace as hr

    df = _files(spark, "id bigint", places.input / "samples")
    df = hr.sample(df, window=hr.rows(SAMPLE_WINDOW), size=SAMPLE_SIZE, seed=SEED, state=places.state)
    return _load(df, places.samples, places.checkpoint("samples"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
