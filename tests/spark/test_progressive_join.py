"""`hr.progressive_join` on Spark: every pair once, against DuckDB; restarts, replays, one side batch, chains."""

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from tests.spark.test_deadline import Sink
from tests.spark.test_enrich import counted, files, finished, source

pytestmark = pytest.mark.spark


def orders(seed, n, keys=40):
    rng = np.random.default_rng(seed)
    k = pa.array(rng.integers(0, keys, n), mask=rng.random(n) < 0.05)
    return pa.table({"k": k, "n": np.arange(n) + 1000 * seed, "s": [f"text {x}" for x in range(n)]})


def payments(seed, n, keys=40):
    return orders(seed + 500, n, keys).rename_columns(["k", "n", "p"])


def duck(lefts, rights, on="l.k = r.k"):
    l, r = pa.concat_tables(lefts), pa.concat_tables(rights)  # noqa: F841
    with duckdb.connect() as db:
        return counted(db.sql(f"select l.*, r.n as m, r.p from l join r on {on}").to_arrow_table())


def test_oracle_every_pair_once_over_restarts_and_a_replay(spark, tmp_path):
    lefts, rights = [orders(i, 300) for i in range(4)], [payments(i, 300) for i in range(4)]
    files(tmp_path / "l", *lefts[:2])
    files(tmp_path / "r", *rights[:2])

    def out():
        return hr.progressive_join(
            source(spark, tmp_path / "l"), source(spark, tmp_path / "r"), hr.equal("k"), memory="1MiB", state=tmp_path / "state",
            shards=2, partitions=8,
        )  # fmt: skip

    joined = out()
    assert joined.columns == ["k", "n", "s", "n_right", "p"]
    sink = Sink()
    finished(sink.run(joined, tmp_path / "check"))
    assert sink.rows == duck(lefts[:2], rights[:2])
