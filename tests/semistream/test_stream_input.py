"""What `run` takes for a stream: batches in any wrapping, and rows that are there already."""

from collections import Counter

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.semistream import SSIJ, AdaptiveJoin, IndexNestedLoop, MeshJoin

ROWS = pa.table({"k": list(range(200)), "v": [f"v{i}" for i in range(200)]})
STREAM = pa.table(
    {"k": [i * 7 % 300 for i in range(1000)], "s": [None if i % 9 == 0 else f"a text of {i}" for i in range(1000)]}
)


@pytest.fixture(scope="module")
def rel(tmp_path_factory):
    return hr.Relation.create(tmp_path_factory.mktemp("input") / "products", ROWS, key="k")


FORMS = {
    "list": lambda path: STREAM.to_batches(max_chunksize=100),
    "generator": lambda path: iter(STREAM.to_batches(max_chunksize=100)),
    "reader": lambda path: STREAM.to_reader(),
    "table": lambda path: STREAM,
    "batch": lambda path: STREAM.to_batches()[0],
    "pandas": lambda path: STREAM.to_pandas(),
    "polars": lambda path: pl.DataFrame(STREAM),
    "polars with categories": lambda path: pl.DataFrame(STREAM).with_columns(pl.col("s").cast(pl.Categorical)),
    "lazy polars": lambda path: pl.DataFrame(STREAM).lazy(),
    "duckdb": lambda path: duckdb.from_arrow(STREAM),
    "path": lambda path: pq.write_table(STREAM, path / "s.parquet") or path / "s.parquet",
}


@pytest.mark.parametrize("algorithm", [AdaptiveJoin, IndexNestedLoop, MeshJoin, SSIJ])
@pytest.mark.parametrize("form", FORMS)
def test_oracle_every_form_of_a_stream_is_joined(form, algorithm, rel, tmp_path):
    out = pa.Table.from_batches(algorithm(rel, on="k", memory="4MiB").run(FORMS[form](tmp_path)))
    wanted = [(k, s, f"v{k}") for k, s in zip(*STREAM.to_pydict().values(), strict=True) if k < 200]
    assert out.schema.names == ["k", "s", "v"]
    assert Counter(zip(*out.to_pydict().values(), strict=True)) == Counter(wanted)


def test_a_relation_is_a_stream_for_another(rel):
    out = pa.Table.from_batches(AdaptiveJoin(rel, on="k", memory="4MiB").run(rel.refresh()))
    assert out.num_rows == 200


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (None, "batches is a NoneType; expected an iterable of pyarrow RecordBatches, a Table"),
        ({"k": [1]}, "batches is a dict; expected an iterable of pyarrow RecordBatches"),
        (5, "batches is a int; expected"),
        ([{"k": 1}], "the stream gave a dict; expected pyarrow RecordBatches"),
        ([STREAM], r"the stream gave a pyarrow Table; expected .* Table.to_batches\\(\\)"),
        ("nowhere.parquet", "there are no batches at .*nowhere.parquet"),
    ],
)
@pytest.mark.parametrize("algorithm", [AdaptiveJoin, MeshJoin, IndexNestedLoop])
def test_what_is_no_stream_is_named(stream, message, algorithm, rel):
    with pytest.raises(hr.BadInput, match=message.replace("\\\\", "\\")):
        list(algorithm(rel, on="k", memory="4MiB").run(stream))


@pytest.mark.parametrize("algorithm", [AdaptiveJoin, MeshJoin])
def test_what_is_no_relation_is_named(algorithm, rel):
    with pytest.raises(
        hr.BadInput, match=r"relation='.*products' is a path, not a relation; open one with hr.Relation.open\('"
    ):
        algorithm(str(rel.path), on="k", memory="4MiB")
    with pytest.raises(
        hr.BadInput, match=r"relation is a pyarrow Table, not a relation; open one with hr.Relation.open"
    ):
        algorithm(ROWS, on="k", memory="4MiB")


def test_a_join_shows_what_it_was_made_with(rel):
    assert (
        repr(AdaptiveJoin(rel, on="k", memory="64m"))
        == f"AdaptiveJoin({str(rel.path)!r}, on='k', memory='64MiB', how='inner')"
    )
    assert repr(SSIJ(rel, on="k", memory="4MiB", deadline="10s")).endswith("how='inner', deadline='10s')")
