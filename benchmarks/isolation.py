"""Keep a measured process to one core and one memory limit that counts its page cache too.

A group is made inside the caller's own memory cgroup (version 1) or beside it (version 2), so a
measured process never leaves the limits it was started under. Where no group can be made, caches
are dropped before each batch; where that is not allowed either, the results say `none`.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Method = Literal["cgroup", "drop_caches", "none"]

DESCRIPTION: dict[Method, str] = {
    "cgroup": "memory cgroup: a process and its page cache share one limit; files evicted first",
    "drop_caches": "no memory cgroup: page cache dropped before each batch, harsher on its users",
    "none": "NOT ISOLATED: neither a memory cgroup nor drop_caches permitted; the page cache helps",
}

_MOUNT = Path("/sys/fs/cgroup")
_DROP = Path("/proc/sys/vm/drop_caches")


@dataclass(frozen=True)
class ControlGroup:
    """One memory cgroup."""

    path: Path
    version: Literal[1, 2]

    def enter(self) -> None:
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def usage(self) -> int:
        name = "memory.usage_in_bytes" if self.version == 1 else "memory.current"
        return int((self.path / name).read_text())

    def peak(self) -> int | None:
        name = "memory.max_usage_in_bytes" if self.version == 1 else "memory.peak"
        with contextlib.suppress(OSError):
            return int((self.path / name).read_text())
        return None

    def page_cache(self) -> int:
        """Bytes of files that the group holds in the page cache."""
        name = "cache" if self.version == 1 else "file"
        stat = dict(line.split() for line in (self.path / "memory.stat").read_text().splitlines())
        return int(stat[name])

    def shed(self) -> None:
        """Give back what can be reclaimed, so that leftovers do not count as the base."""
        with contextlib.suppress(OSError):
            if self.version == 1:
                (self.path / "memory.force_empty").write_text("0")
            else:
                (self.path / "memory.reclaim").write_text(str(self.page_cache()))

    def limit(self, size: int) -> None:
        name = "memory.limit_in_bytes" if self.version == 1 else "memory.max"
        (self.path / name).write_text(str(size))

    def was_killed(self) -> bool:
        name = "memory.oom_control" if self.version == 1 else "memory.events"
        lines = (self.path / name).read_text().splitlines()
        return any(line.startswith("oom_kill ") and not line.endswith(" 0") for line in lines)

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            self.path.rmdir()


def make_group(name: str) -> ControlGroup | None:
    """A new group, or None where the system does not let us."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, own = line.split(":", 2)
        if controllers == "memory":
            version: Literal[1, 2] = 1
            parent = _MOUNT / "memory" / own.lstrip("/")
            probe = "memory.limit_in_bytes"
        elif controllers == "" and (_MOUNT / "cgroup.controllers").exists():
            # Version 2 keeps processes out of inner groups: ours becomes a sibling of the caller's.
            version = 2
            parent = (_MOUNT / own.lstrip("/")).parent if own != "/" else _MOUNT
            probe = "memory.max"
        else:
            continue
        path = parent / f"headrace-bench-{name}"
        try:
            path.mkdir(exist_ok=True)
        except OSError:
            continue
        if os.access(path / probe, os.W_OK) and os.access(path / "cgroup.procs", os.W_OK):
            return ControlGroup(path, version)
        path.rmdir()
    return None


def available() -> Method:
    """The best method this machine permits."""
    group = make_group(f"probe-{os.getpid()}")
    if group is not None:
        group.remove()
        return "cgroup"
    return "drop_caches" if os.access(_DROP, os.W_OK) else "none"


def drop_caches() -> None:
    os.sync()
    _DROP.write_text("3")


def pin(core: int) -> None:
    os.sched_setaffinity(0, {core})


def evict(path: Path) -> None:
    """Drop a file's or a directory's clean pages from the page cache; needs no privilege.

    Pages left by the process that built the file would otherwise serve reads without being charged
    to the measured group.
    """
    for file in [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
