"""`maintain`: changes applied exactly once, without Spark where that can be, and as a stream."""

import shutil
import signal
from random import Random

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import BadInput
from headrace.etl.apply_changes import DELETES, UPSERTS, ChangeApplier
from tests.support.killable_children import Children
from tests.support.killable_children import table as tagged
from tests.support.spark_streams import files, finished, source


@pytest.fixture(scope="module")
def children():
    some = Children()
    yield some
    some.close()


def content(path) -> dict:
    with hr.Relation.open(path) as rel:
        return {r["k"]: r["v"] for r in pa.Table.from_batches(rel.scan(), rel.schema).to_pylist()}


def keeper(rel, sequence="seq", null_keys="refuse") -> ChangeApplier:
    return ChangeApplier(rel, "op", sequence, UPSERTS, DELETES, null_keys)


def changes(*rows) -> pa.Table:
    ops, keys, values, seqs = zip(*rows, strict=True) if rows else ((), (), (), ())
    return pa.table(
        {
            "op": pa.array(ops, pa.string()),
            "k": pa.array(keys, pa.int64()),
            "v": pa.array(values, pa.string()),
            "seq": pa.array(seqs, pa.int64()),
        }
    )


@pytest.fixture
def rel(tmp_path):
    with hr.Relation.create(tmp_path / "r", pa.table({"k": [1, 2, 3], "v": ["a", "b", None]}), key="k") as rel:
        yield rel


def test_the_last_change_of_a_key_wins(rel):
    done = keeper(rel).apply(
        changes(("u", 1, "late", 9), ("D", 1, None, 5), ("insert", 7, "x", 2), ("d", 7, None, 3), ("d", 2, None, 1)),
        "q",
        0,
    )
    assert (done.version, done.upserts, done.deletes, done.repeated) == (2, 1, 2, False)
    assert content(rel.path) == {1: "late", 3: None}


def test_a_number_is_applied_once(rel):
    one = keeper(rel)
    one.apply(changes(("u", 1, "x", 1)), "q", 4)
    again = one.apply(changes(("u", 1, "y", 1)), "q", 4)
    assert again.repeated
    assert one.done("q", 3)
    assert not one.done("q", 5)
    assert not one.done("other", 0)
    assert content(rel.path)[1] == "x"
    rel.compact()
    rel.apply(pa.table({"k": [9], "v": ["nine"]}))
    assert one.apply(changes(("u", 1, "z", 1)), "q", 4).repeated  # what other writers do does not make it forget
    assert not one.apply(changes(("u", 1, "z", 1)), "other", 0).repeated
    assert rel.refresh().notes == {"applied": {"q": 4, "other": 0}}


def test_no_changes_make_no_version(rel):
    assert keeper(rel).apply(changes(), "q", 0).version == 1
    assert keeper(rel, null_keys="drop").apply(changes(("u", None, "x", 1)), "q", 1).version == 1


def test_few_applications_are_remembered(rel, monkeypatch):
    monkeypatch.setattr("headrace.etl.apply_changes._APPLICATIONS", 3)
    for i in range(5):
        keeper(rel).apply(changes(("u", 1, str(i), 1)), f"q{i}", 0)
    assert rel.refresh().notes == {"applied": {"q2": 0, "q3": 0, "q4": 0}}


def test_what_cannot_be_applied_is_refused_by_name(rel):
    def refused(match, *rows, **options):
        with pytest.raises(BadInput, match=match):
            keeper(rel, **options).apply(changes(*rows), "q", 0)

    refused("column 'op' says 'truncate'; expected one of u, upsert", ("truncate", 1, "x", 1))
    refused("column 'op' says None", (None, 1, "x", 1))
    refused(r"1 change\(s\) have a null in key column\(s\) k", ("u", None, "x", 1))
    refused("'seq' is null in some changes", ("u", 1, "x", None))
    refused("key 1 has two different changes with seq=4", ("u", 1, "x", 4), ("d", 1, "x", 4))
    refused("key 1 has two different changes in one batch", ("u", 1, "x", 4), ("u", 1, "x", 5), sequence=None)
    with pytest.raises(BadInput, match="'d' is among upserts and among deletes"):
        ChangeApplier(rel, "op", None, ("d",), ("D",), "refuse")
    with pytest.raises(BadInput, match="no column 'v'"):
        keeper(rel).check(["k", "op", "seq"])
    assert keeper(rel).apply(changes(("u", 1, "x", 4), ("u", 1, "x", 4)), "q", 0).upserts == 1  # the same, sent twice
    assert rel.refresh().version == 2


@pytest.mark.parametrize("seed", range(15))
def test_oracle_any_sequence_of_batches(tmp_path, seed):
    """Against a dictionary, with batches that come again."""
    random = Random(seed)
    state = dict.fromkeys(range(random.randrange(30)), "old")
    table = pa.table({"k": pa.array(list(state), pa.int64()), "v": pa.array(list(state.values()), pa.string())})
    with hr.Relation.create(tmp_path / "r", table, key="k", page_size="4KiB") as rel:
        seq = 0
        for batch in range(6):
            rows = []
            for _ in range(random.choice([0, 1, 30])):
                seq += 1
                key, op = random.randrange(40), random.choice(["u", "d", "U"])
                rows.append((op, key, f"{seq}", seq))
                if op == "d":
                    state.pop(key, None)
                else:
                    state[key] = f"{seq}"
            random.shuffle(rows)
            for _ in range(random.choice([1, 2])):
                keeper(rel).apply(changes(*rows), "q", batch)
            assert content(rel.path) == state, seed


def test_killed_at_every_step_applies_nothing_or_everything(children, ram_path):
    hr.Relation.create(ram_path / "old", tagged(40, 1), key="k").close()
    shutil.copytree(ram_path / "old", ram_path / "whole")
    rows = [["u", 3, 9], ["d", 4, 9], ["u", 77, 9]]
    calls = children.run("keep", ram_path / "whole", 0, rows)
    assert (calls["error"], calls["result"]) == (None, False)
    after = [children.run("keep", ram_path / "whole", 0, rows)["result"]]
    assert after == [True]
    for at in range(0, len(calls["calls"]), 2):
        root = ram_path / str(at)
        shutil.copytree(ram_path / "old", root)
        assert children.run("keep", root, 0, rows, at=at)["signal"] == signal.SIGKILL
        with hr.Relation.open(root) as rel:
            there = {r["k"]: r["tag"] for r in pa.Table.from_batches(rel.scan()).to_pylist()}
        old, new = dict.fromkeys(range(40), 1), dict.fromkeys(range(40), 1) | {3: 9, 77: 9}
        del new[4]
        assert there in (old, new), calls["calls"][at]
        assert children.run("keep", root, 0, rows)["result"] == (there == new), calls["calls"][at]


@pytest.mark.spark
def test_a_stream_of_changes_maintains_a_relation(spark, tmp_path, rel):
    """Two micro-batches; then Spark forgets that the second is done, and a writer has changed its rows meanwhile."""
    parts = [changes(("u", 1, "one", 1), ("u", 10, "ten", 2)), changes(("d", 1, None, 3), ("u", 11, "eleven", 4))]
    directory = files(tmp_path / "in", *parts)
    options = {"sequence": "seq", "checkpoint": tmp_path / "checkpoint", "trigger": {"availableNow": True}}
    finished(hr.maintain(source(spark, directory), rel, **options))
    assert content(rel.path) == {2: "b", 3: None, 10: "ten", 11: "eleven"}
    assert rel.refresh().version == 3
    rel.apply(pa.table({"k": [11], "v": ["later"]}))
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    files(directory, changes(("u", 12, "twelve", 5)))
    finished(hr.maintain(source(spark, directory), rel, **options))
    assert content(rel.path) == {2: "b", 3: None, 10: "ten", 11: "later", 12: "twelve"}
    assert rel.refresh().version == 5


@pytest.mark.spark
def test_a_batch_of_changes(spark, tmp_path, rel):
    df = spark.createDataFrame(pa.table({"v": ["x", "y"], "k": [1, 8], "more": [1, 2]}))
    done = hr.maintain(df, rel, op=None, transaction=("nightly", 3))
    assert (done.version, done.upserts, done.deletes, done.repeated) == (2, 2, 0, False)
    assert hr.maintain(df, rel, op=None, transaction=("nightly", 3)).repeated
    assert content(rel.path) == {1: "x", 2: "b", 3: None, 8: "y"}
    with pytest.raises(BadInput, match="no column 'op'"):
        hr.maintain(df, rel)
    with pytest.raises(BadInput, match="checkpoint='c' is for a streaming DataFrame"):
        hr.maintain(df, rel, op=None, checkpoint="c")
    with pytest.raises(BadInput, match=r"needs checkpoint=\.\.\."):
        hr.maintain(spark.readStream.format("rate").load().selectExpr("value AS k", "'x' AS v"), rel, op=None)
    assert np.all(rel.refresh().version == 2)
