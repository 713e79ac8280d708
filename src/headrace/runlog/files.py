"""Files of a run log. Each is written as a draft, synced, and then linked to its name, so a file with a name is complete.

state     [Arrow stream][facts: JSON][lengths, CRC-32, magic]      any Arrow reader takes the stream
kept rows [Parquet, page checksums, facts in its metadata]         any Parquet reader takes it
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import DamagedLog
from headrace.files import create_exclusively, sync_directory

DRAFT = ".draft-"
_MAGIC = b"HEADLOG1"
_TAIL = struct.Struct("<QQI8s")  # bytes of the stream and of the facts, checksum of both, magic
_PIECE = 1 << 18  # bytes of a file that are resident at a time: small beside a budget, large beside a read
_FACTS = b"headrace"  # the key of the facts in Parquet's metadata

Facts = dict[str, Any]


@dataclass(frozen=True)
class LogFile:
    """One file of state: its rows, and the facts that its writer noted. Its checksum was compared when it was opened."""

    path: Path
    facts: Facts
    schema: pa.Schema
    _mapped: mmap.mmap
    _stream: pa.Buffer

    @property
    def rows(self) -> int:
        """How many rows the file has."""
        return int(self.facts["rows"])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Iterate over the rows, which lie in the mapped file. Pages that were passed are dropped from this process."""
        reader, seen = pa.BufferReader(self._stream), 0
        try:
            for batch in pa.ipc.open_stream(reader):
                yield batch
                if reader.tell() - seen > _PIECE:
                    seen = reader.tell()
                    self._mapped.madvise(mmap.MADV_DONTNEED)
        finally:
            self._mapped.madvise(mmap.MADV_DONTNEED)

    def table(self) -> pa.Table:
        """Read all rows; they stay in the mapped file."""
        return pa.Table.from_batches(self.batches(), self.schema)


def read_state(path: Path, *, check: bool = True) -> LogFile:
    """Open a file of state. Its checksum is compared before any byte is used; `check=False` if the caller has done so before."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < _TAIL.size:
            raise DamagedLog(f"{path} is damaged: it has {size} bytes, fewer than the end of a log file alone; {_CURE}")
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        view = memoryview(mapped)
        stream, facts, checksum, magic = _TAIL.unpack(view[-_TAIL.size :])
        if magic != _MAGIC or stream + facts + _TAIL.size != size:
            raise DamagedLog(f"{path} is damaged: it does not end as a log file does; {_CURE}")
        if check and _checksum(file, stream + facts) != checksum:
            raise DamagedLog(f"{path} is damaged: its checksum does not match its bytes; {_CURE}")
    buffer = pa.py_buffer(view[:stream])
    schema = pa.ipc.open_stream(buffer).schema
    return LogFile(path, json.loads(bytes(view[stream : stream + facts])), schema, mapped, buffer)


def _checksum(file: BinaryIO, size: int) -> int:
    """Compute the CRC-32 of the first bytes of a file. They are read and not mapped, so that they do not stay resident."""
    checksum = 0
    while size:
        piece = file.read(min(size, _PIECE))
        if not piece:
            break
        checksum, size = zlib.crc32(piece, checksum), size - len(piece)
    return checksum


_CURE = "restore it from a copy, or begin anew with another state directory and checkpoint"


class StateDraft:
    """A file of state while it is written. `commit` gives it its name; without that it leaves nothing. Used by `with`.

    Parameters
    ----------
    path
        The name that it is to have.
    schema
        Of its rows.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self.schema = schema
        self.rows = 0
        self._draft = path.with_name(f"{DRAFT}{uuid.uuid4().hex}")

    def __enter__(self) -> StateDraft:
        self._file = self._draft.open("wb")
        self._summed = _Summed(self._file)
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._summed, "w"), self.schema)
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._draft.unlink(missing_ok=True)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self._writer.write_batch(batch)
        self.rows += batch.num_rows

    def read(self) -> Iterator[pa.RecordBatch]:
        """Read the rows of a draft that is not to become a file after all; nothing can be added from now on."""
        self._writer.close()
        self._file.flush()
        with pa.memory_map(str(self._draft)) as file:
            yield from pa.ipc.open_stream(file)

    def commit(self, facts: Mapping[str, Any]) -> bool:
        """Sync the draft and give it its name; False if a file of that name is there already, which then stays."""
        self._writer.close()
        length, text = self._summed.length, json.dumps({**facts, "rows": self.rows}).encode()
        self._summed.write(text)
        self._file.write(_TAIL.pack(length, len(text), self._summed.checksum, _MAGIC))
        _sync(self._file)
        return create_exclusively(self._draft, self.path)


def write_state(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch], facts: Mapping[str, Any]) -> bool:
    """Write a file of state; False if one of that name is there already, which then stays. `facts` is read last."""
    with StateDraft(path, schema) as draft:
        for batch in batches:
            draft.add(batch)
        return draft.commit(facts)


def write_rows(
    path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch], facts: Mapping[str, Any], *, replace: bool = False
) -> bool:
    """Write rows for people, as Parquet; False if a file of that name is there already, which stays unless `replace` is true."""
    with _draft(path) as (draft, file):
        with pq.ParquetWriter(file, schema, write_page_checksum=True) as writer:
            for batch in batches:
                writer.write_batch(batch)
            writer.add_key_value_metadata({_FACTS: json.dumps(dict(facts)).encode()})
        _sync(file)
        if replace:
            draft.replace(path)
            sync_directory(path.parent)
            return True
        return create_exclusively(draft, path)


def read_rows(path: Path) -> tuple[pa.Table, Facts]:
    """Read rows that were kept for people, and the facts about them."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            metadata = file.metadata.metadata or {}
            return file.read(), json.loads(metadata.get(_FACTS, b"{}"))
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise DamagedLog(f"{path} is damaged: {error}; {_CURE}") from error


def count_rows(path: Path) -> int:
    """Read the number of rows of a Parquet file from its footer."""
    try:
        return int(pq.read_metadata(path).num_rows)
    except (pa.ArrowException, OSError) as error:
        raise DamagedLog(f"{path} is damaged: {error}; {_CURE}") from error


def write_text(path: Path, text: str) -> bool:
    """Write a small file; False if one of that name is there already, which then stays."""
    with _draft(path) as (draft, file):
        file.write(text.encode())
        _sync(file)
        return create_exclusively(draft, path)


def replace_text(path: Path, text: str) -> None:
    """Write a small file, and atomically replace the one of that name by it."""
    with _draft(path) as (draft, file):
        file.write(text.encode())
        _sync(file)
        draft.replace(path)
    sync_directory(path.parent)


class _Summed:
    """A file that counts the bytes written to it and updates their CRC-32."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.length, self.checksum, self.closed = 0, 0, False

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._file.write(view)
        self.checksum = zlib.crc32(view, self.checksum)
        self.length += len(view)
        return len(view)

    def tell(self) -> int:
        return self.length

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


@contextmanager
def _draft(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Open a draft beside a path, under a name of its own, and remove it at the end."""
    draft = path.with_name(f"{DRAFT}{uuid.uuid4().hex}")
    try:
        with draft.open("wb") as file:
            yield draft, file
    finally:
        draft.unlink(missing_ok=True)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
