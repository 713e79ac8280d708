"""A relation the slow way: rows in a list. What the tests compare with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
from hypothesis import HealthCheck, settings

import headrace as hr

Row = tuple[object, ...]

# An example writes files: fewer examples, and no word about time.
FEW = settings(
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def values(column: pa.Array | pa.ChunkedArray) -> list[object]:
    """Python values that are equal only where the stored bits are: NaN equals NaN, -0.0 is not 0.0."""
    type_ = column.type
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in values(chunk)]
    t = pa.types
    if t.is_dictionary(type_):
        return values(column.dictionary_decode())
    if t.is_interval(type_) or t.is_null(type_) or t.is_decimal(type_):
        return column.to_pylist()
    if t.is_floating(type_) or t.is_temporal(type_):
        return column.view({16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[type_.bit_width]).to_pylist()
    return column.to_pylist()


def rows(data: pa.Table | pa.RecordBatch, names: Sequence[str] | None = None) -> list[Row]:
    names = data.schema.names if names is None else names
    columns = [values(data.column(name)) for name in names]
    return list(zip(*columns, strict=True)) if columns else [()] * data.num_rows


def scanned(relation: hr.Relation, names: Sequence[str] | None = None) -> list[Row]:
    return [row for batch in relation.scan() for row in rows(batch, names)]


def names_of(relation: hr.Relation) -> list[str]:
    """Columns in the order in which lookups and scans give them: the key first."""
    return [*relation.key, *(name for name in relation.schema.names if name not in relation.key)]


def by_key(table: pa.Table, key: Sequence[str], names: Sequence[str]) -> dict[Row, list[Row]]:
    """Rows of each key, in order of arrival; a null key has none."""
    found: dict[Row, list[Row]] = {}
    for one, row in zip(rows(table, key), rows(table, names), strict=True):
        if None not in one:
            found.setdefault(one, []).append(row)
    return found


def check_same(relation: hr.Relation, table: pa.Table) -> None:
    """A relation holds exactly a table's rows, and finds each by its key; `table` has the stored types."""
    names = names_of(relation)
    assert relation.num_rows == table.num_rows
    got, expected = scanned(relation, names), rows(table, names)
    assert len(got) == len(expected)
    assert Counter(got) == Counter(expected)
    held = by_key(table, relation.key, names)
    assert relation.distinct_keys == len(held)
    asked = table.select(list(relation.key))
    found = relation.lookup(asked)
    assert found.schema.names == names
    assert rows(found) == [row for key in dict.fromkeys(rows(asked)) for row in held.get(key, [])]
    relation.verify()


def files_of(root: Path) -> set[str]:
    """Data files, without locks."""
    return {p.name for p in root.iterdir() if p.name != "locks"}


def named_files(*relations: hr.Relation) -> set[str]:
    """Files that open versions consist of, with their manifests."""
    names = set()
    for relation in relations:
        names.add(f"manifest-{relation.version:06d}.json")
        for shard in relation.opened.manifest.shards:
            names |= shard.names()
    return names


def chunks(table: pa.Table, size: int) -> Iterator[pa.RecordBatch]:
    yield from table.to_batches(max_chunksize=size)


def leftovers(root: Path) -> list[str]:
    """What is beside a relation and is not it."""
    return sorted(p.name for p in root.parent.iterdir() if p != root)


def in_order(items: Iterable[object]) -> bool:
    some = list(items)
    return all(a <= b for a, b in pairwise(some))  # type: ignore[operator]
