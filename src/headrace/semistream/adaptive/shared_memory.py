"""SharedMemory: memory that the worker processes of one executor map, found through a small file. (DESIGN D5)

The memory has no name in the file system. Nobody can cut it short or write into it from outside, which would kill or mislead
the processes that map it, and it is gone with the last of them: a kill -9 leaves nothing behind. A process finds it through a
card, a small file that names processes which have it open. Any of them writes a card again that is lost or damaged.

Locks are on bytes of the memory itself, so they cannot be deleted, and the kernel drops them with their holder.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import struct
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from headrace.arrays import Int64s, UInt8s
from headrace.files import (
    close,
    exists,
    is_file,
    lock,
    make_directory,
    open_directory,
    open_new,
    read_regular,
    replace,
)

_HOLDERS = 8  # processes named on a card: enough that one of them lives
_NAME_BYTES = (
    8  # at the beginning: a random number, to tell this memory from another that a re-used process number leads to
)


class SharedMemory:
    """One piece of memory, mapped by several processes.

    Parameters
    ----------
    fd
        The memory, open in this process.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.size = os.fstat(fd).st_size
        self._map = mmap.mmap(fd, self.size)  # files: memory without a name
        self._bytes: UInt8s = np.frombuffer(self._map, np.uint8)
        self._locked: set[int] = set()

    @classmethod
    def find(cls, card: Path, size: int, mine: SharedMemory | None = None) -> SharedMemory:
        """Open the memory that the card names, `mine` if it names none, or new memory of `size` zero bytes.

        Parameters
        ----------
        card
            Path of the card; its directory is made if need be.
        mine
            The memory this process used until now.
        """
        while True:
            try:
                return cls._find(card, size, mine)
            except (FileNotFoundError, FileExistsError):  # the directory was deleted meanwhile
                if is_file(card.parent):
                    raise

    @classmethod
    def _find(cls, card: Path, size: int, mine: SharedMemory | None) -> SharedMemory:
        make_directory(card.parent, parents=True)
        directory = open_directory(card.parent)
        try:
            lock(directory, wait=True)
            text = _read(card)
            if mine is not None and text.get("name") == mine.name:
                return mine
            found = _open(text, size)
            if found is not None:
                memory = cls(found)
                holders = text["holders"]
            else:
                memory, holders = mine if mine is not None and mine.size == size else cls._new(size), []
            memory._announce(card, holders)
            return memory
        finally:
            close(directory)

    @classmethod
    def _new(cls, size: int) -> SharedMemory:
        fd = os.memfd_create("headrace", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, size)  # files: memory without a name
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        memory = cls(fd)
        memory.words(0, 1)[0] = uuid.uuid4().int & 0x7FFFFFFFFFFFFFFF
        return memory

    def _announce(self, card: Path, holders: list[list[int]]) -> None:
        alive = [h for h in holders if exists(Path(f"/proc/{h[0]}"))]
        text = {"name": self.name, "holders": [[os.getpid(), self._fd], *alive][:_HOLDERS]}
        draft = card.with_suffix(".draft")  # the directory is locked, so nobody else writes it
        with open_new(draft) as file:
            file.write(json.dumps(text).encode())
        replace(draft, card)

    @property
    def name(self) -> int:
        """The random number that the memory begins with."""
        return int(self.words(0, 1)[0])

    def words(self, at: int, count: int) -> Int64s:
        """64-bit words from word `at` on."""
        return self._bytes[8 * at : 8 * (at + count)].view(np.int64)

    def piece(self, at: int, size: int) -> UInt8s:
        """A view of `size` bytes from byte `at` on."""
        return self._bytes[at : at + size]

    def free(self, at: int, size: int) -> None:
        """Return the whole pages in a piece to the system; they read as zero from now on."""
        start = -(-at // mmap.PAGESIZE) * mmap.PAGESIZE
        stop = (at + size) // mmap.PAGESIZE * mmap.PAGESIZE
        if stop > start:
            self._map.madvise(mmap.MADV_REMOVE, start, stop - start)

    # -- locks ---------------------------------------------------------------------------------------------------------

    def lock(self, number: int) -> bool:
        """Take a lock if it is free."""
        if number in self._locked:
            return False
        try:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _flock(fcntl.F_WRLCK, number))
        except OSError:
            return False
        self._locked.add(number)
        return True

    def wait(self, number: int) -> None:
        """Take a lock when it is free. Its holders must not keep it while they wait for anything."""
        fcntl.fcntl(self._fd, fcntl.F_OFD_SETLKW, _flock(fcntl.F_WRLCK, number))
        self._locked.add(number)

    def unlock(self, number: int) -> None:
        """Release a lock; does nothing if this process does not hold it."""
        if number in self._locked:
            self._locked.discard(number)
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _flock(fcntl.F_UNLCK, number))

    def held(self, number: int) -> bool:
        """Whether some living process has the lock."""
        if number in self._locked:
            return True
        answer = fcntl.fcntl(self._fd, fcntl.F_OFD_GETLK, _flock(fcntl.F_WRLCK, number))
        return bool(struct.unpack_from("h", answer)[0] != fcntl.F_UNLCK)

    def __del__(self) -> None:
        with suppress(OSError, AttributeError):
            os.close(self._fd)  # files: memory without a name


def _flock(kind: int, number: int) -> bytes:
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, number, 1, 0)


def _read(card: Path) -> dict[str, Any]:
    """Name and holders on the card; empty if the card is missing or damaged."""
    try:
        text = json.loads(read_regular(card))
        name, holders = int(text["name"]), [[int(pid), int(fd)] for pid, fd in text["holders"]]
    except (OSError, ValueError, TypeError, KeyError, OverflowError):
        return {}
    return {"name": name, "holders": holders}


def _open(text: dict[str, Any], size: int) -> int | None:
    """Open the memory through a process that has it, if one lives and the memory has this size."""
    for pid, number in text.get("holders", ()):
        try:
            fd = os.open(f"/proc/{pid}/fd/{number}", os.O_RDWR | os.O_CLOEXEC)  # files: another process's memory
        except OSError:
            continue
        # The process may have died and its number been given to another: whatever this is, it must have the name.
        with suppress(OSError):
            name = int.from_bytes(os.pread(fd, _NAME_BYTES, 0), "little")  # files: memory without a name
            if name == text["name"] and os.fstat(fd).st_size == size:
                return fd
        os.close(fd)  # files: memory without a name
    return None
