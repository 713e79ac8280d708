"""`enrich` with a dimension's history: a condition beside the key, with the default algorithm. Against DuckDB."""

from collections import Counter
from datetime import datetime, timedelta

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.errors import BadInput
from headrace.runlog import RunLog
from tests.support.spark_streams import counted, files, source, streamed

pytestmark = pytest.mark.spark

DAY = datetime(2024, 1, 1)
VALID = hr.between("sold_at", "valid_from", "valid_to", inclusive="low", open_ends=True)


def history(rng, products: int) -> pa.Table:
    """Up to four prices of each product, some with a gap between them, the last without an end; some begin before all time."""
    rows = []
    for p in range(products):
        at = int(rng.integers(0, 20))
        for i in range(int(rng.integers(0, 5))):
            until = at + int(rng.integers(1, 15))
            begin = None if i == 0 and rng.random() < 0.3 else DAY + timedelta(days=at)
            rows.append((p, begin, DAY + timedelta(days=until), float(rng.integers(1, 99))))
            at = until + int(rng.integers(0, 3))
        if rows and rows[-1][0] == p and rng.random() < 0.5:
            rows[-1] = (*rows[-1][:2], None, rows[-1][3])
    types = [pa.int64(), pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC"), pa.float64()]
    arrays = [pa.array(c, t) for c, t in zip(zip(*rows, strict=True), types, strict=True)]
    return pa.table(arrays, names=["product_id", "valid_from", "valid_to", "price"])


def sales(rng, count: int, products: int) -> pa.Table:
    days = [DAY + timedelta(days=int(d)) for d in rng.integers(-5, 70, count)]
    return pa.table(
        {
            "sale": np.arange(count),
            "product_id": pa.array(rng.integers(0, products + 20, count), mask=rng.random(count) < 0.05),
            "sold_at": pa.array(days, pa.timestamp("us", "UTC"), mask=rng.random(count) < 0.05),
        }
    )


def duck(stream: pa.Table, rows: pa.Table, how: str) -> Counter:
    naive = {"sold_at": pa.timestamp("us"), "valid_from": pa.timestamp("us"), "valid_to": pa.timestamp("us")}

    def plain(table):
        fields = [pa.field(f.name, naive.get(f.name, f.type)) for f in table.schema]
        return table.cast(pa.schema(fields))

    on = """s.product_id = r.product_id and s.sold_at is not null
            and (valid_from is null or valid_from <= sold_at) and (valid_to is null or sold_at < valid_to)"""
    sql = {
        "inner": f"select s.*, price from s join r on {on}",
        "left": f"select s.*, price from s left join r on {on}",
        "semi": f"select * from s where exists (select 1 from r where {on})",
        "anti": f"select * from s where not exists (select 1 from r where {on})",
    }[how]
    with duckdb.connect(config={"autoinstall_known_extensions": False}) as db:
        db.register("s", plain(stream))
        db.register("r", plain(rows))
        return counted(db.sql(sql).to_arrow_table())


def naive(table: pa.Table) -> Counter:
    at = table.schema.get_field_index("sold_at")
    return counted(table.set_column(at, "sold_at", table["sold_at"].cast(pa.timestamp("us"))))


def test_oracle_every_how_streaming_and_batch(spark, tmp_path):
    rng = np.random.default_rng(11)
    rows = history(rng, 300)
    rel = hr.Relation.create(tmp_path / "r", rows, key="product_id", page_size="4KiB")
    stream = sales(rng, 3000, 300)
    df = spark.createDataFrame(stream)
    for how in ("inner", "left", "semi", "anti"):
        options = {"columns": ["price"]} if how in ("inner", "left") else {}
        out = hr.enrich(df, rel, on="product_id", condition=VALID, how=how, memory="4MiB", **options)
        wanted = duck(stream, rows, how)
        assert naive(out.toArrow()) == wanted, how
        assert 100 < sum(wanted.values()) <= 3000
    # A key that only fails the condition comes out once, with nulls.
    left = hr.enrich(df, rel, on="product_id", condition=VALID, how="left", columns=["price"]).toArrow()
    assert sorted(left["sale"].to_pylist()) == list(range(3000))
    known = set(rows["product_id"].to_pylist())
    assert any(r["price"] is None and r["product_id"] in known and r["sold_at"] for r in left.to_pylist())
    streaming = source(spark, files(tmp_path / "in", stream.slice(0, 1000), stream.slice(1000)))
    out = hr.enrich(streaming, rel, on="product_id", condition=VALID, how="left", columns=["price"])
    assert naive(streamed(out)) == duck(stream, rows, "left")


def test_oracle_rows_wait_and_those_without_a_valid_price_are_dead_letters(spark, tmp_path):
    rng = np.random.default_rng(12)
    rows, stream = history(rng, 3000), sales(rng, 1200, 3000)
    rel = hr.Relation.create(tmp_path / "r", rows, key="product_id", page_size="4KiB")
    streaming = source(spark, files(tmp_path / "in", stream.slice(0, 500), stream.slice(500)))
    out = hr.enrich(
        streaming,
        rel,
        on="product_id",
        condition=VALID,
        columns=["price"],
        memory="4MiB",
        defer=hr.Defer(deadline="1h", unmatched="dead_letter", state=tmp_path / "state", shards=2),
    )
    assert out.columns == ["sale", "product_id", "sold_at", "price"]
    given: list[pa.Table] = []
    query = out.writeStream.foreachBatch(lambda df, _: given.append(df.toArrow()))
    query = query.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert sum(p.stats.deferred for p in hr.progress(query)) > 0
    hr.finish(out, query, write=lambda df, _: given.append(df.toArrow()))
    assert naive(pa.concat_tables(given)) == duck(stream, rows, "inner")
    (log,) = RunLog.find(tmp_path / "state")
    letters = pq.read_table(log.path / "dead_letter")
    assert naive(letters.select(stream.column_names)) == duck(stream, rows, "anti")
    by_key = letters.filter(pc.is_valid(letters["product_id"]))
    assert set(by_key["_reason"].to_pylist()) == {"no match in the relation that satisfies the condition"}


def test_adaptive_by_name_in_stream_order_and_a_condition_alone(spark, tmp_path):
    rows = pa.table({"k": [1, 1, 2], "low": [0, 10, 5], "high": [9, 19, 6], "name": ["a", "b", "c"]})
    rel = hr.Relation.create(tmp_path / "r", rows, key="k")
    stream = spark.createDataFrame(pa.table({"k": [1, 2, 1, 3], "x": [10, 7, 3, 5]})).coalesce(1)
    between = hr.between("x", "low", "high")
    ordered = hr.enrich(
        stream, rel, on="k", how="left", algorithm="adaptive", order="stream", condition=between, columns=["name"]
    )
    assert ordered.toArrow()["name"].to_pylist() == ["b", None, "a", None]
    alone = hr.enrich(stream, rel, condition=between, columns=["name"]).toArrow()
    got = sorted(zip(alone["x"].to_pylist(), alone["name"].to_pylist(), strict=True))
    assert got == [(3, "a"), (5, "a"), (5, "c"), (7, "a"), (10, "b")]


def test_what_cannot_be_compared_is_refused_at_once(spark, tmp_path):
    rel = hr.Relation.create(tmp_path / "r", pa.table({"k": [1], "day": ["monday"], "n": [1]}), key="k")
    df = spark.createDataFrame(pa.table({"k": [1], "t": ["x"]}))
    with pytest.raises(BadInput, match=r"'t' .*type string"):
        hr.enrich(df, rel, on="k", condition=hr.compare("t", "<", "n"))
    with pytest.raises(BadInput, match="names 'until' of the relation, which has no such column"):
        hr.enrich(df, rel, on="k", condition=hr.between("t", "n", "until"))
    with pytest.raises(BadInput, match="names 'sold' of the stream, which has no such column"):
        hr.enrich(df, rel, on="k", condition=hr.compare("sold", "<", "n"))
    with pytest.raises(BadInput, match="joins by equality of the key alone"):
        hr.enrich(df, rel, on="k", algorithm="hybridjoin", condition=hr.compare("t", "<", "n"))
