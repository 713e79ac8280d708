"""`hr.progressive_join(how=...)` on Spark, against Spark's own join of the same rows as tables."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import BadInput
from tests.support.batch_sink import Sink, collected
from tests.support.spark_streams import counted, files, finished, last_again, source

pytestmark = pytest.mark.spark
SPARKS = {"full": "full_outer", "semi": "left_semi", "anti": "left_anti"}
HOUR = 3_600 * 10**6


def rows(hour, name, n=300):
    """Rows of an hour; some have no key, and some no partner within ten minutes."""
    rng = np.random.default_rng([hour, ord(name)])
    keys = pa.array(rng.integers(0, 100, n), mask=rng.random(n) < 0.05)
    times = pa.array(HOUR * hour + np.sort(rng.integers(0, HOUR, n)), pa.timestamp("us", "UTC"))
    return pa.table({"k": keys, f"t{name}": times, name: np.arange(n) + 1_000 * hour})


def test_oracle_rows_without_partners_leave_once_over_a_restart_and_a_replay(spark, tmp_path):
    sides = {name: [rows(hour, name) for hour in range(4)] for name in "ab"}
    left, right = (spark.createDataFrame(pa.concat_tables(tables)).alias(name) for name, tables in sides.items())
    near = (
        (left["k"] == right["k"])
        & (left["ta"] >= right["tb"] - _minutes(10))
        & (left["ta"] <= right["tb"] + _minutes(10))
    )
    for how, sparks in SPARKS.items():
        place, sink = tmp_path / how, Sink()
        place.mkdir()
        streams = []
        for name, tables in sides.items():
            files(place / name, *tables[:2])
            streams.append(source(spark, place / name).withWatermark(f"t{name}", "1 minute"))
        out = hr.progressive_join(
            *streams, hr.equal("k"), how=how, within_time="10 minutes", memory="1MiB", state=place / "state", shards=2, workers=2
        )  # fmt: skip
        query = sink.run(out, place / "check")
        finished(query)
        again = last_again(place / "check")
        for name, tables in sides.items():
            files(place / name, *tables[2:])
        query = sink.run(out, place / "check")
        finished(query)
        first, second = sink.sent[again]
        assert first == second
        early = sink.rows
        assert any(None in row for row in early) or how == "semi"  # rows leave as time goes on
        wanted = left.join(right, near, sparks)
        if how == "full":
            wanted = wanted.selectExpr("coalesce(a.k, b.k)", "ta", "a", "tb", "b")
        assert early + collected(out, query) == counted(wanted.toArrow()), how
        assert collected(out, query) == Counter()


def _minutes(n):
    from pyspark.sql.functions import expr

    return expr(f"interval {n} minutes")


def test_what_cannot_be_is_refused(spark, tmp_path):
    files(tmp_path / "in", rows(1, "a"))
    stream = source(spark, tmp_path / "in")
    with pytest.raises(
        BadInput, match="how='outer' is not supported; choose one of inner, left, right, full, semi, anti"
    ):
        hr.progressive_join(stream, stream, hr.equal("k"), how="outer", state=tmp_path / "state")
    with pytest.raises(BadInput, match="how='left' needs an equality in the condition"):
        hr.progressive_join(stream, stream, hr.within(("a",), eps=1), how="left", state=tmp_path / "state")
    narrow = stream.selectExpr("cast(k as int) as k", "a as b")
    with pytest.raises(BadInput, match="cast one of them"):
        hr.progressive_join(stream, narrow, hr.equal("k"), how="right", state=tmp_path / "state")
