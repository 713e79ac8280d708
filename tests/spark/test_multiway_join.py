"""`hr.multiway_join` on Spark: every result once, against DuckDB; restarts, a replay, batch DataFrames, what is refused."""

import time
from collections import Counter

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import BadInput, MemoryRefused
from headrace.runlog import RunLog
from tests.support.batch_sink import Sink, collected
from tests.support.spark_streams import counted, files, finished, source

pytestmark = pytest.mark.spark


def rows(seed, n, keys=1000, key="k", type_=None):
    """Wide rows, so that few of them fill the smallest memory; some keys are null."""
    rng = np.random.default_rng(seed)
    k = pa.array(rng.integers(0, keys, n), type_, mask=rng.random(n) < 0.05)
    return pa.table({key: k, "n": np.arange(n) + 10_000 * seed, "s": pa.array([f"{x:>150}" for x in range(n)])})


def duck(a, b, c, on="a.k = b.k and b.k = c.k"):
    with duckdb.connect(config={"autoinstall_known_extensions": False}) as db:
        for name, table in {"a": a, "b": b, "c": c}.items():
            db.register(name, table)
        columns = "a.*, b.n as n_1, b.s as s_1, c.n as n_2, c.s as s_2"
        return counted(db.sql(f"select {columns} from a, b, c where {on}").to_arrow_table())


def last_again(checkpoint):
    """The last micro-batch is not known to be done: Spark will send it again. Its number."""
    commits = sorted(int(p.name) for p in (checkpoint / "commits").iterdir() if p.name.isdigit())
    (checkpoint / "commits" / str(commits[-1])).unlink()
    (checkpoint / "commits" / f".{commits[-1]}.crc").unlink(missing_ok=True)
    return commits[-1]


def test_oracle_every_result_once_over_restarts_and_a_replay(spark, tmp_path):
    tables = [[rows(5 * stream + i, 1200) for i in range(2)] for stream in range(3)]
    for name, of_stream in zip("abc", tables, strict=True):
        files(tmp_path / name, of_stream[0])
    out = hr.multiway_join(
        [source(spark, tmp_path / name) for name in "abc"],
        on="K",
        memory="1536KiB",
        state=tmp_path / "state",
        shards=2,
        partitions=8,
        idle="3650d",
        workers=2,
    )
    assert out.columns == ["k", "n", "s", "n_1", "s_1", "n_2", "s_2"]
    sink = Sink()
    query = sink.run(out, tmp_path / "check")
    finished(query)
    # A run that ends by itself does so when nothing is owed.
    assert sink.rows == duck(*(of_stream[0] for of_stream in tables))
    done = hr.progress(query)
    assert sum(p.rows for p in done) == 3600
    assert sum(p.stats.deferred for p in done) > 0 and sum(p.stats.probes for p in done) > 0
    assert sum(p.stats.results for p in done) == sink.rows.total()
    assert all(sum(p.stats.memory.values()) <= p.stats.memory_limit for p in done)
    again = last_again(tmp_path / "check")
    for name, of_stream in zip("abc", tables, strict=True):
        files(tmp_path / name, of_stream[1])
    # Stopped as soon as the new rows are in: what is owed is for hr.finish, since a heartbeat comes every ten years.
    query = sink.run(out, tmp_path / "check", processingTime="0 seconds")
    try:
        begun = time.monotonic()
        while max(sink.sent) < again + 1:
            assert query.isActive, query.exception()
            assert time.monotonic() - begun < 300, "nothing comes"
            time.sleep(0.05)
    finally:
        query.stop()
    first, second = sink.sent[again]
    assert first == second
    left = collected(out, query)
    assert left
    assert sink.rows + left == duck(*map(pa.concat_tables, tables))
    assert collected(out, query) == Counter()
    (log,) = RunLog.find(tmp_path / "state", str(query.id))
    assert log.operator == "join of 3 by k"


def test_oracle_batch_dataframes_alone_and_beside_streams(spark, tmp_path):
    tables = [rows(1, 800), rows(2, 800, key="key", type_=pa.int32()), rows(3, 800)]
    wanted = duck(*tables, on="a.k = b.key and b.key = c.k")
    first, second, third = (spark.createDataFrame(table) for table in tables)
    options = {"on": ["k", "key", "k"], "memory": "1536KiB", "shards": 2, "partitions": 4, "workers": 2}
    out = hr.multiway_join([first, second, third], **options)
    assert not out.isStreaming
    assert counted(out.toArrow()) == wanted
    files(tmp_path / "a", tables[0])
    files(tmp_path / "c", tables[2].slice(0, 500), tables[2].slice(500))
    streams = [source(spark, tmp_path / "a"), second, source(spark, tmp_path / "c")]
    sink = Sink()
    finished(sink.run(hr.multiway_join(streams, state=tmp_path / "state", **options), tmp_path / "check"))
    assert sink.rows == wanted


def test_what_cannot_be_is_refused(spark, tmp_path):
    files(tmp_path / "in", rows(1, 5))
    stream = source(spark, tmp_path / "in")

    def refused(message, streams=(stream,) * 3, on="k", error=BadInput, **options):
        with pytest.raises(error, match=message):
            hr.multiway_join(streams, on, **{"state": tmp_path / "state", **options})

    refused("is not a list of streams to join", stream)
    refused("is not a list of streams to join", [stream])
    refused("give state=DIRECTORY", state=None)
    refused(r"on=\['k', 'k'\] is not a key of 3 streams", on=["k", "k"])
    refused("stream 2 has no column 'j'", on=["k", "k", "j"])
    refused("column 's' of stream 1 has type string, and 'k' of the other has int64", on=["k", "s", "k"])
    refused("flush='rrpj-f' chooses among tuples", flush="rrpj-f")
    refused("flush='foresight' decides between two sides, and there are 3 streams", flush="foresight")
    refused("probing='best' is not supported; choose one of rop", probing="best")
    refused("probing='apriori' needs selectivity", probing="apriori")
    refused("column 'n' is in stream 0 and in stream 1", suffix=None)
    refused("shards=0 is not a number of shards", shards=0)
    refused("partitions=0 is not a number of partitions", partitions=0)
    refused("give at least 1.5MiB", memory="1MiB", shards=2, workers=2, error=MemoryRefused)
    refused("idle='soon' is not a duration", idle="soon")
    twice = stream.selectExpr("k", "n", "s as n2").toDF("k", "n", "n")
    refused("stream 1 has more than one column n", (stream, twice, stream))
