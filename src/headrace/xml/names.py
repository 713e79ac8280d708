"""The names of a document: each has a number, by which the scanner and the twig machine know it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from headrace.arrays import AnyArray, Int32s, Int64s, UInt8s, UInt64s
from headrace.kernels.xml_scan import number_names
from headrace.memory import MemoryBudget

_FIRST = 1024  # names that there is room for at first: few documents have more
_BYTES = 16  # bytes of a name, on average, that there is room for
_PAD = 16  # bytes: names are compared eight bytes at a time
_MASK = (1 << 64) - 1
_K = 0x9E3779B97F4A7C15


def _hash(name: bytes) -> int:
    """Return the hash of a name as the scanner has it."""
    h = len(name) * _K & _MASK
    for at in range(0, len(name), 8):
        part = name[at : at + 8]
        word = int.from_bytes(part, "little") << 64 - 8 * len(part) if len(part) < 8 else int.from_bytes(part, "little")
        h = (h ^ word) * _K & _MASK
        h ^= h >> 29
    return h


class NameTable:
    """A hash table of names that grows to a limit: `bytes[at[k]:at[k + 1]]` is name k, `flags[k]` says what it is wanted for."""

    def __init__(self, flags: Mapping[bytes, int], most: int, budget: MemoryBudget) -> None:
        self.most = max(most, len(flags))
        self._wanted = len(flags)
        self._reserved = budget.reserve("names", 0)
        self.count = 0
        self.at: Int64s = np.zeros(1, np.int64)
        self.hashes: UInt64s = np.empty(0, np.uint64)
        self.flags: UInt8s = np.empty(0, np.uint8)
        self.seen: Int64s = np.empty(0, np.int64)  # the last tag that had the name as an attribute
        self.bytes: UInt8s = np.empty(0, np.uint8)
        self.table: Int32s = np.empty(0, np.int32)
        self._grow(min(self.most, max(_FIRST, 2 * len(flags))), sum(map(len, flags)))
        for name, flag in flags.items():
            start = self.at[self.count]
            self.bytes[start : start + len(name)] = np.frombuffer(name, np.uint8)
            self.at[self.count + 1] = start + len(name)
            self.hashes[self.count] = _hash(name)
            self.flags[self.count] = flag
            self.count += 1
        number_names(self.hashes[: self.count], self.table)

    def grow(self, count: int) -> bool:
        """Make room for more than `count` names, or for longer ones; False if there are as many as there may be."""
        if count >= self.most:
            return False
        self.count = count
        self._grow(min(self.most, 2 * self.hashes.size), 2 * self.bytes.size)
        number_names(self.hashes[: self.count], self.table)
        return True

    def reset(self) -> None:
        """Forget the names of a document; those that are wanted keep their numbers."""
        self.count = self._wanted
        self.seen[:] = -1
        number_names(self.hashes[: self.count], self.table)

    def spell(self, k: int) -> str:
        """Return name k."""
        return bytes(self.bytes[self.at[k] : self.at[k + 1]]).decode()

    def _grow(self, size: int, length: int) -> None:
        nbytes = max(length, _BYTES * size) + _PAD
        slots = 1 << (2 * size - 1).bit_length()
        self._reserved.resize(nbytes + 25 * size + 8 + 4 * slots)
        self.at = _longer(self.at, size + 1)
        self.hashes = _longer(self.hashes, size)
        self.flags = _longer(self.flags, size)
        self.seen = _longer(self.seen, size)
        self.bytes = _longer(self.bytes, nbytes)
        self.seen[self.count :] = -1
        self.table = np.empty(slots, np.int32)


def _longer(array: AnyArray, size: int) -> AnyArray:
    larger = np.zeros(size, array.dtype)
    larger[: array.size] = array
    return larger
