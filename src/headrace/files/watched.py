"""WatchedFiles: local files with a hook around every call, for forms that fail, record or wait on purpose."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from headrace.files.local import LocalFiles

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FileCall:
    """A call: its name as in `LocalFiles`, the file or directory, and what else the call was given."""

    name: str
    path: Path
    other: Path | None = None
    """the second name of `link`, `rename`, `rename_exclusively` and `exchange`"""
    fd: int = -1
    data: memoryview | None = None
    size: int = 0
    offset: int = 0
    flags: int = 0


class WatchedFiles(LocalFiles):
    """Local files whose calls all go through `around`. Subclasses say what happens there; here each call is just made."""

    def __init__(self) -> None:
        self.open_paths: dict[int, Path] = {}
        """the descriptors that are open, and the names under which they were opened"""

    def around(self, call: FileCall, perform: Callable[[], T]) -> T:
        """Make a call, or do something else in its place."""
        return perform()

    def _on(self, name: str, fd: int, perform: Callable[[], T], **given: Any) -> T:
        return self.around(FileCall(name, self.open_paths.get(fd, Path(f"/dev/fd/{fd}")), fd=fd, **given), perform)

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        """See `LocalFiles`; so for all methods."""
        fd = self.around(FileCall("open", path, flags=flags), lambda: LocalFiles.open(self, path, flags, mode))
        self.open_paths[fd] = path
        return fd

    def close(self, fd: int) -> None:
        self._on("close", fd, lambda: LocalFiles.close(self, fd))
        self.open_paths.pop(fd, None)

    def read(self, fd: int, size: int, offset: int) -> bytes:
        return self._on("read", fd, lambda: LocalFiles.read(self, fd, size, offset), size=size, offset=offset)

    def read_into(self, fd: int, buffer: memoryview, offset: int) -> int:
        given = {"data": buffer, "size": len(buffer), "offset": offset}
        return self._on("read_into", fd, lambda: LocalFiles.read_into(self, fd, buffer, offset), **given)

    def write(self, fd: int, data: memoryview, offset: int) -> int:
        given = {"data": data, "size": len(data), "offset": offset}
        return self._on("write", fd, lambda: LocalFiles.write(self, fd, data, offset), **given)

    def append(self, fd: int, data: memoryview) -> int:
        given = {"data": data, "size": len(data), "offset": os.fstat(fd).st_size}
        return self._on("append", fd, lambda: LocalFiles.append(self, fd, data), **given)

    def truncate(self, fd: int, size: int) -> None:
        self._on("truncate", fd, lambda: LocalFiles.truncate(self, fd, size), size=size)

    def fsync(self, fd: int) -> None:
        self._on("fsync", fd, lambda: LocalFiles.fsync(self, fd))

    def map(self, fd: int, size: int) -> mmap.mmap:
        return self._on("map", fd, lambda: LocalFiles.map(self, fd, size), size=size)

    def lock(self, fd: int, *, shared: bool = False) -> bool:
        return self._on("lock", fd, lambda: LocalFiles.lock(self, fd, shared=shared))

    def wait_for_lock(self, fd: int, *, shared: bool = False) -> None:
        self._on("wait_for_lock", fd, lambda: LocalFiles.wait_for_lock(self, fd, shared=shared))

    def link(self, old: Path, new: Path) -> None:
        self.around(FileCall("link", old, new), lambda: LocalFiles.link(self, old, new))

    def rename(self, old: Path, new: Path) -> None:
        self.around(FileCall("rename", old, new), lambda: LocalFiles.rename(self, old, new))

    def rename_exclusively(self, old: Path, new: Path) -> None:
        self.around(FileCall("rename_exclusively", old, new), lambda: LocalFiles.rename_exclusively(self, old, new))

    def exchange(self, one: Path, other: Path) -> None:
        self.around(FileCall("exchange", one, other), lambda: LocalFiles.exchange(self, one, other))

    def unlink(self, path: Path) -> None:
        self.around(FileCall("unlink", path), lambda: LocalFiles.unlink(self, path))

    def mkdir(self, path: Path, mode: int = 0o700) -> None:
        self.around(FileCall("mkdir", path), lambda: LocalFiles.mkdir(self, path, mode))

    def rmdir(self, path: Path) -> None:
        self.around(FileCall("rmdir", path), lambda: LocalFiles.rmdir(self, path))

    def names(self, path: Path) -> list[str]:
        return self.around(FileCall("names", path), lambda: LocalFiles.names(self, path))

    def status(self, path: Path, *, follow: bool = True) -> os.stat_result:
        return self.around(FileCall("status", path), lambda: LocalFiles.status(self, path, follow=follow))

    def sync_directory(self, path: Path) -> None:
        self.around(FileCall("sync_directory", path), lambda: LocalFiles.sync_directory(self, path))
