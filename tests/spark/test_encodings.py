"""Encodings of the files that `hr.load` writes: chosen by the rows, and read by every reader."""

from collections import Counter

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import headrace as hr
from headrace.spark.delta.encodings import Encodings

ROWS = 30_000


@pytest.fixture
def table():
    random = np.random.default_rng(1)
    return pa.table(
        {
            "id": np.arange(ROWS),
            "key": random.permutation(ROWS),
            "noise": random.integers(-(2**63), 2**63 - 1, ROWS),
            "price": random.random(ROWS),
            "colour": pa.array(["red", "green", "blue", None], pa.string()).take(random.integers(0, 4, ROWS)),
            "city": pa.array([f"a city that has the number {i}" for i in random.integers(0, 500, ROWS)]),
            "text": [f"order {i} of customer {i * 7 % 1000}" for i in range(ROWS)],
            "flag": random.random(ROWS) < 0.5,
            "nothing": pa.nulls(ROWS, pa.int32()),
            "tags": pa.array([["a", "b"], [], None]).take(random.integers(0, 3, ROWS)),
        }
    )


def test_a_column_has_a_dictionary_only_where_that_halves_it(table):
    chosen = Encodings.of(table)
    assert chosen.dictionary == ("colour", "city", "tags.list.element")
    assert chosen.plain == ("noise", "price", "flag")
    assert Encodings.of(table) == chosen


def test_few_rows_and_none_are_encoded_too(table):
    for part in (table.slice(0, 1), table.slice(0, 0), table.select(["nothing"])):
        out = pa.BufferOutputStream()
        pq.write_table(part, out, **Encodings.of(part).options())
        assert pq.read_table(pa.BufferReader(out.getvalue())).equals(part)


def test_values_that_the_sample_rarely_sees_twice_are_not_taken_for_few():
    """A dictionary for 20,000 different texts would be full, and given up, after the work of making it."""
    values = np.random.default_rng(2).integers(0, 20_000, 200_000)
    texts = pa.array([f"{v:060d}" for v in range(20_000)]).take(values)
    assert Encodings.of(pa.table({"t": texts})).dictionary == ()


@pytest.mark.spark
def test_differential_every_reader_reads_what_was_loaded(spark, table, tmp_path):
    hr.load(spark.createDataFrame(table).coalesce(1), tmp_path / "t")
    (file,) = (tmp_path / "t").glob("*.parquet")
    columns = {c["path_in_schema"]: c for c in pq.read_metadata(file).row_group(0).to_dict()["columns"]}
    with_dictionary = {name for name, c in columns.items() if "RLE_DICTIONARY" in c["encodings"]}
    assert with_dictionary == {"colour", "city", "tags.list.element"}
    assert {name for name, c in columns.items() if c["compression"] != "ZSTD"} == {"noise", "price", "flag"}
    readers = {
        "delta-rs": DeltaTable(str(tmp_path / "t")).to_pyarrow_table(),
        "DuckDB": duckdb.sql(f"SELECT * FROM read_parquet('{file}')").to_arrow_table(),
        "Spark": spark.read.parquet(str(file)).toArrow(),
    }
    wanted = Counter(map(repr, zip(*table.to_pydict().values(), strict=True)))
    for reader, found in readers.items():
        rows = Counter(map(repr, zip(*found.select(table.column_names).to_pydict().values(), strict=True)))
        assert rows == wanted, reader
