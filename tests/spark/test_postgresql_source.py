"""PostgreSQL as a source of Spark: every row once, the same rows in a replay, and no secret in any plan."""

import pyarrow as pa
import pytest

import headrace as hr

pytestmark = pytest.mark.spark

TABLE = 'Sales "2026"'
NAME = '"Sales ""2026"""'
CHANGES = f"CREATE TABLE {NAME} (n int, price numeric(8,2), sold timestamptz, x xid8 DEFAULT pg_current_xact_id())"


def add(database, first: int, end: int) -> None:
    """One transaction each, so that each has a value of its own to be cut at."""
    for n in range(first, end):
        database.query(f"INSERT INTO {NAME} VALUES ({n}, {n}.25, '2026-11-16'::timestamptz + interval '{n} s')")


def run(spark, database, checkpoint, **options) -> list[tuple[int, list]]:
    """Everything there is; gives each micro-batch's number and rows."""
    seen: list[tuple[int, list]] = []

    def take(df, number: int) -> None:
        seen.append((number, sorted((row.n, str(row.price), row.sold.second) for row in df.collect())))

    sales = hr.stream_postgresql(spark, TABLE, by="x", url=database.url, columns=["n", "price", "sold"], **options)
    query = sales.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(take)
    assert query.trigger(availableNow=True).start().awaitTermination(120)
    return seen


def rows(first: int, end: int) -> list:
    return [(n, f"{n}.25", n) for n in range(first, end)]


def test_a_stream_has_every_row_once_and_a_replay_the_same_ones(spark, database, tmp_path):
    database.query(CHANGES)
    add(database, 0, 7)
    assert run(spark, database, tmp_path, max_rows=3) == [(0, rows(0, 3)), (1, rows(3, 6)), (2, rows(6, 7))]
    # The last micro-batch is repeated, as after a kill before its commit; meanwhile there are more rows.
    for name in ("2", ".2.crc"):
        (tmp_path / "commits" / name).unlink()
    add(database, 7, 9)
    assert run(spark, database, tmp_path) == [(2, rows(6, 7)), (3, rows(7, 9))]
    assert run(spark, database, tmp_path) == []


def test_a_batch_is_read_by_several_tasks_and_enriched(spark, database, tmp_path, monkeypatch):
    monkeypatch.setattr("headrace.spark.postgresql.source.LEAST_ROWS", 1)
    monkeypatch.setenv("SHOP_URL", database.url)
    database.query("CREATE TABLE s AS SELECT g AS n, g % 3 AS k FROM generate_series(1, 25000) g")
    df = hr.read_postgresql(spark, "s", url="env:SHOP_URL", by="n", tasks=2)
    assert df.rdd.getNumPartitions() == 2
    with hr.Relation.create(tmp_path / "rel", pa.table({"k": [0, 1], "name": ["a", "b"]}), key="k") as rel:
        found = hr.enrich(df, rel, on="k").groupBy("name").count().collect()
    assert {row["name"]: row["count"] for row in found} == {"a": 8333, "b": 8334}
    assert hr.read_postgresql(spark, "s", url="env:SHOP_URL").count() == 25000


def test_no_plan_and_no_error_shows_the_secret(spark, database, tmp_path):
    database.query("CREATE TABLE t (n int); INSERT INTO t VALUES (1)")
    url = database.url.replace("headrace@", "headrace:hush@")
    batch, stream = hr.read_postgresql(spark, "t", url=url), hr.stream_postgresql(spark, "t", by="n", url=url)
    shown = [
        df._jdf.queryExecution().toString() + df._jdf.queryExecution().analyzed().toJSON() for df in (batch, stream)
    ]
    query = stream.writeStream.format("memory").queryName("hush_test").start()
    query.processAllAvailable()
    shown += [str(query.lastProgress), query._jsq.explainInternal(True), query._jsq.toString()]
    database.query("DROP TABLE t")  # under the query
    with pytest.raises(Exception, match="does not exist") as caught:
        query.processAllAvailable()
        query.awaitTermination(300)
    shown += [str(caught.value), repr(caught.value)]
    with pytest.raises(Exception, match="does not exist") as caught:
        batch.collect()
    shown += [str(caught.value)]
    assert not any("hush@" in text or "host=" in text for text in shown)


def test_what_makes_no_stream_is_refused(spark, database):
    database.query("CREATE TABLE t (n int)")
    with pytest.raises(hr.BadInput, match="max_rows=0"):
        hr.stream_postgresql(spark, "t", by="n", url=database.url, max_rows=0)
    with pytest.raises(hr.BadInput, match="tasks=2 needs by="):
        hr.read_postgresql(spark, "t", url=database.url, tasks=2)
    with pytest.raises(hr.BadInput, match="tasks=0"):
        hr.read_postgresql(spark, "t", url=database.url, tasks=0)
