"""Locks of files and directories, which the system gives up with the process that holds them."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.clock import Clock, SystemClock
from headrace.files.current import explained, file_mode, files
from headrace.files.open_files import NotRegular

_POLL = 0.02  # seconds between two tries to get a lock: short beside a micro-batch


def open_lock(path: Path) -> int:
    """Open the file of a lock, which is made if it is not there; what is no regular file is refused with `NotRegular`.

    It is opened for writing, as network file systems ask for before they lock a file alone.
    """
    with explained(path):
        try:
            # O_NONBLOCK: a FIFO of that name would block the open for ever.
            fd = files().open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, file_mode())
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
                raise NotRegular(f"{path} is not a regular file; remove it, and it is made anew") from error
            raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        files().close(fd)
        raise NotRegular(f"{path} is not a regular file; remove it, and it is made anew")
    return fd


def open_directory(path: Path) -> int:
    """Open a directory, to lock it or to hold it; `close` closes it."""
    with explained(path):
        return files().open(path, os.O_RDONLY | os.O_DIRECTORY)


def lock(fd: int, *, shared: bool = False, wait: bool = False) -> bool:
    """Lock an open file, alone or with others; False if somebody else holds it and nobody waits."""
    try:
        if not wait:
            return files().lock(fd, shared=shared)
        files().wait_for_lock(fd, shared=shared)
    except OSError as error:
        with explained(Path(f"/proc/self/fd/{fd}").readlink()):  # the system's error has no name
            raise error from None
    return True


@contextmanager
def locked(path: Path, *, patience: float = 0.0, clock: Clock | None = None) -> Iterator[bool]:
    """Hold the lock of a file that is made for it, alone. Gives False, without the lock, if another holds it too long.

    Parameters
    ----------
    patience
        Seconds to wait for it.
    """
    fd = open_lock(path)
    try:
        yield _within(fd, patience, clock or SystemClock())
    finally:
        files().close(fd)


def _within(fd: int, patience: float, clock: Clock) -> bool:
    end = clock.now() + patience
    while not files().lock(fd):
        if clock.now() >= end:
            return False
        clock.sleep(_POLL)
    return True
