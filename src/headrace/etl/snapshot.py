"""`snapshot_diff`: the difference between the snapshot that a relation holds and a new one. [MESH] §1

new snapshot --sorted as the relation is, spilled where it must be--> piece by piece --+
relation     --its pages in their order--------------------------> piece by piece --+--> inserted, deleted, updated
                                                                                         as files; unchanged: a count
"""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.errors import BadInput
from headrace.etl.merge import MergeInput, aligned_ranges, compare
from headrace.files import make_directory, map_regular, open_new, remove, remove_tree, temporary_directory
from headrace.relation import Relation
from headrace.relation.input_data import source_of
from headrace.relation.sorter import ExternalSorter, batches_of
from headrace.relation.update import Change, rows_for, scan_tables
from headrace.units import parse_size

_PARTS = ("inserted", "deleted", "before", "after")


class SnapshotDiff:
    """The difference of two snapshots. Its tables are memory-mapped files, so they may be larger than memory.

    `rel.apply(diff)` makes the relation equal to the new snapshot; it holds the changed rows in memory, and is refused if the
    relation has changed since. `close`, or leaving a `with` block, removes the files.
    """

    def __init__(self, relation: Relation, directory: Path) -> None:
        self.version: int = relation.version
        """the version of the relation that was compared"""
        self.unchanged: int = 0
        """rows that are equal in both"""
        self._key = relation.key
        self._schema = relation.schema
        self._directory = directory
        self._remove = weakref.finalize(self, remove_tree, directory)

    def _table(self, part: str) -> pa.Table:
        if not self._remove.alive:
            raise BadInput("the difference is closed and its files are gone; call snapshot_diff again")
        return pa.ipc.open_file(pa.py_buffer(map_regular(self._directory / part))).read_all()

    @property
    def inserted(self) -> pa.Table:
        """Rows whose key the relation does not have: S - R."""
        return self._table("inserted")

    @property
    def deleted(self) -> pa.Table:
        """Rows of the relation whose key the new snapshot does not have: R - S."""
        return self._table("deleted")

    @property
    def updated(self) -> pa.Table:
        """Rows that differ, by key: the key columns, then `<column>_old` and `<column>_new` for each other column."""
        before, after = self._table("before"), self._table("after")
        columns = {name: after.column(name) for name in self._key}
        for name in self._schema.names:
            if name not in self._key:
                columns[f"{name}_old"], columns[f"{name}_new"] = before.column(name), after.column(name)
        return pa.table(list(columns.values()), names=list(columns))

    @property
    def change(self) -> Change:
        """The change that makes the relation equal to the new snapshot."""
        upserts = pa.concat_tables([self.inserted, self._table("after")])
        return Change(upserts, self.deleted.select(self._key), base=self.version)

    def close(self) -> None:
        """Remove the files."""
        self._remove()

    def __enter__(self) -> SnapshotDiff:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if not self._remove.alive:
            return "SnapshotDiff(closed)"
        inserted, deleted, updated = (self._table(part).num_rows for part in _PARTS[:3])
        return f"SnapshotDiff({inserted=:,}, {deleted=:,}, {updated=:,}, unchanged={self.unchanged:,})"


def snapshot_diff(
    new: Any, rel: Relation, *, memory: int | str = "256MiB", scratch: str | Path | None = None
) -> SnapshotDiff:
    """Compare a new snapshot with the one that a relation holds, in one pass over each and in bounded memory.

    A null equals a null, and a NaN a NaN.

    Parameters
    ----------
    new
        The new snapshot, with the relation's columns and each key once: a Spark DataFrame (not a streaming one), a pyarrow Table,
        RecordBatchReader or Dataset, a pandas frame, or the path of Parquet files.
    rel
        The relation, at the version it was opened at; each key once.
    memory
        Bytes that sorting may hold; more is spilled.
    scratch
        A directory for spilled rows and for the result; beside the relation by default. Executors must see it, if `new` is a
        Spark DataFrame.

    Example
    -------
    >>> import pyarrow as pa, tempfile, headrace as hr
    >>> old = pa.table({"id": [1, 2, 3], "price": [5.0, 6.0, None]})
    >>> rel = hr.Relation.create(tempfile.mkdtemp() + "/prices", old, key="id")
    >>> diff = hr.snapshot_diff(pa.table({"id": [2, 3, 4], "price": [6.5, None, 7.0]}), rel)
    >>> diff.updated.to_pylist(), diff.unchanged
    ([{'id': 2, 'price_old': 6.0, 'price_new': 6.5}], 1)
    >>> rel.apply(diff)
    2
    """
    if not isinstance(rel, Relation):
        raise BadInput(f"rel={rel!r} is not a relation; open one with hr.Relation.open(path)")
    if rel.order != "key":
        raise BadInput(f"{rel.path} is stored by popularity; a difference needs rows in the order of keys")
    if getattr(new, "isStreaming", False):
        raise BadInput(
            "new is a streaming DataFrame, and a snapshot is all there is; use hr.maintain for a stream of changes"
        )
    base = rel.path.parent if scratch is None else Path(scratch).absolute()
    directory = temporary_directory(base, f".{rel.path.name}-diff-")
    diff = SnapshotDiff(rel, directory)
    try:
        _fill(diff, new, rel, parse_size(memory, name="memory"), directory)
    except BaseException:
        diff.close()
        raise
    return diff


def _fill(diff: SnapshotDiff, new: Any, rel: Relation, memory: int, directory: Path) -> None:
    version = rel.opened
    work = directory / "work"
    make_directory(work)
    sorter = ExternalSorter(version.layout, rel.num_shards, memory, work, "refuse")
    for table in _tables(new, memory, work):
        sorter.add(rows_for(rel, table, "the new rows"))
    sorter.finish()
    sinks = {part: open_new(directory / part) for part in _PARTS}
    writers = {part: pa.ipc.new_file(sink, rel.schema) for part, sink in sinks.items()}
    for shard in range(rel.num_shards):
        old = MergeInput(
            (table for table, _, _ in scan_tables(version, version.places(shard))), version.codec, "the relation"
        )
        fresh = MergeInput(sorter.shard(shard), version.codec, "the new snapshot")
        for mine, theirs in aligned_ranges(old, fresh):
            parts, same = compare(mine, theirs, version.codec)
            diff.unchanged += same
            for part, rows in parts.items():
                writers[part].write_table(rows, max_chunksize=1 << 16)
    for part in _PARTS:
        writers[part].close()
        sinks[part].flush()
        sinks[part].close()
    remove_tree(work)


def _tables(new: Any, memory: int, work: Path) -> Iterator[pa.Table]:
    """Yield the new snapshot in tables of some megabytes."""
    batches: Iterable[pa.RecordBatch]
    if hasattr(new, "sparkSession"):
        schema, batches = _from_spark(new, work)
    else:
        schema, batches, _ = source_of(new)
    yield from batches_of(batches, schema, memory)


def _from_spark(df: Any, work: Path) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Executors write Arrow files; those of tasks that ended well are read."""
    from headrace.spark.schemas import stream_schema

    target = str(work)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from headrace.etl.snapshot import write_batches

        return write_batches(batches, target)

    schema = stream_schema(df.schema)
    names = [f"c{i}" for i in range(len(schema))]
    files = [Path(row.file) for row in df.toDF(*names).mapInArrow(run, "file string").collect()]

    def read() -> Iterator[pa.RecordBatch]:
        for file in files:
            reader = pa.ipc.open_file(pa.py_buffer(map_regular(file)))
            for i in range(reader.num_record_batches):
                yield pa.RecordBatch.from_arrays(reader.get_batch(i).columns, schema=schema)
            remove(file)

    return schema, read()


def write_batches(batches: Iterator[pa.RecordBatch], directory: str) -> Iterator[pa.RecordBatch]:
    """Write the rows of a Spark task to a file; yields its name, unless there are no rows."""
    first = next(batches, None)
    if first is None:
        return
    path = Path(directory) / f"part-{uuid.uuid4().hex}.arrow"
    with open_new(path) as sink, pa.ipc.new_file(sink, first.schema) as writer:
        writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)
    yield pa.record_batch({"file": [str(path)]})
