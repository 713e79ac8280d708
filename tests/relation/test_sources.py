"""The same rows from every kind of source give the same relation."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import headrace as hr
from tests.support.relation_oracle import check_same, chunks, leftovers

ROWS = 3000


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(9)
    return pa.table(
        {
            "k": pa.array(rng.integers(0, 900, ROWS), pa.int32()),
            "part": pa.array(rng.choice(["north", "south"], ROWS)),
            "v": pa.array(rng.random(ROWS), mask=rng.random(ROWS) < 0.2),
            "s": pa.array([None if i % 7 == 0 else "s" * (i % 50) for i in range(ROWS)]),
        }
    )


def parquet_file(table, root):
    pq.write_table(table, root / "one.parquet", row_group_size=500)
    return root / "one.parquet"


def parquet_directory(table, root):
    (root / "many").mkdir()
    for i in range(4):
        pq.write_table(table.slice(i * 800, 800), root / "many" / f"part-{i}.parquet")
    return root / "many"


def hive(table, root):
    ds.write_dataset(
        table,
        root / "hive",
        format="parquet",
        partitioning=ds.partitioning(pa.schema([("part", pa.string())]), flavor="hive"),
    )
    return root / "hive"


SOURCES = {
    "table": lambda t, _: t,
    "table of many chunks": lambda t, _: pa.Table.from_batches(chunks(t, 17)),
    "reader": lambda t, _: t.to_reader(max_chunksize=100),
    "reader of slices": lambda t, _: pa.RecordBatchReader.from_batches(t.schema, chunks(t, 64)),
    "dataset in memory": lambda t, _: ds.dataset(t),
    "dataset of one file": lambda t, root: ds.dataset(parquet_file(t, root)),
    "dataset of files": lambda t, root: ds.dataset(parquet_directory(t, root)),
    "dataset of Arrow files": lambda t, root: (
        ds.write_dataset(t, root / "ipc", format="arrow") or ds.dataset(root / "ipc", format="arrow")
    ),
    "hive dataset": lambda t, root: ds.dataset(hive(t, root), partitioning="hive"),
    "union dataset": lambda t, root: ds.dataset([ds.dataset(t.slice(0, 1000)), ds.dataset(t.slice(1000))]),
    "path": parquet_file,
    "path as text": lambda t, root: str(parquet_file(t, root)),
    "directory": parquet_directory,
    "directory as text": lambda t, root: str(parquet_directory(t, root)),
    "hive directory": hive,
    "pandas": lambda t, _: t.to_pandas(),
    "pandas with an index": lambda t, _: t.to_pandas().set_index(pd.Index(range(ROWS, 0, -1))),
}


@pytest.mark.parametrize("source", SOURCES)
def test_differential_every_source_gives_the_same(source, table, tmp_path):
    (tmp_path / "relations").mkdir()
    data = SOURCES[source](table, tmp_path)
    seen = []
    rel = hr.Relation.create(
        tmp_path / "relations" / "r",
        data,
        key="k",
        page_size=4096,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert sorted(rel.schema.names) == sorted(table.schema.names), "a column is lost"
    stored = table.select(rel.schema.names)
    if "pandas" in source:
        stored = pa.Table.from_pandas(stored.to_pandas(), preserve_index=False)
    elif "hive" in source:
        # the files of a partitioned dataset come one directory after the other
        stored = pa.concat_tables([stored.filter(pa.compute.equal(stored["part"], p)) for p in ("north", "south")])
    check_same(rel, stored)
    assert leftovers(tmp_path / "relations" / "r") == []
    assert seen[-1][0] == ROWS
    assert {total for _, total in seen} <= {ROWS, None}
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_a_filtered_dataset_gives_what_passes(table, tmp_path):
    data = ds.dataset(parquet_directory(table, tmp_path)).filter(ds.field("k") < 100)
    rel = hr.Relation.create(tmp_path / "r", data, key="k")
    check_same(rel, table.filter(pa.compute.less(table["k"], 100)))


def test_files_whose_types_differ(tmp_path):
    """The dataset's schema decides; files written earlier may lack a column or have a narrower one."""
    (tmp_path / "many").mkdir()
    pq.write_table(pa.table({"k": pa.array([1, 2], pa.int32())}), tmp_path / "many" / "a.parquet")
    pq.write_table(pa.table({"k": [3, 4], "v": ["x", "y"]}), tmp_path / "many" / "b.parquet")
    schema = pa.schema({"k": pa.int64(), "v": pa.string()})
    rel = hr.Relation.create(tmp_path / "r", ds.dataset(tmp_path / "many", schema=schema), key="k")
    check_same(rel, pa.table({"k": [1, 2, 3, 4], "v": [None, None, "x", "y"]}, schema))


def test_files_in_another_column_order(tmp_path):
    (tmp_path / "many").mkdir()
    pq.write_table(pa.table({"k": [1, 2], "v": ["a", "b"]}), tmp_path / "many" / "a.parquet")
    pq.write_table(pa.table({"v": ["c", "d"], "k": [3, 4]}), tmp_path / "many" / "b.parquet")
    rel = hr.Relation.create(tmp_path / "r", tmp_path / "many", key="k")
    check_same(rel, pa.table({"k": [1, 2, 3, 4], "v": ["a", "b", "c", "d"]}))


def test_pandas_categories_and_missing_values(tmp_path):
    frame = pd.DataFrame(
        {
            "k": pd.array([1, 2, 3], "Int64"),
            "c": pd.Categorical(["x", None, "x"]),
            "t": pd.to_datetime(["2024-01-01", None, "1960-05-05"]),
            "o": ["text", None, ""],
        }
    )
    rel = hr.Relation.create(tmp_path / "r", frame, key="k", nanoseconds="truncate")
    assert rel.schema.field("c").type == pa.string()
    expected = pa.Table.from_pandas(frame, preserve_index=False)
    expected = expected.set_column(1, "c", expected["c"].cast(pa.string()))
    check_same(rel, expected.set_column(2, "t", expected["t"].cast(pa.timestamp("us"))))


def test_sources_without_rows(tmp_path):
    empty = pa.table({"k": pa.array([], pa.int64()), "v": pa.array([], pa.string())})
    sources = [
        empty,
        empty.to_reader(),
        ds.dataset(empty),
        parquet_file(empty, tmp_path),
        empty.to_pandas(),
    ]
    for i, data in enumerate(sources):
        rel = hr.Relation.create(tmp_path / f"r{i}", data, key="k")
        assert (rel.num_rows, rel.num_pages, rel.lookup([1]).num_rows) == (0, 0, 0)
        assert list(rel.scan()) == []
        rel.verify()


def test_a_directory_is_made_for_it(tmp_path):
    rel = hr.Relation.create(tmp_path / "a" / "b" / "r", pa.table({"k": [1]}), key="k")
    assert rel.lookup([1]).num_rows == 1
