"""The messages of the troubleshooting page are those that the code gives.

Each of ours is provoked here, as a user would; of other programs, those that can be.
"""

import fcntl
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import headrace as hr
from headrace.progressive import ProgressiveJoin
from headrace.sampling import Reservoir, WindowJoin
from headrace.semistream import AdaptiveJoin, MeshJoin

PAGE = (Path(__file__).parent.parent / "docs" / "troubleshooting.md").read_text()
OTHERS = PAGE.index("## Spark, Java and the machine")  # messages from there on are of other programs
BLOCK = re.compile(r"^```text\n(.*?)\n```$", re.MULTILINE | re.DOTALL)
OURS, THEIRS = ([" ".join(block.split()) for block in BLOCK.findall(part)] for part in (PAGE[:OTHERS], PAGE[OTHERS:]))
ran: set[str] = set()
found: set[str] = set()


def check(case: str, message: str, entries: list[str]) -> None:
    """The page has the message, or a part of it; … stands for what differs."""
    text = " ".join(message.split())
    fits = [entry for entry in entries if re.search(".+?".join(map(re.escape, entry.split("…"))), text)]
    assert fits, message
    ran.add(case)
    found.update(fits)


def products(rows: int = 2) -> pa.Table:
    return pa.table({"id": range(rows), "name": [f"product {i}" for i in range(rows)]})


def made(rows: int = 2) -> hr.Relation:
    return hr.Relation.create("products.rel", products(rows), key="id")


def edited(path: str, **fields: object) -> None:
    text = json.loads(Path(path).read_text())
    Path(path).write_text(json.dumps({**text, **fields}))


def flipped(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def damaged_page():
    rel = made(5_000)
    rel.close()
    flipped(next(Path("products.rel").glob("*.pages")), 8192 + 700)
    hr.Relation.open("products.rel").verify()


def damaged_log():
    log = hr.RunLog("state", "sales", "enrich", shards=1)
    rows = pa.record_batch({"id": [1, 2]})
    with log.shard(0) as shard:
        shard.write("waiting", 1, rows.schema, [rows], {})
    flipped(next(log.path.glob("shard-0000/*.arrow")), 40)
    log.describe()


def held_twice():
    log = hr.RunLog("state", "sales", "enrich", shards=1)
    with log.shard(0), log.shard(0, patience=0.05):
        pass


def two_writers():
    rel = made()
    with Path("products.rel/locks/writer").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        rel.apply(deletes=[1])


def version_conflict():
    made()
    one, two = hr.Relation.open("products.rel"), hr.Relation.open("products.rel")
    one.apply(deletes=[1])
    two.apply(deletes=[0])


def replaced():
    rel = made()
    other = hr.Relation.create("products.rel", products(), key="id", overwrite=True)
    other.check_identity(rel.identity)


def newer_relation():
    made().close()
    edited("products.rel/manifest-000001.json", format=99)
    hr.Relation.open("products.rel")


def other_log():
    log = hr.RunLog("state", "sales", "enrich", shards=1)
    edited(str(log.path / "log.json"), format=1)
    hr.RunLog("state", "sales", "enrich", shards=1)


def other_shards():
    hr.RunLog("state", "sales", "enrich", shards=2)
    hr.RunLog("state", "sales", "enrich", shards=4)


def not_a_relation():
    Path("empty").mkdir()
    hr.Relation.open("empty")


def unfinished():
    Path("products.rel.unfinished-1-abcdef01").mkdir()  # as a create that was killed leaves it
    hr.Relation.open("products.rel")


def create(data: pa.Table, **options):
    hr.Relation.create("products.rel", data, **{"key": "id", **options})


def budget_full():
    budget = hr.MemoryBudget("1MiB")
    budget.reserve("index", 700 * 1024)
    budget.reserve("hot set", 500 * 1024)


CASES = {
    "budget too small": lambda: AdaptiveJoin(made(), on="id", memory="4KiB"),
    "budget of MESHJOIN too small": lambda: MeshJoin(made(5_000), on="id", memory="4KiB"),
    "budget of two streams too small": lambda: ProgressiveJoin(hr.equal("id"), memory="1KiB"),
    "budget of windows too small": lambda: WindowJoin(hr.equal("id"), window=hr.rows(10), method="all", memory="1KiB"),
    "row too long": lambda: Reservoir(memory="64KiB").insert(pa.record_batch({"t": ["x" * 100_000]})),
    "budget is full": budget_full,
    "not a size": lambda: AdaptiveJoin(made(), on="id", memory="much"),
    "no relation": lambda: hr.Relation.open("nowhere.rel"),
    "not a relation": not_a_relation,
    "unfinished": unfinished,
    "exists": lambda: (made(), made()),
    "object store": lambda: hr.Relation.open("s3://bucket/products.rel"),
    "damaged page": damaged_page,
    "newer format": newer_relation,
    "version conflict": version_conflict,
    "two writers": two_writers,
    "version gone": lambda: (made(), hr.Relation.open("products.rel", version=7)),
    "replaced": replaced,
    "no such key": lambda: create(products(), key="product"),
    "null keys": lambda: create(pa.table({"id": [1, None]})),
    "long row": lambda: create(pa.table({"id": [1], "text": ["x" * 9_000]})),
    "type that cannot be stored": lambda: create(pa.table({"id": [1], "tags": [["a", "b"]]})),
    "type of the key": lambda: list(AdaptiveJoin(made(), on="id").join(pa.record_batch({"id": ["1"]}))),
    "unknown choice": lambda: AdaptiveJoin(made(), on="id", how="outer"),
    "same column": lambda: AdaptiveJoin(made(), on="id", suffix=None).output_schema(products().schema),
    "other number of shards": other_shards,
    "log of another format": other_log,
    "log held twice": held_twice,
    "damaged log": damaged_log,
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_message_is_on_the_page(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(hr.HeadraceError) as raised:
        CASES[case]()
    check(case, str(raised.value), OURS)


@pytest.fixture
def rel(tmp_path):
    rows = pa.table({"id": range(100), "name": [f"product {i}" for i in range(100)]})
    return hr.Relation.create(tmp_path / "products.rel", rows, key="id")


@pytest.fixture
def stream(spark):
    return spark.readStream.format("rate").load().selectExpr("value AS id")


def no_state(spark, stream, rel, tmp_path):
    hr.enrich(stream, rel, on="id", deadline="10s")


def deadline_of_a_batch(spark, stream, rel, tmp_path):
    hr.enrich(spark.range(3), rel, on="id", deadline="10s")


def no_relation(spark, stream, rel, tmp_path):
    hr.enrich(stream, str(rel.path), on="id")


def nothing_to_join_on(spark, stream, rel, tmp_path):
    hr.enrich(stream, rel)


def memory_of_a_shard(spark, stream, rel, tmp_path):
    hr.progressive_join(stream, stream, hr.equal("id"), memory="1MiB", state=tmp_path, shards=8, workers=8)


def type_for_arrow(spark, stream, rel, tmp_path):
    hr.enrich(spark.sql("SELECT 1L AS id, INTERVAL '1' MONTH AS delay"), rel, on="id")


def no_delta_table(spark, stream, rel, tmp_path):
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "notes.txt").write_text("mine")
    hr.load(spark.range(3), tmp_path / "table")


def other_columns(spark, stream, rel, tmp_path):
    hr.load(spark.range(3), tmp_path / "table")
    hr.load(spark.range(3).selectExpr("id AS other"), tmp_path / "table")


def removed_while_it_runs(spark, stream, rel, tmp_path):
    out = hr.enrich(spark.range(3), rel, on="id")
    rel.path.rename(tmp_path / "moved.rel")
    out.count()


ON_SPARK = [
    no_state,
    deadline_of_a_batch,
    no_relation,
    nothing_to_join_on,
    memory_of_a_shard,
    type_for_arrow,
    no_delta_table,
    other_columns,
    removed_while_it_runs,
]


@pytest.mark.spark
@pytest.mark.parametrize("case", ON_SPARK)
def test_a_message_on_spark_is_on_the_page(case, spark, stream, rel, tmp_path):
    with pytest.raises(Exception) as raised:
        case(spark, stream, rel, tmp_path)
    check(case.__name__, str(raised.value), OURS)


@pytest.mark.spark
def test_the_message_about_a_query_that_runs_is_on_the_page(spark, stream, rel, tmp_path):
    out = hr.enrich(stream, rel, on="id", defer=hr.Defer(deadline="10s", state=tmp_path / "state", shards=1))
    query = out.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        with pytest.raises(hr.BadInput) as raised:
            hr.finish(out, query, write=lambda rows, number: None)
    finally:
        query.stop()
    check("finished while it runs", str(raised.value), OURS)


@pytest.mark.parametrize(
    "program",
    [
        "from pyspark.sql import SparkSession; SparkSession.builder.master('local[1]').getOrCreate()",
        "from headrace.cli import app; app(['run', 'sales.toml', '--once'])",
    ],
)
def test_the_message_without_java_is_on_the_page(program, tmp_path):
    (tmp_path / "sales.toml").write_text(
        'name = "sales"\n[source]\nformat = "parquet"\npath = "incoming"\ncolumns = { id = "long" }\n'
        '[sink]\nformat = "parquet"\npath = "out"\n'
    )
    (tmp_path / "incoming").mkdir()
    nowhere = {"JAVA_HOME": str(tmp_path / "no-java"), "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    run = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=os.environ | nowhere,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert run.returncode != 0
    check("no Java", run.stdout + run.stderr, THEIRS)


def test_every_message_of_ours_was_provoked():
    """The page has no message that the code does not give."""
    if not ran >= {*CASES, *(case.__name__ for case in ON_SPARK), "finished while it runs"}:
        pytest.skip("only a part of the cases ran")
    assert [entry for entry in OURS if entry not in found] == []
