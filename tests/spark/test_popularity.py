"""What Spark tasks count is kept beside a relation that is stored by popularity, and orders it."""

import numpy as np
import pyarrow as pa

import headrace as hr


def test_tasks_note_what_the_stream_asks_for_and_the_relation_is_ordered_by_it(spark, tmp_path):
    keys = np.arange(3000)
    rows = pa.table({"k": keys, "s": ["x" * 2500] * keys.size})  # a page each
    asked = pa.table({"k": keys, "frequency": keys[::-1]})
    rel = hr.Relation.create(tmp_path / "r", rows, key="k", order="frequency", frequencies=asked, page_size="4KiB")
    wanted = np.tile(np.arange(2900, 2910), 6000)
    stream = spark.createDataFrame(pa.table({"k": np.append(wanted, keys)})).coalesce(1)
    assert hr.enrich(stream, rel, on="k", how="semi", memory="8MiB").count() == wanted.size + keys.size
    rel.compact(order="frequency")
    first = next(rel.refresh().scan(columns=[]))["k"].to_pylist()[:10]
    assert sorted(first) == list(range(2900, 2910))
