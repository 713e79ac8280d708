"""Open files: new ones that are written whole or not at all, and regular ones that are read."""

from __future__ import annotations

import errno
import mmap
import os
import stat
import uuid
from pathlib import Path

from headrace.errors import HeadraceError
from headrace.files.current import explained, file_mode, files

_LARGEST = 1 << 30  # bytes of a file that is read whole, where nobody knows better
_BUFFER = 1 << 18  # bytes gathered for one call: Arrow writes its headers and paddings a few bytes at a time


class NotRegular(HeadraceError, OSError):
    """The name is that of a FIFO, a device, a directory or a symbolic link, and not of a regular file."""


class TooLarge(HeadraceError, ValueError):
    """A file has more bytes than any file of its kind: reading it would ask for more memory than anybody has planned for."""


class NewFile:
    """A file while it is written, in the order of its bytes. Used by ``with``. Arrow and Parquet write to it as they are.

    Small pieces are gathered. `sync` has all on disk; without it nothing is promised.

    Parameters
    ----------
    path
        Its name, for errors.
    fd
        Its descriptor, which `close` closes.

    Example
    -------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "note")
    >>> with open_new(path) as file:
    ...     file.write(b"seven")
    ...     file.sync()
    5
    >>> read_regular(path)
    b'seven'
    """

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.size = 0
        """bytes written so far"""
        self.closed = False
        self._fd = fd
        self._gathered = bytearray()
        self._written = 0  # bytes that the system has

    def __enter__(self) -> NewFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.flush()
        self.close()

    def fileno(self) -> int:
        """The descriptor."""
        return self._fd

    def tell(self) -> int:
        """The bytes written so far."""
        return self.size

    def write(self, data: memoryview | bytes) -> int:
        """Take bytes, all of them. They may be gathered with others before the system gets them."""
        view = memoryview(data).cast("B")
        if len(self._gathered) + len(view) <= _BUFFER:
            self._gathered += view
        else:
            self.flush()
            self._write_all(view)
        self.size += len(view)
        return len(view)

    def flush(self) -> None:
        """Hand to the system what was gathered."""
        if self._gathered:
            gathered, self._gathered = self._gathered, bytearray()
            self._write_all(memoryview(gathered))

    def sync(self) -> None:
        """Have all that was written on disk."""
        self.flush()
        with explained(self.path):
            files().fsync(self._fd)

    def read_at(self, offset: int, size: int) -> bytes:
        """Read what was written before; fewer bytes only where the file ends."""
        self.flush()
        return read_at(self._fd, size, offset, self.path)

    def write_at(self, offset: int, data: bytes) -> None:
        """Write over what was written before."""
        self.flush()
        write_at(self._fd, data, offset, self.path)

    def truncate(self, size: int) -> None:
        """Cut the file to a size, for one that is written by `write_at` alone."""
        with explained(self.path):
            files().truncate(self._fd, size)

    def close(self) -> None:
        """Close the file as it is; what was gathered since the last `flush` or `sync` is dropped."""
        if not self.closed:
            self.closed = True
            files().close(self._fd)

    def _write_all(self, view: memoryview) -> None:
        write_at(self._fd, view, self._written, self.path)
        self._written += len(view)


def open_new(path: Path, *, private: bool = True) -> NewFile:
    """Open a new file for writing; what has that name already, a link or a FIFO too, is removed first.

    Parameters
    ----------
    private
        Whether it is for its owner alone; else as the process's umask says.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
    mode = file_mode(private=private)
    with explained(path):
        try:
            fd = files().open(path, flags, mode)
        except FileExistsError:  # left by a writer that was stopped
            files().unlink(path)
            fd = files().open(path, flags, mode)
    return NewFile(path, fd)


def open_nameless(directory: Path) -> NewFile:
    """Open a new file without a name, which is gone when it is closed, or its process ends. It is for its owner alone."""
    path = directory / f".headrace-{uuid.uuid4().hex}"
    with explained(path):
        try:
            fd = files().open(directory, os.O_RDWR | os.O_TMPFILE, 0o600)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
                raise
            # Some network file systems cannot make one without a name. A process that is killed here leaves an empty file.
            fd = files().open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            files().unlink(path)
    return NewFile(path, fd)


def append(path: Path, data: bytes) -> None:
    """Add bytes to the end of a file in one write, so that lines of several writers do not mix; it is made if it is not there.

    Nothing is synced: a crash may cut the last lines. For notes to people.
    """
    fd = open_append(path)
    try:
        with explained(path):
            files().append(fd, memoryview(data))
    finally:
        files().close(fd)


def open_append(path: Path) -> int:
    """Open a file to write at its end; it is made if it is not there. A symbolic link is refused."""
    with explained(path):
        return files().open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, file_mode())


def write_at(fd: int, data: memoryview | bytes, offset: int, path: Path) -> None:
    """Write every byte to a place of an open file, or raise the system's error with the file's name.

    The system may write less than it was given (a full disk, a limit on file sizes, a signal); it says so by the number that it
    returns, and fails only when it is called again. A caller that ignores the number commits half a file.
    """
    view = memoryview(data).cast("B")
    with explained(path):
        while view:
            done = files().write(fd, view, offset)
            view, offset = view[done:], offset + done


def read_at(fd: int, size: int, offset: int, path: Path) -> bytes:
    """Read so many bytes from a place of an open file; fewer only where the file ends. `path` is for errors."""
    pieces: list[bytes] = []
    with explained(path):
        while size > 0 and (piece := files().read(fd, size, offset)):
            pieces.append(piece)
            size, offset = size - len(piece), offset + len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def read_into(fd: int, buffer: memoryview, offset: int, path: Path) -> int:
    """Fill memory from a place of an open file; returns how many bytes were read, fewer only where the file ends."""
    done = 0
    with explained(path):
        while done < len(buffer) and (got := files().read_into(fd, buffer[done:], offset + done)):
            done += got
    return done


def open_regular(path: Path, flags: int = 0) -> int:
    """Open a regular file for reading; a FIFO, a device, a directory or a symbolic link is refused with `NotRegular`.

    O_NONBLOCK keeps a FIFO without a writer from blocking the open for ever; for a regular file it has no effect.
    """
    with explained(path):
        try:
            fd = files().open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | flags)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):  # a symbolic link; a socket
                raise NotRegular(
                    f"{path} is not a regular file; remove what is there, or restore it from a copy"
                ) from error
            raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        files().close(fd)
        raise NotRegular(f"{path} is not a regular file; remove what is there, or restore it from a copy")
    return fd


def read_regular(path: Path, *, most: int = _LARGEST) -> bytes:
    """Read a regular file whole; refuses what `open_regular` refuses, and one of more than `most` bytes with `TooLarge`."""
    fd = open_regular(path)
    try:
        size = os.fstat(fd).st_size
        if size > most:
            raise TooLarge(f"{path} has {size:,} bytes, and such a file has {most:,} at most; restore it from a copy")
        return read_at(fd, size, 0, path)
    finally:
        files().close(fd)


def map_regular(path: Path) -> mmap.mmap:
    """Map a regular file for reading, which must not be empty; refuses what `open_regular` refuses."""
    fd = open_regular(path)
    try:
        with explained(path):
            return files().map(fd, os.fstat(fd).st_size)
    finally:
        files().close(fd)


def map_open(fd: int, size: int, path: Path) -> mmap.mmap:
    """Map the first bytes of an open file for reading. `path` is for errors."""
    with explained(path):
        return files().map(fd, size)


def sync_regular(path: Path) -> bool:
    """Have the bytes of a file on disk that another program wrote; False if there is none."""
    try:
        fd = open_regular(path)
    except FileNotFoundError:
        return False
    try:
        with explained(path):
            files().fsync(fd)
    finally:
        files().close(fd)
    return True


def close(fd: int) -> None:
    """Close a descriptor that one of these functions opened."""
    files().close(fd)
