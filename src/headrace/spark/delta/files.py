"""Parquet files of a Delta table, written by Python workers. (DESIGN D8)

A file has its final name from the start and counts for nothing until the driver commits it, so a task that is killed, repeated or
run twice leaves at most files that no reader looks at.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.errors import BadInput
from headrace.files import NewFile, make_directory, open_new, remove, status_of, sync_directory
from headrace.spark.delta.encodings import Encodings

if TYPE_CHECKING:
    from pyspark import TaskContext

FACTS = "facts string"  # schema of what a writing task gives back: one JSON text a file
_ROW_GROUP = 16 << 20  # bytes gathered for one row group, at most
_BUFFERED = 64 << 20  # bytes gathered for all files of a task, at most
_LEAST_GATHERED = (
    1 << 20
)  # bytes gathered for all files of a task however small the joins' budget is: smaller row groups cost more
_GATHERED_SHARE = 4  # of a worker's budget for its joins, one part in so many is gathered beside it
_COLUMN = 600  # bytes that a held column takes beside its values, as measured
_OPEN = 64  # files open at a time
_LONGEST = 255  # bytes of a directory's name, on every common file system
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"

Values = tuple[str | None, ...]


@dataclass(frozen=True)
class TableFiles:
    """Where and how tasks write, as it travels to the executors.

    Parameters
    ----------
    root
        The table's directory.
    schema
        Its columns, in order.
    partition_by
        Columns whose values go to the path and not into the file.
    required
        Columns that must not be null.
    prefix
        Start of the files' names: whose they are, and of which transaction.
    gathered
        Bytes of rows that a task gathers for its files before it writes them.
    """

    root: str
    schema: pa.Schema
    partition_by: tuple[str, ...]
    required: tuple[str, ...]
    prefix: str
    gathered: int = _BUFFERED

    def write(self, batches: Iterator[pa.RecordBatch], context: TaskContext) -> Iterator[pa.RecordBatch]:
        """Write all batches; gives the facts of the files when they are complete."""
        writer = _Writer(self, f"{self.prefix}-{context.partitionId():05d}")
        try:
            for batch in batches:
                writer.take(batch)
            facts = writer.close()
        except BaseException:
            writer.abandon()
            raise
        yield pa.record_batch({"facts": pa.array([json.dumps(f) for f in facts], pa.string())})


def gathered_for(worker_memory: int | None) -> int:
    """Bytes of rows that a task gathers, beside a budget of its joins: a quarter of that. None: there are no joins."""
    return (
        _BUFFERED if worker_memory is None else min(_BUFFERED, max(_LEAST_GATHERED, worker_memory // _GATHERED_SHARE))
    )


@dataclass
class _File:
    path: str  # below the root
    values: Values
    where: Path
    file: NewFile | None = None
    writer: pq.ParquetWriter | None = None  # from the first row group on, which the encodings are chosen by
    metadata: list[Any] = field(default_factory=list)
    held: list[pa.RecordBatch] = field(default_factory=list)
    size: int = 0

    def take(self, batch: pa.RecordBatch) -> None:
        self.held.append(batch)
        self.size += batch.nbytes + _COLUMN * batch.num_columns

    def flush(self) -> None:
        if self.held:
            table = pa.Table.from_batches(self.held)
            if self.writer is None:
                options = Encodings.of(table).options()
                self.file = open_new(self.where, private=False)
                self.writer = pq.ParquetWriter(  # files: a NewFile
                    self.file, table.schema, metadata_collector=self.metadata, **options
                )
            self.writer.write_table(table, row_group_size=max(1, table.num_rows))
            self.held, self.size = [], 0

    def close(self) -> int:
        """Complete the file and have it on disk; returns its bytes."""
        self.flush()
        assert self.file is not None  # a file is there for rows that it has taken
        assert self.writer is not None
        self.writer.close()
        self.file.sync()
        self.file.close()
        return self.file.size

    def abandon(self) -> None:
        """Remove what there is of the file."""
        if self.file is not None:
            with suppress(Exception):
                assert self.writer is not None
                self.writer.close()
            self.file.close()
            with suppress(OSError):
                remove(self.where)


class _Writer:
    """The files of one task: one for each combination of partition values, in bounded memory."""

    def __init__(self, files: TableFiles, name: str) -> None:
        self.files = files
        self.name = name
        self.facts: list[dict[str, Any]] = []
        self._open: dict[Values, _File] = {}
        self._done: list[_File] = []
        self._stored = pa.schema([f for f in files.schema if f.name not in files.partition_by])

    def take(self, batch: pa.RecordBatch) -> None:
        # Without a join before, columns come under numbers: see Plan.map.
        batch = batch.rename_columns(self.files.schema.names)
        if not batch.schema.equals(self.files.schema):
            batch = batch.cast(self.files.schema)
        for name in self.files.required:
            if batch.column(name).null_count:
                raise BadInput(
                    f"column {name!r} holds {batch.column(name).null_count} null(s), and the table at {self.files.root} does not"
                    " allow them; filter or fill them before hr.load"
                )
        for values, part in self._parts(batch):
            file = self._file(values)
            file.take(part)
            if file.size >= _ROW_GROUP:
                file.flush()
        while sum(f.size for f in self._open.values()) > self.files.gathered:
            max(self._open.values(), key=lambda f: f.size).flush()

    def _parts(self, batch: pa.RecordBatch) -> Iterator[tuple[Values, pa.RecordBatch]]:
        """The rows of each combination of partition values, without the partition columns."""
        by = self.files.partition_by
        if not by or batch.num_rows == 0:
            if batch.num_rows:
                yield (), batch
            return
        codes = np.zeros(batch.num_rows, np.int64)
        encoded = []
        for name in by:
            column = batch.column(name).dictionary_encode(null_encoding="encode")
            encoded.append(column)
            codes = codes * (len(column.dictionary) + 1) + np.asarray(column.indices)
        _, first, which = np.unique(codes, return_index=True, return_inverse=True)
        order = np.argsort(which, kind="stable")
        rows = batch.drop_columns(list(by))
        # Each part is a copy: a slice of one row, held, would keep the whole batch in memory.
        for row, part in zip(first, np.split(order, np.cumsum(np.bincount(which))[:-1]), strict=True):
            values = tuple(_text(name, c, int(row)) for name, c in zip(by, encoded, strict=True))
            yield values, rows.take(pa.array(part))

    def _file(self, values: Values) -> _File:
        file = self._open.pop(values, None)
        if file is None:
            if len(self._open) >= _OPEN:
                self._finish(self._open.pop(next(iter(self._open))))
            pairs = zip(self.files.partition_by, values, strict=True)
            folder = "".join(f"{_folder(n, v)}/" for n, v in pairs)
            path = f"{folder}{self.name}-{uuid.uuid4().hex}.parquet"
            where = Path(self.files.root, path)
            make_directory(where.parent, parents=True, private=False)
            file = _File(path, values, where)
        self._open[values] = file  # the most recent comes last
        return file

    def _finish(self, file: _File) -> None:
        size = file.close()
        self._done.append(file)
        self.facts.append(
            {
                "path": file.path,
                "size": size,
                "written": int(1000 * status_of(file.where).st_mtime),
                "values": dict(zip(self.files.partition_by, file.values, strict=True)),
                "stats": _stats(file.metadata[0], self._stored),
            }
        )

    def close(self) -> list[dict[str, Any]]:
        for file in self._open.values():
            self._finish(file)
        self._open = {}
        self._sync_directories()
        return self.facts

    def abandon(self) -> None:
        """Remove the files of a task that failed."""
        for file in [*self._open.values(), *self._done]:
            file.abandon()

    def _sync_directories(self) -> None:
        """Have the names of the files on disk, and those of the directories of partitions above them.

        Also of those that were there: a task that made one may have been killed before it had its name on disk.
        """
        root = Path(self.files.root)
        inside = {above for file in self._done for above in file.where.parents if above.is_relative_to(root)}
        for directory in sorted(inside):
            sync_directory(directory)


def _folder(name: str, value: str | None) -> str:
    """The directory of a partition value. Some readers take the value from it, so it has to hold all of it."""
    folder = f"{quote(name, safe='')}={_NO_VALUE if value is None else quote(value, safe=' ')}"
    if len(folder) > _LONGEST:
        raise BadInput(
            f"partition column {name!r} holds a text of {len(str(value))} characters, too long for the name of a directory;"
            " partition by another column"
        )
    return folder


def _text(name: str, column: pa.DictionaryArray, row: int) -> str | None:
    """A partition value as the log has it."""
    value = column.dictionary[column.indices[row].as_py()]
    if not value.is_valid:
        return None
    text: str = pc.cast(value, pa.string()).as_py()
    if text in ("", _NO_VALUE):
        raise BadInput(
            f"partition column {name!r} holds {f'the text {text!r}' if text else 'an empty text'}, which readers of a Delta table"
            " cannot tell from null; replace it before hr.load"
        )
    return text


def _stats(metadata: Any, schema: pa.Schema) -> dict[str, Any]:
    """What a reader may skip the file by: rows, nulls, and the ranges of its columns.

    Types whose order has pitfalls get no range, and then no column does: where some have one, delta-rs takes a missing one for an
    empty one when it makes a pyarrow dataset, and a filter loses the file's rows.
    """
    nulls: dict[str, int] = {}
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    without: set[str] = set()
    for group in range(metadata.num_row_groups):
        for i in range(metadata.num_columns):
            column = metadata.row_group(group).column(i)
            name, stats = column.path_in_schema, column.statistics
            if "." in name or stats is None:
                without.add(name)
                continue
            nulls[name] = nulls.get(name, 0) + (stats.null_count or 0)
            if not stats.has_min_max or stats.num_values == 0:
                if stats.num_values:
                    without.add(name)
                continue
            try:
                least, most = _plain(stats.min), _plain(stats.max)
            except (OverflowError, ValueError):  # a date that Python has no name for, text that is not UTF-8
                least = most = None
            if least is None or most is None:
                without.add(name)
                continue
            low[name] = min(low.get(name, least), least)
            high[name] = max(high.get(name, most), most)
    nulls = {n: c for n, c in nulls.items() if n not in without}
    facts: dict[str, Any] = {"numRecords": metadata.num_rows, "nullCount": nulls}
    ranged = {n for n in low if n not in without}
    if all(f.name in ranged or nulls.get(f.name) == metadata.num_rows or _unordered(f.type) for f in schema):
        facts |= {"minValues": {n: low[n] for n in ranged}, "maxValues": {n: high[n] for n in ranged}}
    return facts


def _unordered(type_: pa.DataType) -> bool:
    """Types that no reader expects a range for."""
    is_ = pa.types
    return bool(is_.is_binary(type_) or is_.is_list(type_) or is_.is_map(type_) or is_.is_null(type_))


def _plain(value: Any) -> Any:
    """A bound as JSON; None for types whose bounds are left out."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        return value if len(value) <= 256 else None
    if type(value) is date:  # and not a datetime, which is one too
        return str(value.isoformat())
    return None
