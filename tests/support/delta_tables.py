"""Delta tables for the tests of `load`: rows of every type, files written without Spark, and readers of other makers."""

from __future__ import annotations

import json
import string
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql.pandas.types import from_arrow_schema

from headrace.spark.delta.files import TableFiles
from headrace.spark.delta.load import Sink, _prefix
from headrace.spark.plan import Plan

Facts = list[dict[str, Any]]

INT, DOUBLE = pa.field("element", pa.int32()), pa.field("element", pa.float64())
EVERY_TYPE = pa.schema(
    {
        "flag": pa.bool_(),
        "tiny": pa.int8(),
        "small": pa.int16(),
        "int": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "money": pa.decimal128(10, 2),
        "wide": pa.decimal128(38, 10),
        "text": pa.string(),
        "bytes": pa.binary(),
        "day": pa.date32(),
        "moment": pa.timestamp("us", "UTC"),
        "local": pa.timestamp("us"),
        "list": pa.list_(INT),
        "lists": pa.list_(pa.field("element", pa.list_(DOUBLE))),
        "struct": pa.struct({"x": pa.int64(), "y": pa.struct({"z": pa.string()})}),
        "map": pa.map_(pa.string(), pa.float64()),
        "nothing": pa.null(),
        "Größe (cm)": pa.int32(),
        "a.b": pa.string(),
        "名前": pa.string(),
    }
)

TEXTS = [
    "",
    "a",
    "A",
    "é",
    "\U0001f600",
    "\uffff",
    "two words",
    "a/b=c%d",
    "'\"`\\",
    "\n\t",
    "null",
    "x" * 300,
    "x" * 300 + "y",
]
INTS = [0, 1, -1, 5, -7]


def random_value(rng: np.random.Generator, type_: pa.DataType) -> Any:
    """A value from a small domain that has what goes wrong in it; a fifth of them null."""
    if rng.random() < 0.2 or pa.types.is_null(type_):
        return None
    pick = rng.integers
    if pa.types.is_boolean(type_):
        return bool(pick(2))
    if pa.types.is_integer(type_):
        most = 2 ** (type_.bit_width - 1) - 1
        return [*INTS, most, -most - 1][pick(7)]
    if pa.types.is_floating(type_):
        return [float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 1.5, -2.25][pick(7)]
    if pa.types.is_decimal(type_):
        return Decimal(int(pick(-99_999, 99_999))).scaleb(-type_.scale)
    if pa.types.is_string(type_):
        return TEXTS[pick(len(TEXTS))]
    if pa.types.is_binary(type_):
        return [b"", b"\x00", b"\xff\xfe", b"abc"][pick(4)]
    if pa.types.is_date(type_):
        return [date(1, 1, 1), date(1582, 10, 10), date(1969, 12, 31), date(2024, 2, 29), date(9999, 12, 31)][pick(5)]
    if pa.types.is_timestamp(type_):
        zone = UTC if type_.tz else None
        return datetime(1900, 1, 1, tzinfo=zone) + timedelta(microseconds=int(pick(10**16)))
    if pa.types.is_map(type_):
        return [(f"k{i}", random_value(rng, type_.item_type)) for i in range(pick(3))]
    if pa.types.is_list(type_):
        return [random_value(rng, type_.value_type) for _ in range(pick(4))]
    return {field.name: random_value(rng, field.type) for field in type_}


def random_table(rng: np.random.Generator, schema: pa.Schema, rows: int) -> pa.Table:
    columns = [pa.array([random_value(rng, field.type) for _ in range(rows)], field.type) for field in schema]
    return pa.table(columns, schema=schema)


# -- writing -------------------------------------------------------------------------------------


def sink_of(path: Path, schema: pa.Schema, *partition_by: str) -> Sink:
    """A sink for Arrow tables, with no Spark behind it."""
    return Sink(path, Plan(None, (), (), from_arrow_schema(schema, prefer_timestamp_ntz=True)), partition_by)


def write(sink: Sink, batches: Iterable[pa.RecordBatch], app: str = "app", number: int = 0, task: int = 0) -> Facts:
    """What one task of a load writes; not committed."""
    files = TableFiles(str(sink.path), sink.schema, sink.partition_by, sink.required, f"{_prefix(app)}-{number:010d}")
    out = files.write(iter(batches), SimpleNamespace(partitionId=lambda: task))
    return [json.loads(text) for batch in out for text in batch["facts"].to_pylist()]


def append(sink: Sink, table: pa.Table, app: str = "app", number: int = 0) -> Facts:
    """Write and commit, as one task would."""
    facts = write(sink, table.to_batches(max_chunksize=100), app, number)
    assert sink._commit(facts, app, number)
    return facts


# -- reading -------------------------------------------------------------------------------------


def rows(table: pa.Table, names: list[str] | None = None) -> Counter[str]:
    """The multiset of a table's rows, each column by its name, whoever read it."""
    table = table.select(names or table.column_names)
    return Counter(repr([_plain(value) for value in row.values()]) for row in table.to_pylist())


def _plain(value: Any) -> Any:
    """The same text for the same value: readers differ in zones and in what they make of a map."""
    if isinstance(value, datetime) and value.tzinfo:
        return value.astimezone(UTC)
    if isinstance(value, tuple):
        return {"key": value[0], "value": _plain(value[1])}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value


def by_deltalake(path: Path) -> pa.Table:
    return DeltaTable(path.as_uri()).to_pyarrow_table()


def by_polars(path: Path) -> pa.Table:
    return pl.read_delta(str(path)).to_arrow()


def by_duckdb(path: Path) -> pa.Table:
    """The files of an unpartitioned table that the log names, read as plain Parquet."""
    return duckdb.connect().read_parquet(DeltaTable(str(path)).file_uris()).to_arrow_table()


READERS = {"deltalake": by_deltalake, "polars": by_polars, "duckdb": by_duckdb}


def adds(path: Path) -> list[dict[str, Any]]:
    """The files as the log's JSON has them, with their statistics."""
    lines = [line for log in sorted(path.glob("_delta_log/*.json")) for line in log.read_text().splitlines()]
    found = [json.loads(line)["add"] for line in lines if "add" in json.loads(line)]
    return [{**add, "stats": json.loads(add["stats"])} for add in found]


def on_disk(path: Path) -> set[str]:
    return {file.name for file in path.rglob("*.parquet") if "_delta_log" not in file.parts}


def in_log(path: Path) -> set[str]:
    return {uri.rpartition("/")[2] for uri in DeltaTable(path.as_uri()).file_uris()}


def text_of(rng: np.random.Generator, length: int) -> str:
    return "".join(rng.choice(list(string.ascii_letters), length))
