"""KeyRuns: keys of 16 bytes on disk, in sorted runs that are never changed, and merged so that there are few.

run     key key key … | key key key … | …      pages of 256 keys, in a file without a name, which goes with the process
fences  key             key             …      the first key of each page, in memory: a 256th part of the run
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headrace.feeds.seen import Bools, Hashes
from headrace.files import NewFile, map_open, open_nameless, write_at

KEY_BYTES = 16
_PAGE = 256  # keys, 4 KiB: what the system reads at a time
_STEPS = 8  # of a binary search in a page
_PIECE = 1 << 9  # keys of a run that are merged at a time
MERGE_BYTES = 4 * _PIECE * KEY_BYTES
"""Bytes that a merge takes beside the fences: pieces of two runs, what they become, and the sorting of it."""


@dataclass(frozen=True)
class _Run:
    """A sorted run: the keys in a mapped file, and the first of each page."""

    keys: Hashes
    fences: Hashes
    mapped: mmap.mmap

    def contains(self, wanted: Hashes) -> Bools:
        """Say of each key whether it is in the run. One page is read for each, at most."""
        page = np.searchsorted(self.fences, wanted, "right") - 1
        low = np.maximum(page, 0) * _PAGE
        high = np.minimum(low + _PAGE, len(self.keys))
        for _ in range(_STEPS):
            middle = (low + high) // 2
            upper = self.keys[middle] <= wanted
            low, high = np.where(upper, middle, low), np.where(upper, high, middle)
        found: Bools = (page >= 0) & (self.keys[low] == wanted)
        self.mapped.madvise(mmap.MADV_DONTNEED)  # pages that were read do not stay with this process
        return found

    def pieces(self) -> Iterator[Hashes]:
        """The keys in order, some at a time."""
        for at in range(0, len(self.keys), _PIECE):
            yield self.keys[at : at + _PIECE].copy()
            self.mapped.madvise(mmap.MADV_DONTNEED)


class KeyRuns:
    """Keys that were added, each once. A kill leaves nothing on the disk, since the files have no names.

    Args:
        directory: where the files are; the system's for temporary files if None.

    Example:
        >>> runs = KeyRuns()
        >>> runs.add(np.array([b"a" * 16, b"c" * 16]))
        >>> runs.contains(np.array([b"a" * 16, b"b" * 16])).tolist(), len(runs)
        ([True, False], 2)
    """

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory
        self._runs: list[_Run] = []  # each has twice the keys of the next, or more

    def __len__(self) -> int:
        return sum(len(run.keys) for run in self._runs)

    @property
    def nbytes(self) -> int:
        """Bytes in memory: the fences."""
        return sum(run.fences.nbytes for run in self._runs)

    def fences_for(self, more: int) -> int:
        """Bytes that the fences take at most while so many keys are added: two runs are there beside the one they become."""
        return 2 * self.nbytes + KEY_BYTES * (more // _PAGE + 2)

    def contains(self, wanted: Hashes) -> Bools:
        """Say of each key whether it was added."""
        found = np.zeros(len(wanted), np.bool_)
        for run in self._runs:
            left = np.flatnonzero(~found)
            if left.size:
                found[left] = run.contains(wanted[left])
        return found

    def add(self, keys: Hashes) -> None:
        """Add sorted keys, none of which is there."""
        self._runs.append(self._written(iter([keys])))
        while len(self._runs) > 1 and len(self._runs[-2].keys) < 2 * len(self._runs[-1].keys):
            self._runs[-2:] = [self._written(_merged(self._runs[-2].pieces(), self._runs[-1].pieces()))]

    def _written(self, pieces: Iterator[Hashes]) -> _Run:
        with open_nameless(self.directory or Path(tempfile.gettempdir())) as file:
            count, fences = _write(file, pieces)
            mapped = map_open(file.fileno(), count * KEY_BYTES, file.path)
        mapped.madvise(mmap.MADV_RANDOM)
        return _Run(np.frombuffer(mapped, "S16"), fences, mapped)


def _write(file: NewFile, pieces: Iterator[Hashes]) -> tuple[int, Hashes]:
    """Write keys. Returns how many there are, and the first of each page."""
    count, fences = 0, []
    for piece in pieces:
        fences.append(piece[-count % _PAGE :: _PAGE].copy())
        # At its place, and not gathered with others: a gathered piece would be memory beside the budget.
        write_at(file.fileno(), np.ascontiguousarray(piece).view(np.uint8).data, count * KEY_BYTES, file.path)
        count += len(piece)
    return count, np.concatenate(fences)


def _merged(left: Iterator[Hashes], right: Iterator[Hashes]) -> Iterator[Hashes]:
    """Merge two sorted sequences, piece by piece. What is not larger than the last key of both pieces can leave."""
    a, b = next(left, None), next(right, None)
    while a is not None and b is not None:
        bound = min(a[-1], b[-1])
        upto, until = int(np.searchsorted(a, bound, "right")), int(np.searchsorted(b, bound, "right"))
        out = np.concatenate([a[:upto], b[:until]])
        out.sort()
        yield out
        a = a[upto:] if upto < len(a) else next(left, None)
        b = b[until:] if until < len(b) else next(right, None)
    if a is not None:
        yield a
    if b is not None:
        yield b
    yield from left
    yield from right
