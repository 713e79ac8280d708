"""Join two streams by distance: riders who wait with taxis that are free, at most 300 metres away.

Spark's own join of two streams knows equality alone. Run it with: python examples/two_streams_by_distance.py
"""

from __future__ import annotations

import tempfile

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

import headrace as hr


def stream(spark: SparkSession, where: str, name: str, rows: int) -> DataFrame:
    """Points in a town of ten by ten kilometres, to the metre; files that appear in a directory stand for a topic."""
    x, y = (f"CAST(pmod(xxhash64('{name}', '{axis}', id), 10000) / 1000 AS DOUBLE) AS {axis}" for axis in "xy")
    points = spark.range(rows).selectExpr(f"id AS {name}", x, y)
    points.write.parquet(f"{where}/{name}")
    return spark.readStream.schema(f"{name} long, x double, y double").parquet(f"{where}/{name}")


def main() -> None:
    spark = SparkSession.builder.getOrCreate()
    with tempfile.TemporaryDirectory() as where:
        riders = stream(spark, where, "rider", rows=2_000)
        taxis = stream(spark, where, "taxi", rows=500)
        near = hr.progressive_join(
            riders, taxis, hr.within(("x", "y"), eps=0.3), memory="32MiB", state=f"{where}/state", shards=2
        )
        # Pairs come as soon as both rows are there, and each comes once; what does not fit the memory is on disk.
        query = hr.load(near, f"{where}/near", checkpoint=f"{where}/checkpoint", trigger={"availableNow": True})
        query.awaitTermination()

        pairs = DeltaTable(f"{where}/near").to_pyarrow_table()
        print(f"{pairs.num_rows:,} pairs of {', '.join(pairs.column_names)}")
        print(f"{len(pairs['rider'].unique()):,} of 2,000 riders have a taxi within 300 metres")


if __name__ == "__main__":
    main()
