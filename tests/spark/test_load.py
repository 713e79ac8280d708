"""`hr.load`: a DataFrame, streaming or batch, into a Delta table, exactly once."""

import threading
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import headrace as hr
from headrace.errors import BadInput, UnsupportedType
from headrace.spark.delta.load import Sink, _prefix
from headrace.spark.plan import Plan
from tests.support.delta_tables import adds, append, by_deltalake, in_log, on_disk, rows, sink_of, write

pytestmark = pytest.mark.spark

KEYS = 100  # of the relation; the stream has more
AVAILABLE = {"availableNow": True}
LONG = pa.schema({"v": pa.int64()})


@pytest.fixture
def rel(tmp_path):
    with hr.Relation.create(tmp_path / "rel", relation_rows(0, KEYS, "n"), key="k") as relation:
        yield relation


def relation_rows(first: int, end: int, tag: str) -> pa.Table:
    return pa.table({"k": list(range(first, end)), "name": [f"{tag}{k}" for k in range(first, end)]})


class Files:
    """A directory that a stream reads, one file a micro-batch."""

    def __init__(self, spark, root: Path) -> None:
        self.spark, self.root, self.sent = spark, root, []
        root.mkdir()

    def add(self, keys) -> None:
        table = pa.table({"k": pa.array(keys, pa.int64()), "p": [f"p {k % 3}" for k in keys]})
        pq.write_table(table, self.root / f"{len(self.sent):05d}.parquet")
        self.sent.append(list(keys))

    def stream(self):
        reader = self.spark.readStream.schema("k bigint, p string").option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.root))

    def expected(self, tag: str = "n") -> Counter:
        return Counter(joined(k, tag) for keys in self.sent for k in keys if k < KEYS)


@pytest.fixture
def files(spark, tmp_path):
    files = Files(spark, tmp_path / "in")
    for n in range(3):
        files.add(range(n * 40, n * 40 + 50))
    return files


def joined(k: int, tag: str = "n") -> str:
    return repr([k, f"p {k % 3}", f"{tag}{k}"])


def found(path: Path) -> Counter:
    return rows(by_deltalake(path), ["k", "p", "name"])


def run(df, path: Path, checkpoint: Path, **options) -> None:
    query = hr.load(df, path, checkpoint=checkpoint, trigger=AVAILABLE, **options)
    try:
        query.awaitTermination(300)
        assert not query.isActive
    finally:
        query.stop()


def python_nodes(df) -> int:
    return df._jdf.queryExecution().executedPlan().toString().count("MapInArrow")


# -- rows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("partition_by", [(), "p"], ids=["plain", "partitioned"])
def test_oracle_streaming(rel, files, tmp_path, partition_by):
    run(hr.enrich(files.stream(), rel, on="k"), tmp_path / "t", tmp_path / "c", partition_by=partition_by)
    assert found(tmp_path / "t") == files.expected()
    assert DeltaTable(str(tmp_path / "t")).version() == 3  # made, then one commit for each micro-batch with rows
    assert len(set(DeltaTable(str(tmp_path / "t")).metadata().partition_columns)) == len(partition_by)


def test_oracle_batch_is_made_then_appended(spark, rel, tmp_path):
    stream = spark.range(200).selectExpr("id as k", "concat('p ', id % 3) as p")
    done = hr.load(hr.enrich(stream, rel, on="k"), tmp_path / "t")
    assert (done.version, done.rows, done.repeated) == (1, KEYS, False)
    assert done.files == len(on_disk(tmp_path / "t"))
    assert done.bytes == sum(f.stat().st_size for f in (tmp_path / "t").glob("*.parquet"))
    again = hr.load(hr.enrich(stream, rel, on="k"), str(tmp_path / "t"))
    assert (again.version, again.rows) == (2, KEYS)
    once = Counter(joined(k) for k in range(KEYS))
    assert found(tmp_path / "t") == once + once


def test_differential_fused_and_not_fused_give_the_same_rows(spark, rel, files, tmp_path):
    out = hr.enrich(files.stream(), rel, on="k")
    run(out, tmp_path / "fused", tmp_path / "c1")
    run(out.withColumn("name", out.name), tmp_path / "unfused", tmp_path / "c2")
    run(files.stream(), tmp_path / "alone", tmp_path / "c3")
    assert found(tmp_path / "fused") == found(tmp_path / "unfused") == files.expected()
    sent = Counter(repr([k, f"p {k % 3}"]) for keys in files.sent for k in keys)
    assert rows(by_deltalake(tmp_path / "alone"), ["k", "p"]) == sent


def test_a_fused_load_is_one_pass_through_python(spark, rel, tmp_path, monkeypatch):
    seen = []
    original = Plan.map

    def spy(self, source, schema, task):
        out = original(self, source, schema, task)
        if task.files:
            seen.append(python_nodes(out))
        return out

    monkeypatch.setattr(Plan, "map", spy)
    out = hr.enrich(spark.range(50).selectExpr("id as k", "'p' as p"), rel, on="k")
    twice = hr.enrich(out, rel, on="k", suffix="_2")
    for number, frame in enumerate((out, twice, out.withColumn("more", out.k))):
        hr.load(frame, tmp_path / str(number))
    assert seen == [1, 1, 2]


def test_oracle_types_of_spark_in_another_time_zone(spark, tmp_path):
    """Arrow batches carry the session's zone; the table has the instants."""
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        frame = spark.sql("""
            select timestamp'2020-01-01 10:00:00' t, array(timestamp'2020-01-01 10:00:00') a,
                   named_struct('t', timestamp'2020-01-01 10:00:00', 'n', timestamp_ntz'2020-01-01 10:00:00') s,
                   map('é', timestamp'2020-01-01 10:00:00') m, cast(1.5 as decimal(38, 18)) d, X'00ff' b, cast(null as date) n
        """)
        hr.load(frame, tmp_path / "t")
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    (row,) = by_deltalake(tmp_path / "t").to_pylist()
    moments = [row["t"], row["a"][0], row["s"]["t"], row["m"][0][1]]
    assert [m.isoformat() for m in moments] == ["2020-01-01T15:00:00+00:00"] * 4
    assert row["s"]["n"].isoformat() == "2020-01-01T10:00:00"
    assert (str(row["d"]), row["b"], row["n"]) == ("1.500000000000000000", b"\x00\xff", None)


def test_column_names_that_spark_finds_hard(spark, tmp_path):
    hr.load(spark.range(2).selectExpr("id as `a.b`", "id as `x y`", "id as `ü``1`"), tmp_path / "t", partition_by="x y")
    assert rows(by_deltalake(tmp_path / "t"), ["a.b", "x y", "ü`1"]) == Counter({"[0, 0, 0]": 1, "[1, 1, 1]": 1})


def test_an_empty_micro_batch_commits_nothing(rel, spark, tmp_path):
    files = Files(spark, tmp_path / "in")
    files.add(range(KEYS, KEYS + 20))
    files.add(range(5))
    files.add([])
    run(hr.enrich(files.stream(), rel, on="k"), tmp_path / "t", tmp_path / "c")
    assert DeltaTable(str(tmp_path / "t")).version() == 1
    assert found(tmp_path / "t") == files.expected()
    assert len(on_disk(tmp_path / "t")) == 1
    empty = hr.load(spark.range(0).selectExpr("id k", "'p' p", "'n' name"), tmp_path / "t")
    assert (empty.version, empty.rows, empty.files, empty.repeated) == (1, 0, 0, False)


def test_each_micro_batch_sees_the_relation_as_it_is_then(rel, files, tmp_path):
    query = hr.load(hr.enrich(files.stream(), rel, on="k"), tmp_path / "t", checkpoint=tmp_path / "c")
    try:
        query.processAllAvailable()
        wanted = files.expected()
        rel.apply(upserts=relation_rows(0, KEYS, "new"))
        files.add(range(30))
        query.processAllAvailable()
        assert found(tmp_path / "t") == wanted + Counter(joined(k, "new") for k in range(30))
    finally:
        query.stop()


def test_the_plain_path_goes_to_any_sink(spark, rel, files, tmp_path):
    out = hr.enrich(files.stream(), rel, on="k")
    for sink, path in (("parquet", tmp_path / "plain"), ("memory", None)):
        writer = out.writeStream.format(sink).option("checkpointLocation", str(tmp_path / sink)).queryName(sink)
        query = writer.trigger(**AVAILABLE).start(*([str(path)] if path else []))
        query.awaitTermination(300)
    wanted = files.expected()
    assert rows(spark.read.parquet(str(tmp_path / "plain")).toArrow(), ["k", "p", "name"]) == wanted
    assert rows(spark.table("memory").toArrow(), ["k", "p", "name"]) == wanted


# -- exactly once --------------------------------------------------------------------------------


def test_a_transaction_is_loaded_once(spark, tmp_path):
    def load(number: int, app: str = "nightly"):
        return hr.load(spark.range(10), tmp_path / "t", transaction=(app, number))

    assert load(7).rows == 10
    again = load(7)
    assert (again.repeated, again.rows, again.files, again.bytes, again.version) == (True, 0, 0, 0, 1)
    assert load(6).repeated
    assert not load(8).repeated
    assert not load(7, "hourly").repeated
    assert by_deltalake(tmp_path / "t").num_rows == 30
    assert on_disk(tmp_path / "t") == in_log(tmp_path / "t")


def test_transactions_are_known_after_the_log_was_checkpointed_and_cut(tmp_path):
    sink = sink_of(tmp_path / "t", LONG)
    for number in range(3):
        append(sink, pa.table({"v": [number]}), number=number)
    DeltaTable(str(tmp_path / "t")).create_checkpoint()
    for number in range(3):
        (tmp_path / "t" / "_delta_log" / f"{number:020d}.json").unlink()
    assert sink_of(tmp_path / "t", LONG).last("app") == 2
    assert sink.last("app") == 2
    assert sink.last("other") == -1


def test_two_queries_into_one_table_do_not_take_each_other_for_repeats(rel, files, tmp_path):
    for n in range(2):
        run(hr.enrich(files.stream(), rel, on="k"), tmp_path / "t", tmp_path / f"c{n}")
    assert found(tmp_path / "t") == files.expected() + files.expected()


def test_a_restart_goes_on(rel, files, tmp_path):
    for _ in range(2):
        run(hr.enrich(files.stream(), rel, on="k"), tmp_path / "t", tmp_path / "c")
        assert found(tmp_path / "t") == files.expected()
        files.add(range(10, 60))
    run(hr.enrich(files.stream(), rel, on="k"), tmp_path / "t", tmp_path / "c")
    assert found(tmp_path / "t") == files.expected()
    assert DeltaTable(str(tmp_path / "t")).version() == 5


def test_a_commit_that_spark_does_not_know_of_is_not_repeated(rel, files, tmp_path):
    run(hr.enrich(files.stream(), rel, on="k"), tmp_path / "t", tmp_path / "c")
    commits = sorted((f for f in (tmp_path / "c" / "commits").iterdir() if f.name.isdigit()), key=lambda f: int(f.name))
    commits[-1].unlink()
    (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)
    files.add(range(5))
    run(hr.enrich(files.stream(), rel, on="k"), tmp_path / "t", tmp_path / "c")
    assert found(tmp_path / "t") == files.expected()
    assert DeltaTable(str(tmp_path / "t")).version() == 4
    assert on_disk(tmp_path / "t") == in_log(tmp_path / "t")


def test_an_unfinished_run_leaves_nothing_and_other_files_stay(spark, tmp_path):
    hr.load(spark.range(3).selectExpr("id as v"), tmp_path / "t", transaction=("mine", 0))
    sink = sink_of(tmp_path / "t", LONG)
    for app, number in (("mine", 1), ("mine", 1), ("mine", 9), ("other", 1)):
        write(sink, [pa.record_batch({"v": [-1]})], app, number)
    strange = tmp_path / "t" / "part-00000-of-somebody-else.parquet"
    strange.write_bytes(b"x")
    before = on_disk(tmp_path / "t")
    hr.load(spark.range(3, 6).selectExpr("id as v"), tmp_path / "t", transaction=("mine", 1))
    assert sorted(by_deltalake(tmp_path / "t")["v"].to_pylist()) == list(range(6))
    gone = before - on_disk(tmp_path / "t")
    assert {name[: len(_prefix("mine")) + 11] for name in gone} == {f"{_prefix('mine')}-0000000001"}
    assert len(gone) == 2
    assert strange.exists()
    left = on_disk(tmp_path / "t") - in_log(tmp_path / "t")
    assert sum(name.startswith(_prefix("other")) for name in left) == 1


def test_files_that_another_writer_may_still_commit_are_not_swept(spark, tmp_path):
    """A driver that is only thought dead: it has written, its successor starts and writes, it wakes up and commits."""
    sleeper = sink_of(tmp_path / "t", LONG)
    assert sleeper.last("app") == -1
    facts = write(sleeper, [pa.record_batch({"v": [1, 2, 3]})])
    frame = spark.createDataFrame([(1,), (2,), (3,)], "v bigint")
    successor = Sink(tmp_path / "t", Plan.of(frame), ())
    woken = []

    def commit_between(*args):
        woken.append(sleeper._commit(facts, "app", 0))
        return Sink._commit(successor, *args)

    successor._commit = commit_between
    done = successor.load(frame, "app", 0, successor.plan)
    assert woken == [True]
    assert (done.repeated, done.rows) == (True, 0)
    assert sorted(by_deltalake(tmp_path / "t")["v"].to_pylist()) == [1, 2, 3]
    assert on_disk(tmp_path / "t") == in_log(tmp_path / "t")
    # And its next micro-batch, which does sweep, leaves what the sleeper has committed.
    del successor._commit
    assert successor.load(frame, "app", 1, successor.plan).rows == 3
    assert by_deltalake(tmp_path / "t").num_rows == 6


@pytest.mark.parametrize("winner", [0, 1])
def test_a_number_that_two_writers_commit_is_committed_once(tmp_path, winner):
    sinks = [sink_of(tmp_path / "t", LONG) for _ in range(2)]
    facts = [write(sink, [pa.record_batch({"v": [n]})], task=n) for n, sink in enumerate(sinks)]
    assert [sink.last("app") for sink in sinks] == [-1, -1]
    assert sinks[winner]._commit(facts[winner], "app", 0)
    assert not sinks[1 - winner]._commit(facts[1 - winner], "app", 0)
    assert by_deltalake(tmp_path / "t")["v"].to_pylist() == [winner]
    # A lower number of an application that has gone on is not committed either.
    assert sinks[winner]._commit(write(sinks[winner], [pa.record_batch({"v": [9]})], number=5), "app", 5)
    assert not sinks[1 - winner]._commit(write(sinks[1 - winner], [pa.record_batch({"v": [9]})], number=4), "app", 4)
    assert by_deltalake(tmp_path / "t").num_rows == 2


def in_threads(*tasks) -> None:
    errors, barrier = [], threading.Barrier(len(tasks))

    def guarded(task) -> None:
        try:
            barrier.wait()
            task()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert errors == []


def test_writers_at_the_same_time_lose_nothing(tmp_path):
    """Three applications, and a fourth that two drivers run: each of its numbers is there once."""
    committed = []

    def work(app: str) -> None:
        sink = sink_of(tmp_path / "t", LONG)
        for number in range(10):
            facts = write(sink, [pa.record_batch({"v": [hash_of(app, number)]})], app, number)
            if sink.last(app) < number and sink._commit(facts, app, number):
                committed.append((app, number))

    in_threads(*(lambda app=app: work(app) for app in ("a", "b", "c", "twice", "twice")))
    each = [(app, number) for app in ("a", "b", "c", "twice") for number in range(10)]
    assert sorted(committed) == each
    assert sorted(by_deltalake(tmp_path / "t")["v"].to_pylist()) == sorted(hash_of(*one) for one in each)
    assert DeltaTable(str(tmp_path / "t")).version() == 40


def hash_of(app: str, number: int) -> int:
    return sum(map(ord, app)) * 1000 + number


def test_a_table_made_by_several_at_the_same_time_is_made_once(tmp_path):
    for attempt in range(10):
        path = tmp_path / str(attempt)
        in_threads(
            *(lambda path=path, n=n: append(sink_of(path, LONG), pa.table({"v": [n]}), f"app{n}") for n in range(3))
        )
        assert sorted(by_deltalake(path)["v"].to_pylist()) == [0, 1, 2]
        assert DeltaTable(str(path)).version() == 3


def test_queries_into_one_table_at_the_same_time_lose_nothing(spark, rel, files, tmp_path):
    in_threads(
        *(
            lambda n=n: run(hr.enrich(files.stream(), rel, on="k"), tmp_path / "t", tmp_path / f"c{n}", name=f"q{n}")
            for n in range(2)
        )
    )
    assert found(tmp_path / "t") == files.expected() + files.expected()


# -- refusals ------------------------------------------------------------------------------------


@pytest.fixture
def no_job(spark, monkeypatch):
    """What is refused is refused before anything runs."""

    def ran(*args):
        raise AssertionError("a job ran")

    monkeypatch.setattr(Plan, "map", ran)


def test_columns_that_do_not_fit_the_table_are_named(spark, tmp_path, no_job):
    DeltaTable.create(str(tmp_path / "t"), pa.schema({"a": pa.int64(), "b": pa.string(), "l": pa.list_(pa.int32())}))
    select = spark.range(1).selectExpr
    for columns, why in (
        (["id a", "'x' b"], "'l' is missing"),
        (["id a", "'x' b", "array(1) l", "1 more"], "'more' is not in the table"),
        (["'a' a", "'x' b", "array(1) l"], "'a' is string and the table has long"),
        (["cast(id as int) a", "'x' b", "array(1) l"], "'a' is integer and the table has long"),
        (["id a", "'x' b", "array('y') l"], "'l' is .*array.* and the table has .*array"),
    ):
        with pytest.raises(BadInput, match=rf"do not fit the table at .*{why}"):
            hr.load(select(*columns), tmp_path / "t")
    with pytest.raises(BadInput, match=r"partition_by=\['b'\] differs from the table .* partitioned by \[\]"):
        hr.load(
            spark.sql("select id a, 'x' b, array(cast(null as int)) l from range(1)"), tmp_path / "t", partition_by="b"
        )
    assert DeltaTable(str(tmp_path / "t")).version() == 0


def test_nulls_in_a_column_without_nulls_are_refused_and_nothing_is_loaded(spark, tmp_path):
    """Spark's columns may nearly all be null, so the rows are looked at, not the schema."""
    DeltaTable.create(str(tmp_path / "t"), pa.schema([pa.field("a", pa.int64(), nullable=False)]))
    with pytest.raises(Exception, match=r"column 'a' holds 1 null\(s\), and the table at .* does not"):
        hr.load(spark.sql("select if(id = 3, null, id) a from range(10)"), tmp_path / "t")
    assert DeltaTable(str(tmp_path / "t")).version() == 0
    assert hr.load(spark.sql("select if(id = 30, null, id) a from range(10)"), tmp_path / "t").rows == 10


def test_columns_that_change_while_the_stream_runs_stop_it(spark, tmp_path):
    frame = spark.range(3)
    sink = Sink(tmp_path / "t", Plan.of(frame), ())
    assert sink.load(frame, "app", 0, sink.plan).rows == 3
    write_deltalake(str(tmp_path / "t"), pa.table({"id": ["x"]}), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(BadInput, match="'id' is long and the table has string"):
        sink.load(frame, "app", 1, sink.plan)
    # In the middle of a commit too: the race is lost, the table is looked at again.
    other = sink_of(tmp_path / "u", LONG)
    facts = write(other, [pa.record_batch({"v": [1]})])
    write_deltalake(str(tmp_path / "u"), pa.table({"v": ["x"]}), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(BadInput, match="'v' is long and the table has string"):
        other._commit(facts, "app", 0)
    assert by_deltalake(tmp_path / "u")["v"].to_pylist() == ["x"]


def test_tables_with_rules_that_the_files_would_break_are_refused(spark, tmp_path, no_job):
    DeltaTable.create(str(tmp_path / "t"), pa.schema({"id": pa.int64()}))
    DeltaTable(str(tmp_path / "t")).alter.add_constraint({"large": "id > 100"})
    with pytest.raises(BadInput, match=r"rules that hr.load cannot keep \(delta.constraints.large\)"):
        hr.load(spark.range(3), tmp_path / "t")


def test_what_is_not_a_table_is_left_alone(spark, tmp_path, no_job):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "cut" / "_delta_log").mkdir(parents=True)
    (tmp_path / "cut" / "_delta_log" / "00000000000000000005.json").write_text("{}")
    for name in ("full", "file"):
        with pytest.raises(BadInput, match=f"{name} exists and is not a Delta table"):
            hr.load(spark.range(3), tmp_path / name)
    assert [f.name for f in (tmp_path / "full").iterdir()] == ["notes.txt"]
    with pytest.raises(Exception, match=r"cut|version|log"):
        hr.load(spark.range(3), tmp_path / "cut")
    assert len(list((tmp_path / "cut" / "_delta_log").iterdir())) == 1


def test_a_table_is_made_where_a_killed_run_had_begun_to(spark, tmp_path):
    (tmp_path / "t" / "_delta_log").mkdir(parents=True)
    (tmp_path / "t" / "_delta_log" / "_commit_5b8c.json.tmp").write_text("")
    assert hr.load(spark.range(3), tmp_path / "t").rows == 3
    assert by_deltalake(tmp_path / "t").num_rows == 3


def test_types_that_a_table_cannot_hold_are_named(spark, tmp_path, no_job):
    for column, type_ in (
        ("make_dt_interval(1)", "duration"),
        ("make_ym_interval(1)", "interval year to month"),
        ("time'12:34:56'", "time"),
        ("parse_json('{}')", "struct<value"),
        ("array(parse_json('{}'))", "list<element: struct<value"),
        ("named_struct('a', named_struct('t', time'12:34:56'))", "struct<a"),
    ):
        with pytest.raises(UnsupportedType, match=f"column 'c' has type {type_}"):
            hr.load(spark.range(1).selectExpr("id", f"{column} as c"), tmp_path / "t")
    for twice in (["id", "id"], ["id", "id as ID"]):
        with pytest.raises(BadInput, match="column 'id' is there twice"):
            hr.load(spark.range(1).selectExpr(*twice), tmp_path / "t")
    assert not (tmp_path / "t").exists()


def test_partitions_that_cannot_be_are_refused(spark, tmp_path, no_job):
    frame = spark.range(1).selectExpr("id", "1.5 d", "'x' s", "array(1) a")
    for by, why in (
        ("nope", "names 'nope', which is not a column; choose from id, d, s, a"),
        ("d", "names 'd' of type decimal"),
        (["s", "a"], "names 'a' of type list"),
        (["s", "s"], "names 's' twice"),
    ):
        with pytest.raises(BadInput, match=why):
            hr.load(frame, tmp_path / "t", partition_by=by)
    with pytest.raises(BadInput, match="names every column"):
        hr.load(frame.select("id", "s"), tmp_path / "t", partition_by=["s", "id"])
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("path", ["s3://bucket/t", "hdfs://host/t", "abfss://c@a/t", "dbfs:/t"])
def test_other_file_systems_are_refused(spark, path, no_job):
    with pytest.raises(BadInput, match="is not a local directory"):
        hr.load(spark.range(1), path)


def test_paths_may_be_file_uris(spark, tmp_path):
    assert hr.load(spark.range(1), (tmp_path / "a b").as_uri()).version == 1
    assert hr.load(spark.range(1), f"file:{tmp_path / 'a b'}").version == 2
    assert by_deltalake(tmp_path / "a b").num_rows == 2
    with pytest.raises(BadInput, match="has a % that delta-rs takes for an escape"):
        hr.load(spark.range(1), tmp_path / "a%20b")


def test_options_that_do_not_fit_are_refused(spark, files, tmp_path, no_job):
    for option in ({"checkpoint": tmp_path / "c"}, {"trigger": AVAILABLE}, {"name": "q"}):
        with pytest.raises(BadInput, match=f"{next(iter(option))}=.* is for a streaming DataFrame"):
            hr.load(spark.range(1), tmp_path / "t", **option)
    with pytest.raises(BadInput, match="a streaming DataFrame needs checkpoint="):
        hr.load(files.stream(), tmp_path / "t")
    with pytest.raises(BadInput, match=r"transaction=\.\.\. is for a batch DataFrame"):
        hr.load(files.stream(), tmp_path / "t", checkpoint=tmp_path / "c", transaction=("a", 1))
    for transaction in (("a", -1), ("a", "1"), ("a", 2**63), (1, 1)):
        with pytest.raises(BadInput, match="is not a name and a number"):
            hr.load(spark.range(1), tmp_path / "t", transaction=transaction)
    assert not (tmp_path / "t").exists()


def test_statistics_reach_the_log(spark, tmp_path):
    hr.load(spark.range(10).selectExpr("id", "if(id > 4, null, concat('s', id)) s").coalesce(1), tmp_path / "t")
    (add,) = adds(tmp_path / "t")
    assert add["stats"] == {
        "numRecords": 10,
        "nullCount": {"id": 0, "s": 5},
        "minValues": {"id": 0, "s": "s0"},
        "maxValues": {"id": 9, "s": "s4"},
    }
