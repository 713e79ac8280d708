"""`enrich` with a deadline and rows without a match on Spark: rows that wait leave once, also after restarts and replays."""

import json
import time
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.errors import BadInput
from headrace.runlog import RunLog
from headrace.spark.plan import Plan
from headrace.spark.sinks import sink_of
from tests.support.batch_sink import Sink, collected
from tests.support.delta_tables import by_deltalake, rows
from tests.support.spark_streams import counted, files, finished, source

pytestmark = pytest.mark.spark

KEYS = 5000


@pytest.fixture
def rel(tmp_path):
    table = pa.table({"k": np.arange(KEYS), "name": [f"name {k}" for k in range(KEYS)]})
    return hr.Relation.create(tmp_path / "r", table, key="k", page_size="4KiB")


def sales(seed, n, keys=KEYS + 500):
    rng = np.random.default_rng(seed)
    k = rng.integers(0, keys, n)
    return pa.table({"k": pa.array(k, mask=rng.random(n) < 0.05), "n": np.arange(n) + 1000 * seed})


def joined(*tables):
    return Counter(
        (k, n, f"name {k}")
        for t in tables
        for k, n in zip(*t.to_pydict().values(), strict=True)
        if k is not None and k < KEYS
    )


def test_oracle_rows_wait_and_leave_once_over_restarts_and_a_replay(spark, tmp_path, rel):
    parts = [sales(i, 60) for i in range(4)]
    files(tmp_path / "in", *parts[:2])
    out = hr.enrich(
        source(spark, tmp_path / "in"),
        rel,
        on="k",
        memory="2MiB",
        defer=hr.Defer(deadline="1h", state=tmp_path / "state", shards=2),
    )
    sink = Sink()
    query = sink.run(out, tmp_path / "check")
    finished(query)
    done = hr.progress(query)
    assert sum(p.stats.deferred for p in done) == sum(p.stats.misses for p in done) + done[-1].stats.waiting > 0
    assert sink.rows < joined(*parts[:2])
    # the last micro-batch is not known to be done: Spark sends it again
    commits = sorted(int(p.name) for p in (tmp_path / "check" / "commits").iterdir() if p.name.isdigit())
    (tmp_path / "check" / "commits" / str(commits[-1])).unlink()
    (tmp_path / "check" / "commits" / f".{commits[-1]}.crc").unlink(missing_ok=True)
    files(tmp_path / "in", *parts[2:])
    query = sink.run(out, tmp_path / "check")
    finished(query)
    first, again = sink.sent[commits[-1]]
    assert first == again
    (log,) = RunLog.find(tmp_path / "state")
    assert log.query == query.id
    assert log.shards == 2
    assert log.describe()["state"]["decision"]["files"] >= 4
    left = collected(out, query)
    assert left
    assert sink.rows + left == joined(*parts)
    assert collected(out, query) == Counter()
    other = hr.enrich(
        source(spark, tmp_path / "in"), rel, on="k", defer=hr.Defer(deadline="1h", state=tmp_path / "state", shards=3)
    )
    files(tmp_path / "in", parts[0])
    with pytest.raises(Exception, match="has 2 shards, and shards=3 is asked for"):
        finished(sink.run(other, tmp_path / "check"))


def test_rows_leave_by_their_deadline_without_new_data(spark, tmp_path, rel):
    files(tmp_path / "in", part := sales(1, 40))
    out = hr.enrich(
        source(spark, tmp_path / "in"), rel, on="k", defer=hr.Defer(deadline="4s", state=tmp_path / "state", shards=1)
    )
    sink = Sink()
    query = sink.run(out, tmp_path / "check", processingTime="0 seconds")
    try:
        begun = time.monotonic()
        while sink.rows != joined(part):
            assert query.isActive, query.exception()
            assert time.monotonic() - begun < 300, "nothing leaves"
            time.sleep(0.05)
    finally:
        query.stop()
    done = hr.progress(query)
    assert done[0].stats.deferred > 0
    assert sum(p.stats.tuples_in for p in done) == 40
    late = sum(p.stats.late for p in done)
    # On a machine that stood still, and then it says so
    assert late == 0 or max(p.stats.longest_wait for p in done) > 4


def test_load_and_finish_once(spark, tmp_path, rel):
    parts = [sales(i, 50) for i in range(3)]
    table = tmp_path / "table"

    def run():
        out = hr.enrich(
            source(spark, tmp_path / "in", 5),
            rel,
            on="k",
            defer=hr.Defer(deadline="1h", state=tmp_path / "state", shards=2),
            version_column="v",
        )
        query = hr.load(out, table, checkpoint=tmp_path / "check", trigger={"availableNow": True})
        finished(query)
        return query

    def loaded():
        return rows(by_deltalake(table), ["k", "n", "name", "v"])

    def wanted(*tables):
        return Counter({repr([*row, 1]): n for row, n in joined(*tables).items()})

    files(tmp_path / "in", parts[0])
    query = run()
    assert loaded().total() < joined(parts[0]).total()
    first = hr.finish(query)
    assert first.rows > 0
    assert [p.rows for p in hr.progress(query) if p.batch < 0] == [sum(p.stats.deferred for p in hr.progress(query))]
    assert loaded() == wanted(parts[0])
    assert hr.finish(query).rows == 0
    files(tmp_path / "in", parts[1])
    query = run()  # goes on where it was
    # Killed between the commit and the note of it: the table knows.
    sink = sink_of(query)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.spark.state.stateful.Finishing.close", lambda self: None)
        assert hr.finish(query).rows > 0
    files(tmp_path / "in", parts[2])
    query = run()
    assert sink is not sink_of(query)
    # Killed before the commit: the rows wait again.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.spark.delta.load.Sink._commit", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            hr.finish(query)
    query = run()
    hr.finish(query)
    assert loaded() == wanted(*parts)


def test_unmatched_rows_are_dead_letters_or_tried_again(spark, tmp_path, rel):
    files(tmp_path / "in", pa.table({"k": pa.array([1, 6000, 6001, None], pa.int64()), "n": [0, 1, 2, 3]}))
    stream = source(spark, tmp_path / "in")
    dead = hr.enrich(
        stream,
        rel,
        on="k",
        defer=hr.Defer(unmatched="dead_letter", state=tmp_path / "dead", shards=2),
        version_column="v",
    )
    assert dead.columns == ["k", "n", "name", "v"]
    sink = Sink()
    query = sink.run(dead, tmp_path / "check dead")
    finished(query)
    assert sink.rows == Counter({(1, 0, "name 1", 1): 1})
    (log,) = RunLog.find(tmp_path / "dead")
    letters = spark.read.parquet(str(log.path / "dead_letter")).toArrow().sort_by("n").to_pylist()
    assert [(d["n"], d["_reason"], d["_batch"], d["_relation_version"]) for d in letters] == [
        (1, "no match in the relation", 0, 1),
        (2, "no match in the relation", 0, 1),
        (3, "the key is null", 0, 1),
    ]
    assert sum(p.stats.dead_letters for p in hr.progress(query)) == 3

    again = hr.enrich(
        stream, rel, on="k", defer=hr.Defer(unmatched="retry", retry_for="1h", state=tmp_path / "again", shards=2)
    )
    sink = Sink()
    finished(sink.run(again, tmp_path / "check again"))
    assert sink.rows.total() == 1
    rel.apply(upserts=pa.table({"k": [6000], "name": ["late"]}))
    query = sink.run(again, tmp_path / "check again")  # a heartbeat, and a new version
    finished(query)
    assert sink.rows == Counter({(1, 0, "name 1"): 1, (6000, 1, "late"): 1})
    assert sum(p.stats.late_matches for p in hr.progress(query)) == 1
    assert collected(again, query) == Counter()
    (log,) = RunLog.find(tmp_path / "again")
    assert sorted(pq.read_table(log.path / "dead_letter")["n"].to_pylist()) == [2, 3]


def test_drop_and_null_are_inner_and_left_and_a_version_column(spark, tmp_path, rel):
    df = spark.createDataFrame(sales(3, 50))
    for unmatched, how in (("drop", "inner"), ("null", "left")):
        out = hr.enrich(df, rel, on="k", defer=hr.Defer(unmatched=unmatched), version_column="v")
        plain = hr.enrich(df, rel, on="k", how=how).toArrow()
        assert counted(out.drop("v").toArrow()) == counted(plain)
        assert out.toArrow()["v"].unique().to_pylist() == [1]


def test_steps_after_one_that_remembers_and_types_that_travel(spark, tmp_path, rel):
    second = hr.Relation.create(tmp_path / "r2", pa.table({"name": ["name 7"], "x": [7.5]}), key="name")
    day = spark.range(3).selectExpr(
        "7L as k",
        "timestamp'2026-01-02 03:04:05' as t",
        "named_struct('a', array(id)) as s",
        "cast(id as decimal(9,2)) as d",
    )
    day.write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(day.schema).parquet(str(tmp_path / "in"))
    out = hr.enrich(stream, rel, on="k", defer=hr.Defer(deadline="1h", state=tmp_path / "state", shards=2))
    out = hr.enrich(out, second, on="name")
    sink = Sink()
    query = sink.run(out, tmp_path / "check")
    finished(query)
    got = []
    hr.finish(out, query, write=lambda df, _: got.extend(df.toArrow().to_pylist()))
    assert sink.rows.total() == 0
    assert [json.loads(json.dumps(r["s"])) for r in sorted(got, key=lambda r: r["d"])] == [{"a": [i]} for i in range(3)]
    assert {(r["t"].isoformat(), r["x"]) for r in got} == {("2026-01-02T03:04:05+00:00", 7.5)}


def test_what_cannot_be_is_refused(spark, tmp_path, rel):
    files(tmp_path / "in", sales(1, 5))
    stream, batch = source(spark, tmp_path / "in"), spark.createDataFrame(sales(1, 5))

    def refused(df, message, defer=None, **options):
        with pytest.raises(BadInput, match=message):
            hr.enrich(df, rel, on="k", defer=None if defer is None else hr.Defer(**defer), **options)

    kept = {"deadline": "1s", "state": tmp_path}
    refused(stream, r"give defer=hr\.Defer\(\.\.\., state=DIRECTORY\)", deadline="1s")
    refused(stream, "deadline='soon' is not a duration", deadline="soon")
    refused(stream, "deadline='soon' is not a duration", kept | {"deadline": "soon"})
    refused(stream, "deadline='1s' and defer=.* are both given", kept, deadline="1s")
    refused(batch, "is for a streaming DataFrame", kept)
    refused(stream, "both say what becomes of rows", {"unmatched": "retry", "state": tmp_path}, how="left")
    refused(stream, "choose one of drop, null, dead_letter, retry", {"unmatched": "keep", "state": tmp_path})
    refused(stream, "algorithm='inl' joins the rows", kept, algorithm="inl")
    refused(stream, "order='stream' cannot be kept", kept, order="stream")
    refused(stream, "shards=0 is not", kept | {"shards": 0})
    refused(stream, "state='s3://x' is not a local directory", kept | {"state": "s3://x"})
    refused(stream, "state= and shards= are for", {"state": tmp_path})
    refused(stream, "version_column='n' is the name of another", version_column="n")
    refused(stream.withColumnRenamed("n", "_batch"), "'_batch'", {"unmatched": "retry", "state": tmp_path})
    with pytest.raises(BadInput, match="nothing of this DataFrame waits"):
        hr.finish(hr.enrich(stream, rel, on="k"), "an id", write=print)
    with pytest.raises(BadInput, match=r"hr\.finish needs the query that hr\.load or"):
        hr.finish("an id")
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "checkpoints"))
    try:
        out = hr.enrich(stream, rel, on="k", deadline="1s")
        assert Plan.of(out).steps[0].remembers.directory == str(tmp_path / "checkpoints" / "headrace")
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
