"""A small file system of the soak's own, which the harness fills up and frees again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_BLOCK = 1 << 16  # bytes that are written at a time


class SmallDisk:
    """A directory that can be full.

    Parameters
    ----------
    path
        The directory.
    reason
        Why it is no file system of its own, where it is not: then it cannot be filled.
    """

    def __init__(self, path: Path, reason: str) -> None:
        self.path, self.reason = path, reason

    def fill(self) -> None:
        """Write until nothing more fits."""
        assert not self.reason
        fd = os.open(self.path / ".filler", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            for size in (_BLOCK, 512, 1):
                with suppress(OSError):
                    while True:
                        os.write(fd, bytes(size))
        finally:
            os.close(fd)

    def free(self) -> None:
        """Remove what `fill` wrote."""
        (self.path / ".filler").unlink(missing_ok=True)


@contextmanager
def small_disk(path: Path, size: str) -> Iterator[SmallDisk]:
    """Mount a file system in memory; a plain directory where that is not allowed."""
    path.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0755", "headrace-soak", str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
        reason = done.stderr.strip() if done.returncode else ""
    except FileNotFoundError as error:
        reason = str(error)
    try:
        yield SmallDisk(path, reason)
    finally:
        if not reason:
            # Lazily: a process that was killed may still be on its way out.
            subprocess.run(["umount", "-l", str(path)], capture_output=True, check=False)
