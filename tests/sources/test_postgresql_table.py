"""A PostgreSQL table read as Arrow: its types, its offsets, its secrets."""

import json
from collections import Counter
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given as examples
from hypothesis import settings
from hypothesis import strategies as st

from headrace.errors import BadInput, UnsupportedType
from headrace.sources.connection import PostgreSQLError, connected, quoted, table_name
from headrace.sources.postgresql import TableReader
from headrace.sources.secret import SecretUrl

EVERY_TYPE = """
CREATE TYPE mood AS ENUM ('calm', 'odd');
CREATE TABLE every (
  i2 int2, i4 int4, i8 int8, f4 real, f8 float8, b bool, t text, v varchar(9), by bytea, d date, ts timestamp, tz timestamptz,
  ti time, n numeric(12,3), u uuid, j jsonb, e mood, x xid8, "odd ""name""; DROP TABLE every" int);
INSERT INTO every VALUES (1, -2, 9223372036854775807, 1.5, -0.0, true, 'é|', '', '\\x00ff', '2024-02-29',
  '2024-02-29 12:00:00.000001', '2024-02-29 12:00:00+02', '23:59:59.999999', -12.345, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11',
  '{"a": [1]}', 'odd', '7', 5),
  (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
"""


def numbers(reader: TableReader, after=None, until=None, name: str = "n") -> list[int]:
    return [value for batch in reader.read(after, until) for value in batch[name].to_pylist()]


def test_every_type_arrives_as_it_is_and_nulls_too(database):
    database.query(EVERY_TYPE)
    reader = TableReader.describe("public.every", database.url)
    table = pa.Table.from_batches(reader.read(), reader.schema)
    assert table.num_rows == 2 and all(column.null_count == 1 for column in table.columns)
    row = table.to_pylist()[0]
    assert row["i8"] == 2**63 - 1 and row["n"] == Decimal("-12.345") and row["by"] == b"\x00\xff" and row["x"] == 7
    assert (row["u"], json.loads(row["j"]), row["e"], row["t"]) == (
        "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        {"a": [1]},
        "odd",
        "é|",
    )
    assert (
        row["tz"].isoformat() == "2024-02-29T10:00:00+00:00" and row["ts"].isoformat() == "2024-02-29T12:00:00.000001"
    )
    assert row['odd "name"; DROP TABLE every'] == 5
    assert table.schema.field("n").type == pa.decimal128(12, 3)


def test_what_cannot_be_read_is_refused_by_name(database):
    database.query(
        "CREATE TABLE t (n numeric, a int[], d date, i int, m numeric(5,2)); INSERT INTO t (i, m) VALUES (1, 'NaN')"
    )
    with pytest.raises(UnsupportedType, match=r"'n' of \"t\" has type numeric.*view"):
        TableReader.describe("t", database.url)
    with pytest.raises(UnsupportedType, match=r"'a'.*integer\[\]"):
        TableReader.describe("t", database.url, columns=["a"])
    with pytest.raises(UnsupportedType, match="by='d' has type date"):
        TableReader.describe("t", database.url, columns=["i"], by="d")
    with pytest.raises(BadInput, match="by='z' is not a column"):
        TableReader.describe("t", database.url, columns=["i"], by="z")
    with pytest.raises(BadInput, match="columns names 'z'"):
        TableReader.describe("t", database.url, columns=["z"])
    with pytest.raises(BadInput, match='no table "nowhere"'):
        TableReader.describe("nowhere", database.url)
    with pytest.raises(BadInput, match="lag='1s' needs by= to be a column of type timestamptz"):
        TableReader.describe("t", database.url, columns=["i"], by="i", lag="1s")
    with pytest.raises(UnsupportedType, match=r"'m'.*NaN"):
        list(TableReader.describe("t", database.url, columns=["m"]).read())


@pytest.mark.parametrize("kind", ["timestamptz", "timestamp", "date"])
def test_infinity_is_refused_and_the_first_date_is_not(database, kind):
    database.query(f"CREATE TABLE t (at {kind}); INSERT INTO t VALUES (NULL), ('4713-01-01 BC')")
    reader = TableReader.describe("t", database.url)
    assert sum(batch.num_rows for batch in reader.read()) == 2
    for value in ("infinity", "-infinity"):
        database.query(f"UPDATE t SET at = '{value}'")
        with pytest.raises(UnsupportedType, match="'at' of \"t\" holds infinity"):
            list(reader.read())


def test_a_large_table_comes_in_batches_of_a_size(database):
    database.query("CREATE TABLE t AS SELECT g AS n, repeat('x', 100) AS v FROM generate_series(1, 200000) g")
    sizes = [(batch.num_rows, batch.nbytes) for batch in TableReader.describe("t", database.url).read()]
    assert sum(rows for rows, _ in sizes) == 200_000 and len(sizes) > 4
    assert max(size for _, size in sizes) < 8 << 20


def test_names_are_quoted_and_checked():
    assert quoted('a"b') == '"a""b"' and table_name("s.t") == ("s", "t") and table_name(("s", "a.b")) == ("s", "a.b")
    for bad in ("", "a\0b", "x" * 64, None):
        with pytest.raises(BadInput, match="not a name that PostgreSQL allows"):
            quoted(bad)
    with pytest.raises(BadInput, match=r"table='a\.b\.c'"):
        table_name("a.b.c")


@settings(max_examples=10, deadline=None)
@examples(
    values=st.lists(st.one_of(st.none(), st.integers(-3, 12)), max_size=16),
    step=st.integers(1, 7),
    parts=st.integers(1, 4),
    least=st.integers(1, 5),
)
def test_oracle_every_row_is_in_one_part_of_one_step(numbered, values, step, parts, least):
    database, reader = numbered
    database.query(
        f"TRUNCATE t; INSERT INTO t (n) SELECT unnest(ARRAY[{','.join('NULL' if v is None else str(v) for v in values)}]::int[])"
    )
    found, after = [], None
    for _ in range(40):
        until = reader.bound(after, step)
        if until == after:
            break
        pieces = [numbers(reader, *part) for part in reader.cuts(after, until, parts, least)]
        assert len(pieces) <= parts and all(len(piece) >= least for piece in pieces[:-1])
        found.append([n for piece in pieces for n in piece])
        after = until
    assert all(step <= len(batch) for batch in found[:-1])
    assert Counter(n for batch in found for n in batch) == Counter(v for v in values if v is not None)
    assert [n for batch in found for n in sorted(batch)] == sorted(v for v in values if v is not None)
    whole = [numbers(reader, *part) for part in reader.cuts(None, None, parts, least)]
    assert Counter(n for piece in whole for n in piece) == Counter(values)


@pytest.fixture(scope="module")
def numbered(postgresql_server):
    from tests.support.postgresql_database import Database

    postgresql_server.query("CREATE DATABASE numbered")
    database = Database(postgresql_server, "numbered")
    database.query("CREATE TABLE t (n int)")
    yield database, TableReader.describe("t", database.url, by="n")
    postgresql_server.query("DROP DATABASE numbered WITH (FORCE)")


def test_a_transaction_that_commits_late_is_not_missed_by_xid(database):
    database.query("CREATE TABLE t (n serial, x xid8 DEFAULT pg_current_xact_id())")
    reader = TableReader.describe("t", database.url, columns=["n"], by="x")
    with connected(SecretUrl.of(database.url)) as slow:
        slow.execute("INSERT INTO t DEFAULT VALUES")  # 1, and open
        database.query("INSERT INTO t DEFAULT VALUES")  # 2, committed before it
        assert reader.bound(None) is None, "a row of an open transaction lies below"
        slow.commit()
    first = reader.bound(None)
    assert sorted(numbers(reader, None, first)) == [1, 2]
    database.query("INSERT INTO t DEFAULT VALUES")
    again = reader.bound(first)
    assert numbers(reader, first, again) == [3] and reader.bound(again) == again
    # Followed by the number alone, it would be: this is what the documents warn of.
    plain = TableReader.describe("t", database.url, columns=["n"], by="n")
    with connected(SecretUrl.of(database.url)) as slow:
        slow.execute("INSERT INTO t DEFAULT VALUES")  # 4
        database.query("INSERT INTO t DEFAULT VALUES")  # 5
        assert plain.bound("3") == "5"
        slow.commit()
    assert plain.bound("5") == "5"


def test_rows_younger_than_the_lag_wait(database):
    database.query(
        "CREATE TABLE t (n int, at timestamptz); INSERT INTO t VALUES (1, now() - interval '1 hour'), (2, now())"
    )
    waits = TableReader.describe("t", database.url, columns=["n"], by="at", lag="10m")
    assert numbers(waits, None, waits.bound(None)) == [1]
    at_once = TableReader.describe("t", database.url, columns=["n"], by="at")
    assert sorted(numbers(at_once, None, at_once.bound(None))) == [1, 2]
    # microseconds are not lost on the way through an offset
    assert at_once.bound(at_once.bound(None)) == at_once.bound(None)


def test_values_are_never_part_of_a_statement(database):
    database.query("CREATE TABLE t (n int); INSERT INTO t VALUES (1)")
    reader = TableReader.describe("t", database.url, by="n")
    with pytest.raises(PostgreSQLError, match="invalid input syntax for type integer") as caught:
        numbers(reader, "0; DROP TABLE t", "5")
    assert caught.value.state == "22P02"
    assert numbers(reader, "0", "5") == [1]


SECRET = "hush%40quiet"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ann:{SECRET}@127.0.0.1:1/shop",
        f"postgresql://127.0.0.1:1/shop?user=ann&password={SECRET}",
        "postgresql://ann:hush@quiet@127.0.0.1:1/shop",
        "postgresql://ann:hush@quiet:pw@127.0.0.1:1/shop",
        "postgresql://ann:quiet@127.0.0.1:hush/shop",
        "mysql://ann:hush@127.0.0.1/quiet",
        "host=127.0.0.1 password=hush@quiet",
    ],
)
def test_no_error_and_no_repr_shows_the_password(url, monkeypatch):
    monkeypatch.setenv("SHOP_URL", url)
    for given in (url, "env:SHOP_URL"):
        with pytest.raises((BadInput, PostgreSQLError)) as caught:
            TableReader.describe("t", given)
        shown = f"{caught.value!r} {caught.value} {caught.value.__cause__} {'' if url not in given else SecretUrl(url, 'x')!r}"
        assert "hush" not in shown and "quiet" not in shown
        assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert "env:SHOP_URL" in str(caught.value)


def test_a_url_that_is_not_there_says_so(monkeypatch):
    monkeypatch.delenv("NO_SUCH", raising=False)
    with pytest.raises(BadInput, match="'NO_SUCH', which is not set"):
        SecretUrl.of("env:NO_SUCH")
    with pytest.raises(BadInput, match="url is a NoneType"):
        SecretUrl.of(None)
    assert SecretUrl("postgresql://a:se%41cret@h/d", "x").scrub("seAcret, se%41cret") == "***, ***"
