"""Kafka through Spark's own connector, against a real broker: enriched into a Delta table and into a topic, each row once."""

import json
from collections import Counter

import pyarrow as pa
import pytest

import headrace as hr
from tests.support.delta_tables import by_deltalake

pytestmark = pytest.mark.spark

SCHEMA = "sale long, product long"


@pytest.fixture
def rel(tmp_path):
    products = pa.table({"product": list(range(20)), "name": [f"n{k}" for k in range(20)]})
    with hr.Relation.create(tmp_path / "rel", products, key="product") as relation:
        yield relation


def send(spark, kafka, topic: str, texts: list[str]) -> None:
    df = spark.createDataFrame([(text,) for text in texts], "value string")
    df.write.format("kafka").option("kafka.bootstrap.servers", kafka.servers).option("topic", topic).save()


def sales(first: int, end: int) -> list[str]:
    return [json.dumps({"sale": n, "product": n % 25}) for n in range(first, end)]


def stream(spark, kafka, topic: str):
    options = {"kafka.bootstrap.servers": kafka.servers, "subscribe": topic, "startingOffsets": "earliest"}
    rows = spark.readStream.format("kafka").options(**options, maxOffsetsPerTrigger=40).load()
    return rows.selectExpr(f"from_json(CAST(value AS STRING), '{SCHEMA}') AS row").select("row.*")


def wanted(end: int) -> Counter:
    return Counter((n, n % 25, f"n{n % 25}") for n in range(end) if n % 25 < 20)


def test_json_is_enriched_into_delta_and_a_restart_goes_on(spark, kafka, rel, tmp_path):
    def run() -> Counter:
        query = hr.load(
            hr.enrich(stream(spark, kafka, "sales"), rel, on="product"),
            tmp_path / "table",
            checkpoint=tmp_path / "checkpoint",
            trigger={"availableNow": True},
        )
        assert query.awaitTermination(120)
        found = by_deltalake(tmp_path / "table").to_pylist()
        return Counter((row["sale"], row["product"], row["name"]) for row in found)

    send(spark, kafka, "sales", [*sales(0, 60), "{not JSON", "null", '{"sale": "x"}'])
    assert run() == wanted(60)
    send(spark, kafka, "sales", sales(60, 75))
    assert run() == wanted(75)


def test_enriched_rows_go_back_to_a_topic(spark, kafka, rel, tmp_path):
    send(spark, kafka, "raw", sales(0, 30))
    out = hr.enrich(stream(spark, kafka, "raw"), rel, on="product")
    values = out.selectExpr("CAST(product AS STRING) AS key", "to_json(struct(*)) AS value")
    writer = (
        values.writeStream.format("kafka").option("kafka.bootstrap.servers", kafka.servers).option("topic", "enriched")
    )
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    options = {"kafka.bootstrap.servers": kafka.servers, "subscribe": "enriched"}
    found = spark.read.format("kafka").options(**options).load().selectExpr("CAST(value AS STRING) AS text").collect()
    rows = [json.loads(row.text) for row in found]
    assert Counter((row["sale"], row["product"], row["name"]) for row in rows) == wanted(30)
