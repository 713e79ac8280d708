"""`assign_surrogate_keys` on Spark, streaming and batch. [MESH] Fig. 1, [SSIJ] Fig. 1"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import BadInput
from tests.support.spark_streams import files, finished, source, streamed

pytestmark = pytest.mark.spark

KEY = ["source", "id"]
EMPTY = pa.schema(
    [("source", pa.string()), ("id", pa.int64()), ("skey", pa.int64()), ("inferred", pa.bool_()), ("name", pa.string())]
)


def lookup_at(path: Path, schema=EMPTY) -> hr.Relation:
    return hr.Relation.create(path, schema.empty_table(), key=[n for n in schema.names if n in KEY])


def content(lookup: hr.Relation) -> dict:
    with lookup.refresh() as latest:
        return {
            tuple(r[k] for k in latest.key): r for r in pa.Table.from_batches(latest.scan(), latest.schema).to_pylist()
        }


def test_the_example_of_mesh(spark, tmp_path):
    """Two sources use the same ids for different drinks, and different ids for one; the lookup knows."""
    table = pa.table({"id": [10, 20, 10, 20], "source": ["R1", "R1", "R2", "R2"], "skey": [100, 110, 110, 120]})
    lookup = hr.Relation.create(tmp_path / "lookup", table, key=["id", "source"])
    r1 = spark.createDataFrame(pa.table({"id": [10, 20], "descr": ["coke", "pepsi"]}))
    r2 = spark.createDataFrame(pa.table({"id": [10, 20], "descr": ["pepsi", "fanta"]}))
    loaded = [
        hr.assign_surrogate_keys(df, lookup, source=name, key="id", inferred=None).select("skey", "descr")
        for df, name in ((r1, "R1"), (r2, "R2"))
    ]
    got = loaded[0].union(loaded[1]).distinct().toArrow().sort_by("skey").to_pydict()
    assert got == {"skey": [100, 110, 120], "descr": ["coke", "pepsi", "fanta"]}
    assert lookup.refresh().version == 1


def test_the_example_of_ssij_from_an_empty_lookup_and_a_mapping(spark, tmp_path):
    """S2's 1 is S1's 2, a DVD; all else is new. The table of Fig. 1 comes out, with numbers of our own."""
    same = hr.Relation.create(
        tmp_path / "same", pa.table({"source": ["S2"], "id": [1], "same_source": ["S1"], "same_id": [2]}), key=KEY
    )
    lookup = lookup_at(tmp_path / "lookup")
    rows = pa.table({"src": ["S1", "S1", "S2", "S2"], "id": [1, 2, 1, 2], "desc": ["book", "DVD", "DVD", "CD"]})
    df = spark.createDataFrame(rows)
    out = hr.assign_surrogate_keys(df, lookup, source_column="src", key="id", same_as=same)
    assert out.columns == ["src", "id", "desc", "skey"]
    warehouse = out.select("skey", "desc").distinct().toArrow().to_pydict()
    assert sorted(warehouse["skey"]) == [1, 2, 3]
    assert sorted(warehouse["desc"]) == ["CD", "DVD", "book"]
    known = content(lookup)
    assert len(known) == 4
    assert known["S1", 2]["skey"] == known["S2", 1]["skey"]
    assert all(row["inferred"] and row["name"] is None for row in known.values())


def test_a_stream_of_two_sources_gets_each_number_once(spark, tmp_path):
    """Keys come again in later micro-batches and from both sources; nulls get no number; a member is completed meanwhile."""
    rng = np.random.default_rng(5)
    parts = [
        pa.table(
            {
                "src": rng.choice(["x", "y"], 400),
                "product": pa.array(rng.integers(0, 60 + 60 * i, 400), mask=rng.random(400) < 0.05),
                "n": np.arange(400) + 400 * i,
            }
        )
        for i in range(3)
    ]
    lookup = lookup_at(tmp_path / "lookup")
    out = hr.assign_surrogate_keys(
        source(spark, files(tmp_path / "in", *parts)), lookup, source_column="src", key={"product": "id"}
    )
    got = streamed(out)
    rows = pa.concat_tables(parts).to_pylist()
    assert sorted(got["n"].to_pylist()) == list(range(1200))
    numbers: dict = {}
    for row in got.to_pylist():
        assert {k: row[k] for k in ("src", "product", "n")} == rows[row["n"]]
        if row["product"] is None:
            assert row["skey"] is None
        else:
            assert numbers.setdefault((row["src"], row["product"]), row["skey"]) == row["skey"]
    assert sorted(numbers.values()) == list(range(1, len(numbers) + 1))  # no doubles, no gaps
    assert {k: r["skey"] for k, r in content(lookup).items()} == numbers
    assert lookup.refresh().version <= 1 + 3 * 2  # a version for each task of a micro-batch, at most


def test_a_replay_after_a_lost_commit_gives_the_same_numbers(spark, tmp_path):
    """Spark forgets that the last micro-batch was done, as after kill -9 between the sink and its commit log."""
    parts = [pa.table({"id": np.arange(30)}), pa.table({"id": np.arange(20, 60)})]
    lookup = lookup_at(tmp_path / "lookup")
    df = source(spark, files(tmp_path / "in", *parts))
    out = hr.assign_surrogate_keys(df, lookup, source="s", key="id")

    def run() -> dict[int, pa.Table]:
        seen: dict[int, pa.Table] = {}
        writer = out.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer = writer.foreachBatch(lambda rows, batch: seen.__setitem__(batch, rows.toArrow()))
        finished(writer.trigger(availableNow=True).start())
        return seen

    seen = run()
    before = content(lookup)
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    again = run()
    assert list(again) == [1]
    again, first = again[1], pa.concat_tables([seen[0], seen[1]])
    assert again.num_rows == 40
    numbers = dict(zip(first["id"].to_pylist(), first["skey"].to_pylist(), strict=True))
    assert [numbers[i] for i in again["id"].to_pylist()] == again["skey"].to_pylist()
    assert content(lookup) == before
    assert sorted(numbers.values()) == list(range(1, 61))


def test_keys_then_facts_then_load_in_one_pass(spark, tmp_path):
    """The lookup is also the dimension: after a dimension load, rows are enriched with what it brought."""
    lookup = lookup_at(tmp_path / "lookup")
    prices = hr.Relation.create(tmp_path / "prices", pa.table({"skey": [1, 2, 3], "price": [5, 6, 7]}), key="skey")
    df = source(spark, files(tmp_path / "in", pa.table({"id": [7, 8, 7, 9, 8]})))
    keyed = hr.assign_surrogate_keys(df, lookup, source="s", key="id")
    query = hr.load(
        hr.enrich(keyed, prices, on="skey"), tmp_path / "t", checkpoint=tmp_path / "c", trigger={"availableNow": True}
    )
    finished(query)
    from deltalake import DeltaTable

    rows = DeltaTable(str(tmp_path / "t")).to_pyarrow_table().to_pylist()
    known = {k[1]: r["skey"] for k, r in content(lookup).items()}
    assert sorted((r["id"], r["skey"], r["price"]) for r in rows) == sorted(
        (i, known[i], known[i] + 4) for i in (7, 8, 7, 9, 8)
    )


def test_numbers_are_found_where_the_version_is_gone(spark, tmp_path):
    """As when the one worker that held a micro-batch's version is killed, and other tasks commit new ones meanwhile."""
    lookup = lookup_at(tmp_path / "lookup")
    out = hr.assign_surrogate_keys(spark.createDataFrame(pa.table({"id": [5, 6]})), lookup, source="s", key="id")
    lookup.close()
    with hr.Relation.open(tmp_path / "lookup") as other:
        row = {"source": "s", "id": 5, "skey": 70, "inferred": False, "name": "five"}
        other.apply(pa.Table.from_pylist([row], schema=EMPTY))
    with hr.Relation.open(tmp_path / "lookup") as other:
        other.compact()
    with pytest.raises(hr.VersionGone):
        hr.Relation.open(tmp_path / "lookup", version=1)
    assert sorted(out.toArrow().to_pylist(), key=repr) == [{"id": 5, "skey": 70}, {"id": 6, "skey": 71}]


def test_a_lookup_of_one_source_with_a_text_key(spark, tmp_path):
    schema = pa.schema([("id", pa.string()), ("skey", pa.int32())])
    lookup = lookup_at(tmp_path / "lookup", schema)
    df = spark.createDataFrame(pa.table({"id": ["b", None, "a", "b"], "source": [1, 2, 3, 4]}))
    got = hr.assign_surrogate_keys(df, lookup, key="id", inferred=None, first=1000, partitions=1).toArrow()
    assert got.schema.field("skey").type == pa.int32()
    by_row = {r["source"]: r["skey"] for r in got.to_pylist()}
    assert by_row[2] is None
    assert by_row[1] == by_row[4]
    assert {by_row[1], by_row[3]} == {1000, 1001}


def test_what_cannot_work_is_refused_at_once(spark, tmp_path):
    lookup = lookup_at(tmp_path / "lookup")
    df = spark.createDataFrame(pa.table({"id": [1], "src": ["a"]}))
    plain = hr.Relation.create(tmp_path / "plain", pa.table({"id": [1, 1], "skey": [1, 2], "t": ["", ""]}), key="id")

    def refused(match, df=df, lookup=lookup, **options):
        with pytest.raises(BadInput, match=match):
            hr.assign_surrogate_keys(df, lookup, **({"key": "id", "source": "s"} | options))

    refused("not a relation", lookup="lookup")
    refused("key names 'product' of the lookup, whose key is source, id", key="product")
    refused("leaves source for the source; say where", source=None)
    refused("both given", source_column="src")
    refused("source=5 does not fit column 'source' of type string", source=5)
    refused("no column 'sk' for surrogate keys", surrogate="sk")
    refused("has type string; surrogate keys are int32 or int64", surrogate="name")
    refused("'skey' is in the DataFrame already", df=df.withColumnRenamed("src", "skey"))
    refused("no boolean column 'name'", inferred="name")
    refused("has a key twice", lookup=plain, source=None, inferred=None)
    refused("same_as has the key id: int64; expected that of the lookup", same_as=plain)
    refused("partitions=0", partitions=0)
    refused("has no column 'nothing'", key={"nothing": "id"})
    refused("cast the stream column to int64", key={"src": "id"})
