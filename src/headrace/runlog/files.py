"""Files of a run log. Each is written as a draft, synced, and then linked to its name, so a file with a name is complete.

state     [Arrow stream][facts: JSON][lengths, CRC-32, magic]      any Arrow reader takes the stream
kept rows [Parquet, facts and CRC-32 in its metadata]              any Parquet reader takes it
facts     [JSON, CRC-32 as its last member]

The CRC-32 is of the whole file, and is compared before anything of the file is used. Each says under which name it was written
(`place_of`): the intact file of another shard, micro-batch, operator or query is not taken for it.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace import files
from headrace.errors import DamagedLog, HeadraceError, shown
from headrace.files.checked_json import read_checked, replace_checked, write_checked

DRAFT = ".draft-"
_MAGIC = b"HEADLOG1"
_TAIL = struct.Struct("<QQI8s")  # bytes of the stream and of the facts, checksum of both, magic
_PLACE = "file"  # of a state file's facts: the name that it was written under
_PIECE = 1 << 18  # bytes of a file that are resident at a time: small beside a budget, large beside a read
_FACTS, _FILE, _CHECKSUM = b"headrace", b"headrace.file", b"headrace.checksum"  # keys in Parquet's metadata
# The checksum in Parquet's metadata is that of the file with these zeros in its place.
_SUM_MARK, _NO_SUM = b"headrace-crc32=", b"00000000"
_PARQUET = b"PAR1"  # the end of a Parquet file
_PARQUET_END = struct.Struct("<I4s")  # bytes of the footer, magic

#: Levels of the name of a file in a run log: query, operator, shard or kind, name. See `place_of`.
IN_LOG = 4
CURE = "restore it from a copy, or begin anew with another state directory and checkpoint"
_KEPT_CURE = "restore it from a copy, or move it to another directory, which leaves its rows out"

Facts = dict[str, Any]

# Infinities are an OverflowError, a part that is missing is a StopIteration, which a generator makes a RuntimeError.
_WRONG_FACTS = (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError, AssertionError)
_NOT_UNDERSTOOD = (*_WRONG_FACTS, StopIteration, RuntimeError, pa.ArrowException)


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
            self._check_size()
            batches = pa.ipc.open_stream(reader)
            while (batch := self._next(batches)) is not None:
                yield batch
                if reader.tell() - seen > _PIECE:
                    seen = reader.tell()
                    self._mapped.madvise(mmap.MADV_DONTNEED)
                self._check_size()
        finally:
            self._mapped.madvise(mmap.MADV_DONTNEED)

    def _next(self, batches: pa.RecordBatchReader) -> pa.RecordBatch | None:
        try:
            return batches.read_next_batch()
        except StopIteration:
            return None
        except (pa.ArrowException, OSError) as error:  # only where the checksum was made for such bytes
            raise DamagedLog(f"{self.path} is damaged: its rows cannot be read; {CURE}") from error

    def _check_size(self) -> None:
        """Refuse to go on with a file that was cut since it was opened: the system ends a process that reads beyond its end."""
        if self._mapped.size() < len(self._mapped):
            raise DamagedLog(f"{self.path} is damaged: it was cut short while it was open; {CURE}")

    def table(self) -> pa.Table:
        """Read all rows; they stay in the mapped file."""
        return pa.Table.from_batches(self.batches(), self.schema)


def read_state(path: Path, *, check: bool = True) -> LogFile:
    """Open a file of state. Its checksum is compared before any byte is used; `check=False` if the caller has done so before."""
    with _opened(path, CURE) as (read, size, to_map):
        end = read(max(0, size - _TAIL.size), _TAIL.size)
        if len(end) < _TAIL.size:
            raise DamagedLog(f"{path} is damaged: it has {size} bytes, fewer than the end of a log file alone; {CURE}")
        length, facts, checksum, magic = _TAIL.unpack(end)
        if magic != _MAGIC or length + facts + _TAIL.size != size:
            raise DamagedLog(f"{path} is damaged: it does not end as a log file does; {CURE}")
        if check and _crc32(read, 0, length + facts) != checksum:
            raise DamagedLog(f"{path} is damaged: its checksum does not match its bytes; {CURE}")
        text, mapped = read(length, facts), to_map()
    stream = pa.py_buffer(memoryview(mapped)[:length])
    try:
        noted = json.loads(text)
        written, rows = noted.pop(_PLACE, None), int(noted["rows"])
        schema = pa.ipc.open_stream(stream).schema
        if check:
            _check_rows(stream, rows)
    # OSError: Arrow's own about bytes that it cannot read; those of the disk are past.
    except (*_WRONG_FACTS, pa.ArrowException, OSError, RecursionError) as error:
        raise DamagedLog(f"{path} is damaged: its bytes are not those of a log file; {CURE}") from error
    finally:
        mapped.madvise(mmap.MADV_DONTNEED)
    _check_place(path, written, CURE)
    return LogFile(path, {**noted, "rows": rows}, schema, mapped, stream)


class understood:  # noqa: N801 - used as a function, as contextlib's are
    """Raise errors about facts that are missing, or of other types, as damage of the file that they are of. Used by `with`.

    A checksum says that the bytes are those that were written, and not that a writer wrote what a reader asks for.
    """

    __slots__ = ("_cure", "_path")

    def __init__(self, path: Path, cure: str = CURE) -> None:
        self._path, self._cure = path, cure

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        arrow = (
            isinstance(error, OSError) and error.errno is None
        )  # about bytes that it cannot read; a disk's have a number
        if (arrow or isinstance(error, _NOT_UNDERSTOOD)) and not isinstance(error, HeadraceError):
            said = f"{type(error).__name__} {shown(error)}".strip()
            raise DamagedLog(f"{self._path} is damaged: it does not say what it must ({said}); {self._cure}") from error


def _check_rows(stream: pa.Buffer, rows: int) -> None:
    """Refuse rows that lead outside of their buffers, which a checksum does not say and Arrow does not look at by itself."""
    for batch in pa.ipc.open_stream(stream):
        batch.validate(full=True)
        rows -= batch.num_rows
    if rows:
        raise ValueError("it has another number of rows")


def _check_place(path: Path, written: object, cure: str) -> None:
    try:
        files.check_place(path, written)
    except ValueError as error:
        raise DamagedLog(f"{path} is damaged: {error}; {cure}") from error


_Read = Callable[[int, int], bytes]  # bytes of a file from an offset, so many


@contextmanager
def _opened(path: Path, cure: str) -> Iterator[tuple[_Read, int, Callable[[], mmap.mmap]]]:
    """Open a file: how to read it, its size, and how to map it. One that is not regular is damage."""
    try:
        fd = files.open_regular(path)
    except files.NotRegular as error:
        raise DamagedLog(f"{path} is damaged: it is not a regular file; {cure}") from error
    try:
        size = os.fstat(fd).st_size
        yield (
            lambda offset, length: files.read_at(fd, length, offset, path),
            size,
            lambda: files.map_open(fd, size, path),
        )
    finally:
        files.close(fd)


def _crc32(read: _Read, offset: int, size: int, checksum: int = 0) -> int:
    """Update a CRC-32 with bytes of a file. They are read and not mapped, so that they do not stay resident."""
    for place in range(offset, offset + size, _PIECE):
        checksum = zlib.crc32(read(place, min(_PIECE, offset + size - place)), checksum)
    return checksum


class StateDraft:
    """A file of state while it is written. `commit` gives it its name; without that it leaves nothing. Used by `with`.

    Parameters
    ----------
    path
        The name that it is to have.
    schema
        Of its rows.
    levels
        Of its name that are its own; see `place_of`.
    """

    def __init__(self, path: Path, schema: pa.Schema, levels: int = 1) -> None:
        self.path = path
        self.schema = schema
        self.levels = levels
        self.rows = 0
        self._draft = files.draft_name(path, DRAFT)

    def __enter__(self) -> StateDraft:
        self._file = files.open_new(self._draft)
        self._summed = _Summed(self._file)
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._summed, "w"), self.schema)
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        files.remove(self._draft)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self._writer.write_batch(batch)
        self.rows += batch.num_rows

    def read(self) -> Iterator[pa.RecordBatch]:
        """Read the rows of a draft that is not to become a file after all; nothing can be added from now on."""
        self._writer.close()
        self._file.flush()
        yield from pa.ipc.open_stream(pa.py_buffer(files.map_regular(self._draft)))

    def commit(self, facts: Mapping[str, Any]) -> bool:
        """Sync the draft and give it its name; False if a file of that name is there already, which then stays."""
        self._writer.close()
        noted = {**facts, "rows": self.rows, _PLACE: files.place_of(self.path, self.levels)}
        length, text = self._summed.length, json.dumps(noted).encode()
        self._summed.write(text)
        self._file.write(_TAIL.pack(length, len(text), self._summed.checksum, _MAGIC))
        self._file.sync()
        return files.create_exclusively(self._draft, self.path)


def write_state(
    path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch], facts: Mapping[str, Any], levels: int = 1
) -> bool:
    """Write a file of state; False if one of that name is there already, which then stays. `facts` is read last."""
    with StateDraft(path, schema, levels) as draft:
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
    private
        Whether it is for its owner alone.
    """

    def __init__(self, path: Path, schema: pa.Schema, *, private: bool = True) -> None:
        self.path = path
        self.rows = 0
        self._file = files.open_new(path, private=private)
        self._summed = _Summed(self._file)
        try:
            to = pa.PythonFile(self._summed, "w")
            self._writer = pq.ParquetWriter(to, schema, write_page_checksum=True)  # files: a NewFile below it
        except BaseException:  # a type that Parquet has not
            self._file.close()
            files.remove(path)
            raise

    def add(self, batch: pa.RecordBatch) -> None:
        """Write rows."""
        self._writer.write_batch(batch)
        self.rows += batch.num_rows

    def seal(self, facts: Mapping[str, Any], path: Path, levels: int = IN_LOG) -> None:
        """Write the facts, the name that the file is to have, and the checksum of all its bytes, and have it on disk."""
        noted = {_FACTS: json.dumps(dict(facts)), _FILE: files.place_of(path, levels)}
        self._writer.add_key_value_metadata({**noted, _CHECKSUM: _SUM_MARK + _NO_SUM})
        self._writer.close()
        place = _checksum_place(self._file.read_at, self._file.size)
        assert place is not None
        self._file.write_at(place, b"%08x" % self._summed.checksum)
        self._file.sync()
        self._file.close()

    def close(self) -> None:
        """Close the file, complete or not."""
        if self._file.closed:
            return
        try:
            self._writer.close()
        finally:
            self._file.close()


def _checksum_place(read: _Read, size: int) -> int | None:
    """Find the digits of the checksum in the footer of a Parquet file; None if it has none."""
    if size < _PARQUET_END.size:
        return None
    footer, _ = _PARQUET_END.unpack(read(size - _PARQUET_END.size, _PARQUET_END.size))
    begin = size - _PARQUET_END.size - footer
    if begin < 0:
        return None
    # The last one: values of the rows are in the statistics of the columns, which come before the metadata.
    mark = read(begin, footer).rfind(_SUM_MARK)
    end = mark + len(_SUM_MARK) + len(_NO_SUM)
    return None if mark < 0 or end > footer else begin + mark + len(_SUM_MARK)


@contextmanager
def _rows_file(path: Path, *, summed: bool = True) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file of rows, after its checksum is compared with all its bytes; without `summed` it may have none."""
    with _opened(path, _KEPT_CURE) as (read, size, to_map):
        place = _checksum_place(read, size)
        if place is None and (summed or read(max(0, size - len(_PARQUET)), len(_PARQUET)) != _PARQUET):
            raise DamagedLog(f"{path} is damaged: its end has no checksum; {_KEPT_CURE}")
        if place is not None and read(place, len(_NO_SUM)) != b"%08x" % _sum_without(read, place, size):
            raise DamagedLog(f"{path} is damaged: its checksum does not match its bytes; {_KEPT_CURE}")
        mapped = to_map()
    try:
        with pq.ParquetFile(pa.BufferReader(pa.py_buffer(mapped))) as file:  # files: mapped, no path
            written = (file.metadata.metadata or {}).get(_FILE)
            _check_place(path, None if written is None else written.decode(errors="replace"), _KEPT_CURE)
            yield file
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedLog(f"{path} is damaged: its bytes are not those of kept rows; {_KEPT_CURE}") from error


def _sum_without(read: _Read, place: int, size: int) -> int:
    """Return the CRC-32 of a file with zeros in the place of its checksum."""
    after = place + len(_NO_SUM)
    return _crc32(read, after, size - after, zlib.crc32(_NO_SUM, _crc32(read, 0, place)))


def write_rows(
    path: Path,
    draft_in: Path,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    facts: Mapping[str, Any],
    *,
    replace: bool = False,
) -> bool:
    """Write rows for people, as Parquet; False if a file of that name is there already, which stays unless `replace` is true.

    The draft lies in a directory of the caller's, who removes those that killed processes left.
    """
    draft = RowsDraft(files.draft_name(draft_in / path.name, DRAFT), schema)
    try:
        for batch in batches:
            draft.add(batch)
        draft.seal(facts, path)
        if replace:
            files.replace(draft.path, path)
            return True
        return files.create_exclusively(draft.path, path)
    finally:
        draft.close()
        files.remove(draft.path)


def read_rows(path: Path) -> tuple[pa.Table, Facts]:
    """Read rows that were kept for people, and the facts about them. The checksum is compared first."""
    with _rows_file(path) as file:
        rows = file.read()
        rows.validate(full=True)
        return rows, json.loads(file.metadata.metadata[_FACTS])


def count_rows(path: Path, unsummed: pa.Schema | None = None) -> int:
    """Return the number of rows that were kept for people in a file. All its bytes are compared with its checksum first.

    Parameters
    ----------
    unsummed
        The first columns of a file that may have no checksum: earlier releases wrote dead letters without.
    """
    with _rows_file(path, summed=unsummed is None) as file:
        if unsummed is not None and file.schema_arrow.names[: len(unsummed)] != unsummed.names:
            raise DamagedLog(
                f"{path} is damaged: its columns do not begin with {', '.join(unsummed.names)}; {_KEPT_CURE}"
            )
        return int(file.metadata.num_rows)


def write_facts(path: Path, facts: Mapping[str, Any], levels: int = 1) -> bool:
    """Write facts as a small file of their own; False if one of that name is there already, which then stays."""
    draft = files.draft_name(path, DRAFT)
    try:
        write_checked(path, draft, facts, levels)
        return files.create_exclusively(draft, path)
    finally:
        files.remove(draft)


def replace_facts(path: Path, facts: Mapping[str, Any], levels: int = 1) -> None:
    """Write facts as a small file of their own, which replaces at once the one of that name."""
    draft = files.draft_name(path, DRAFT)
    try:
        replace_checked(path, draft, facts, levels)
    finally:
        files.remove(draft)


def read_facts(path: Path, cure: str = CURE) -> Facts:
    """Read facts that are a file of their own. `cure` says what to do about a damaged one."""
    try:
        return read_checked(path)
    except ValueError as error:
        raise DamagedLog(f"{path} is damaged: {error}; {cure}") from error
    except files.NotRegular as error:
        raise DamagedLog(f"{path} is damaged: it is not a regular file; {cure}") from error


class _Summed:
    """A file that counts the bytes written to it and updates their CRC-32."""

    def __init__(self, file: files.NewFile) -> None:
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
