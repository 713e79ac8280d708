"""Polars, DuckDB, Arrow's C interface, pandas and CSV as the rows of a relation, of a change and of keys."""

import bz2
import datetime as dt
import gzip
import re
from decimal import Decimal

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.relation import csv_data
from tests.support.relation_oracle import FEW, check_same, leftovers

ROWS = 3_000


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(5)
    return pa.table(
        {
            "k": pa.array(rng.integers(0, 900, ROWS)),
            "v": pa.array(rng.random(ROWS), mask=rng.random(ROWS) < 0.2),
            "s": pa.array([None if i % 7 == 0 else "s" * (i % 50) + "é" for i in range(ROWS)]),
            "t": pa.array([dt.datetime(2024, 1, 1) + dt.timedelta(microseconds=i) for i in range(ROWS)]),
            "d": pa.array([Decimal(i) / 100 for i in range(ROWS)], pa.decimal128(10, 2)),
        }
    )


class Stream:
    """What another library may hand over: a stream of Arrow's C interface, and nothing else."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


class OneBatch:
    """The same for one batch."""

    def __init__(self, table: pa.Table) -> None:
        self.batch = table.combine_chunks().to_batches()[0]

    def __arrow_c_array__(self, requested_schema=None):
        return self.batch.__arrow_c_array__(requested_schema)


def duckdb_relation(table: pa.Table) -> duckdb.DuckDBPyRelation:
    connection = duckdb.connect()
    connection.register("given", table)
    return connection.sql("SELECT * FROM given")


FORMS = {
    "Polars frame": pl.DataFrame,
    "Polars frame of many chunks": lambda t: pl.concat(
        [pl.DataFrame(t.slice(i, 700)) for i in range(0, ROWS, 700)], rechunk=False
    ),
    "Polars lazy frame": lambda t: pl.DataFrame(t).lazy(),
    "DuckDB relation": duckdb_relation,
    "C stream": Stream,
    "C array": OneBatch,
    "record batch": lambda t: t.combine_chunks().to_batches()[0],
    "pandas": lambda t: t.to_pandas(types_mapper=pd.ArrowDtype),
}


@pytest.mark.parametrize("form", FORMS)
def test_oracle_every_form_gives_the_same_relation_and_the_same_change(form, table, tmp_path):
    (tmp_path / "relations").mkdir()
    seen = []
    rel = hr.Relation.create(
        tmp_path / "relations" / "r",
        FORMS[form](table),
        key="k",
        page_size="4KiB",
        progress=lambda done, total: seen.append((done, total)),
    )
    assert rel.schema == table.schema
    check_same(rel, table)
    assert seen[-1][0] == ROWS and {total for _, total in seen} <= {ROWS, None}
    changed = pa.table([pa.array([1, 5_000]), *(c.slice(0, 2) for c in table.columns[1:])], schema=table.schema)
    rel.apply(upserts=FORMS[form](changed), deletes=FORMS[form](pa.table({"k": [2, 3]})))
    with rel.refresh() as new:
        kept = table.filter(pa.compute.invert(pa.compute.is_in(table["k"], pa.array([1, 2, 3]))))
        check_same(new, pa.concat_tables([kept, changed]))
        assert new.lookup(FORMS[form](pa.table({"k": [1, 2]}))).num_rows == 1
    assert leftovers(tmp_path / "relations" / "r") == []


def test_a_relation_is_the_data_of_another(table, tmp_path):
    rel = hr.Relation.create(tmp_path / "a", table, key="k")
    check_same(hr.Relation.create(tmp_path / "b", rel, key=["k", "t"]), table)


TYPES = ["string"] * 4 + ["binary", "uint8", "time64[ns]", "duration[us]", "int64", "string", "null", "bool"]


def test_encodings_of_polars_are_stored_plain(tmp_path):
    frame = pl.DataFrame(
        {
            "k": pl.Series(["b", "a", "c"], dtype=pl.Categorical),
            "c": pl.Series(["x", None, "y"], dtype=pl.Categorical),
            "e": pl.Series(["y", "x", None], dtype=pl.Enum(["x", "y"])),
            "s": ["text", None, "longer than a view's twelve bytes"],
            "b": [b"a", b"", None],
            "i": pl.Series([1, 2, None], dtype=pl.UInt8),
            "time": [dt.time(1, 2, 3), None, dt.time(0)],
            "dur": [dt.timedelta(seconds=1), None, dt.timedelta(0)],
            "st": [{"x": 1, "y": "a"}, {"x": 2, "y": None}, None],
            "null": [None, None, None],
            "flag": [True, None, False],
        }
    )
    for i, form in enumerate([frame, frame.lazy(), frame.to_arrow()]):
        rel = hr.Relation.create(tmp_path / f"r{i}", form, key="k")
        assert [str(type_) for type_ in rel.schema.types] == TYPES
        got = rel.lookup(["a", "b", "c"]).to_pylist()
        flat = frame.sort(pl.col("k").cast(pl.String)).unnest("st").rename({"x": "st_x", "y": "st_y"})
        assert got == flat.to_dicts()
        assert rel.lookup(frame["k"].head(2)).to_pylist() == [got[1], got[0]]
        assert rel.lookup(frame.select("k").head(1)).to_pylist() == [got[1]]


@pytest.mark.parametrize(
    ("column", "type_"),
    [
        (pl.Series([1], dtype=pl.Int128), "Int128"),
        (pl.Series([object()], dtype=pl.Object), "Object"),
        (pl.Series([[1]]), "list"),
        (pl.Series([[1, 2]], dtype=pl.Array(pl.Int64, 2)), "fixed_size_list"),
    ],
)
@pytest.mark.parametrize("lazy", [False, True])
def test_types_of_polars_that_cannot_be_stored_are_named(column, type_, lazy, tmp_path):
    frame = pl.DataFrame({"k": [1], "odd": column})
    with pytest.raises(hr.UnsupportedType, match=rf"column 'odd' has .*{type_}"):
        hr.Relation.create(tmp_path / "r", frame.lazy() if lazy else frame, key="k")
    assert not (tmp_path / "r").exists()


def test_a_lazy_frame_is_read_in_pieces(tmp_path):
    """Categories have a dictionary of their own in each piece; text is what is stored."""
    n = 200_000
    pl.DataFrame({"k": range(n), "c": [f"name {i % 977}" for i in range(n)]}).write_parquet(tmp_path / "f.parquet")
    lazy = (
        pl.scan_parquet(tmp_path / "f.parquet")
        .with_columns(pl.col("c").cast(pl.Categorical))
        .filter(pl.col("k") % 2 == 0)
    )
    rel = hr.Relation.create(tmp_path / "r", lazy, key="k")
    assert rel.num_rows == n // 2
    assert rel.lookup([2_000, 3]).to_pylist() == [{"k": 2_000, "c": f"name {2_000 % 977}"}]


def test_types_of_duckdb(tmp_path):
    data = duckdb.sql(
        "SELECT range AS k, range::HUGEINT AS h, 'x'::ENUM('x', 'y') AS e, {'a': range} AS st, 1.5::DECIMAL(9, 1) AS d,"
        " DATE '2024-02-29' AS day, NULL::VARCHAR AS n FROM range(5)"
    )
    rel = hr.Relation.create(tmp_path / "r", data, key="k")
    assert rel.lookup([3]).to_pylist() == [
        {"k": 3, "h": Decimal(3), "e": "x", "st_a": 3, "d": Decimal("1.5"), "day": dt.date(2024, 2, 29), "n": None}
    ]
    with pytest.raises(hr.UnsupportedType, match="column 'l' has type list"):
        hr.Relation.create(tmp_path / "bad", duckdb.sql("SELECT 1 AS k, [1, 2] AS l"), key="k")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([{"k": 1}], "data is a list; .*; a list of dicts becomes a table by pa.Table.from_pylist"),
        ({"k": [1]}, "data is a dict; .*; a dict of columns becomes a table by pa.table"),
        (pa.array([1]), "data is a pyarrow Int64Array, which has no named columns; expected a pyarrow Table"),
        (pl.Series([1]), "data is a polars Series, which has no named columns"),
        (pd.Series([1]), "data is a pandas Series; give a frame"),
        (5, "data is a int; expected a Spark DataFrame, a pyarrow Table"),
        (None, "data is a NoneType; expected"),
    ],
)
def test_what_is_no_table_is_named(data, message, tmp_path):
    with pytest.raises(hr.BadInput, match=message):
        hr.Relation.create(tmp_path / "r", data, key="k")


# -- pandas ------------------------------------------------------------------------------------------------------------


def test_an_index_that_is_the_key_is_explained(tmp_path):
    frame = pd.DataFrame({"name": ["a", "b"]}, index=pd.Index([1, 2], name="id"))
    with pytest.raises(hr.BadInput, match=r"^key='id' is the frame's index, not a column: use frame.reset_index\(\)$"):
        hr.Relation.create(tmp_path / "r", frame, key="id")
    rel = hr.Relation.create(tmp_path / "r", frame.reset_index(), key="id")
    with pytest.raises(hr.BadInput, match=r"^upserts: 'id' is the frame's index"):
        rel.apply(upserts=frame)
    with pytest.raises(hr.BadInput, match=r"^the keys: 'id' is the frame's index"):
        rel.lookup(frame)
    assert rel.lookup(frame.index).num_rows == 2
    assert rel.lookup(frame.reset_index()["id"]).num_rows == 2


def test_a_column_of_mixed_types_is_named_with_the_rows(tmp_path):
    frame = pd.DataFrame({"k": [1, 2, 3], "ok": [1, None, 3], "code": [7, None, "7b"]})
    with pytest.raises(hr.BadInput) as caught:
        hr.Relation.create(tmp_path / "r", frame, key="k")
    assert str(caught.value) == (
        "column 'code' of the pandas frame mixes int (row 0) and str (row 2); give it one type:"
        " frame['code'] = frame['code'].astype(str), say"
    )
    frame["code"] = frame["code"].astype(str)
    assert hr.Relation.create(tmp_path / "r", frame, key="k").num_rows == 3


def test_values_that_arrow_does_not_know_and_names_that_come_twice(tmp_path):
    with pytest.raises(hr.BadInput, match="column 'o' of the pandas frame cannot be converted to Arrow"):
        hr.Relation.create(tmp_path / "r", pd.DataFrame({"k": [1], "o": [object()]}), key="k")
    with pytest.raises(hr.BadInput, match="data has column 'k' more than once"):
        hr.Relation.create(tmp_path / "r", pd.DataFrame([[1, 2]], columns=["k", "k"]), key="k")


# -- CSV ---------------------------------------------------------------------------------------------------------------

PRODUCTS = """id,name,price,since,at,flag
3,"pear, green",1.5,2024-02-29,2024-01-01T10:00:00.123456,true
1,"two
lines",2,2024-03-01,2024-01-01T10:00:00,false
2,,,,,
4,"",0.25,2024-03-02,2024-01-01T10:00:01,true
"""
STORED = {
    1: ("two\nlines", 2.0, dt.date(2024, 3, 1), dt.datetime(2024, 1, 1, 10), False),
    2: (None, None, None, None, None),
    3: ("pear, green", 1.5, dt.date(2024, 2, 29), dt.datetime(2024, 1, 1, 10, 0, 0, 123456), True),
    4: ("", 0.25, dt.date(2024, 3, 2), dt.datetime(2024, 1, 1, 10, 0, 1), True),
}


def written(path, text):
    data = text.encode() if isinstance(text, str) else text
    opener = {".gz": gzip.open, ".bz2": bz2.open}.get(path.suffix, open)
    with opener(path, "wb") as file:
        file.write(data)
    return path


@pytest.mark.parametrize("name", ["p.csv", "P.CSV", "p.csv.gz", "p.csv.bz2"])
@pytest.mark.parametrize("as_text", [False, True])
def test_a_csv_file_with_quotes_nulls_and_times(name, as_text, tmp_path):
    path = written(tmp_path / name, PRODUCTS)
    rel = hr.Relation.create(tmp_path / "r", str(path) if as_text else path, key="id")
    assert {row.pop("id"): tuple(row.values()) for row in rel.to_arrow().to_pylist()} == STORED
    assert [str(type_) for type_ in rel.schema.types] == [
        "int64",
        "string",
        "double",
        "date32[day]",
        "timestamp[us]",
        "bool",
    ]


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=8)


@FEW
@given(st.lists(st.tuples(st.integers(-5, 5), st.none() | TEXTS, st.none() | st.floats(allow_nan=False)), min_size=1))
def test_oracle_what_duckdb_writes_is_read_as_it_was(tmp_path_factory, some):
    place = tmp_path_factory.mktemp("csv")
    table = pa.table(
        {
            "k": pa.array([row[0] for row in some], pa.int64()),
            "s": pa.array([row[1] for row in some] + [], pa.string()),
            "x": pa.array([row[2] for row in some], pa.float64()),
        }
    )
    # A first row of values that are of each type for certain: a column of nulls, or of texts like 1, has another.
    table = pa.concat_tables([pa.table({"k": [0], "s": ["a text"], "x": [0.5]}, table.schema), table])
    connection = duckdb.connect()
    connection.register("given", table)
    path = str(place / "f.csv")
    connection.execute(f"COPY given TO '{path}' (HEADER, FORCE_QUOTE (s))")
    check_same(hr.Relation.create(place / "r", path, key="k"), table)


@pytest.fixture
def small_blocks(monkeypatch):
    """A file of some kilobytes has many blocks, as one of gigabytes has."""
    monkeypatch.setattr(csv_data, "_BLOCK", 1 << 12)


def test_a_file_of_many_blocks(small_blocks, tmp_path):
    n = 5_000
    path = written(tmp_path / "f.csv.gz", "k,v\n" + "".join(f"{i},name {i}\n" for i in range(n)))
    check_same(
        hr.Relation.create(tmp_path / "r", path, key="k"),
        pa.table({"k": list(range(n)), "v": [f"name {i}" for i in range(n)]}),
    )


def refused(tmp_path, text, **options) -> str:
    path = written(tmp_path / "f.csv", text)
    with pytest.raises(hr.BadInput) as caught:
        hr.Relation.create(tmp_path / "r", path, **{"key": "k", **options})
    assert not (tmp_path / "r").exists()
    message = str(caught.value)
    assert "\n" not in message and str(path) in message
    return message


def test_a_value_that_does_not_fit_is_named_by_row_and_column_and_the_advice_works(small_blocks, tmp_path):
    text = "k,qty\n" + "".join(f"{i},{i}\n" for i in range(4_000)) + "4000,twelve\n"
    message = refused(tmp_path, text)
    assert "column 'qty' in row 4,002 of" in message and "(the header is row 1)" in message
    assert "does not fit int64, the type of the rows before" in message and "'twelve'" in message
    advice = message[message.index("pyarrow.csv.open_csv") :]
    assert "column_types={'qty': 'string'}" in advice
    reader = eval(advice, {"pyarrow": pyarrow, "path": tmp_path / "f.csv"})
    assert hr.Relation.create(tmp_path / "r", reader, key="k").lookup([4_000]).to_pylist() == [
        {"k": 4_000, "qty": "twelve"}
    ]


def test_a_column_that_begins_empty_is_explained(small_blocks, tmp_path):
    message = refused(tmp_path, "k,note\n" + "".join(f"{i},\n" for i in range(4_000)) + "4000,x\n")
    assert "column 'note' in row 4,002" in message and "have no value in this column" in message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; expected a CSV file whose first line names the columns"),
        ("k,v\n1,2\n3\n", "row 3 of .* has 1 fields where the header has 2"),
        ("k,v\n1,2\n3,4,5\n", "row 3 of .* has 3 fields where the header has 2"),
        (b"k,v\n1,\xe9t\xe9\n", "column 'v' of .* is not UTF-8; convert the file"),
        ("k;v\n1;2\n", r"has one column, 'k;v', and seems to be separated by ';'; give .*delimiter=';'"),
    ],
)
def test_files_that_are_no_such_csv_are_explained(text, message, tmp_path):
    assert re.search(message, refused(tmp_path, text))


def test_a_header_without_the_key_and_without_rows(tmp_path):
    path = written(tmp_path / "f.csv", "ID,name\n1,a\n")
    with pytest.raises(hr.BadInput, match=r"key names 'id', .* its columns are ID, name \(did you mean 'ID'\?\)"):
        hr.Relation.create(tmp_path / "r", path, key="id")
    written(tmp_path / "e.csv", "k,v\n")
    with pytest.raises(hr.BadInput, match="'k'"):
        hr.Relation.create(tmp_path / "r", tmp_path / "e.csv", key="k")


def test_digits_below_microseconds_follow_the_option(tmp_path):
    path = written(tmp_path / "f.csv", "k,t\n1,2024-01-01 00:00:00.123456789\n")
    with pytest.raises(hr.UnsupportedType, match="nanoseconds='truncate'"):
        hr.Relation.create(tmp_path / "r", path, key="k")
    rel = hr.Relation.create(tmp_path / "r", path, key="k", nanoseconds="truncate")
    assert rel.lookup([1])["t"].to_pylist() == [dt.datetime(2024, 1, 1, 0, 0, 0, 123456)]


def test_a_change_from_csv_has_the_types_of_the_relation(tmp_path):
    schema = pa.schema({"k": pa.int32(), "price": pa.float64(), "code": pa.string(), "d": pa.decimal128(9, 2)})
    rel = hr.Relation.create(tmp_path / "r", schema.empty_table(), key="k")
    rel.apply(upserts=written(tmp_path / "f.csv", "k,price,code,d\n1,2,007,3\n"))
    assert rel.refresh().lookup([1]).to_pylist() == [{"k": 1, "price": 2.0, "code": "007", "d": Decimal("3.00")}]
    with pytest.raises(
        hr.BadInput, match=r"column 'price' in row 2 .* does not fit double, the relation's type: .*'dear'"
    ):
        rel.apply(upserts=written(tmp_path / "g.csv", "k,price,code,d\n1,dear,007,3\n"), on_conflict="rebase")
    with pytest.raises(hr.BadInput, match="upserts have no column 'd'"):
        rel.apply(upserts=written(tmp_path / "h.csv", "k,price,code\n1,2,007\n"), on_conflict="rebase")


def test_directories_that_hold_no_parquet_are_explained(tmp_path):
    (tmp_path / "many").mkdir()
    written(tmp_path / "many" / "a.csv", "k\n1\n")
    with pytest.raises(hr.BadInput, match="is a directory of CSV files; give one file"):
        hr.Relation.create(tmp_path / "r", tmp_path / "many", key="k")
    written(tmp_path / "text.txt", "hello")
    with pytest.raises(hr.BadInput, match=r"cannot be read as Parquet .* that ends in \.csv"):
        hr.Relation.create(tmp_path / "r", tmp_path / "text.txt", key="k")
