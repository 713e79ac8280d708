"""Files on a local disk: whole writes, names that are created once, and only regular files opened."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO, Protocol


class NotRegular(OSError):
    """The name is that of a FIFO, a device, a directory or a symbolic link, and not of a regular file."""


class _Descriptor(Protocol):
    """Anything with a file descriptor: an open file, a socket."""

    def fileno(self) -> int:
        """The descriptor."""
        ...


def write_all(file: _Descriptor, data: memoryview | bytes) -> None:
    """Write every byte, or raise the system's error.

    `os.write` may write less than it was given (a full disk, a limit on file sizes, a signal); it says so by the number that it
    returns, and fails only when it is called again. A caller that ignores the number commits half a file.
    """
    view = memoryview(data).cast("B")
    while view:
        view = view[os.write(file.fileno(), view) :]


def create_exclusively(draft: Path, path: Path) -> bool:
    """Give a finished file its name, unless another has that name already: then False, and the other stays.

    A hard link fails where the name is taken; a rename would replace what another process committed.
    """
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    sync_directory(path.parent)
    return True


def sync_directory(path: Path) -> None:
    """Have the names in a directory on disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def open_new(path: Path) -> BinaryIO:
    """Open a new file for writing, unbuffered; what has that name already, a link or a FIFO too, is removed first."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        fd = os.open(path, flags, 0o666)
    except FileExistsError:  # left by a writer that was stopped
        path.unlink(missing_ok=True)
        fd = os.open(path, flags, 0o666)
    return os.fdopen(fd, "wb", buffering=0)


def open_regular(path: Path, flags: int = 0) -> int:
    """Open a regular file for reading; a FIFO, a device, a directory or a symbolic link is refused with `NotRegular`.

    O_NONBLOCK keeps a FIFO without a writer from blocking the open for ever; for a regular file it has no effect.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | flags)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a symbolic link; a socket
            raise NotRegular(f"{path} is not a regular file") from error
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise NotRegular(f"{path} is not a regular file")
    return fd


def read_regular(path: Path) -> bytes:
    """Read a regular file whole; refuses what `open_regular` refuses."""
    with os.fdopen(open_regular(path), "rb") as file:
        return file.read()
