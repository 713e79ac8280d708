"""The memory that processes hold, and that no one else could have: anonymous and shared pages, each counted once.

Counted is `Pss_Anon` and `Pss_Shmem` of /proc/PID/smaps_rollup, added up over processes: a page that several of them map counts
in each by its share, so once in the sum. These are the heap, NumPy's and Arrow's buffers, stacks, and the nameless memory that
workers share (memfd). Not counted is `Pss_File`: code of libraries, which is there before the stream, and pages of files, which
are the page cache's and which the kernel takes back whenever someone needs the memory.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil

INTERVAL = 0.1  # seconds between two looks


def held(pids: list[int]) -> int:
    """Bytes that these processes hold together, those of them that are there."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
                name, size = line.split(":", 1)
                if name in ("Pss_Anon", "Pss_Shmem"):
                    total += int(size.split()[0]) * 1024
    return total


def workers_below(pid: int) -> list[int]:
    """The Python processes below one, which has a Spark: its daemon and workers."""
    found = []
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                # Between fork and exec a command that the JVM runs still has the JVM's pages, and a thread's name.
                if child.name().startswith("python"):
                    found.append(child.pid)
    return found


class Watch(threading.Thread):
    """Looks ten times a second while a `with` block runs, and keeps the most that was held.

    Parameters
    ----------
    pids
        Gives the processes to look at.
    tell
        Is told the most of each minute when it is over, so that a run that is cut off was not for nothing.
    """

    def __init__(
        self, pids: Callable[[], list[int]], tell: Callable[[int, int], None] = lambda minute, most: None
    ) -> None:
        super().__init__(daemon=True)
        self._pids, self._tell = pids, tell
        self._over = threading.Event()
        self.peak = self.looks = 0
        self.by_minute: list[int] = []
        """the most of each minute: what grows for ever is seen here"""

    def run(self) -> None:
        """Look until the block is over."""
        begun = time.monotonic()
        while not self._over.wait(INTERVAL):
            now = held(self._pids())
            self.looks += 1
            self.peak = max(self.peak, now)
            minute = int((time.monotonic() - begun) // 60)
            while len(self.by_minute) <= minute:
                if self.by_minute:
                    self._tell(len(self.by_minute), self.by_minute[-1])
                self.by_minute.append(0)
            self.by_minute[minute] = max(self.by_minute[minute], now)

    def __enter__(self) -> Watch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()
