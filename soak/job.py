"""The program that is killed: sales get surrogate keys, are enriched by a deadline, shed when there are too many, and loaded.

python -m soak.job DIRECTORY MASTER        runs until the input ends, joins what waits, and brings back what was shed
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from soak.places import Places

RATE = 2000  # rows a second that the query is told it can sustain: less than a micro-batch of four files brings


def main(root: Path, master: str) -> None:
    """One life of the driver."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    import headrace as hr

    places = Places(root)
    builder = SparkSession.builder.master(master).appName("headrace soak")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.task.maxFailures": "20",  # executors are killed too, faster than they fail in earnest
        "spark.executor.memory": "512m",
        "spark.excludeOnFailure.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    with hr.Relation.open(places.relation) as products, hr.Relation.open(places.lookup) as lookup:
        reader = spark.readStream.schema("id bigint, source string, product bigint, amount bigint")
        df = reader.option("maxFilesPerTrigger", 4).parquet(str(places.input))
        df = hr.assign_surrogate_keys(df, lookup, key="product", source_column="source", partitions=2)
        df = hr.enrich(
            df,
            products,
            on="product",
            how="left",
            memory="16MiB",
            version_column="version",
            defer=hr.Defer(deadline="3s", state=places.state, shards=2),
            shed=hr.Shedding("sample", rate=RATE, target_delay="1s", state=places.state),
        )
        query = hr.load(df, places.table, checkpoint=places.checkpoint, trigger={"availableNow": True})
        query.awaitTermination()
        hr.finish(query)
        hr.replay(places.state, places.table, session=spark, checkpoint=places.checkpoint)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
