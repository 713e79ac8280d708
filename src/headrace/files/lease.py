"""Leases of working directories: what a living process works in is never removed, be it on another host or in another container.

    NAME.unfinished-<host>-<random>         the directory, which gets its final name or is removed
    NAME.unfinished-<host>-<random>.lease   {"host": "...", "process": 4711, "heartbeat": 1790000000, "checksum": ...}, locked

A process number says nothing about other hosts and containers. A lock does where it reaches: to all processes of one running
system, and to other hosts on some network file systems only. So a lease has a heartbeat, too, to judge a foreign one by.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headrace.clock import Clock, WallClock
from headrace.files.checked_json import dump_checked, parse_checked
from headrace.files.current import files
from headrace.files.locks import lock, open_lock
from headrace.files.names import exists, make_directory, names_in, paths_in, remove, remove_tree, status
from headrace.files.open_files import read_regular, write_at

EXPIRES_AFTER = 3600.0  # seconds without a heartbeat after which what was made on another host counts as left behind
_RENEWED_EVERY = 60.0  # seconds between two heartbeats
_LEASE = ".lease"
_BYTES = 512  # of a lease, whatever its numbers: one write of it replaces the last, and leaves no end of that
_NAME = re.compile(r"([0-9a-f]{16})-[0-9a-f]{32}")  # host and random number, after the prefix


class Lease:
    """A working directory of this process, and the lease that keeps others from removing it. Used by ``with``.

    A thread renews its heartbeat, so that a long step that tells nothing of its progress does not let it expire.

    Parameters
    ----------
    place, prefix
        Where the directory is made, and how its name begins.
    clock
        Seconds since 1970.

    Example
    -------
    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp())
    >>> with Lease(place, "draft-"):
    ...     remove_abandoned(place, "draft-")
    []
    """

    def __init__(self, place: Path, prefix: str, clock: Clock | None = None) -> None:
        self._clock = clock or WallClock()
        while True:
            self.directory = place / f"{prefix}{_tag(host_identity())}-{uuid.uuid4().hex}"
            """the working directory, for its owner alone"""
            self._path = _lease_of(self.directory)
            self._fd = open_lock(self._path)
            try:
                lock(self._fd, wait=True)
                # Whoever removes what is abandoned may have locked it first, and removed it.
                if os.fstat(self._fd).st_nlink:
                    self.renew()
                    make_directory(self.directory, exist_ok=False)
                    break
            except BaseException:
                self._end()
                raise
            files().close(self._fd)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew_for_ever, name="headrace-lease", daemon=True)
        self._thread.start()

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def renew(self) -> None:
        """Note that the process is at work now."""
        facts = {"host": host_identity(), "process": os.getpid(), "heartbeat": int(self._clock.now())}
        write_at(self._fd, dump_checked(facts).ljust(_BYTES), 0, self._path)

    def release(self) -> None:
        """Remove the directory, unless it has another name now, and give the lease up. A second call does nothing."""
        if not self._ended.is_set():
            self._ended.set()
            self._thread.join()
            remove_tree(self.directory)
            self._end()

    def _end(self) -> None:
        with suppress(OSError):
            remove(self._path)
        files().close(self._fd)

    def _renew_for_ever(self) -> None:
        while not self._ended.wait(_RENEWED_EVERY):
            with suppress(OSError):  # a full disk does not end the work here, and the next heartbeat may find room
                self.renew()


@contextmanager
def leased_directory(place: Path, prefix: str) -> Iterator[Path]:
    """Make a working directory, and remove it in the end; those that killed processes left are removed first."""
    remove_abandoned(place, prefix)
    with Lease(place, prefix) as lease:
        yield lease.directory


def remove_abandoned(place: Path, prefix: str, clock: Clock | None = None) -> list[Path]:
    """Remove the working directories whose processes are gone; returns them.

    One that was made on this system since it started is removed if nobody holds its lease. One of another host or container is
    removed if nobody is seen to hold its lease and its last heartbeat is older than `EXPIRES_AFTER`; without a lease, its last
    change.
    """
    names = [name for name in names_in(place) if name.startswith(prefix)]
    directories = dict.fromkeys(place / name.removesuffix(_LEASE) for name in names)
    return [path for path in directories if _remove_if_abandoned(path, path.name.removeprefix(prefix), clock)]


def _remove_if_abandoned(directory: Path, rest: str, clock: Clock | None) -> bool:
    match, identity = _NAME.fullmatch(rest), host_identity()
    mine = match is not None and bool(identity) and match[1] == _tag(identity)
    path = _lease_of(directory)
    if not exists(path):
        if not mine and not expired(directory, clock):
            return False
        remove_tree(directory)
        return True
    fd = open_lock(path)
    try:
        if not lock(fd) or not (mine or _heart_stopped(path, clock)):
            return False
        remove_tree(directory)
        remove(path)  # last: what is left if this process is killed here has a lease
        return True
    finally:
        files().close(fd)


def host_identity() -> str:
    """Return what tells this running system from others, and from itself before a restart; empty if the system does not say.

    Containers of one host have the same kernel and so the same boot; they are told apart by their names.
    """
    try:
        boot = _said_in("/proc/sys/kernel/random/boot_id")
    except OSError:
        return ""
    machine = ""
    with suppress(OSError):
        machine = _said_in("/etc/machine-id")
    return f"{machine}/{boot}/{socket.gethostname()}"


def _said_in(path: str) -> str:
    return Path(path).read_text().strip()


def _tag(identity: str) -> str:
    return hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()


def _lease_of(directory: Path) -> Path:
    return directory.with_name(f"{directory.name}{_LEASE}")


def _heart_stopped(lease: Path, clock: Clock | None) -> bool:
    """Whether the last heartbeat of a lease is too long ago; its last change counts if its text was cut short."""
    try:
        heartbeat = parse_checked(read_regular(lease).rstrip())["heartbeat"]
        return _too_long_ago(float(heartbeat), clock)
    except (OSError, ValueError, KeyError, TypeError):
        return expired(lease, clock)


def expired(path: Path, clock: Clock | None = None) -> bool:
    """Whether a file or directory was last changed so long ago that nobody is at work on it."""
    found = status(path, follow=False)
    return found is not None and _too_long_ago(found.st_mtime, clock)


def remove_expired(directory: Path, pattern: str = ".draft-*") -> None:
    """Remove drafts that a killed process left in a directory where others may be at work, when they are old enough."""
    for path in paths_in(directory, pattern, missing_ok=True):
        if expired(path):
            with suppress(OSError):
                remove(path)


def _too_long_ago(seconds: float, clock: Clock | None) -> bool:
    return (clock or WallClock()).now() - seconds > EXPIRES_AFTER
