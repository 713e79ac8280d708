"""`enrich` on Spark, streaming and batch: against DuckDB and against Spark's own join."""

import os
import shutil
import threading
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import BadInput, MemoryRefused, UnsupportedType
from headrace.spark.plan import Plan
from tests.support.join_oracle import table
from tests.support.spark_streams import counted, duck, files, finished, naive, relation, source, streamed

pytestmark = pytest.mark.spark

HOWS = ["inner", "left", "semi", "anti"]
KINDS = ["int32", "string", "date", "timestamp_tz", "decimal", "composite"]
# -- against DuckDB ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_oracle_batch_every_key_type_and_how(spark, tmp_path, kind):
    random = Random(kind)
    rows = table(kind, [random.randrange(150) for _ in range(400)], random, tag="r")
    stream = table(kind, [random.randrange(200) for _ in range(500)], random, nulls=0.1, tag="s")
    key = [name for name in rows.schema.names if name.startswith("k")]
    rel = relation(tmp_path / "r", rows, key)
    df = spark.createDataFrame(stream)
    for how in HOWS:
        out = hr.enrich(df, rel, on=key, how=how).toArrow()
        assert counted(naive(out)) == duck(stream, rows, key, how), how


@pytest.mark.parametrize("how", HOWS)
def test_oracle_streaming_every_how(spark, tmp_path, how):
    random = Random(how)
    rows = table("composite", [random.randrange(300) for _ in range(2000)], random, tag="r")
    parts = [
        table("composite", [random.randrange(400) for _ in range(n)], random, nulls=0.1, tag="s")
        for n in (700, 0, 1, 300)
    ]
    rel = relation(tmp_path / "r", rows, ["k0", "k1"])
    df = source(spark, files(tmp_path / "in", *parts))
    out = streamed(hr.enrich(df, rel, on={"k1": "k1", "k0": "k0"}, how=how, memory="4MiB"))
    assert counted(out) == duck(pa.concat_tables(parts), rows, ["k0", "k1"], how)


def test_oracle_a_giant_key_and_an_empty_relation(spark, tmp_path):
    rows = pa.table({"k": np.zeros(30_000, np.int64), "v": np.arange(30_000)})
    stream = pa.table({"k": pa.array([0, 1, None, 0], pa.int64()), "seq": [0, 1, 2, 3]})
    df = spark.createDataFrame(stream)
    rel = relation(tmp_path / "r", rows, "k")
    out = hr.enrich(df, rel, on="k", how="left", memory="2MiB").toArrow()
    assert counted(out) == duck(stream, rows, ["k"], "left")
    assert out.num_rows == 60_002
    empty = relation(tmp_path / "e", rows.slice(0, 0), "k")
    for how, expected in (("inner", 0), ("left", 4), ("semi", 0), ("anti", 4)):
        assert hr.enrich(df, empty, on="k", how=how).count() == expected


def test_an_empty_stream_gives_nothing_of_the_right_schema(spark, tmp_path):
    rel = relation(tmp_path / "r", pa.table({"k": [1, 2], "name": ["a", "b"]}), "k")
    nothing = spark.createDataFrame(pa.table({"k": pa.array([], pa.int64()), "x": pa.array([], pa.string())}))
    for how in HOWS:
        out = hr.enrich(nothing, rel, on="k", how=how)
        assert out.toArrow().num_rows == 0
        assert out.columns == ["k", "x", "name"][: 3 if how in ("inner", "left") else 2]
    directory = files(tmp_path / "in", pa.table({"k": pa.array([], pa.int64())}))
    assert streamed(hr.enrich(source(spark, directory), rel, on="k")).num_rows == 0


# -- against Spark's own join ------------------------------------------------------------------------------------------

EVERY_TYPE = """
    select id % 40 k, cast(id % 100 as tinyint) t, cast(id as smallint) sm, cast(id as int) i, cast(id as float) f,
           if(id % 7 = 0, null, cast(id as double)) d, cast(id as decimal(10, 2)) dec, cast(id as decimal(38, 10)) wide,
           if(id % 5 = 0, null, concat('name ', id)) s, cast(concat('b', id) as binary) bin, id % 3 = 0 b,
           date_add(date'1960-01-01', cast(id as int)) dt, timestamp_seconds(id * 1000003) ts,
           cast(timestamp_seconds(id * 77) as timestamp_ntz) ntz, make_dt_interval(0, 0, 0, id) iv
    from range({rows})
"""
NESTED = """
    select id % 50 k, array(id, null, id + 1) a, named_struct('x', id, 'y', array(named_struct('z', cast(id as string)))) st,
           map(concat('a', id), id, 'b', null) m, if(id % 3 = 0, null, array(array(timestamp_seconds(id)))) deep,
           named_struct('when', timestamp_seconds(id), 'day', date'2024-02-29', 'cost', cast(id as decimal(20, 3))) facts
    from range(300)
"""


@contextmanager
def time_zone(spark, name):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", name)
    try:
        yield
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_differential_every_payload_and_stream_type_under_any_time_zone(spark, tmp_path, zone):
    with time_zone(spark, zone):
        right = spark.sql(EVERY_TYPE.format(rows=100))
        rel = hr.Relation.create(tmp_path / "r", right, key="k")
        left = spark.sql(NESTED)
        out = hr.enrich(left, rel, on="k", how="left")
        expected = left.join(right, "k", "left")
        assert [(f.name, f.dataType) for f in out.schema] == [(f.name, f.dataType) for f in expected.schema]
        assert counted(out.toArrow()) == counted(expected.toArrow())
        # What arrives in the JVM, and not only in Arrow, is the same instant.
        seen = "sum(hash(k, a, st, deep, facts, d, wide, bin, dt, ts, ntz, iv, map_entries(m)))"
        assert out.selectExpr(seen).first() == expected.selectExpr(seen).first()


def test_differential_keys_that_are_instants_and_dates_far_from_greenwich(spark, tmp_path):
    with time_zone(spark, "Pacific/Auckland"):
        columns = "timestamp_seconds(1711800000 + id * {0}) ts, timestamp_ntz'2024-04-06 00:00:00' + make_dt_interval(0, id) ntz"
        columns += ", date_add(date'2024-03-30', cast(id as int)) d"
        right = spark.sql(f"select {columns.format(1800)}, id v from range(60)")
        left = spark.sql(f"select {columns.format(900)}, id n from range(20, 90)")
        for key in ("ts", "ntz", "d"):
            rel = hr.Relation.create(tmp_path / key, right.select(key, "v"), key=key)
            out = hr.enrich(left, rel, on=key).toArrow()
            expected = left.join(right.select(key, "v"), key).select(*left.columns, "v").toArrow()
            assert counted(out) == counted(expected)
            assert out.num_rows > 20


def test_differential_large_arrow_types(spark, tmp_path):
    rel = relation(tmp_path / "r", pa.table({"k": ["a", "b"], "name": ["x", "y"]}), "k")
    df = spark.createDataFrame(pa.table({"k": ["b", "c", "a"], "text": ["1", "2", "3"]}))
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    try:
        out = hr.enrich(df, rel, on="k", how="left").collect()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")
    assert sorted(map(tuple, out)) == [("a", "3", "x"), ("b", "1", "y"), ("c", "2", None)]


# -- names and schemas -------------------------------------------------------------------------------------------------


def test_names_that_spark_finds_hard(spark, tmp_path):
    rows = pa.table({"the.key": [1, 2], "a b": [10, 20], "back`tick": ["x", "y"], "é": [True, False], "": [5, 6]})
    rel = relation(tmp_path / "r", rows, "the.key")
    df = spark.range(4).selectExpr("id as `my.key`", "id * 2 as `a b`", "id as `c.d.e`", "'q' as `back``tick`")
    out = hr.enrich(df, rel, on={"my.key": "the.key"})
    assert out.columns == ["my.key", "a b", "c.d.e", "back`tick", "a b_right", "back`tick_right", "é", ""]
    assert sorted(map(tuple, out.collect())) == [(1, 2, 1, "q", 10, "x", True, 5), (2, 4, 2, "q", 20, "y", False, 6)]
    again = out.transform(hr.enrich, rel, on={"c.d.e": "the.key"}, columns=["a b"], suffix=" (2)")
    assert again.columns[-1] == "a b (2)"
    assert sorted(row[-1] for row in again.collect()) == [10, 20]


def test_the_stream_may_have_a_name_twice_but_not_its_key(spark, tmp_path):
    rel = relation(tmp_path / "r", pa.table({"k": [1, 2], "x": [10, 20]}), "k")
    df = spark.range(3).selectExpr("id as k", "id + 5 as x", "id + 6 as x")
    out = hr.enrich(df, rel, on="k")
    assert out.columns == ["k", "x", "x", "x_right"]
    assert sorted(map(tuple, out.collect())) == [(1, 6, 7, 10), (2, 7, 8, 20)]
    with pytest.raises(BadInput, match="more than one column 'x'"):
        hr.enrich(df, rel, on={"x": "k"})


def test_suffixes(spark, tmp_path):
    rel = relation(tmp_path / "r", pa.table({"k": [1], "x": [10], "y": [11]}), "k")
    df = spark.range(3).selectExpr("id as k", "id as x", "id as z")
    assert hr.enrich(df, rel, on="k").columns == ["k", "x", "z", "x_right", "y"]
    assert hr.enrich(df, rel, on="k", suffix="_r").columns == ["k", "x", "z", "x_r", "y"]
    with pytest.raises(BadInput, match="'x' is in the stream and in the relation"):
        hr.enrich(df, rel, on="k", suffix=None)
    assert hr.enrich(df, rel, on="k", suffix=None, columns=["y"]).columns == ["k", "x", "z", "y"]
    assert hr.enrich(df, rel, on="k", how="semi", suffix=None).columns == ["k", "x", "z"]
    with pytest.raises(BadInput, match="and so is 'x_right'; use another suffix"):
        hr.enrich(df.withColumnRenamed("z", "x_right"), rel, on="k")


def test_contract_the_schema_is_that_of_what_arrives(spark, tmp_path):
    from pyspark.sql.pandas.types import from_arrow_schema

    rel = hr.Relation.create(tmp_path / "r", spark.sql(EVERY_TYPE.format(rows=50)), key="k")
    df = spark.range(60).selectExpr(
        "id as k", "cast(id as decimal(5, 1)) as c", "array(id) as list", "current_timestamp() as t"
    )
    for how in HOWS:
        out = hr.enrich(df, rel, on="k", how=how)
        arrived = from_arrow_schema(out.toArrow().schema)
        assert [(f.name, f.dataType.simpleString()) for f in out.schema] == [
            (f.name, f.dataType.simpleString()) for f in arrived
        ]
        assert out.selectExpr("count(*)", "count(k)").first()[0] > 0


# -- how it is used ----------------------------------------------------------------------------------------------------


def passes(df) -> int:
    """Passes through Python in a plan."""
    return df._jdf.queryExecution().executedPlan().toString().count("MapInArrow")


def test_oracle_two_in_a_row_are_one_pass(spark, tmp_path):
    colours = relation(tmp_path / "c", pa.table({"c": [1, 2], "colour": ["red", "blue"]}), "c")
    sizes = relation(tmp_path / "s", pa.table({"s": ["x", "y"], "size": [7, 8]}), "s")
    df = spark.createDataFrame(pa.table({"c": [1, 2, 3, 1], "s": ["y", "x", "x", "z"], "n": [0, 1, 2, 3]}))
    out = df.transform(hr.enrich, colours, on="c", how="left").transform(hr.enrich, sizes, on="s")
    assert passes(out) == 1
    assert out.columns == ["c", "s", "n", "colour", "size"]
    assert sorted(map(tuple, out.collect())) == [(1, "y", 0, "red", 8), (2, "x", 1, "blue", 7), (3, "x", 2, None, 7)]


@pytest.mark.parametrize("columns", [None, ["v"]])
def test_oracle_the_same_relation_twice(spark, tmp_path, columns):
    """A parent's and a grandparent's row: both steps find the same hot set, or not, and neither disturbs the other."""
    keys = np.arange(2000)
    rel = relation(tmp_path / "r", pa.table({"k": keys, "parent": keys // 2, "v": keys * 3}), "k")
    df = spark.range(0, 6000, 1, 4).selectExpr("id as n", "id % 2500 as k")
    out = hr.enrich(df, rel, on="k", columns=["parent", "v"], memory="4MiB")
    out = hr.enrich(out, rel, on={"parent": "k"}, columns=columns or ["parent", "v"], memory="4MiB")
    got = out.toArrow()
    k = np.arange(6000) % 2500
    k = np.sort(k[k < 2000])
    assert np.array_equal(np.sort(got["k"].to_numpy()), k)
    assert np.array_equal(got["v"].to_numpy(), got["k"].to_numpy() * 3)
    assert np.array_equal(got["v_right"].to_numpy(), got["k"].to_numpy() // 2 * 3)


def test_oracle_a_relation_made_anew_is_not_taken_for_the_one_before(spark, tmp_path):
    """Same path, same version, same sizes, within a second: workers that live on must see the new rows."""
    df = spark.range(100).selectExpr("id as k").repartition(2)
    for add in range(4):
        rows = pa.table({"k": np.arange(100), "v": np.arange(100) + add})
        with hr.Relation.create(tmp_path / "r", rows, key="k", overwrite=add > 0) as rel:
            got = hr.enrich(df, rel, on="k").toArrow()
            assert set(np.unique(got["v"].to_numpy() - got["k"].to_numpy())) == {add}


def test_oracle_a_batch_sees_the_version_that_was_opened(spark, tmp_path):
    rows = pa.table({"k": np.arange(500), "v": np.zeros(500, np.int64)})
    old = relation(tmp_path / "r", rows, "k")
    df = spark.range(500).selectExpr("id as k").repartition(3)
    before = hr.enrich(df, old, on="k")
    old.apply(upserts=rows.set_column(1, "v", pa.array(np.ones(500, np.int64))))
    after = hr.enrich(df, old.refresh(), on="k")
    for _ in range(2):  # by turns, in the same Python workers
        assert before.selectExpr("min(v)", "max(v)", "count(*)").first() == (0, 0, 500)
        assert after.selectExpr("min(v)", "max(v)", "count(*)").first() == (1, 1, 500)
    both = hr.enrich(before, old.refresh(), on="k")
    assert both.selectExpr("max(v)", "min(v_right)", "count(*)").first() == (0, 1, 500)


def test_nothing_runs_until_an_action(spark, tmp_path):
    rel = relation(tmp_path / "r", pa.table({"k": [1], "v": [2]}), "k")
    tracker = spark.sparkContext.statusTracker()

    def boom(batches):
        raise RuntimeError("somebody looked at the rows")
        yield from batches

    df = spark.range(10).selectExpr("id as k").mapInArrow(boom, "k long")
    before = tracker.getJobIdsForGroup(None)
    out = df.transform(hr.enrich, rel, on="k").transform(hr.enrich, rel, on="k", suffix="2")
    assert out.columns == ["k", "v", "v2"]
    assert tracker.getJobIdsForGroup(None) == before
    with pytest.raises(Exception, match="somebody looked at the rows"):
        out.collect()


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_what_cannot_be_done_is_refused_at_once_by_name(spark, tmp_path):
    rel = relation(tmp_path / "r", pa.table({"k": [1], "j": ["a"], "v": [2]}), ["k", "j"])
    df = spark.createDataFrame(pa.table({"k": [1], "j": ["a"], "s": ["x"]}))

    def refused(error, match, df=df, rel=rel, on=("k", "j"), **options):
        with pytest.raises(error, match=match):
            hr.enrich(df, rel, on=on, **options)

    refused(BadInput, r"how='outer' is not supported; choose one of inner, left, semi, anti", how="outer")
    refused(BadInput, r"how='lef' is not supported.*did you mean 'left'", how="lef")
    refused(BadInput, r"algorithm='mesh' is not supported; choose one of auto", algorithm="mesh")
    refused(
        BadInput, r"on='k' names k of the relation, whose key is k, j; A.* looks keys up", on="k", algorithm="adaptive"
    )
    refused(BadInput, r"names v of the relation, whose key is k, j", on={"k": "v"}, algorithm="hybridjoin")
    refused(BadInput, r"no column 'nope'; its columns are k, j, s", on={"nope": "k", "j": "j"})
    refused(BadInput, r"'s' has type string.*int64", on={"s": "k", "j": "j"})
    refused(BadInput, r"columns names 'w', which the relation does not have; choose from v", columns=["w"])
    refused(MemoryRefused, r"memory=10KiB is too small .* give [\d.]+KiB or more", memory="10KiB")
    refused(BadInput, r"memory='much'", memory="much")
    refused(BadInput, r"workers=0 is not a number of tasks; give 1 or more", workers=0)
    refused(BadInput, r"workers=-2 is not", workers=-2)
    refused(
        BadInput, rf"rel='{tmp_path}/r' is a path, not a relation; open it with hr.Relation.open", rel=f"{tmp_path}/r"
    )
    variant = spark.sql("select 1L k, 'a' j, interval 1 month m, parse_json('{}') v")
    refused(
        UnsupportedType, r"'m' has type interval month, which cannot go through Arrow; drop it", df=variant.drop("v")
    )


def test_the_workers_are_those_that_run_and_not_the_parallelism_that_was_asked_for(spark, tmp_path, monkeypatch):
    rel = relation(tmp_path / "r", pa.table({"k": [1], "v": [2]}), "k")
    df = spark.range(3).selectExpr("id as k")
    monkeypatch.setattr(type(spark.sparkContext), "defaultParallelism", 64)  # spark.default.parallelism
    assert Plan.of(hr.enrich(df, rel, on="k")).steps[0].join.workers == 2
    assert Plan.of(hr.enrich(df, rel, on="k", workers=5)).steps[0].join.workers == 5


def test_the_least_memory_that_is_named_does(spark, tmp_path):
    rel = relation(tmp_path / "r", pa.table({"k": np.arange(5000), "v": np.arange(5000)}), "k")
    df = spark.range(6000).selectExpr("id as k")
    with pytest.raises(MemoryRefused) as refused:
        hr.enrich(df, rel, on="k", memory=1000)
    least = hr.units.parse_size(str(refused.value).rsplit("give ", 1)[1].split(" ")[0])
    assert hr.enrich(df, rel, on="k", memory=round(1.01 * least)).count() == 5000


# -- streaming ---------------------------------------------------------------------------------------------------------


def numbers(first: int, rows: int, keys: int) -> pa.Table:
    n = np.arange(first, first + rows)
    return pa.table({"n": n, "k": n * 7919 % keys})


def test_contract_a_restart_gives_each_row_once(spark, tmp_path):
    rel = relation(tmp_path / "r", pa.table({"k": np.arange(900), "v": np.arange(900) * 2}), "k")
    directory = files(tmp_path / "in", *(numbers(i * 500, 500, 1000) for i in range(3)))
    for turn in range(3):
        df = hr.enrich(source(spark, directory), rel, on="k", memory="4MiB")
        query = (
            df.writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
        )
        if turn == 0:  # stopped wherever it is
            query = query.trigger(processingTime="0 seconds").start()
            while not query.recentProgress:
                assert query.exception() is None
                query.awaitTermination(0.05)
            query.stop()
        else:
            finished(query.trigger(availableNow=True).start())
        files(directory, *(numbers((3 + 2 * turn + i) * 500, 500, 1000) for i in range(2)))
    got = spark.read.parquet(str(tmp_path / "out")).toArrow()
    n = np.arange(7 * 500)
    n = n[n * 7919 % 1000 < 900]
    assert np.array_equal(np.sort(got["n"].to_numpy()), n)
    assert np.array_equal(got["v"].to_numpy(), got["n"].to_numpy() * 7919 % 1000 * 2)


def test_contract_a_micro_batch_sees_one_version_while_the_relation_changes(spark, tmp_path):
    """Every task goes on only when an update was committed since it began: there are some within each micro-batch."""
    keys, where = 300, str(tmp_path / "r")

    def marked(version: int) -> pa.Table:
        return pa.table({"k": np.arange(keys), "v": np.full(keys, version)})

    rel = relation(tmp_path / "r", marked(1), "k")
    directory = files(tmp_path / "in", *(numbers(i * 600, 600, keys) for i in range(5)))

    def slow(batches):
        import time
        from pathlib import Path

        from headrace.relation.manifest import versions

        begun = versions(Path(where))[-1]
        while versions(Path(where))[-1] == begun:
            time.sleep(0.01)
        yield from batches

    df = source(spark, directory).repartition(4).mapInArrow(slow, "n long, k long")
    seen: dict[int, Counter] = {}

    def keep(frame, batch):
        seen[batch] = Counter(row.v for row in frame.collect())

    stop = threading.Event()
    committed = []

    def update():
        while not stop.is_set():
            committed.append(rel.apply(upserts=marked(len(committed) + 2)))
            stop.wait(0.01)

    out = hr.enrich(df, rel, on="k", memory="4MiB")
    query = (
        out.writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    thread = threading.Thread(target=update)
    thread.start()
    try:
        finished(query)
    finally:
        stop.set()
        thread.join()
    assert [sum(rows.values()) for rows in seen.values()] == [600] * 5
    assert [len(rows) for rows in seen.values()] == [1] * 5, seen
    versions = [next(iter(rows)) for rows in seen.values()]
    assert versions == sorted(set(versions)), "a micro-batch sees what was committed in the one before it"
    assert len(committed) >= 2 * 5, "two tasks run at a time, of four"
    assert {(p.batch, p.version) for p in hr.progress(query)} == set(enumerate(versions))


def executor_directory(spark) -> Path:
    """Where the Python workers of this session find each other."""

    def where(batches):
        from headrace.spark.executors import executor_directory

        for _ in batches:
            yield pa.record_batch({"where": [str(executor_directory())]})

    return Path(spark.range(1).mapInArrow(where, "where string").first()[0])


def test_contract_cards_deleted_and_damaged_while_a_query_runs(spark, tmp_path):
    keys = 5000
    rel = relation(tmp_path / "r", pa.table({"k": np.arange(keys), "v": np.arange(keys) * 5}), "k")
    directory = files(tmp_path / "in", *(numbers(i * 3000, 3000, keys + 500) for i in range(6)))
    group = executor_directory(spark)
    query = (
        hr.enrich(source(spark, directory).repartition(4), rel, on="k", memory="4MiB")
        .writeStream.format("memory")
        .queryName("damaged")
        .trigger(processingTime="0 seconds")
        .start()
    )
    turns, sent = Counter(), 6
    rng = np.random.default_rng(8)

    def all_read() -> bool:
        return sum(p["numInputRows"] for p in query.recentProgress) == 3000 * sent

    try:
        # Until each has happened while rows came: this process may be stopped while the query runs, or the other way round.
        while len(turns) < 4 or not all_read():
            assert query.exception() is None
            if all_read():
                files(directory, numbers(sent * 3000, 3000, keys + 500))
                sent += 1
            what = ["garbage", "torn", "delete", "all"][int(rng.integers(4))]
            for card in group.glob("*") if what != "all" else []:
                text = {"garbage": rng.bytes(100), "torn": b'{"name": 12345, "holders": [[', "delete": None}[what]
                if text is None:
                    card.unlink(missing_ok=True)
                else:
                    card.write_bytes(text)
                turns[what] += 1
            if what == "all" and group.exists():
                shutil.rmtree(group, ignore_errors=True)
                turns[what] += 1
            query.awaitTermination(0.02)
    finally:
        query.stop()
    got = spark.table("damaged").toArrow()
    n = np.arange(3000 * sent)
    n = n[n * 7919 % (keys + 500) < keys]
    assert np.array_equal(np.sort(got["n"].to_numpy()), n)
    assert np.array_equal(got["v"].to_numpy(), got["k"].to_numpy() * 5)


# -- progress ----------------------------------------------------------------------------------------------------------


def test_contract_progress_adds_up_while_the_query_runs_and_after(spark, tmp_path):
    keys = 4000
    rel = relation(tmp_path / "r", pa.table({"k": np.arange(keys), "v": np.arange(keys)}), "k")
    parts = [numbers(i * 3000, 3000, keys + 1000) for i in range(4)]
    nulls = pa.table({"n": np.arange(50), "k": pa.array([None] * 50, pa.int64())})
    directory = files(tmp_path / "in", *parts[:3])
    out = hr.enrich(source(spark, directory).repartition(4), rel, on="k", memory="8MiB")
    query = out.writeStream.format("memory").queryName("watched").trigger(processingTime="0 seconds").start()
    try:
        query.processAllAvailable()
        assert query.isActive
        assert [(p.batch, p.rows) for p in hr.progress(query)] == [(0, 3000), (1, 3000), (2, 3000)]
        files(directory, pa.concat_tables([parts[3], nulls]))
        query.processAllAvailable()
    finally:
        query.stop()
    seen = hr.progress(query)
    assert [p.rows for p in seen] == [3000, 3000, 3000, 3050]
    assert [p.rows for p in seen] == [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]]
    for p in seen:
        p.stats.check()
        assert p.stats.tuples_in == p.rows == p.stats.hits + p.stats.misses + p.stats.absent + p.stats.nulls
        assert 0 < sum(p.stats.memory.values()) <= p.stats.memory_peak <= p.stats.memory_limit == 8 << 20
        assert (p.relation, p.version) == (str(tmp_path / "r"), 1)
        assert 0 < p.seconds < 60
        assert p.rate == p.rows / p.seconds
    assert [p.stats.nulls for p in seen] == [0, 0, 0, 50]
    assert sum(p.stats.results for p in seen) == spark.table("watched").count()
    assert seen[-1].stats.hits > 1000, "what earlier micro-batches fetched serves this one"
    assert hr.progress(query.id) == seen
    assert hr.progress(str(query.id)) == seen
    check_log(query.id, seen)


def check_log(query: str, seen: list) -> None:
    """The log says the same, to another process too, and whatever a crash left at its end."""
    from headrace.spark.journal import log_directory, read_log

    path = log_directory() / f"{query}.jsonl"
    assert str(path).startswith(os.environ["HEADRACE_STATE"])
    assert list(read_log(path)) == seen
    whole = path.read_bytes()
    for torn in (b'{"step": "abc", "batch": 9', b"\xff\xfe\x00", b"[]", b'{"batch": 7}'):
        path.write_bytes(whole + torn)
        assert list(read_log(path)) == seen, torn
    path.write_bytes(whole)


def test_progress_of_a_batch_dataframe_and_of_nothing(spark, tmp_path):
    rel = relation(tmp_path / "r", pa.table({"k": np.arange(100), "v": np.arange(100)}), "k")
    df = spark.range(500).selectExpr("id % 150 as k").repartition(3)
    out = hr.enrich(hr.enrich(df, rel, on="k"), rel, on="k", how="semi")
    assert hr.progress(out) == []
    rows = out.count()
    joined, kept = hr.progress(out)
    assert (joined.rows, joined.stats.results, kept.rows, kept.stats.results) == (500, rows, rows, rows)
    out.count()
    assert [p.rows for p in hr.progress(out)] == [500, 500, rows, rows]
    assert hr.progress("no such query") == []
    with pytest.raises(BadInput, match=r"neither a streaming query nor a DataFrame that hr\.enrich gave"):
        hr.progress(42)
    with pytest.raises(BadInput, match="neither a streaming query nor"):
        hr.progress(df)
