"""Enrich sales from a Kafka topic with a table of products, and load them into a Delta table, each once.

Run it with a broker, such as that of `docker run -p 9092:9092 apache/kafka:3.9.1`:

    python examples/enrich_from_kafka.py --servers localhost:9092

It sends a thousand sales to the topic first. Spark fetches its Kafka connector with the first run.
"""

from __future__ import annotations

import argparse
import tempfile

import pyspark
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

import headrace as hr

CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"


def send_sales(spark: SparkSession, kafka: dict[str, str], topic: str) -> None:
    sales = spark.range(1_000).selectExpr("to_json(struct(id AS sale, id * 7 % 500 AS product_id)) AS value")
    sales.write.format("kafka").options(**kafka, topic=topic).save()


def read_sales(spark: SparkSession, kafka: dict[str, str], topic: str) -> DataFrame:
    messages = spark.readStream.format("kafka").options(**kafka, subscribe=topic, startingOffsets="earliest").load()
    sale = "from_json(CAST(value AS STRING), 'sale long, product_id long') AS sale"
    return messages.selectExpr(sale).select("sale.*")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--servers", default="localhost:9092", help="the brokers, host:port (localhost:9092)")
    parser.add_argument("--topic", default="sales", help="the topic to send to and read from (sales)")
    options = parser.parse_args()
    kafka = {"kafka.bootstrap.servers": options.servers}
    spark = SparkSession.builder.config("spark.jars.packages", CONNECTOR).getOrCreate()

    with tempfile.TemporaryDirectory() as where:
        products = spark.range(400).selectExpr("id AS product_id", "concat('product ', id) AS name")
        rel = hr.Relation.create(f"{where}/products.rel", products, key="product_id")
        send_sales(spark, kafka, options.topic)
        out = hr.enrich(read_sales(spark, kafka, options.topic), rel, on="product_id", how="left", memory="16MiB")
        # Without the trigger it goes on until it is stopped; with the same checkpoint the next run goes on from there.
        query = hr.load(out, f"{where}/sales", checkpoint=f"{where}/checkpoint", trigger={"availableNow": True})
        query.awaitTermination()
        table = DeltaTable(f"{where}/sales").to_pyarrow_table()
        print(f"{table.num_rows:,} sales in the table, {table['name'].null_count:,} of unknown products")


if __name__ == "__main__":
    main()
