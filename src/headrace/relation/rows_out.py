"""Rows of a relation for a notebook or another library: the first few, all of them as a stream, or as one table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import psutil
import pyarrow as pa

from headrace.errors import BadInput, MemoryRefused, listed, shown
from headrace.metrics import JoinStats
from headrace.relation.columns import Column
from headrace.relation.reader import SHARD_SHIFT, PageReader, Version, key_column, stored_keys
from headrace.units import format_size

if TYPE_CHECKING:
    from headrace.arrays import Int64s
    from headrace.relation.relation import Relation

_OBJECT = 60  # bytes of a Python text beside its characters, which pandas holds for every value
_FIRST_PAGES = 1 << 10  # pages that the first rows are read from at a time, at most


def first_rows(relation: Relation, n: int, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the first n rows in the order in which they are stored, reading the pages that hold them and no more."""
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0:
        raise BadInput(f"n={shown(n)} is not a number of rows; give a whole number, 0 or more")
    schema = schema_of(relation, columns)
    payload = relation.payload(schema.names)
    found: list[pa.RecordBatch] = []
    rows = 0
    version = relation.opened
    version.check_open()
    for shard, facts in enumerate(version.manifest.shards):
        done = 0
        while rows < n and done < facts.pages:
            # As many as the rows take that are still wanted, by the mean of the shard: one page, nearly always.
            count = min(facts.pages - done, _FIRST_PAGES, 1 + int((n - rows) * facts.pages / max(1, facts.rows)))
            batch = _read(version, _places(version, shard, done, done + count), payload, relation.key)
            found.append(batch)
            rows += batch.num_rows
            done += count
    return pa.Table.from_batches(found).select(schema.names).slice(0, n) if found else schema.empty_table()


def _places(version: Version, shard: int, first: int, stop: int) -> Int64s:
    """Return the places of some pages of a shard. Only where updates have moved pages is the index needed for that."""
    if version.manifest.shards[shard].moved:
        return version.places(shard, stop)[first:]
    return (shard << SHARD_SHIFT) + np.arange(first, stop)


def _read(version: Version, places: Int64s, payload: tuple[Column, ...], key: tuple[str, ...]) -> pa.RecordBatch:
    reader = PageReader(version, 2 * places.size * version.page_size)
    columns = (key_column(version.codec), *payload)
    names = [*key, *(column.name for column in payload)]
    batches = []
    for _, store in reader.scan(places, columns, JoinStats()):
        keys = version.codec.decode(stored_keys(store, version.codec.integer))
        arrays = [store.array(i + 1) for i in range(len(payload))]
        batches.append(pa.RecordBatch.from_arrays([*keys, *arrays], names=names))
    return pa.concat_batches(batches) if len(batches) > 1 else batches[0]


def schema_of(relation: Relation, columns: Sequence[str] | None) -> pa.Schema:
    """Return the fields of the named columns in that order, of all by default; refuses unknown ones."""
    if columns is None:
        return relation.schema
    if isinstance(columns, str):
        raise BadInput(f"columns={columns!r} is one text; give a list of names: [{columns!r}]")
    names = relation.schema.names
    for name in columns:
        if name not in names:
            raise BadInput(
                f"columns names {name!r}, which the relation does not have; choose from {listed(names, like=str(name))}"
            )
    return pa.schema([relation.schema.field(name) for name in dict.fromkeys(columns)])


def reader_of(relation: Relation, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
    """Return a reader of all rows, which reads pages as it is asked for batches."""
    schema = schema_of(relation, columns)

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in relation.scan(columns=schema.names):
            yield batch.select(schema.names).cast(schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def whole_table(relation: Relation, columns: Sequence[str] | None, *, objects: bool = False) -> pa.Table:
    """Return all rows as a table; refuses those that the machine's free memory has no room for."""
    schema = schema_of(relation, columns)
    wanted = table_bytes(relation, schema, objects=objects)
    free = psutil.virtual_memory().available
    if wanted > free:
        raise MemoryRefused(
            f"{relation.num_rows:,} rows of {len(schema):,} columns take some {format_size(wanted)} and {format_size(free)} of"
            " this machine's memory are free; name the columns wanted, or read batch by batch with scan() or to_reader()"
        )
    return reader_of(relation, columns).read_all()


def table_bytes(relation: Relation, schema: pa.Schema, *, objects: bool = False) -> int:
    """Return what columns of all rows take in memory as Arrow arrays; with `objects`, as those and as a pandas frame."""
    texts = [field.name for field in schema if pa.types.is_string(field.type) or pa.types.is_binary(field.type)]
    fixed = sum(1 if pa.types.is_null(f.type) else f.type.bit_width for f in schema if f.name not in texts) // 8
    # Key columns of text are not among the counts of variable bytes: they are guessed to be as long as a number.
    bytes_ = sum(relation.variable_bytes.get(name, 8 * relation.num_rows) for name in texts)
    arrow = relation.num_rows * (fixed + 4 * len(texts)) + bytes_
    return 2 * arrow + relation.num_rows * _OBJECT * len(texts) if objects else arrow
