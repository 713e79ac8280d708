"""LocalFiles: the calls to the file system that Headrace makes, on a local disk. (DESIGN D11)

Nothing else in Headrace touches files, so a form of this class that fails, records or waits at a call reaches all of them.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
from pathlib import Path

_AT_FDCWD = -100  # renameat2: paths are relative to the working directory
_NO_REPLACE, _EXCHANGE = 1, 2  # flags of renameat2


class LocalFiles:
    """One method a system call. Each either does what it says or raises OSError; `write` and `read` may do less than asked."""

    # -- open files --------------------------------------------------------------------------------------------------------

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        """Open or create a file; returns its descriptor, which no child process inherits."""
        return os.open(path, flags | os.O_CLOEXEC, mode)

    def close(self, fd: int) -> None:
        """Close a descriptor; a lock that it holds is given up."""
        os.close(fd)

    def read(self, fd: int, size: int, offset: int) -> bytes:
        """Read at most so many bytes from a place."""
        return os.pread(fd, size, offset)

    def read_into(self, fd: int, buffer: memoryview, offset: int) -> int:
        """Read into memory at most what fits; returns how many bytes were read."""
        return os.preadv(fd, [buffer], offset)

    def write(self, fd: int, data: memoryview, offset: int) -> int:
        """Write at a place; returns how many bytes were written, which may be fewer than given."""
        return os.pwrite(fd, data, offset)

    def append(self, fd: int, data: memoryview) -> int:
        """Write at the end of a file that was opened for that; returns how many bytes were written."""
        return os.write(fd, data)

    def truncate(self, fd: int, size: int) -> None:
        """Cut a file to a size, or extend it with zeros."""
        os.ftruncate(fd, size)

    def fsync(self, fd: int) -> None:
        """Have the bytes of a file on disk."""
        os.fsync(fd)

    def map(self, fd: int, size: int) -> mmap.mmap:
        """Map the first bytes of a file for reading."""
        return mmap.mmap(fd, size, access=mmap.ACCESS_READ)

    def lock(self, fd: int, *, shared: bool = False) -> bool:
        """Try to lock an open file, alone or with others; False if somebody else holds it. Closing it gives the lock up."""
        try:
            fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return False
            raise
        return True

    def wait_for_lock(self, fd: int, *, shared: bool = False) -> None:
        """Lock an open file as soon as nobody else holds it."""
        fcntl.flock(fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)

    # -- names -------------------------------------------------------------------------------------------------------------

    def link(self, old: Path, new: Path) -> None:
        """Give a file another name; FileExistsError if that is taken."""
        os.link(old, new, follow_symlinks=False)

    def rename(self, old: Path, new: Path) -> None:
        """Give a file or a directory another name, in the place of what has it."""
        os.rename(old, new)

    def rename_exclusively(self, old: Path, new: Path) -> None:
        """Give a file or a directory another name; FileExistsError if that is taken."""
        _renameat2(old, new, _NO_REPLACE)

    def exchange(self, one: Path, other: Path) -> None:
        """Exchange two names, so that each is there at any time."""
        _renameat2(one, other, _EXCHANGE)

    def unlink(self, path: Path) -> None:
        """Remove a name of a file."""
        os.unlink(path)

    def mkdir(self, path: Path, mode: int = 0o700) -> None:
        """Make a directory."""
        os.mkdir(path, mode)

    def rmdir(self, path: Path) -> None:
        """Remove an empty directory."""
        os.rmdir(path)

    def names(self, path: Path) -> list[str]:
        """List the names in a directory."""
        return os.listdir(path)

    def status(self, path: Path, *, follow: bool = True) -> os.stat_result:
        """Return what the system says of a name: of a symbolic link itself unless `follow`."""
        return os.stat(path, follow_symlinks=follow)

    def sync_directory(self, path: Path) -> None:
        """Have the names in a directory on disk."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _renameat2(old: Path, new: Path, how: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_AT_FDCWD, os.fsencode(old), _AT_FDCWD, os.fsencode(new), how) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(old), None, str(new))
