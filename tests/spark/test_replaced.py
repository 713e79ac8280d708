"""A relation replaced (overwrite=True) under a query: it stops and says so, and no row is joined with the wrong one."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from tests.support.delta_tables import by_deltalake, rows
from tests.support.spark_streams import files, finished, source

pytestmark = pytest.mark.spark

STREAM = pa.table({"k": np.arange(40)})


def made(path, mark: int, **options) -> hr.Relation:
    return hr.Relation.create(path, pa.table({"k": np.arange(50), "v": np.full(50, mark)}), key="k", **options)


def test_contract_a_query_stops_when_its_relation_is_replaced(spark, tmp_path):
    rel, given = made(tmp_path / "r", 1), Counter()
    stream = source(spark, files(tmp_path / "in", STREAM, STREAM))

    def run(rel, replace_before):
        def sink(df, batch):
            if batch == replace_before:
                made(tmp_path / "r", 2, overwrite=True).close()
            given.update((batch, v) for v in df.toArrow()["v"].to_pylist())

        out = hr.enrich(stream.repartition(3), rel, on="k", memory="8MiB").writeStream.foreachBatch(sink)
        finished(out.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start())

    with pytest.raises(Exception, match=r"RelationReplaced.*/r is not the relation that was opened"):
        run(rel, 1)
    assert given == {(0, 1): 40}
    run(hr.Relation.open(tmp_path / "r"), None)
    assert given == {(0, 1): 40, (1, 2): 40}


def test_contract_rows_that_wait_are_joined_with_the_new_relation_only_if_asked(spark, tmp_path):
    inbox, table = files(tmp_path / "in", STREAM), tmp_path / "table"

    def begun(rel):
        defer = hr.Defer(deadline="1h", state=tmp_path / "state", shards=2)
        df = hr.enrich(source(spark, inbox), rel, on="k", memory="8MiB", defer=defer)
        return hr.load(df, table, checkpoint=tmp_path / "c", trigger={"availableNow": True})

    def found() -> int:
        return by_deltalake(table).num_rows

    old = made(tmp_path / "r", 1)
    query = begun(old)
    finished(query)
    assert found() < 40
    new = made(tmp_path / "r", 2, overwrite=True)
    with pytest.raises(hr.RelationReplaced, match="another was made in its place"):
        hr.finish(query)  # which began with the old one
    files(inbox, STREAM)
    query = begun(new)
    with pytest.raises(Exception, match=r"RelationReplaced.* rows wait in .*on_replaced='join'"):
        finished(query)
    with pytest.raises(hr.RelationReplaced, match=r"rows wait in .*on_replaced='join'"):
        hr.finish(query)
    with pytest.raises(hr.BadInput, match="on_replaced='yes'"):
        hr.finish(query, on_replaced="yes")
    before = found()
    hr.finish(query, on_replaced="join")
    assert found() == 40 > before
    query = begun(new)
    finished(query)
    hr.finish(query)
    assert rows(by_deltalake(table), ["k"]) == rows(pa.concat_tables([STREAM, STREAM]), ["k"])
