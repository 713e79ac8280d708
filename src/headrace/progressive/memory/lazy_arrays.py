"""Arrays whose memory is allocated by the operating system page by page, when it is first touched."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

from headrace.arrays import AnyArray


class LazyArrays:
    """Arrays with an item for each slot, of which only the part that was used takes memory.

    Each lies in an anonymous mapping without huge pages, since a huge page is allocated as a whole when one byte is touched.

    Parameters
    ----------
    slots
        The length of each array.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._mappings: list[tuple[mmap.mmap, int]] = []  # each with its bytes a slot

    def allocate(self, type_: Any, width: int = 1) -> AnyArray:
        """Return a new array with `width` numbers a slot, one slot after the other; it is empty if the width is 0."""
        each = np.dtype(type_).itemsize * width
        if not each:
            return np.empty(0, type_)
        memory = mmap.mmap(-1, self.slots * each)  # files: memory without a file
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        self._mappings.append((memory, each))
        return np.frombuffer(memory, type_)

    def release_beyond(self, slots: int) -> None:
        """Give the memory of all slots from this number on back to the system; they read as 0 when they are used again."""
        for memory, each in self._mappings:
            start = -(-slots * each // mmap.PAGESIZE) * mmap.PAGESIZE
            if start < len(memory):
                memory.madvise(mmap.MADV_DONTNEED, start, len(memory) - start)
