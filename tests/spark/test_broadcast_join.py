"""algorithm="broadcast" of `enrich`: Spark's own join, with the results that the others give, of the version they would see."""

from random import Random

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.cost.broadcast import BroadcastAdvice
from headrace.errors import BadInput
from tests.support.join_oracle import table
from tests.support.spark_streams import counted, duck, files, naive, relation, source

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("kind", ["int32", "string", "timestamp_tz", "composite"])
def test_oracle_it_gives_what_duckdb_and_the_adaptive_join_give(spark, tmp_path, kind):
    random = Random(kind)
    rows = table(kind, [random.randrange(150) for _ in range(400)], random, tag="r")
    stream = table(kind, [random.randrange(200) for _ in range(500)], random, nulls=0.1, tag="s")
    key = [name for name in rows.schema.names if name.startswith("k")]
    rel = relation(tmp_path / "r", rows, key)
    df = spark.createDataFrame(stream)
    for how in ("inner", "left", "semi", "anti"):
        out = hr.enrich(df, rel, on=key, how=how, algorithm="broadcast")
        other = hr.enrich(df, rel, on=key, how=how)
        assert out.schema.simpleString() == other.schema.simpleString()
        found = out.toArrow()
        assert counted(naive(found)) == duck(stream, rows, key, how), how
        assert counted(found) == counted(other.toArrow()), how


def test_a_micro_batch_sees_the_latest_version_and_a_batch_the_one_that_is_open(spark, tmp_path):
    rel = relation(tmp_path / "r", pa.table({"k": [1, 2], "v": [10, 20], "odd name.": ["a", "b"]}), "k")
    stream = pa.table({"k": pa.array([1, 3], pa.int32()), "v": ["x", "y"]})
    df = source(spark, files(tmp_path / "in", stream))
    out = hr.enrich(df, rel, on="k", how="left", algorithm="broadcast", columns=["v", "odd name."])
    query = out.writeStream.format("memory").queryName("latest").start()
    try:
        query.processAllAvailable()
        rel.apply(upserts=pa.table({"k": [1, 3], "v": [11, 31], "odd name.": ["new", "new"]}))
        files(tmp_path / "in", stream)
        query.processAllAvailable()
    finally:
        query.stop()
    seen = spark.table("latest").toArrow()
    assert seen.schema.names == ["k", "v", "v_right", "odd name."]
    assert counted(seen) == {
        (1, "x", 10, "a"): 1,
        (3, "y", None, None): 1,
        (1, "x", 11, "new"): 1,
        (3, "y", 31, "new"): 1,
    }
    batch = hr.enrich(spark.createDataFrame(stream), rel, on="k", algorithm="broadcast", columns=["v"])
    assert counted(batch.toArrow()) == {(1, "x", 10): 1}


def test_what_spark_does_not_have_is_refused_by_name(spark, tmp_path):
    rel = relation(tmp_path / "r", pa.table({"k": [1], "v": [10]}), "k")
    df = spark.createDataFrame(pa.table({"k": [1]}))
    asked = {"order": "stream", "version_column": "n", "deadline": "10s", "defer": hr.Defer(), "shed": "keep"}
    for name, value in asked.items():
        with pytest.raises(BadInput, match=f"algorithm='broadcast' is Spark's own join, which does not take {name}="):
            hr.enrich(df, rel, on="k", algorithm="broadcast", **{name: value})
    with pytest.raises(BadInput, match="algorithm='broadcast' joins by equality of the key alone"):
        hr.enrich(df, rel, on="k", algorithm="broadcast", condition=hr.compare("k", "<", "v"))
    with pytest.raises(BadInput, match="whose key is k"):
        hr.enrich(df, rel, on={"k": "v"}, algorithm="broadcast")


def test_auto_says_so_where_a_micro_batch_is_large_beside_the_relation(spark, tmp_path):
    rel = relation(tmp_path / "r", pa.table({"k": np.arange(4000), "v": np.arange(4000)}), "k")
    for rows, said in ((1000, False), (900_000, True)):
        out = hr.enrich(spark.range(rows).selectExpr("id % 5000 AS k"), rel, on="k", memory="8MiB")
        assert out.count() > 0
        found = [p.why for p in hr.progress(out)]
        assert found and all(("algorithm='broadcast', Spark's own join" in why) == said for why in found), found


def test_the_advice_goes_by_the_columns_that_are_wanted(tmp_path):
    n = 6_000
    rows = pa.table({"k": np.arange(n), "v": np.arange(n), "text": pa.repeat("sixty bytes" + 49 * ".", n)})
    rel = hr.Relation.create(tmp_path / "r", rows, key="k")
    narrow, wide = (BroadcastAdvice.of(rel, columns) for columns in (["v"], None))
    assert narrow.nbytes < n * 20 < n * 76 < wide.nbytes
    assert narrow.least_rows < wide.least_rows
    assert wide.words(wide.least_rows - 1) == ""
    assert f"more than {wide.least_rows:,} rows, and this one has some 500,000" in wide.words(500_000)
    assert "this one" not in narrow.words() != ""
    assert BroadcastAdvice(50_000_000, 5 << 30).words() == ""
