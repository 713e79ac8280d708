"""`hr.sample` and `hr.estimate` on Spark: samples of windows, estimates with intervals, the same after a replay."""

from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import BadInput, UnsupportedType
from tests.support.batch_sink import Sink
from tests.support.spark_streams import counted, files, finished, source
from tests.support.timed_rows import again_and_on, rows

pytestmark = pytest.mark.spark


class Tables:
    """A sink that keeps tables, by micro-batch."""

    def __init__(self):
        self.sent = defaultdict(list)

    def take(self, df, batch):
        self.sent[batch].append(df.toArrow())

    run = Sink.run


def test_a_sample_of_a_window_by_rows_is_of_the_latest_rows_and_the_same_again(spark, tmp_path):
    tables = [rows(i, 500) for i in range(3)]
    files(tmp_path / "s", *tables[:2])
    out = hr.sample(
        source(spark, tmp_path / "s").select("k", "n"), window=hr.rows(600), size=100, seed=5, state=tmp_path / "state"
    )
    assert out.columns == ["k", "n", "batch"]
    sink = Sink()
    first, second, third = again_and_on(sink, out, tmp_path / "check", lambda: files(tmp_path / "s", tables[2]))
    assert first == second
    for number, sample in ((1, first), (2, third)):
        assert sample.total() == 100 and {row[2] for row in sample} == {number}
        last = {10_000 * number + n for n in range(500)} | {10_000 * (number - 1) + n for n in range(400, 500)}
        assert {row[1] for row in sample} <= last
    assert 50 < sum(row[1] >= 20_000 for row in third) < 100


def test_samples_of_a_stream_of_a_window_by_time_and_of_a_batch_data_frame(spark, tmp_path):
    table = rows(1, 2000, minutes=(0, 60))
    df = spark.createDataFrame(table)
    found = hr.sample(df, size=50, batch_column=None).toArrow()
    assert found.num_rows == 50 and not counted(found) - counted(table.replace_schema_metadata(None))
    files(tmp_path / "s", table)
    stream = source(spark, tmp_path / "s").withWatermark("t", "1 hour")
    out = hr.sample(stream, window=hr.time("10m", on="t"), size=40, method="winres", state=tmp_path / "state")
    sink = Tables()
    finished(sink.run(out, tmp_path / "check"))
    times = np.array(sink.sent[0][0]["t"].to_pylist())
    latest = max(table["t"].to_pylist())
    assert len(times) == 40 and all((latest - t).total_seconds() < 600 for t in times)


def by_quantity(table):
    return {(row.get("g"), row["quantity"]): row for row in table.to_pylist()}


@pytest.mark.parametrize("shards", [1, 3])
def test_oracle_estimates_of_a_join_with_all_kept_are_exact_and_go_on(spark, tmp_path, shards):
    rng = np.random.default_rng(2)

    def side(name, seed, n):
        table = rows(seed, n, 30, minutes=(0, 10))
        return table.append_column(name, pa.array(rng.integers(0, 5, n))).drop_columns(["n"])

    lefts, rights = [side("g", i, 300) for i in (1, 2)], [side("x", i, 300) for i in (3, 4)]
    # The last micro-batch has rows of one key, and so of one shard; the others must be in the sums nevertheless.
    lefts.append(lefts[0].filter(pa.compute.equal(lefts[0]["k"], 7)))
    for name, tables in (("l", lefts), ("r", rights)):
        files(tmp_path / name, *tables)
    left, right = (source(spark, tmp_path / name).withWatermark("t", "1 hour") for name in "lr")
    options = {"window": hr.time("1h", on="t"), "shards": shards, "state": tmp_path / "state"}
    out = hr.estimate(left, right, hr.equal("k"), count=True, sum="x", avg="x", group_by="g", size=30_000, **options)
    assert out.columns == ["batch", "g", "other", "quantity", "estimate", "low", "high", "rows", "kept", "at"]
    sink = Tables()
    finished(sink.run(out, tmp_path / "check"))
    assert sorted(sink.sent) == [0, 1, 2]
    for number, attempts in sink.sent.items():
        came = [pa.concat_tables(tables[: number + 1]) for tables in (lefts, rights)]
        l, r = (table.drop_columns(["t"]).to_pylist() for table in came)
        by_key = defaultdict(list)
        for row in r:
            by_key[row["k"]].append(row["x"])
        pairs = [(row["g"], x) for row in l if row["k"] is not None for x in by_key[row["k"]]]
        found = by_quantity(attempts[0])
        assert attempts[0].num_rows == 15 and not any(attempts[0]["other"].to_pylist())
        for g in range(5):
            mine = [x for of, x in pairs if of == g]
            for quantity, truth in (("count", len(mine)), ("sum(x)", sum(mine)), ("avg(x)", sum(mine) / len(mine))):
                row = found[g, quantity]
                assert (row["estimate"], row["low"], row["high"]) == pytest.approx((truth,) * 3)
                assert row["rows"] == row["kept"] == sum(table.num_rows for table in came)
                assert row["at"] == max(max(t["t"].to_pylist()) for t in came)


def test_estimates_from_a_sample_are_near_and_say_how_near(spark, tmp_path):
    tables = [rows(i, 4000, 50, minutes=(10 * i, 10 * i + 10)) for i in range(3)]
    files(tmp_path / "s", *tables)
    stream = source(spark, tmp_path / "s")
    out = hr.estimate(stream, window=None, count=True, sum="n", avg="n", size=400, state=tmp_path / "state")
    sink = Tables()
    finished(sink.run(out, tmp_path / "check"))
    for number, attempts in sink.sent.items():
        n = np.concatenate([np.asarray(table["n"]) for table in tables[: number + 1]])
        found = by_quantity(attempts[0])
        assert found[None, "count"]["estimate"] == n.size == found[None, "count"]["rows"]
        row = found[None, "sum(n)"]
        assert row["kept"] == 400 and row["low"] < row["estimate"] < row["high"]
        error = n.std(ddof=1) * n.size * np.sqrt((1 - 400 / n.size) / 400)
        assert abs(row["estimate"] - n.sum()) < 4 * error
        assert row["high"] - row["low"] == pytest.approx(2 * 1.966 * error, rel=0.15)


def test_a_value_that_one_shard_has_no_number_for_is_estimated_with_the_others(spark, tmp_path):
    table = rows(1, 3000, 40).drop_columns(["t"])
    df = spark.createDataFrame(table.filter(pa.compute.is_valid(table["k"])))
    found = hr.estimate(df, window=None, count=True, group_by="k", groups=25, size=9000, shards=3).toArrow()
    truth = Counter(k for k in table["k"].to_pylist() if k is not None)
    other = [row for row in found.to_pylist() if row["other"]]
    apart = [row for row in found.to_pylist() if not row["other"]]
    assert len(other) == 1 and 0 < len(apart) < 25
    for row in apart:
        assert row["estimate"] == truth[row["k"]] == row["low"] == row["high"]
    assert other[0]["estimate"] == pytest.approx(sum(truth.values()) - sum(truth[row["k"]] for row in apart))


def test_wrong_arguments_are_refused_by_name_at_the_call(spark, tmp_path):
    files(tmp_path / "s", rows(1, 10))
    df, state = source(spark, tmp_path / "s"), {"state": tmp_path / "state"}
    for refused, match in (
        (lambda: hr.sample(df, window=hr.time("1h", on="t"), size=3, **state), "no watermark on 't'"),
        (lambda: hr.sample(df, window=hr.rows(10), size=11, **state), "larger than the window"),
        (lambda: hr.sample(df, window=hr.rows(10), **state), "needs its size"),
        (lambda: hr.sample(df, size=3, method="expire", **state), "not a window"),
        (lambda: hr.sample(df, size=3, method="bernoulli", **state), "method='bernoulli'"),
        (lambda: hr.sample(df, size=3, batch_column="N", **state), "batch_column='N' is the name of another column"),
        (lambda: hr.estimate(df, window=None, size=3, **state), "nothing is to be estimated"),
        (lambda: hr.estimate(df, window=None, count=True, **state), "needs its size"),
        (lambda: hr.estimate(df, df, window=hr.rows(9), count=True, size=3, **state), "two sides and a condition"),
        (lambda: hr.estimate(df, window=None, sum="zz", size=3, **state), "no column 'zz'"),
    ):
        with pytest.raises(BadInput, match=match):
            refused()
    with pytest.raises(UnsupportedType, match="cannot be summed"):
        hr.estimate(df, window=None, sum="t", size=3, **state)
