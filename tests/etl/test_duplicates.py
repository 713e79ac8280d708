"""`find_duplicates`, exact and by similarity, against brute force."""

from collections import Counter
from random import Random

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import BadInput
from tests.support.condition_cases import holds
from tests.support.similar_texts import random_texts
from tests.support.spark_streams import counted, files, source, streamed

pytestmark = pytest.mark.spark


def test_exact_on_a_stream(spark, tmp_path):
    """A match whose columns are all null is a match; a null key is new; a key that is there twice gives two rows."""
    rows = pa.table({"k": [1, 2, 2, 5], "who": pa.array([None, "a", "b", "c"])})
    rel = hr.Relation.create(tmp_path / "r", rows, key="k")
    parts = [
        pa.table({"id": pa.array([1, 2, 9], pa.int64()), "n": [0, 1, 2]}),
        pa.table({"id": pa.array([None, 5, 1], pa.int64()), "n": [3, 4, 5]}),
    ]
    out = hr.find_duplicates(source(spark, files(tmp_path / "in", *parts)), rel, on={"id": "k"})
    assert out.columns == ["id", "n", "who", "duplicate"]
    assert counted(streamed(out)) == Counter(
        [
            (1, 0, None, True),
            (2, 1, "a", True),
            (2, 1, "b", True),
            (9, 2, None, False),
            (None, 3, None, False),
            (5, 4, "c", True),
            (1, 5, None, True),
        ]
    )


@pytest.mark.parametrize("keyed", [False, True])
def test_oracle_similar_rows(spark, tmp_path, keyed):
    rng = np.random.default_rng(7)
    rows = pa.table({"id": np.arange(300), "zone": rng.integers(0, 4, 300), "x": rng.random(300), "y": rng.random(300)})
    rel = hr.Relation.create(tmp_path / "r", rows, key="zone" if keyed else "id")
    stream = pa.table(
        {
            "n": np.arange(200),
            "zone": pa.array(rng.integers(0, 5, 200), mask=rng.random(200) < 0.1),
            "x": pa.array(rng.random(200), mask=rng.random(200) < 0.05),
            "y": rng.random(200),
        }
    )
    condition = hr.within(("x", "y"), eps=0.05)
    df = spark.createDataFrame(stream)
    out = hr.find_duplicates(df, rel, on="zone" if keyed else None, condition=condition, columns=["id"])
    assert out.columns == ["n", "zone", "x", "y", "id", "duplicate"]
    wanted = []
    for left in stream.to_pylist():
        near = [
            r["id"]
            for r in rows.to_pylist()
            if left["x"] is not None
            and np.hypot(left["x"] - r["x"], left["y"] - r["y"]) <= 0.05
            and (not keyed or left["zone"] == r["zone"])
        ]
        wanted += [(*left.values(), i, True) for i in near] or [(*left.values(), None, False)]
    got = counted(out.toArrow())
    assert got == Counter(wanted)
    assert {row[-1] for row in got} == {True, False}


@pytest.mark.parametrize("by", ["edits", "grams"])
def test_oracle_similar_texts(spark, tmp_path, by):
    random = Random(by)
    texts = random_texts(random, 400)
    rows = pa.table({"id": range(300), "name": texts[:300]})
    rel = hr.Relation.create(tmp_path / "r", rows, key="id")
    stream = pa.table({"n": range(100), "name": texts[300:]})
    condition = hr.edit_distance("name", at_most=1) if by == "edits" else hr.jaccard("name", at_least=0.7, q=2)
    out = hr.find_duplicates(spark.createDataFrame(stream), rel, condition=condition, columns=["id"], memory="8MiB")
    assert out.columns == ["n", "name", "id", "duplicate"]
    wanted = []
    for left in stream.to_pylist():
        near = [r["id"] for r in rows.to_pylist() if holds(condition, left, r)]
        wanted += [(*left.values(), i, True) for i in near] or [(*left.values(), None, False)]
    got = counted(out.toArrow())
    assert got == Counter(wanted) and {row[-1] for row in got} == {True, False}


def test_columns_that_are_not_the_key(spark, tmp_path):
    rel = hr.Relation.create(tmp_path / "r", pa.table({"id": [1, 2, 3], "name": ["a", None, "a"]}), key="id")
    df = spark.createDataFrame(pa.table({"name": ["a", "b", None]}))
    out = hr.find_duplicates(df, rel, on="NAME", columns=["id"])
    assert counted(out.toArrow()) == Counter([("a", 1, True), ("a", 3, True), ("b", None, False), (None, None, False)])


def test_the_key_alone_can_be_left_out_of_the_result(spark, tmp_path):
    rel = hr.Relation.create(tmp_path / "r", pa.table({"id": [1, 2], "x": [0.0, 5.0], "name": ["a", None]}), key="id")
    df = spark.createDataFrame(pa.table({"id": [7, 8], "x": [5.1, 9.0]}))
    out = hr.find_duplicates(df, rel, condition=hr.band("x", below=1, above=1), columns=["name"])
    assert out.columns == ["id", "x", "name", "duplicate"]
    assert counted(out.toArrow()) == Counter([(7, 5.1, None, True), (8, 9.0, None, False)])
    both = hr.find_duplicates(df, rel, condition=hr.band("x", below=1, above=1), columns=["id"], flag="seen")
    assert both.columns == ["id", "x", "id_right", "seen"]
    other = hr.find_duplicates(df, rel, condition=hr.band("X", below=1, above=1), columns=["ID"])
    assert other.columns == ["id", "x", "id_right", "duplicate"]


def test_refusals(spark, tmp_path):
    rel = hr.Relation.create(tmp_path / "r", pa.table({"id": [1], "duplicate": [1]}), key="id")
    df = spark.createDataFrame(pa.table({"id": [1]}))
    with pytest.raises(BadInput, match="say which rows are the same"):
        hr.find_duplicates(df, rel)
    with pytest.raises(BadInput, match="'duplicate' is in the relation already"):
        hr.find_duplicates(df, rel, on="id")
    with pytest.raises(BadInput, match="'id' is in the DataFrame already"):
        hr.find_duplicates(df, rel, on="id", flag="id")
    with pytest.raises(BadInput, match="not a relation"):
        hr.find_duplicates(df, "r", on="id")
    assert hr.find_duplicates(df, rel, on="id", columns=[]).toArrow().to_pylist() == [{"id": 1, "duplicate": True}]
