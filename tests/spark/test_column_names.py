"""Names and types of a relation's columns where they meet Spark's: its own setting of case, and types that it does not have."""

from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headrace as hr
from tests.support.malformed_pages import rewrite_manifest
from tests.support.spark_streams import counted, files, source, streamed

pytestmark = pytest.mark.spark

PRODUCTS = pa.table({"product_id": [1, 2], "name": ["nut", "bolt"], "Price": [3, 4]})
SALES = pa.table({"Product_ID": [2, 1, 9], "NAME": ["x", "y", "z"]})


@pytest.fixture
def rel(tmp_path):
    return hr.Relation.create(tmp_path / "products", PRODUCTS, key="product_id")


@contextmanager
def case_sensitive(spark, value):
    spark.conf.set("spark.sql.caseSensitive", value)
    try:
        yield
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_names_are_found_whatever_their_case_as_spark_does_by_default(spark, rel):
    sales = spark.createDataFrame(SALES)
    out = hr.enrich(sales, rel, on="PRODUCT_id", columns=["NAME", "price"])
    assert out.columns == ["Product_ID", "NAME", "name_right", "Price"]
    assert sorted(map(tuple, out.collect())) == [(1, "y", "nut", 3), (2, "x", "bolt", 4)]
    assert sorted(r[0] for r in out.select("NAME_RIGHT").collect()) == ["bolt", "nut"]  # no name is ambiguous
    again = hr.enrich(out, rel, on="product_id", columns=["price"], suffix="_2")
    assert again.columns == ["Product_ID", "NAME", "name_right", "Price", "Price_2"]


def test_columns_that_differ_in_case_are_the_same_by_default(spark, rel):
    sales = spark.createDataFrame(SALES)
    with pytest.raises(hr.BadInput, match="column 'name' is in the stream and in the relation; pick columns="):
        hr.enrich(sales, rel, on="product_id", suffix=None)
    with pytest.raises(hr.BadInput, match="version_column='name' is the name of another column"):
        hr.enrich(sales, rel, on="product_id", columns=["Price"], version_column="name")
    with pytest.raises(hr.BadInput, match="column 'Name' is in the DataFrame already"):
        hr.find_duplicates(sales, rel, on="product_id", flag="Name")
    twice = spark.createDataFrame(SALES).toDF("product_id", "Product_ID")
    with pytest.raises(
        hr.BadInput, match=r"'product_id' may be 'Product_ID' or 'product_id', which Spark does not tell apart"
    ):
        hr.enrich(twice, rel, on="product_id")


def test_columns_that_differ_in_case_are_others_where_spark_is_told_so(spark, rel):
    with case_sensitive(spark, "true"):
        sales = spark.createDataFrame(SALES)
        with pytest.raises(hr.BadInput, match="no column 'product_id'; its columns are Product_ID, NAME"):
            hr.enrich(sales, rel, on="product_id")
        with pytest.raises(hr.BadInput, match="columns names 'price', which the relation does not have"):
            hr.enrich(sales, rel, on={"Product_ID": "product_id"}, columns=["price"])
        out = hr.enrich(sales, rel, on={"Product_ID": "product_id"}, suffix=None)
        assert out.columns == ["Product_ID", "NAME", "name", "Price"]
        assert sorted(map(tuple, out.collect())) == [(1, "y", "nut", 3), (2, "x", "bolt", 4)]


def test_names_in_conditions_are_found_whatever_their_case(spark, rel):
    sales = spark.createDataFrame(SALES)
    seen = hr.all_of(
        hr.compare("product_id", "<", "PRICE"),
        hr.predicate(lambda left, right: pc.not_equal(left["Name"], right["nAME"]), "Name", right=["nAME"]),
        hr.edit_distance("name", "NAME", at_most=4),
    )
    out = hr.enrich(sales, rel, on="product_id", condition=seen, columns=["price"])
    assert sorted(map(tuple, out.collect())) == [(1, "y", 3), (2, "x", 4)]
    with case_sensitive(spark, "true"), pytest.raises(hr.BadInput, match="the condition names 'PRICE' of the relation"):
        hr.enrich(sales, rel, on={"Product_ID": "product_id"}, condition=hr.compare("Product_ID", "<", "PRICE"))


def test_names_of_surrogate_keys_are_found_whatever_their_case(spark, tmp_path):
    table = pa.table({"Source": ["shop"], "Code": ["a"], "SKey": [7], "Inferred": [False]})
    lookup = hr.Relation.create(tmp_path / "lookup", table, key=["Source", "Code"])
    rows = spark.createDataFrame(pa.table({"CODE": ["a", "b"], "From": ["shop", "shop"]}))
    out = hr.assign_surrogate_keys(
        rows, lookup, key="code", source_column="FROM", surrogate="skey", inferred="inferred"
    )
    assert out.columns == ["CODE", "From", "SKey"]
    assert sorted(map(tuple, out.collect())) == [("a", "shop", 7), ("b", "shop", 8)]
    with pytest.raises(hr.BadInput, match="column 'SKey' is in the DataFrame already"):
        hr.assign_surrogate_keys(rows.withColumnRenamed("From", "sKEY"), lookup, key="code", source="shop")
    with case_sensitive(spark, "true"), pytest.raises(hr.BadInput, match="key names 'code' of the lookup"):
        hr.assign_surrogate_keys(rows, lookup, key="code", source="shop", surrogate="SKey", inferred="Inferred")


def test_names_of_changes_are_found_whatever_their_case(spark, rel):
    changes = spark.createDataFrame(
        pa.table({"NAME": ["gear"], "Product_Id": [5], "price": [9], "Op": ["u"], "At": [1]})
    )
    result = hr.maintain(changes, rel, op="op", sequence="AT")
    assert result.upserts == 1
    assert rel.refresh().lookup([5]).to_pylist() == [{"product_id": 5, "name": "gear", "Price": 9}]
    with pytest.raises(hr.BadInput, match="op='PRICE' is a column of the relation"):
        hr.maintain(changes, rel, op="PRICE")
    with case_sensitive(spark, "true"), pytest.raises(hr.BadInput, match="the changes have no column 'product_id'"):
        hr.maintain(changes, rel, op="Op")


def test_names_in_the_condition_of_two_streams_are_found_whatever_their_case(spark, tmp_path):
    parts = pa.table({"Key": [1, 2], "at": [5, 6]}), pa.table({"key": [1, 2], "Until": [9, 3]})
    left, right = (source(spark, files(tmp_path / name, part)) for name, part in zip("lr", parts, strict=True))
    near = hr.all_of(hr.equal("KEY"), hr.compare("AT", "<", "until"))
    out = hr.progressive_join(left, right, near, state=tmp_path / "state", shards=1, memory="8MiB")
    assert out.columns == ["Key", "at", "Until"]
    assert counted(streamed(out)) == {(1, 5, 9): 1}


@pytest.mark.parametrize("type_", [pa.uint64(), pa.uint8(), pa.float16(), pa.month_day_nano_interval()], ids=str)
def test_a_relations_column_of_a_type_that_spark_does_not_have_is_named(spark, tmp_path, type_):
    rel = hr.Relation.create(tmp_path / "r", pa.table({"k": [1], "odd": pa.nulls(1, type_), "v": [5]}), key="k")
    rows = spark.createDataFrame(pa.table({"k": [1]}))
    with pytest.raises(
        hr.UnsupportedType, match=rf"column 'odd' of the relation has type {type_}.*pick columns="
    ) as refused:
        hr.enrich(rows, rel, on="k")
    assert len(str(refused.value)) < 300
    assert hr.enrich(rows, rel, on="k", columns=["v"]).collect() == [(1, 5)]


def test_nanoseconds_of_an_older_relation_are_refused_before_a_worker_meets_them(spark, tmp_path):
    """`Relation.create` refuses them now; a relation that has them was made by an earlier release."""
    hr.Relation.create(tmp_path / "r", pa.table({"k": [1], "at": np.array([5])}), key="k").close()
    schema = pa.schema({"k": pa.int64(), "at": pa.timestamp("ns")})
    rewrite_manifest(tmp_path / "r", lambda manifest: setattr(manifest, "schema", schema))
    rows = spark.createDataFrame(pa.table({"k": [1]}))
    with pytest.raises(
        hr.UnsupportedType, match=r"column 'at' of the relation has type timestamp\[ns\].*nanoseconds='truncate'"
    ):
        hr.enrich(rows, hr.Relation.open(tmp_path / "r"), on="k")


def test_text_that_is_not_utf_8_is_refused_when_spark_makes_a_relation(spark, tmp_path):
    text = spark.sql("SELECT 1L AS k, CAST(X'ff00' AS STRING) AS v")
    with pytest.raises(hr.BadInput, match="column 'v' holds text that is not UTF-8"):
        hr.Relation.create(tmp_path / "r", text, key="k")
    assert list(tmp_path.iterdir()) == []
