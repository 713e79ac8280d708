"""The memory of the executor while a stream runs: its Python workers, sampled, and the JVM."""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

INTERVAL = 0.25  # seconds; a sample takes a few milliseconds


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The memory in bytes of the Python processes below the JVM, all together, and that of the JVM."""

    once: int = 0  # resident pages, each counted once: all private ones, and those that the workers share
    pss: int = 0  # nearly the same, but smaller by what this process and others share with the workers: libraries
    rss: int = 0  # a shared page counts in every process that maps it
    private: int = 0
    shared_files: int = 0  # in /dev/shm, mapped by somebody or not
    jvm: int = 0  # pages that it shares with others in part, as in `pss`
    total: int = 0  # of the JVM and the Python processes at one moment, shared pages once
    workers: int = 0

    def peak(self, other: Memory) -> Memory:
        mine, theirs = asdict(self), asdict(other)
        return Memory(**{name: max(mine[name], theirs[name]) for name in mine})


def now() -> Memory:
    """Measure the executor's memory now: that of all descendants of this process."""
    pss = rss = private = shared = jvm = workers = 0
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error, OSError):  # it may end while we look
            if child.name() == "java":
                jvm += _rollup(child.pid)["Pss"]
            # Between fork and exec a command that the JVM runs still has the JVM's pages, and a thread's name.
            if not child.name().startswith("python"):
                continue
            pages = _rollup(child.pid)
            pss += pages["Pss"]
            rss += pages["Rss"]
            private += pages["Private_Clean"] + pages["Private_Dirty"]
            shared = max(shared, pages["Shared_Clean"] + pages["Shared_Dirty"])
            workers += 1
    return Memory(
        once=private + shared,
        pss=pss,
        rss=rss,
        private=private,
        shared_files=_shared_files(),
        jvm=jvm,
        total=pss + jvm,
        workers=workers,
    )


class Sampler(threading.Thread):
    """Samples the memory during a `with` block and keeps the peak of each figure."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = Memory()
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.wait(INTERVAL):
            self.peak = self.peak.peak(now())

    def __enter__(self) -> Sampler:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self.join()


def _rollup(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {name: int(size.split()[0]) * 1024 for name, size in (line.split(":", 1) for line in lines)}


def _shared_files() -> int:
    with contextlib.suppress(OSError):
        room = os.statvfs("/dev/shm")
        return (room.f_blocks - room.f_bfree) * room.f_frsize
    return 0
