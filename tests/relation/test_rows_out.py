"""Rows of a relation for notebooks and other libraries: head, to_arrow, to_pandas, to_reader, and the view in HTML."""

import datetime as dt
from collections import Counter
from html.parser import HTMLParser

import duckdb
import numpy as np
import polars as pl
import psutil
import pyarrow as pa
import pytest

import headrace as hr
from tests.support.relation_oracle import rows, scanned

ROWS = 5_000


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(3)
    return pa.table(
        {
            "v": pa.array(rng.random(ROWS), mask=rng.random(ROWS) < 0.2),
            "k": pa.array(rng.integers(0, 2_000, ROWS), pa.int32()),
            "s": pa.array([None if i % 7 == 0 else f"<{i}>" for i in range(ROWS)]),
            "at": pa.array([dt.datetime(2024, 1, 1) + dt.timedelta(hours=i) for i in range(ROWS)], pa.timestamp("us")),
        }
    )


@pytest.fixture(scope="module")
def rel(table, tmp_path_factory) -> hr.Relation:
    return hr.Relation.create(tmp_path_factory.mktemp("out") / "r", table, key="k", page_size="4KiB")


def test_oracle_all_rows_come_out_with_the_relations_own_schema(rel, table):
    out = rel.to_arrow()
    assert out.schema == rel.schema
    assert Counter(rows(out)) == Counter(rows(table, out.schema.names))
    out.validate(full=True)
    frame = rel.to_pandas()
    assert list(frame.columns) == rel.schema.names
    assert pa.Table.from_pandas(frame, schema=out.schema).equals(out)


def test_columns_are_those_named_in_that_order(rel, table):
    assert rel.to_arrow(["s", "v"]).schema.names == ["s", "v"]
    assert Counter(rows(rel.to_arrow(["s", "v"]))) == Counter(rows(table, ["s", "v"]))
    assert list(rel.to_pandas(["k"]).columns) == ["k"]
    assert rel.to_reader(["s"]).schema.names == ["s"]
    assert rel.head(2, ["at", "k"]).schema.names == ["at", "k"]


def test_a_wrong_column_is_named_with_what_was_meant(rel):
    for call in (rel.to_arrow, rel.to_pandas, rel.to_reader, lambda names: rel.head(2, names)):
        with pytest.raises(hr.BadInput, match=r"columns names 'K', .* choose from v, k, s, at \(did you mean 'k'\?\)"):
            call(["K"])
        with pytest.raises(hr.BadInput, match=r"columns='k' is one text; give a list of names: \['k'\]"):
            call("k")


@pytest.mark.parametrize("n", [0, 1, 5, 100, ROWS - 1, ROWS, ROWS + 10])
def test_oracle_head_gives_the_first_rows_of_a_scan(rel, n):
    names = rel.schema.names
    assert rows(rel.head(n)) == scanned(rel, names)[:n]


@pytest.mark.parametrize("n", [-1, 1.5, "5", True, None])
def test_head_refuses_what_is_no_number_of_rows(rel, n):
    with pytest.raises(hr.BadInput, match=r"n=.* is not a number of rows"):
        rel.head(n)


def test_head_reads_a_page_and_not_the_table_or_its_index(rel, monkeypatch):
    """Counted where the disk is asked: five rows take one page, whatever the size of the relation."""
    read = []
    real = type(rel.disk).start
    monkeypatch.setattr(
        type(rel.disk), "start", lambda disk, *a, **k: read.append(int(sum(a[2]))) or real(disk, *a, **k)
    )
    with rel.refresh() as fresh:
        assert fresh.head().num_rows == 5
        assert fresh._repr_html_()
        assert fresh.opened._indexes is None  # private: whether the index was read shows nowhere else
    assert sum(read) == 2 * fresh.page_size


def test_head_of_a_changed_relation_is_of_the_latest_version(tmp_path):
    table = pa.table({"k": list(range(500)), "v": ["x" * 40] * 500})
    rel = hr.Relation.create(tmp_path / "r", table, key="k", shards=1, page_size="4KiB")
    rel.apply(upserts=pa.table({"k": [0, 1], "v": ["new", "y" * 500]}), deletes=[2, 3])
    with rel.refresh() as new:
        assert rows(new.head(120)) == scanned(new, new.schema.names)[:120]
        assert new.head(3).to_pylist()[0] == {"k": 0, "v": "new"}
    assert rel.head(3).column("k").to_pylist() == [0, 1, 2]


def test_an_empty_relation_and_one_stored_by_popularity(tmp_path):
    empty = pa.table({"k": pa.array([], pa.int64()), "v": pa.array([], pa.string())})
    rel = hr.Relation.create(tmp_path / "e", empty, key="k")
    assert rel.head().equals(empty) and rel.to_arrow().equals(empty) and rel.to_pandas().empty
    assert "0 rows" in rel._repr_html_()
    asked = pa.table({"k": [7, 3], "frequency": [100, 50]})
    popular = hr.Relation.create(
        tmp_path / "p",
        pa.table({"k": list(range(2000))}),
        key="k",
        order="frequency",
        frequencies=asked,
        page_size="4KiB",
    )
    assert rows(popular.head(20)) == scanned(popular)[:20]
    assert 7 in popular.head(20)["k"].to_pylist()


def test_a_composite_key_and_all_types(tmp_path):
    table = pa.table(
        {
            "n": pa.nulls(3),
            "b": [True, None, False],
            "shop": ["x", "x", "y"],
            "d": pa.array([dt.date(2024, 1, 1)] * 3),
            "id": [1, 2, 1],
            "bin": [b"a", None, b""],
        }
    )
    rel = hr.Relation.create(tmp_path / "r", table, key=["shop", "id"])
    assert rel.to_arrow().schema == table.schema
    assert rel.to_arrow().sort_by([("shop", "ascending"), ("id", "ascending")]).equals(table)


def test_differential_other_libraries_read_the_relation_itself(rel, table):
    given = table  # noqa: F841 -- DuckDB finds it by its name
    query = 'SELECT count(*), round(sum(v), 6), count(s), max(k), count(DISTINCT "at") FROM {}'
    assert duckdb.sql(query.format("rel")).fetchall() == duckdb.sql(query.format("given")).fetchall()
    assert pa.table(rel).equals(rel.to_arrow())
    frame = pl.DataFrame(rel)
    assert frame.shape == (ROWS, 4)
    assert Counter(frame.rows()) == Counter(pl.DataFrame(table).select(frame.columns).rows())
    joined = duckdb.sql("SELECT count(*) FROM given g JOIN rel r USING (k)").fetchall()
    assert joined == duckdb.sql("SELECT count(*) FROM given g JOIN given r USING (k)").fetchall()


def test_a_reader_holds_little_and_one_of_a_closed_relation_says_so(rel):
    reader = rel.to_reader(["k"])
    assert isinstance(reader, pa.RecordBatchReader)
    assert sum(batch.num_rows for batch in reader) == ROWS
    fresh = rel.refresh()
    fresh.close()
    for read in (fresh.head, fresh.to_arrow, fresh.to_pandas, lambda: pa.table(fresh)):
        with pytest.raises((hr.RelationError, pa.ArrowException), match="is closed; open it again"):
            read()


def test_rows_beyond_the_free_memory_are_refused_with_a_way_on(rel, monkeypatch):
    class Little:
        available = 100_000

    monkeypatch.setattr(psutil, "virtual_memory", lambda: Little)
    with pytest.raises(hr.MemoryRefused) as caught:
        rel.to_arrow()
    message = str(caught.value)
    assert "5,000 rows of 4 columns" in message and "97.7KiB" in message
    assert "scan()" in message and "to_reader()" in message and "\n" not in message
    assert rel.to_arrow(["k"]).num_rows == ROWS, "one column has room"
    with pytest.raises(hr.MemoryRefused):
        rel.to_pandas(["s"])
    assert rel.to_reader().read_next_batch().num_rows > 0


class Shape(HTMLParser):
    """The tags of a document, which must be closed in order, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.counts, self.text = [], Counter(), ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.counts[tag] += 1

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data + " "


def test_the_view_shows_what_the_relation_is(rel):
    shape = Shape(rel._repr_html_())
    for part in (str(rel.path), "version 1", "5,000 rows", f"{rel.num_pages} pages", "key k", "int32", "timestamp[us]"):
        assert part in shape.text
    assert shape.counts["tr"] == 1 + 5
    assert "4,995 more rows" in shape.text
    first = rel.head(1).to_pylist()[0]
    assert str(first["k"]) in shape.text and str(first["at"]) in shape.text


def test_the_view_escapes_names_and_values(tmp_path):
    mean = "<script>alert('x')</script>"
    rel = hr.Relation.create(tmp_path / "<i>r&", pa.table({"<k>": [1], "v": [mean], 'q"': [None]}), key="<k>")
    html = rel._repr_html_()
    assert "<script" not in html and "<k>" not in html and "<i>r&" not in html
    text = Shape(html).text
    assert "<script>alert(" in text and "<k>" in text and "null" in text


def test_the_view_of_a_closed_relation_shows_its_facts(rel):
    fresh = rel.refresh()
    fresh.close()
    text = Shape(fresh._repr_html_()).text
    assert "5,000 rows" in text and "closed: open it again" in text
    assert repr(fresh) == repr(rel)


def test_the_view_of_two_thousand_columns_is_small(tmp_path):
    wide = pa.table({"id": [1, 2], **{f"column_{i}": ["long " * 100, None] for i in range(1999)}})
    rel = hr.Relation.create(tmp_path / "wide", wide, key="id", page_size="1536KiB")
    html = rel._repr_html_()
    assert len(html) < 10_000
    assert "1,976 more columns" in html and "1,988 more columns" in html


def test_the_view_says_why_rows_cannot_be_read(tmp_path):
    rel = hr.Relation.create(tmp_path / "r", pa.table({"k": [1, 2, 3]}), key="k", shards=1)
    pages = next(p for p in rel.path.iterdir() if p.suffix == ".pages")
    damaged = bytearray(pages.read_bytes())
    damaged[100] ^= 0xFF
    pages.write_bytes(damaged)
    text = Shape(hr.Relation.open(rel.path)._repr_html_()).text
    assert "3 rows" in text and "its rows cannot be read" in text and "checksum" in text
