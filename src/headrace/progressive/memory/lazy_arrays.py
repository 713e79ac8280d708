"""Arrays of slots whose memory is the system's until it is touched, and again when it is given back."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np


class Rooms:
    """Arrays with room for so many slots; they cost what was used of them. Huge pages would be touched as a whole.

    Parameters
    ----------
    slots
        Of each array.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._made: list[tuple[mmap.mmap, int]] = []

    def make(self, type_: Any, width: int = 1) -> np.ndarray[Any, Any]:
        """An array of so many numbers a slot."""
        each = np.dtype(type_).itemsize * width
        if not each:
            return np.empty(0, type_)
        memory = mmap.mmap(-1, self.slots * each)
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        self._made.append((memory, each))
        return np.frombuffer(memory, type_)

    def give_back(self, slots: int) -> None:
        """What lies beyond so many slots is not needed any more."""
        for memory, each in self._made:
            start = -(-slots * each // mmap.PAGESIZE) * mmap.PAGESIZE
            if start < len(memory):
                memory.madvise(mmap.MADV_DONTNEED, start, len(memory) - start)
