"""Files of a run log. Each is written as a draft, synced, and then linked to its name, so a file with a name is complete.

state     [Arrow stream][facts: JSON][lengths, CRC-32, magic]      any Arrow reader takes the stream
kept rows [Parquet, facts and CRC-32 in its metadata]              any Parquet reader takes it
facts     [JSON, CRC-32 as its last member]

The CRC-32 is of the whole file, and is compared before anything of the file is used.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import DamagedLog
from headrace.files import create_exclusively, sync_directory
from headrace.files.checked_json import dump_checked, read_checked, replace_checked

DRAFT = ".draft-"
_MAGIC = b"HEADLOG1"
_TAIL = struct.Struct("<QQI8s")  # bytes of the stream and of the facts, checksum of both, magic
_PIECE = 1 << 18  # bytes of a file that are resident at a time: small beside a budget, large beside a read
_FACTS, _CHECKSUM = b"headrace", b"headrace.checksum"  # keys in Parquet's metadata
# The checksum in Parquet's metadata is that of the file with these zeros in its place.
_SUM_MARK, _NO_SUM = b"headrace-crc32=", b"00000000"
_PARQUET_END = struct.Struct("<I4s")  # bytes of the footer, magic

CURE = "restore it from a copy, or begin anew with another state directory and checkpoint"
_KEPT_CURE = "restore it from a copy, or move it to another directory, which leaves its rows out"

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
            raise DamagedLog(f"{path} is damaged: it has {size} bytes, fewer than the end of a log file alone; {CURE}")
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        view = memoryview(mapped)
        stream, facts, checksum, magic = _TAIL.unpack(view[-_TAIL.size :])
        if magic != _MAGIC or stream + facts + _TAIL.size != size:
            raise DamagedLog(f"{path} is damaged: it does not end as a log file does; {CURE}")
        if check and _crc32(file, stream + facts) != checksum:
            raise DamagedLog(f"{path} is damaged: its checksum does not match its bytes; {CURE}")
    buffer = pa.py_buffer(view[:stream])
    schema = pa.ipc.open_stream(buffer).schema
    return LogFile(path, json.loads(bytes(view[stream : stream + facts])), schema, mapped, buffer)


def _crc32(file: BinaryIO, size: int, checksum: int = 0) -> int:
    """Update a CRC-32 with the next bytes of a file. They are read and not mapped, so that they do not stay resident."""
    while size:
        piece = file.read(min(size, _PIECE))
        if not piece:
            break
        checksum, size = zlib.crc32(piece, checksum), size - len(piece)
    return checksum


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
        self._draft = _draft_name(path)

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


class RowsDraft:
    """A Parquet file of rows for people while it is written. `seal` completes it and has it on disk; `close` leaves it as it is.

    Parameters
    ----------
    path
        Of the draft. Whoever made it gives it its name, or removes it.
    schema
        Of the rows.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self.rows = 0
        self._file: BinaryIO = path.open("w+b")
        self._summed = _Summed(self._file)
        try:
            self._writer = pq.ParquetWriter(pa.PythonFile(self._summed, "w"), schema, write_page_checksum=True)
        except BaseException:  # a type that Parquet has not
            self._file.close()
            path.unlink()
            raise

    def add(self, batch: pa.RecordBatch) -> None:
        """Write rows."""
        self._writer.write_batch(batch)
        self.rows += batch.num_rows

    def seal(self, facts: Mapping[str, Any]) -> None:
        """Write the facts and the checksum of the whole file, and have it on disk."""
        text = json.dumps(dict(facts)).encode()
        self._writer.add_key_value_metadata({_FACTS: text, _CHECKSUM: _SUM_MARK + _NO_SUM})
        self._writer.close()
        place = _checksum_place(self._file)
        assert place is not None
        self._file.seek(place)
        self._file.write(b"%08x" % self._summed.checksum)
        _sync(self._file)
        self._file.close()

    def close(self) -> None:
        """Close the file, complete or not."""
        if self._file.closed:
            return
        try:
            self._writer.close()
        finally:
            self._file.close()


def _checksum_place(file: BinaryIO) -> int | None:
    """Find the digits of the checksum in the footer of a Parquet file; None if it has none."""
    size = file.seek(0, os.SEEK_END)
    if size < _PARQUET_END.size:
        return None
    file.seek(size - _PARQUET_END.size)
    footer, _ = _PARQUET_END.unpack(file.read(_PARQUET_END.size))
    begin = size - _PARQUET_END.size - footer
    if begin < 0:
        return None
    file.seek(begin)
    # The last one: values of the rows are in the statistics of the columns, which come before the metadata.
    mark = file.read(footer).rfind(_SUM_MARK)
    end = mark + len(_SUM_MARK) + len(_NO_SUM)
    return None if mark < 0 or end > footer else begin + mark + len(_SUM_MARK)


def _check_rows(path: Path) -> None:
    """Compare the checksum of a Parquet file of rows with all its bytes."""
    with path.open("rb") as file:
        place = _checksum_place(file)
        if place is None:
            raise DamagedLog(f"{path} is damaged: its end has no checksum; {_KEPT_CURE}")
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        checksum = _crc32(file, place)
        written = file.read(len(_NO_SUM))
        checksum = _crc32(file, size - place - len(_NO_SUM), zlib.crc32(_NO_SUM, checksum))
    if written != b"%08x" % checksum:
        raise DamagedLog(f"{path} is damaged: its checksum does not match its bytes; {_KEPT_CURE}")


def write_rows(
    path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch], facts: Mapping[str, Any], *, replace: bool = False
) -> bool:
    """Write rows for people, as Parquet; False if a file of that name is there already, which stays unless `replace` is true."""
    draft = RowsDraft(_draft_name(path), schema)
    try:
        for batch in batches:
            draft.add(batch)
        draft.seal(facts)
        if replace:
            draft.path.replace(path)
            sync_directory(path.parent)
            return True
        return create_exclusively(draft.path, path)
    finally:
        draft.close()
        draft.path.unlink(missing_ok=True)


def read_rows(path: Path) -> tuple[pa.Table, Facts]:
    """Read rows that were kept for people, and the facts about them. The checksum is compared first."""
    _check_rows(path)
    with pq.ParquetFile(path) as file:
        return file.read(), json.loads(file.metadata.metadata[_FACTS])


def count_rows(path: Path) -> int:
    """Return the number of rows that were kept for people in a file. All its bytes are compared with its checksum first."""
    _check_rows(path)
    return int(pq.read_metadata(path).num_rows)


def write_facts(path: Path, facts: Mapping[str, Any]) -> bool:
    """Write facts as a small file of their own; False if one of that name is there already, which then stays."""
    draft = _draft_name(path)
    try:
        with draft.open("wb") as file:
            file.write(dump_checked(facts))
            _sync(file)
        return create_exclusively(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def replace_facts(path: Path, facts: Mapping[str, Any]) -> None:
    """Write facts as a small file of their own, which replaces at once the one of that name."""
    draft = _draft_name(path)
    try:
        replace_checked(path, draft, facts)
    finally:
        draft.unlink(missing_ok=True)


def read_facts(path: Path, cure: str = CURE) -> Facts:
    """Read facts that are a file of their own. `cure` says what to do about a damaged one."""
    try:
        return read_checked(path)
    except ValueError as error:
        raise DamagedLog(f"{path} is damaged: {error}; {cure}") from error


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


def _draft_name(path: Path) -> Path:
    """A name for a draft beside a path, which no other draft has."""
    return path.with_name(f"{DRAFT}{uuid.uuid4().hex}")


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
