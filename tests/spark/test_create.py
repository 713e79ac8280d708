"""Relation.create for a Spark DataFrame: written by the executors."""

from datetime import time

import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import BadInput, UnsupportedType
from headrace.semistream import AdaptiveJoin

pytestmark = pytest.mark.spark

EVERY_TYPE = """
    select id * 7 % 10007 as k, cast(id % 100 as tinyint) t, cast(id as smallint) sm, cast(id as int) i, id as l,
           cast(id as float) f, cast(id as double) d, cast(id as decimal(10, 2)) dec, cast(id as decimal(38, 3)) wide,
           if(id % 5 = 0, null, concat('name ', id)) s, cast(concat('b', id) as binary) bin, id % 3 = 0 b,
           date_add(date'2020-01-01', cast(id % 1000 as int)) dt, timestamp_seconds(id * 1000) ts,
           cast(timestamp_seconds(id) as timestamp_ntz) ntz, make_dt_interval(0, 0, 0, id) iv, cast(null as void) nothing,
           if(id % 4 = 0, null, named_struct('x', id, 'y', named_struct('z', cast(id as string)))) st
    from range(10000)
"""


def test_oracle_every_atomic_type_survives_and_structs_are_flat(spark, tmp_path):
    frame = spark.sql(EVERY_TYPE)
    relation = hr.Relation.create(tmp_path / "r", frame, key="k", shards=3)
    relation.verify()
    got = pa.Table.from_batches(list(relation.scan())).sort_by("l")
    flat = frame.selectExpr("*", "st.x as st_x", "st.y.z as st_y_z").drop("st").toArrow().sort_by("l")
    assert got.num_rows == 10_000
    assert sorted(got.schema.names) == sorted(flat.schema.names)
    for name in flat.schema.names:
        assert got[name].to_pylist() == flat[name].to_pylist(), name


def test_oracle_times_of_day(spark, tmp_path):
    relation = hr.Relation.create(tmp_path / "r", spark.sql("select id, time'12:34:56.789' t from range(3)"), key="id")
    assert relation.lookup([1])["t"].to_pylist() == [time(12, 34, 56, 789_000)]


def test_oracle_composite_string_keys_with_duplicates_join(spark, tmp_path):
    frame = spark.sql("select concat('k', id % 50) a, cast(id % 3 as int) b, id v from range(3000)")
    relation = hr.Relation.create(tmp_path / "r", frame, key=["a", "b"], shards=2, page_size="4KiB")
    assert relation.describe()["distinct_keys"] == 150
    stream = pa.record_batch({"a": ["k1", "k2", "zz"], "b": pa.array([1, 2, 0], pa.int32())})
    out = pa.Table.from_batches(AdaptiveJoin(relation, on=["a", "b"], memory="1MiB").run([stream]))
    assert sorted(out["v"].to_pylist()) == [v for v in range(3000) if (v % 50, v % 3) in {(1, 1), (2, 2)}]


def test_rows_do_not_pass_through_the_driver(spark, tmp_path, monkeypatch):
    from pyspark.sql import DataFrame

    def refuse(self, *args):
        raise AssertionError("rows were collected")

    for name in ("toPandas", "toArrow", "toLocalIterator"):
        monkeypatch.setattr(DataFrame, name, refuse, raising=False)
    relation = hr.Relation.create(tmp_path / "r", spark.range(1000), key="id", shards=2)
    assert relation.num_rows == 1000


def test_shards_that_no_row_falls_on_are_there(spark, tmp_path):
    relation = hr.Relation.create(tmp_path / "r", spark.range(1), key="id", shards=5)
    assert relation.describe()["shards"] == 5
    assert relation.lookup([0]).num_rows == 1


def test_column_names_that_spark_finds_hard(spark, tmp_path):
    frame = spark.range(5).selectExpr("id as `the.key`", "id * 2 as `a b`", "id as `back``tick`")
    relation = hr.Relation.create(tmp_path / "r", frame, key="the.key")
    assert relation.lookup([3]).to_pylist() == [{"the.key": 3, "a b": 6, "back`tick": 3}]


def test_refusals_name_the_column_and_leave_no_relation(spark, tmp_path):
    with pytest.raises(UnsupportedType, match="'l' has type list"):
        hr.Relation.create(tmp_path / "a", spark.sql("select id, array(id) l from range(3)"), key="id")
    with pytest.raises(UnsupportedType, match="'m' has type map"):
        hr.Relation.create(tmp_path / "a", spark.sql("select id, map(id, id) m from range(3)"), key="id")
    with pytest.raises(UnsupportedType, match="'y' has type interval year to month"):
        hr.Relation.create(tmp_path / "a", spark.sql("select id, make_ym_interval(1, 2) y from range(3)"), key="id")
    variant = spark.sql("select id, named_struct('inside', parse_json('{}')) v from range(3)")
    with pytest.raises(UnsupportedType, match="'v' has type struct<inside:variant>"):
        hr.Relation.create(tmp_path / "a", variant, key="id")
    nulls = spark.sql("select if(id = 1, null, id) id, id v from range(3)")
    with pytest.raises(BadInput, match=r"'id' holds null\(s\)"):
        hr.Relation.create(tmp_path / "a", nulls, key="id")
    with pytest.raises(BadInput, match="page_size=28672 or more"):
        hr.Relation.create(tmp_path / "a", spark.sql("select id, repeat('x', 25000) s from range(3)"), key="id")
    assert list(tmp_path.iterdir()) == []
    assert hr.Relation.create(tmp_path / "a", nulls, key="id", null_keys="drop").num_rows == 2
