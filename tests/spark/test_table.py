"""The Parquet files of a Delta table: what is written is what every reader finds, and what the log says of them is true."""

from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from urllib.parse import unquote

import duckdb
import numpy as np
import polars as pl
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from headrace.errors import BadInput
from headrace.spark.delta import files as delta_files
from tests.support.delta_tables import (
    EVERY_TYPE,
    READERS,
    TEXTS,
    adds,
    append,
    by_deltalake,
    by_polars,
    on_disk,
    random_table,
    rows,
    sink_of,
    text_of,
    write,
)

# -- contents ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_oracle_every_type_is_read_back_by_every_reader(tmp_path, seed):
    wanted = random_table(np.random.default_rng(seed), EVERY_TYPE, 500)
    append(sink_of(tmp_path / "t", EVERY_TYPE), wanted)
    for reader, read in READERS.items():
        got = read(tmp_path / "t")
        assert got.num_rows == 500, reader
        for name in EVERY_TYPE.names:
            assert rows(got, [name]) == rows(wanted, [name]), f"{name} by {reader}, seed {seed}"
        assert rows(got, EVERY_TYPE.names) == rows(wanted), reader


def test_oracle_each_column_may_be_all_null(tmp_path):
    wanted = pa.table({f.name: pa.nulls(7, f.type) for f in EVERY_TYPE}, schema=EVERY_TYPE)
    append(sink_of(tmp_path / "t", EVERY_TYPE), wanted)
    for reader, read in READERS.items():
        assert rows(read(tmp_path / "t"), EVERY_TYPE.names) == rows(wanted), reader


def test_every_column_may_be_named_by_its_number(tmp_path):
    """As it is without a join before: see Plan.map."""
    sink = sink_of(tmp_path / "t", pa.schema({"a": pa.int64(), "b": pa.int64()}))
    facts = write(sink, [pa.record_batch({"c0": [1, 2], "c1": [10, 20]})])
    assert sink.commit(facts, "app", 0)
    assert by_deltalake(tmp_path / "t").sort_by("a").to_pydict() == {"a": [1, 2], "b": [10, 20]}


def test_other_arrow_forms_of_the_same_type_are_cast(tmp_path):
    """Large text as `useLargeVarTypes` gives it, and timestamps in the session's zone, nested too."""
    utc, zone = pa.timestamp("us", "UTC"), pa.timestamp("us", "America/New_York")

    def schema(text: pa.DataType, moment: pa.DataType) -> pa.Schema:
        inside = pa.struct({"t": moment, "s": text})
        return pa.schema({"s": text, "t": moment, "l": pa.list_(moment), "st": inside, "m": pa.map_(text, moment)})

    wanted = random_table(np.random.default_rng(1), schema(pa.string(), utc), 50)
    given = wanted.cast(schema(pa.large_string(), zone))
    assert given.schema != wanted.schema
    append(sink_of(tmp_path / "t", wanted.schema), given)
    assert rows(by_deltalake(tmp_path / "t")) == rows(wanted)


def test_dates_that_python_has_no_name_for(tmp_path):
    days = pa.array([4_000_000, -800_000, 0, None], pa.int32()).cast(pa.date32())
    append(sink_of(tmp_path / "t", pa.schema({"d": pa.date32()})), pa.table({"d": days}))
    assert by_deltalake(tmp_path / "t")["d"].cast(pa.int32()).to_pylist() == [4_000_000, -800_000, 0, None]


def test_no_rows_no_files(tmp_path):
    schema = pa.schema({"a": pa.int64(), "p": pa.int64()})
    for name, by in (("plain", ()), ("parts", ("p",))):
        sink = sink_of(tmp_path / name, schema, *by)
        assert write(sink, []) == []
        assert write(sink, [pa.RecordBatch.from_pylist([], schema=schema)] * 3) == []
        assert on_disk(tmp_path / name) == set()


def test_a_null_where_the_table_allows_none_is_refused_and_named(tmp_path):
    DeltaTable.create(str(tmp_path / "t"), pa.schema([pa.field("a", pa.int64(), nullable=False), ("b", pa.int64())]))
    sink = sink_of(tmp_path / "t", pa.schema({"a": pa.int64(), "b": pa.int64()}))
    assert sink.required == ("a",)
    with pytest.raises(BadInput, match=r"'a' holds 2 null\(s\)"):
        write(sink, [pa.record_batch({"a": [1, None, None], "b": [1, 2, 3]})])
    append(sink, pa.table({"a": [1], "b": pa.array([None], pa.int64())}))
    assert by_deltalake(tmp_path / "t").to_pylist() == [{"a": 1, "b": None}]


# -- partitions ----------------------------------------------------------------------------------

ODD = [
    *(t for t in TEXTS if 0 < len(t) < 100),
    "true",
    "false",
    "..",
    ".",
    "a b",
    "100%",
    "%20",
    "e\u0301",
    "日本語",
    "a\\b",
    "?x#y",
    "+",
    "&",
    "__HIVE",
    "x" * 250,
]


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.string(), ODD),
        (pa.int64(), [0, -1, 2**63 - 1, -(2**63)]),
        (pa.int8(), [-128, 127]),
        (pa.bool_(), [True, False]),
        (pa.date32(), [date(1, 1, 1), date(1969, 12, 31), date(2024, 2, 29), date(9999, 12, 31)]),
    ],
    ids=["text", "long", "tiny", "flag", "day"],
)
def test_oracle_partitioned_by_any_value(tmp_path, type_, values):
    values = [*values, None]
    schema = pa.schema({"v": pa.int64(), "p": type_, "s": pa.string()})
    p = [values[i % len(values)] for i in range(3 * len(values))]
    wanted = pa.table({"v": list(range(len(p))), "p": pa.array(p, type_), "s": [f"s{i}" for i in range(len(p))]})
    append(sink_of(tmp_path / "t", schema, "p"), wanted)
    assert len(adds(tmp_path / "t")) == len(values)
    assert rows(by_deltalake(tmp_path / "t"), schema.names) == rows(wanted)
    assert rows(by_polars(tmp_path / "t"), schema.names) == rows(wanted)
    for value in values:
        found = pl.scan_delta(str(tmp_path / "t")).filter(pl.col("p").eq_missing(pl.lit(value))).collect()
        assert sorted(found["v"]) == [i for i, x in enumerate(p) if x == value], value


def test_oracle_partitioned_by_two_columns(tmp_path):
    rng = np.random.default_rng(5)
    schema = pa.schema({"a": pa.string(), "v": pa.int64(), "l": EVERY_TYPE.field("list").type, "b": pa.int32()})
    a, b = rng.choice(["x", "y/z", "é", None], 400), rng.choice([1, -2, None], 400)
    wanted = random_table(rng, schema, 400)
    wanted = wanted.set_column(0, "a", pa.array(a, pa.string())).set_column(3, "b", pa.array(b, pa.int32()))
    append(sink_of(tmp_path / "t", schema, "b", "a"), wanted)
    assert rows(by_deltalake(tmp_path / "t"), schema.names) == rows(wanted)
    assert rows(by_polars(tmp_path / "t"), schema.names) == rows(wanted)
    assert len(adds(tmp_path / "t")) == 12
    for add in adds(tmp_path / "t"):
        stored = pq.read_table(tmp_path / "t" / unquote(add["path"]), partitioning=None)
        assert stored.column_names == ["v", "l"]
        mine = [
            i for i in range(400) if (a[i], b[i]) == (add["partitionValues"]["a"], _int(add["partitionValues"]["b"]))
        ]
        assert rows(stored) == rows(wanted.select(["v", "l"]).take(mine))


def _int(text: str | None) -> int | None:
    return None if text is None else int(text)


def test_paths_in_the_log_are_uris_of_the_files(tmp_path):
    """RFC 2396, as the protocol asks: a reader that decodes the path finds the file, and nothing in it needs an escape."""
    wanted = pa.table({"p": ["New York", "a/b", "50%", "é", "x=y", None], "v": [1, 2, 3, 4, 5, 6]})
    append(sink_of(tmp_path / "t", wanted.schema, "p"), wanted)
    paths = [add["path"] for add in adds(tmp_path / "t")]
    assert len(paths) == 6
    for path in paths:
        assert path.isascii()
        assert " " not in path
        assert (tmp_path / "t" / unquote(path)).is_file()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "an empty text, which readers of a Delta table cannot tell from null"),
        ("__HIVE_DEFAULT_PARTITION__", "cannot tell from null"),
        ("é" * 100, "a text of 100 characters, too long for the name of a directory"),
    ],
)
def test_partition_texts_that_readers_would_take_for_others_are_refused(tmp_path, text, why):
    sink = sink_of(tmp_path / "t", pa.schema({"v": pa.int64(), "p": pa.string()}), "p")
    with pytest.raises(BadInput, match=f"partition column 'p' holds .*{why}"):
        write(sink, [pa.record_batch({"v": [1, 2], "p": ["a", text]})])


def test_more_partitions_than_open_files(tmp_path, monkeypatch):
    """Three times round all values: each time another file of the partition, and never more than so many open."""
    monkeypatch.setattr(delta_files, "_OPEN", 4)
    open_now = []

    class Counted(pq.ParquetWriter):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            open_now.append(self)
            assert sum(w.is_open for w in open_now) <= 4

    monkeypatch.setattr(delta_files.pq, "ParquetWriter", Counted)
    schema = pa.schema({"v": pa.int64(), "p": pa.int64()})
    batches = [pa.record_batch({"v": range(i * 10, i * 10 + 10), "p": range(10)}, schema=schema) for i in range(3)]
    sink = sink_of(tmp_path / "t", schema, "p")
    facts = write(sink, batches)
    assert len(open_now) == len(facts) == 30
    assert sink.commit(facts, "app", 0)
    assert rows(by_deltalake(tmp_path / "t"), ["v", "p"]) == rows(pa.Table.from_batches(batches))


def test_tables_in_directories_with_odd_names(tmp_path):
    wanted = pa.table({"v": [1, 2]})
    for name in ("a b", "50%", "%zz", "é", "a#b?c", "x:y", "p=1", "[z]"):
        append(sink_of(tmp_path / name, wanted.schema), wanted)
        assert rows(by_deltalake(tmp_path / name)) == rows(wanted), name
    assert len(list(tmp_path.iterdir())) == 8


# -- statistics ----------------------------------------------------------------------------------


RANGED = pa.schema(
    [EVERY_TYPE.field(n) for n in ("tiny", "int", "long", "text", "day", "bytes", "list", "map", "nothing")]
)


def stat_value(value: object) -> object:
    return value.isoformat() if isinstance(value, date) else value


@pytest.mark.parametrize("group_bytes", [1, 16 << 20], ids=["many row groups", "one row group"])
@pytest.mark.parametrize("schema", [EVERY_TYPE, RANGED], ids=["every type", "types with a range"])
@pytest.mark.parametrize("seed", range(2))
def test_oracle_statistics_are_true_of_every_file(tmp_path, monkeypatch, seed, schema, group_bytes):
    monkeypatch.setattr(delta_files, "_ROW_GROUP", group_bytes)
    rng = np.random.default_rng(seed)
    sink = sink_of(tmp_path / "t", schema, "tiny")
    tables = [random_table(rng, schema, int(rng.integers(1, 40))) for _ in range(8)]
    facts = [f for n, table in enumerate(tables) for f in write(sink, table.to_batches(max_chunksize=7), task=n)]
    assert sink.commit(facts, "app", 0)
    counted, ranged = set(), set()
    for add in adds(tmp_path / "t"):
        stored, stats = pq.read_table(tmp_path / "t" / add["path"], partitioning=None), add["stats"]
        low, high = stats.get("minValues", {}), stats.get("maxValues", {})
        assert stats["numRecords"] == stored.num_rows > 0
        assert low.keys() == high.keys() <= set(stored.column_names)
        for name, count in stats["nullCount"].items():
            assert count == stored[name].null_count, f"{name}, seed {seed}"
            counted.add(name)
        for name in low:
            values = [stat_value(v) for v in stored[name].drop_null().to_pylist()]
            # The order of text is that of its UTF-8 bytes, for every reader.
            key = str.encode if isinstance(low[name], str) else int
            assert key(low[name]) == min(map(key, values)), f"{name}, seed {seed}"
            assert key(high[name]) == max(map(key, values)), f"{name}, seed {seed}"
            ranged.add(name)
    assert {"int", "long", "text", "day"} <= counted
    # Without ranges nothing could be skipped; with some but not all delta-rs would skip too much.
    assert ranged == ({"int", "long", "text", "day"} if schema is RANGED else set())


FILTERED = pa.schema(
    {
        "int": pa.int32(),
        "long": pa.int64(),
        "text": pa.string(),
        "day": pa.date32(),
        "double": pa.float64(),
        "flag": pa.bool_(),
        "money": pa.decimal128(10, 2),
        "moment": pa.timestamp("us", "UTC"),
    }
)


def clustered(rng: np.random.Generator) -> list[pa.Table]:
    """Tables of narrow ranges, so that a filter lets readers skip most; some columns all null, some with NaN."""
    start = date(2024, 1, 1)
    tables = []
    for n in range(12):
        at = rng.integers(0, 100) + rng.integers(0, 8, 30)
        columns = {
            "int": at - 50,
            "long": (at - 50) * 2**40,
            "text": ["\U0001f600\uffffzZ"[a % 4] * (a % 3 + 1) + str(a) for a in at],
            "day": [start + timedelta(days=int(a)) for a in at],
            "double": [float("nan") if a % 5 == 0 else a / 2 for a in at],
            "flag": at > 50,
            "money": [Decimal(int(a)).scaleb(-2) for a in at],
            "moment": at.astype("datetime64[us]"),
        }
        columns = {
            name: pa.nulls(30, FILTERED.field(name).type)
            if rng.random() < 0.1
            else pa.array(values, mask=rng.random(30) < (n % 3) * 0.2).cast(FILTERED.field(name).type)
            for name, values in columns.items()
        }
        tables.append(pa.table(columns, schema=FILTERED))
    return tables


def loaded(path: Path, tables: list[pa.Table]) -> pa.Table:
    """Each table a file of one Delta table; gives all their rows."""
    sink = sink_of(path, tables[0].schema)
    facts = [f for n, table in enumerate(tables) for f in write(sink, table.to_batches(), task=n)]
    assert sink.commit(facts, "app", 0)
    assert len(adds(path)) == len(tables)
    return pa.concat_tables(tables)


@pytest.mark.parametrize("names", [FILTERED.names, ["int", "long", "text", "day"]], ids=["no ranges", "ranges"])
@pytest.mark.parametrize("seed", range(2))
def test_oracle_filters_that_skip_files_lose_no_row(tmp_path, seed, names):
    rng = np.random.default_rng(seed)
    whole = loaded(tmp_path / "t", [t.select(names) for t in clustered(rng)])
    frame, lazy = pl.from_arrow(whole), pl.scan_delta(str(tmp_path / "t"))
    dataset = DeltaTable(str(tmp_path / "t")).to_pyarrow_dataset()
    some = 0
    for name in names:
        domain = whole[name].drop_null().unique()
        for value in domain.take(rng.choice(len(domain), min(4, len(domain)), replace=False)):
            column, literal = pc.field(name), pl.lit(pl.from_arrow(pa.array([value.as_py()], value.type)).item())
            for test in ("__eq__", "__lt__", "__ge__"):
                case = f"{name} {test} {value}, seed {seed}"
                wanted = rows(whole.filter(getattr(column, test)(value)))
                assert rows(dataset.to_table(filter=getattr(column, test)(value))) == wanted, case
                wanted = rows(frame.filter(getattr(pl.col(name), test)(literal)).to_arrow())
                assert rows(lazy.filter(getattr(pl.col(name), test)(literal)).collect().to_arrow()) == wanted, case
                some += bool(wanted)
        for test in ("is_null", "is_valid"):
            wanted = rows(whole.filter(getattr(pc.field(name), test)()))
            assert rows(dataset.to_table(filter=getattr(pc.field(name), test)())) == wanted, (
                f"{name} {test}, seed {seed}"
            )
    assert some > 20


def test_oracle_filters_of_structs_lists_and_long_texts_lose_no_row(tmp_path):
    names = ["long", "struct", "list", "map", "bytes", "text", "a.b", "nothing"]
    rng = np.random.default_rng(3)
    whole = loaded(tmp_path / "t", [random_table(rng, EVERY_TYPE, 20).select(names) for _ in range(5)])
    dataset = DeltaTable(str(tmp_path / "t")).to_pyarrow_dataset()
    for name in names:
        wanted = rows(whole.filter(pc.field(name).is_null()))
        assert wanted
        assert rows(dataset.to_table(filter=pc.field(name).is_null())) == wanted, name
    for condition in (
        pc.field("struct", "x") == 5,
        pc.field("text") == "x" * 300,
        pc.field("a.b") == "a",
        pc.field("bytes") == b"abc",
    ):
        wanted = rows(whole.filter(condition))
        assert wanted
        assert rows(dataset.to_table(filter=condition)) == wanted, condition


@pytest.mark.parametrize("names", [FILTERED.names, ["int", "long", "text", "day"]], ids=["no ranges", "ranges"])
def test_oracle_filters_in_sql_lose_no_row(tmp_path, names):
    """DataFusion, which skips by the same statistics in its own way."""
    whole = loaded(tmp_path / "t", [t.select(names) for t in clustered(np.random.default_rng(9))])
    query = QueryBuilder().register("t", DeltaTable(str(tmp_path / "t")))
    brute = duckdb.connect()
    brute.register("t", whole)
    tried = 0
    for name, condition in (
        ("int", '"int" between -20 and -5'),
        ("int", '"int" >= 0'),
        ("int", '"int" is null'),
        ("long", "long > 0"),
        ("long", "long <= -1099511627776"),
        ("text", "text >= 'z'"),
        ("text", "text < 'Zz'"),
        ("text", "text is not null"),
        ("day", "day > date '2024-02-20'"),
        ("day", "day <= date '2024-03-01'"),
        ("flag", "flag"),
        ("flag", "not flag"),
        ("money", "money < 0.50"),
        ("moment", "moment < timestamp '1970-01-01 00:00:00.00005Z'"),
    ):
        if name in names:
            sql = f"select count(*) n, count(distinct text) d from t where {condition}"
            wanted = brute.sql(sql).fetchall()[0]
            got = pa.table(query.execute(sql).read_all()).to_pylist()[0]
            assert (got["n"], got["d"]) == wanted, condition
            assert wanted[0], condition
            tried += 1
    assert tried >= 10


# -- memory --------------------------------------------------------------------------------------


def held(monkeypatch, root: Path, batches: list[dict], schema: pa.Schema, by: str) -> tuple[int, int]:
    """Arrow's bytes that are held between batches, at most; and the bytes that went through."""
    monkeypatch.setattr(delta_files, "_ROW_GROUP", 1 << 20)
    monkeypatch.setattr(delta_files, "_BUFFERED", 4 << 20)
    before, most, through = pa.total_allocated_bytes(), 0, 0

    def counted():
        nonlocal most, through
        for columns in batches:
            batch = pa.record_batch(columns, schema=schema)
            through += batch.nbytes
            del columns
            yield batch
            del batch
            most = max(most, pa.total_allocated_bytes() - before)

    facts = write(sink_of(root, schema, by), counted())
    assert sum(f["stats"]["numRecords"] for f in facts) == sum(len(b["p"]) for b in batches)
    return most, through


def test_a_rare_partition_does_not_hold_the_batches_it_came_in(tmp_path, monkeypatch):
    schema = pa.schema({"v": pa.int64(), "s": pa.string(), "p": pa.int64()})
    text = [text_of(np.random.default_rng(1), 100)] * 4000
    batches = [{"v": range(4000), "s": text, "p": [1] + [0] * 3999} for _ in range(100)]
    most, through = held(monkeypatch, tmp_path / "t", batches, schema, "p")
    assert through > 40 << 20
    assert most < 10 << 20


def test_many_partitions_stay_in_bounded_memory(tmp_path, monkeypatch):
    rng = np.random.default_rng(2)
    schema = pa.schema({"v": pa.int64(), "s": pa.string(), "p": pa.int64()})
    text = [text_of(rng, 500)] * 1000
    batches = [{"v": range(1000), "s": text, "p": rng.integers(0, 100, 1000)} for _ in range(60)]
    most, through = held(monkeypatch, tmp_path / "t", batches, schema, "p")
    assert through > 25 << 20
    assert most < 12 << 20


def test_many_small_parts_stay_in_bounded_memory(tmp_path, monkeypatch):
    """One row of each partition in a batch: what holds the rows is larger than they are."""
    monkeypatch.setattr(delta_files, "_BUFFERED", 4 << 20)
    schema = pa.schema({"p": pa.int64()} | {f"c{i}": pa.int64() for i in range(8)})
    batch = pa.record_batch([range(60)] * 9, schema=schema)
    process, before, most = psutil.Process(), 0, 0

    def batches():
        nonlocal before, most
        for n in range(800):
            before = before or process.memory_info().rss
            most = max(most, process.memory_info().rss) if n % 50 == 0 else most
            yield batch

    facts = write(sink_of(tmp_path / "t", schema, "p"), batches())
    assert sum(f["stats"]["numRecords"] for f in facts) == 48_000
    assert most - before < 60 << 20


class _Partition:
    def partitionId(self):
        return 0


@pytest.mark.parametrize(
    ("worker_memory", "gathered"), [(None, 64 << 20), (64 << 20, 16 << 20), (4 << 20, 1 << 20), (1, 1 << 20)]
)
def test_what_is_gathered_follows_the_budget_of_the_joins(tmp_path, worker_memory, gathered):
    assert delta_files.gathered_for(worker_memory) == gathered
    schema = pa.schema({"id": pa.int64(), "name": pa.string()})
    rows = 30_000 * 100  # bytes
    batch = pa.record_batch({"id": range(3000), "name": [f"{i:092d}" for i in range(3000)]}, schema=schema)
    files = delta_files.TableFiles(str(tmp_path), schema, (), (), "part", gathered)
    list(files.write((batch.slice(0) for _ in range(10)), _Partition()))
    (path,) = tmp_path.iterdir()
    metadata = pq.read_metadata(path)
    assert metadata.num_rows == 30_000
    assert metadata.num_row_groups == (1 if gathered > rows else 3)
