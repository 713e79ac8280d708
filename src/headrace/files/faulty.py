"""FaultyFiles: the form that fails on purpose, at one call of many, as disks, systems and kills do."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar, cast

from headrace.files.watched import FileCall, WatchedFiles

T = TypeVar("T")
Fault = Literal["full", "eio", "eintr", "short", "torn", "killed"]
FAULTS: tuple[Fault, ...] = ("full", "eio", "eintr", "short", "torn", "killed")

_TAKES_ROOM = frozenset(
    {"open", "write", "append", "truncate", "link", "rename", "rename_exclusively", "mkdir", "fsync"}
)
_CHANGES = _TAKES_ROOM | {"exchange", "unlink", "rmdir", "sync_directory"}
_INTERRUPTIBLE = frozenset({"open", "read", "read_into", "write", "append", "fsync", "sync_directory", "wait_for_lock"})
_NEVER = frozenset({"close", "map", "lock"})


class Killed(BaseException):
    """The process was killed, or the power went: nothing after the call happens, no clean-up either."""


class FaultyFiles(WatchedFiles):
    """Local files of which one call fails. Calls are counted from 1, those on files below a directory alone.

    Parameters
    ----------
    root
        The directory.
    at
        The number of the call that fails; 0 for none.
    fault
        "full": no room on the disk, from this call on for all that takes room. "short": half of a write is made, then the disk is
        full. "eio", "eintr": the call fails, once. "torn": half of a write is made, and the process is killed. "killed": the
        process is killed before the call.
    """

    def __init__(self, root: Path, at: int = 0, fault: Fault = "eio") -> None:
        super().__init__()
        self.root = root
        self.at, self.fault = at, fault
        self.calls = 0
        """calls so far"""
        self.struck: FileCall | None = None
        """the call that failed; None if it has not come yet, or cannot fail in this way"""
        self._full = self._dead = False

    def around(self, call: FileCall, perform: Callable[[], T]) -> T:
        """Make a call, or fail it."""
        if self._dead:
            if call.name == "close":
                return (
                    perform()
                )  # by objects that outlive the process that they were part of; the files are closed already
            raise Killed
        if not call.path.is_relative_to(self.root):
            return perform()
        self.calls += 1
        if self.calls == self.at and strikes(self.fault, call):
            self.struck = call
            return self._fail(call, perform)
        if self._full and _takes_room(call):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *_names(call))
        return perform()

    def _fail(self, call: FileCall, perform: Callable[[], T]) -> T:
        match self.fault:
            case "eio" | "eintr":
                code = errno.EIO if self.fault == "eio" else errno.EINTR
                raise OSError(code, os.strerror(code), *_names(call))
            case "full":
                self._full = True
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *_names(call))
            case "short":
                self._full = True
                return cast(T, self._half(call))  # a write returns the bytes that it wrote
            case "torn":
                self._half(call)
        self._die()
        raise Killed

    def _half(self, call: FileCall) -> int:
        assert call.data is not None
        half = call.data[: call.size // 2]
        return os.pwrite(call.fd, half, call.offset)

    def _die(self) -> None:
        """Close every open file, which gives up its locks, as the end of a process does."""
        self._dead = True
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for fd in self.open_paths:
            # Not close: objects that are collected later close these numbers, which may be another's by then.
            os.dup2(nothing, fd, inheritable=False)
        os.close(nothing)


def strikes(fault: Fault, call: FileCall) -> bool:
    """Whether a call can fail in this way."""
    match fault:
        case "full":
            return _takes_room(call)
        case "short" | "torn":
            return call.name in ("write", "append") and call.size > 0
        case "eintr":
            return call.name in _INTERRUPTIBLE
        case "killed":
            return call.name in _CHANGES
        case "eio":
            return call.name not in _NEVER


def _takes_room(call: FileCall) -> bool:
    return call.name in _TAKES_ROOM and (call.name != "open" or bool(call.flags & os.O_CREAT))


def _names(call: FileCall) -> tuple[object, ...]:
    """The names as the system's errors have them: none of a call on a descriptor."""
    if call.fd >= 0:
        return ()
    return (str(call.path),) if call.other is None else (str(call.path), None, str(call.other))
