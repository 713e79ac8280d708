"""Streams of Parquet files for Spark, the rows that a query gives, and DuckDB's answer to the same join."""

from __future__ import annotations

import os
from collections import Counter
from itertools import count
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr

_number = count()


def relation(path: Path, rows: pa.Table, key) -> hr.Relation:
    return hr.Relation.create(path, rows, key=key, page_size="4KiB")


def plain(value):
    """Values that can be counted, whatever they hold."""
    return repr(value) if isinstance(value, list | dict) else value


def counted(rows: pa.Table) -> Counter:
    """By position: names may repeat."""
    columns = [[plain(v) for v in rows.column(i).to_pylist()] for i in range(rows.num_columns)]
    return Counter(zip(*columns, strict=True))


def naive(rows: pa.Table) -> pa.Table:
    """Timestamps without a zone: DuckDB needs an extension for those with one."""
    types = [pa.timestamp("us") if pa.types.is_timestamp(f.type) else f.type for f in rows.schema]
    return rows.cast(pa.schema([pa.field(f.name, t) for f, t in zip(rows.schema, types, strict=True)]))


def duck(stream: pa.Table, rows: pa.Table, key: list[str], how: str) -> Counter:
    on = " and ".join(f"stream.{k} = rows.{k}" for k in key)
    exists = f"exists (select 1 from rows where {on})"
    payload = [name for name in rows.schema.names if name not in key]
    both = ", ".join(["stream.*", *(f"rows.{name} as {name}_r" for name in payload)])
    sql = {
        "inner": f"select {both} from stream join rows on {on}",
        "left": f"select {both} from stream left join rows on {on}",
        "semi": f"select * from stream where {exists}",
        "anti": f"select * from stream where not {exists}",
    }[how]
    with duckdb.connect(config={"autoinstall_known_extensions": False}) as db:
        db.register("rows", naive(rows))
        db.register("stream", naive(stream))
        return counted(db.sql(sql).to_arrow_table())


def streamed(df, **options) -> pa.Table:
    """Everything that a streaming DataFrame gives until its sources are read."""
    name = f"out{next(_number)}"
    query = df.writeStream.format("memory").queryName(name).options(**options).trigger(availableNow=True).start()
    finished(query)
    return df.sparkSession.table(name).toArrow()


def finished(query) -> None:
    try:
        assert query.awaitTermination(300), "the query goes on and on"
    finally:
        query.stop()


def files(directory: Path, *tables: pa.Table) -> Path:
    """One Parquet file a table, each later than the one before."""
    directory.mkdir(exist_ok=True)
    for rows in tables:
        path = directory / f"{next(_number):06d}.parquet"
        pq.write_table(rows, path.with_suffix(".draft"))
        path.with_suffix(".draft").rename(path)
        os.utime(path, (path.stat().st_atime, 1e9 + next(_number)))
    return directory


def source(spark, directory: Path, per_trigger: int = 1):
    schema = spark.read.parquet(str(directory)).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", per_trigger)
    return reader.option("pathGlobFilter", "*.parquet").parquet(str(directory))


def last_again(checkpoint):
    """The last micro-batch is not known to be done: Spark will send it again. Its number."""
    commits = sorted(int(p.name) for p in (checkpoint / "commits").iterdir() if p.name.isdigit())
    (checkpoint / "commits" / str(commits[-1])).unlink()
    (checkpoint / "commits" / f".{commits[-1]}.crc").unlink(missing_ok=True)
    return commits[-1]
