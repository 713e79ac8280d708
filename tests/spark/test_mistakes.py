"""What newcomers give in place of a Spark DataFrame or a relation is named, in one line, with a way on."""

import sys
import venv

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import headrace as hr

FRAME = pd.DataFrame({"k": [1, 2], "q": [1, 2]})


@pytest.fixture(scope="module")
def rel(tmp_path_factory):
    return hr.Relation.create(tmp_path_factory.mktemp("mistakes") / "r", pa.table({"k": [1], "v": ["a"]}), key="k")


def refused(call, *arguments, **options) -> str:
    with pytest.raises(hr.BadInput) as caught:
        call(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_frames_of_other_libraries_are_no_spark_dataframes(rel):
    message = refused(hr.enrich, FRAME, rel, on="k")
    assert message.startswith("df is a pandas DataFrame, not a Spark DataFrame; spark.createDataFrame(df) makes one")
    assert "AdaptiveJoin(rel, on=..., memory=...).run(df) joins it without Spark" in message
    assert "df is a pyarrow Table" in refused(hr.enrich, pa.table({"k": [1]}), rel, on="k")
    assert "spark.createDataFrame(df.to_arrow())" in refused(hr.enrich, pl.DataFrame(FRAME), rel, on="k")
    assert "the stream comes first" in refused(hr.enrich, rel, rel, on="k")
    assert "spark.read" in refused(hr.enrich, None, rel, on="k")
    equal = hr.equal("k")
    for call, arguments, options in [
        (hr.load, (FRAME, "w"), {}),
        (hr.progressive_join, (FRAME, FRAME, equal), {}),
        (hr.window_join, (FRAME, FRAME, equal), {"window": hr.rows(10), "size": 5}),
        (hr.approximate_join, (FRAME, FRAME, equal), {"tuples": 10}),
        (hr.sample, (FRAME,), {"size": 5}),
        (hr.multiway_join, ([FRAME, FRAME],), {"on": "k"}),
        (hr.find_duplicates, (FRAME, rel), {"on": "k"}),
        (hr.assign_surrogate_keys, (FRAME, rel), {"key": "k"}),
    ]:
        assert "pandas DataFrame, not a Spark DataFrame; spark.createDataFrame(" in refused(
            call, *arguments, **options
        ), call


@pytest.mark.spark
def test_frames_and_paths_are_no_relations(spark, rel):
    df = spark.createDataFrame(FRAME)
    assert refused(hr.enrich, df, FRAME, on="k").startswith(
        "rel is a pandas DataFrame, not a relation; make one of it with hr.Relation.create(path, rel, key=...)"
    )
    assert refused(hr.enrich, df, str(rel.path), on="k") == (
        f"rel='{rel.path}' is a path, not a relation; open it with hr.Relation.open('{rel.path}')"
    )
    assert "rel is a pyspark DataFrame" in refused(hr.enrich, df, df, on="k")
    assert "lookup is a pandas DataFrame" in refused(hr.assign_surrogate_keys, df, FRAME, key="k")


@pytest.mark.spark
def test_a_deadline_is_shown_as_it_was_given(spark, rel):
    """Of a batch DataFrame: it was called deadline=10.0."""
    message = refused(hr.enrich, spark.createDataFrame(FRAME), rel, on="k", deadline="10s")
    assert message.startswith("deadline='10s' is for a streaming DataFrame: a batch one is joined at once")


def test_what_is_no_session_or_no_name_is_named():
    assert "spark is a str, not a SparkSession" in refused(hr.tune_session, "local")
    with pytest.raises(AttributeError) as caught:
        hr.Relatoin  # noqa: B018
    assert caught.value.name == "Relatoin" and caught.value.obj is hr, "Python asks whether Relation was meant"


@pytest.mark.spark
def test_workers_with_a_python_that_has_no_headrace_are_named(spark, rel, tmp_path, monkeypatch):
    venv.create(tmp_path / "other")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(tmp_path / "other/bin/python"))
    rows = spark.range(3).withColumnRenamed("id", "k")
    for said in (
        refused(hr.enrich, rows, rel, on="k"),
        refused(hr.Relation.create, tmp_path / "made", rows, key="k"),
    ):
        assert said.startswith(
            f"Spark's Python workers run {tmp_path}/other/bin/python, which has no headrace; the driver"
        )
        assert f"PYSPARK_PYTHON={sys.executable}" in said
    assert not (tmp_path / "made").exists()
