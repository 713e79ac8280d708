"""Pipelines that run, on the tests' own Spark: what is loaded, what is put aside, what is refused and how it is said."""

import shutil
import signal
import subprocess

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.clock import ManualClock, SystemClock
from headrace.errors import BadInput
from headrace.pipeline.build import start
from headrace.pipeline.document import BadPipeline
from headrace.pipeline.failures import words_of
from headrace.pipeline.run import RunFailed
from headrace.pipeline.spark_check import describe_with_spark
from headrace.signals import GracefulStop
from headrace.spark.delta.load import Sink
from tests.support.kafka_broker import connector_jars
from tests.support.pipeline_place import SALES, SCHEMA, joined, sale

pytestmark = pytest.mark.spark

REQUIRED = ('path = "incoming"', 'path = "incoming"\nrequired = ["sale"]')


def test_malformed_json_goes_to_the_dead_letters_with_the_reason(place, spark):
    place.products().close()
    place.write(SALES, REQUIRED)
    good = [sale(i) for i in range(20)]
    place.arrive(
        "a.json", *good[:10], '{"sale": 1, "prod', '{"sale": 1, "product_id": "seven"}', {"quantity": 3}, *good[10:]
    )
    outcome = place.run(spark)
    assert place.loaded() == sorted((joined(row) for row in good), key=str)
    assert (outcome.status.rows, outcome.status.dead, outcome.stopped) == (23, 3, False)
    assert [d["reason"] for d in place.dead()] == [
        "column 'sale' is null, and it is required"
        if "null" in d["record"]
        else "column 'product_id': found 'seven', expected long"
        if "seven" in d["record"]
        else "not JSON: unterminated string starting at (character 13)"
        for d in place.dead()
    ]
    assert {d["source"].rpartition("/")[2] for d in place.dead()} == {"a.json"}
    # another run goes on with what is new, and repeats nothing
    place.arrive("b.json", sale(99), "]")
    again = place.run(spark)
    assert (again.status.rows, len(place.loaded()), len(place.dead())) == (2, 21, 4)


def test_csv_rows_that_are_short_or_of_another_type(place, spark):
    place.products().close()
    place.write(SALES, ('"json"', '"csv"'), ("[sink]", '[[step]]\nfilter = "quantity >= 0"\n[sink]'))
    place.arrive("a.csv", "sale,product_id,quantity", "1,2,3", "1,2", "x,2,3", "4,,", '"5",6,-1', "7,8,9,10")
    place.run(spark)
    assert place.loaded() == [joined(sale(1, 2, 3))]
    assert [d["reason"] for d in place.dead()] == [
        "found 2 values, expected 3: sale, product_id, quantity",
        "found 4 values, expected 3: sale, product_id, quantity",
        "column 'sale': found 'x', expected long",
    ]
    # columns in another order are not taken by position
    place.arrive("b.csv", "sale,quantity,product_id", "1,2,3")
    with pytest.raises(
        RunFailed, match=r"the source has changed: .*b\.csv has the columns sale, quantity, product_id"
    ) as caught:
        place.run(spark)
    assert "declares sale, product_id, quantity" in str(caught.value)
    assert len(place.loaded()) == 1


def test_a_parquet_source_that_changes_its_schema(place, spark):
    place.products().close()
    place.write(SALES, ('"json"', '"parquet"'), REQUIRED)
    incoming = place.root / "incoming"
    rows = [sale(1), sale(2) | {"sale": None}]
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), incoming / "a.parquet")
    # Columns missing: nulls
    pq.write_table(pa.table({"sale": pa.array([3]), "more": pa.array(["x"])}), incoming / "b.parquet")
    place.run(spark)
    assert place.loaded() == [joined(sale(1))]
    assert [d["reason"] for d in place.dead()] == ["column 'sale' is null, and it is required"]
    pq.write_table(pa.table({"sale": pa.array([4]), "product_id": pa.array(["x"])}), incoming / "c.parquet")
    with pytest.raises(
        RunFailed, match=r"column 'product_id' of .*c\.parquet is BINARY, and .*sales\.toml declares bigint"
    ):
        place.run(spark)
    (incoming / "c.parquet").write_bytes(b"PAR1 this is no Parquet PAR1")
    with pytest.raises(RunFailed, match=r"c\.parquet cannot be read"):
        place.run(spark)
    assert place.loaded() == [joined(sale(1))]


def test_a_relation_deleted_under_the_query(place, spark):
    place.products().close()
    place.arrive("a.json", sale(1))
    pipeline = place.read()
    query = start(pipeline, spark)
    try:
        query.processAllAvailable()
        shutil.rmtree(place.root / "products.rel")
        place.arrive("b.json", sale(2))
        with pytest.raises(Exception, match="no relation"):
            query.processAllAvailable()
        words = words_of(query.exception(), pipeline)
    finally:
        query.stop()
    assert words.startswith("a relation was removed while the pipeline ran: there is no relation at")
    assert "put it back and run again" in words
    place.products().close()
    place.run(spark)
    assert place.loaded() == [joined(sale(1)), joined(sale(2))]


def test_a_full_and_a_read_only_disk_lose_nothing(place, spark, mounted):
    place.products().close()
    disk = mounted("warehouse", "size=256k")
    place.arrive("a.json", sale(1))
    place.run(spark)
    (disk / "fill").write_bytes(b"x" * 200_000)
    many = [sale(i * 1_234_567_891) for i in range(20_000)]
    place.arrive("b.json", *many)
    with pytest.raises(RunFailed, match=r"the disk is full.*; make room and run again"):
        place.run(spark)
    (disk / "fill").unlink()
    subprocess.run(["mount", "-o", "remount,size=8m,ro", disk], check=True)
    with pytest.raises(
        RunFailed, match=r"a directory cannot be written to \(.*/warehouse.*\); give the right to write there"
    ):
        place.run(spark)
    subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
    place.run(spark)
    assert place.loaded() == sorted((joined(row) for row in [sale(1), *many]), key=str)


def test_dead_letters_that_cannot_be_written_stop_the_run(place, spark, mounted):
    place.products().close()
    (place.root / "sales.state").mkdir()
    disk = mounted("sales.state/dead-letters", "size=64k")
    (disk / "fill").write_bytes(b"x" * 65_536)
    place.arrive("a.json", sale(1), "{")
    with pytest.raises(RunFailed, match="the disk is full"):
        place.run(spark)
    (disk / "fill").unlink()
    place.run(spark)
    assert (place.loaded(), [d["record"] for d in place.dead()]) == ([joined(sale(1))], ["{"])


def test_a_micro_batch_that_is_repeated_keeps_each_row_and_each_dead_letter_once(place, spark, monkeypatch):
    """It fails before the commit, then after it, and each run cuts the file into other tasks."""
    place.products().close()
    good = [sale(i) for i in range(30)]
    place.arrive("a.json", *(line for i, row in enumerate(good) for line in (row, f"{{{i}")))
    load_batch = Sink.load_batch

    def loaded_and_failed(self, df, batch):
        load_batch(self, df, batch)
        raise RuntimeError("after the commit")

    def not_loaded(self, *_):
        raise RuntimeError("before the commit")

    def parts() -> int:
        return len(list((place.root / "sales.state/dead-letters").rglob("*.parquet")))

    try:
        for name, failing, size in (("commit", not_loaded, "128m"), ("load_batch", loaded_and_failed, "500b")):
            spark.conf.set("spark.sql.files.maxPartitionBytes", size)
            with monkeypatch.context() as patch:
                patch.setattr(Sink, name, failing)
                with pytest.raises(RunFailed, match="the commit"):
                    place.run(spark)
            assert place.dead() == []  # not while the micro-batch is not done
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
    place.run(spark)
    assert place.loaded() == sorted((joined(row) for row in good), key=str)
    assert sorted(d["record"] for d in place.dead()) == sorted(f"{{{i}" for i in range(30))
    assert parts() > 1  # those of the run that committed


class Jumping(SystemClock):
    """A clock that is set forwards and back while the run looks at it."""

    def __init__(self) -> None:
        self.looks = 0

    def now(self) -> float:
        self.looks += 1
        return super().now() + (1e9 if self.looks % 2 else -1e9)


def test_a_stop_finishes_the_micro_batch_and_clock_jumps_change_nothing(place, spark):
    place.products().close()
    place.write(SALES, ('path = "incoming"', 'path = "incoming"\nfiles_per_batch = 1'))
    for i in range(30):
        place.arrive(f"{i:02d}.json", sale(i))
    stopping = GracefulStop()

    def stop_soon(status) -> None:
        if status.batches >= 2:
            signal.raise_signal(signal.SIGTERM)

    outcome = place.run(spark, once=False, clock=Jumping(), watch=_first_time(stop_soon, stopping), stopping=stopping)
    assert outcome.stopped
    assert outcome.seconds >= 0
    done = len(list((place.root / "sales.state/checkpoint/commits").glob("[0-9]*")))
    assert 2 <= done <= len(place.loaded()) <= done + 1 < 30
    place.write(SALES)
    assert not place.run(spark).stopped
    assert place.loaded() == sorted((joined(sale(i)) for i in range(30)), key=str)


def _first_time(act, stopping):
    """Two signals would break off: one is enough."""

    def watch(status) -> None:
        if not stopping.requested:
            act(status)

    return watch


def test_lines_are_written_whatever_the_clock_does(capsys):
    from rich.console import Console

    from headrace.cli.running import Lines
    from headrace.pipeline.run import PipelineStatus

    class Set(ManualClock):
        def __init__(self, *times):
            super().__init__()
            self.times = list(times)

        def now(self):
            return self.times.pop(0)

    lines = Lines(Console(width=100), Set(0.0, 1.0, 6.0, -5e8, 7.0))
    for rows in range(1, 6):
        lines.show(PipelineStatus("s\x1b[2J", batches=1, batch=0, rows=rows))
    shown = capsys.readouterr().out.splitlines()
    assert [line.split(" ")[1] for line in shown] == ["1", "3", "4", "5"]
    assert all(line.startswith(r"s\x1b[2J: ") for line in shown)


def test_two_runs_of_one_pipeline_are_refused(place, spark):
    place.products().close()
    place.arrive("a.json", sale(1))
    seen = []

    def second(status) -> None:
        with pytest.raises(BadPipeline, match="another run uses"):
            place.run(spark)
        seen.append(status)

    place.run(spark, watch=second)
    assert seen


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ('filter = "quantiy > 0"', "step 1, filter: A column, variable, or function parameter with name `quantiy`"),
        ('filter = "quantity +"', "step 1, filter: "),
        ('filter = "sale"', "step 1, filter: "),
        (
            'select = ["sale", "price * 2 AS p"]',
            "step 1, select: A column, variable, or function parameter with name `price`",
        ),
    ],
)
def test_spark_checks_sql_without_running_it(place, spark, step, words):
    place.write(SALES, ('enrich = "products.rel"\non = "product_id"\nmemory = "4MiB"', step))
    with pytest.raises(BadPipeline) as caught:
        describe_with_spark(place.read(), spark, place.check())
    (problem,) = caught.value.problems
    assert problem.line == 15
    assert words in str(problem)
    assert "SQLSTATE" not in str(problem)
    assert "\n" not in str(problem)
    assert not (place.root / "sales.state").exists()


def test_spark_checks_that_the_result_fits_the_sink(place, spark):
    place.write(
        SALES, ('enrich = "products.rel"\non = "product_id"\nmemory = "4MiB"', 'select = ["sale", "sale AS SALE"]')
    )
    with pytest.raises(BadPipeline, match="is there twice, and a Delta table ignores case"):
        describe_with_spark(place.read(), spark, place.check())


def test_other_sinks_and_sources(place, spark):
    text = """
        name = "made-up"
        every = "10ms"
        [source]
        format = "rate"
        rows_per_second = 50
        [[step]]
        filter = "value < 10"
        [[step]]
        select = ["value", "value % 2 AS odd"]
        [sink]
        format = "parquet"
        path = "out"
        partition_by = ["odd"]
        """
    place.write(text)
    stopping = GracefulStop()

    def enough(status) -> None:
        if status.rows >= 50 and not stopping.requested:
            signal.raise_signal(signal.SIGINT)

    place.run(spark, once=False, watch=enough, stopping=stopping)
    out = spark.read.parquet(str(place.root / "out"))
    assert sorted(tuple(row) for row in out.select("value", "odd").collect()) == [(i, i % 2) for i in range(10)]


def test_a_console_sink_needs_somebody_who_shows(place, spark):
    place.write(SALES, ('format = "delta"\npath = "warehouse"', 'format = "console"'))
    place.products().close()
    with pytest.raises(BadInput, match="run it with: headrace run"):
        start(place.read(), spark)


def test_partition_values_cannot_leave_the_table(place, spark):
    place.products().close()
    place.write(
        SALES, ('quantity = "int"', 'quantity = "string"'), ('"warehouse"', '"warehouse"\npartition_by = "quantity"')
    )
    names = ["../../escaped", "/etc/x", "..", "a\x1b[2Jb", "'; DROP TABLE x; --", "%2e%2e%2f", "a\\b"]
    place.arrive("a.json", *(sale(i) | {"quantity": name} for i, name in enumerate(names)))
    before = {p for p in place.root.rglob("*") if "warehouse" not in p.parts and "sales.state" not in p.parts}
    place.run(spark)
    assert [row["quantity"] for row in sorted(place.loaded(), key=lambda r: r["sale"])] == names
    after = {p for p in place.root.rglob("*") if "warehouse" not in p.parts and "sales.state" not in p.parts}
    assert {p for p in after - before if "batches" not in p.parts and p.name != "locks"} == set()
    assert not (place.root.parent / "escaped").exists()


KAFKA = (
    'format = "json"\npath = "incoming"',
    'format = "kafka"\nservers = "127.0.0.1:1"\ntopic = "sales"\nvalue = "{value}"',
)


@pytest.mark.parametrize(
    ("value", "good", "bad"),
    [
        (
            "json",
            [b'{"sale": 1, "product_id": 2}', b'{"sale": 4}'],
            [b'{"sale": ', b'{"sale": "x"}', None, b'{"a": "\xff"}'],
        ),
        ("csv", [b"1,2,", b"4,,"], [b"x,2,3", b"1,2", None, b"\xff,2,3", b"5,2,3\xff"]),
    ],
)
def test_values_of_kafka_are_parsed_and_malformed_ones_are_dead_letters(place, spark, value, good, bad):
    from headrace.pipeline.sources import parse_values

    place.write(SALES, (KAFKA[0], KAFKA[1].format(value=value)))
    pipeline = place.read()
    records = [(v, "sales", 0, i) for i, v in enumerate([*good, *bad])]
    rows = spark.createDataFrame(records, "value binary, topic string, partition int, offset long")
    out = parse_values(pipeline, pipeline.source, rows).collect()
    assert sorted(tuple(row) for row in out) == [(1, 2, None), (4, None, None)]
    assert sorted(d["source"] for d in place.dead()) == [f"sales/0/{i}" for i in range(len(good), len(records))]
    assert all(d["reason"] for d in place.dead())


@pytest.mark.skipif(connector_jars() is not None, reason="this Spark has the connector")
def test_a_spark_without_the_kafka_connector_is_told_what_to_add(place, spark):
    place.write(SALES, (KAFKA[0], KAFKA[1].format(value="json")))
    place.products().close()
    with pytest.raises(BadPipeline, match=r"5: source: this Spark has no Kafka connector; add .* jars\.packages"):
        start(place.read(), spark)
