"""CheckedPages: which pages of a version were checked, and still have the same bytes as far as the system can tell.

A page that comes from the page cache again has the bytes that it had when it was checked, unless somebody wrote to its file,
which the file's times tell. So it is checked once, and not at every read: a bit a page remembers that. A page that comes from a
disk is always checked, since bytes can change there without anybody writing them.
"""

from __future__ import annotations

import os

import numpy as np

from headrace.arrays import Int32s, Int64s, UInt8s

MOST_BYTES = 1 << 17  # of the bits: pages beyond them, of relations of some gigabytes, are checked at every read


class CheckedPages:
    """A bit for each page of some files, in the order of the files.

    Parameters
    ----------
    pages
        The number of pages of each file.
    """

    def __init__(self, pages: Int64s) -> None:
        self._before = np.cumsum(pages) - pages
        self._bits: UInt8s = np.zeros(self.size(int(pages.sum())), np.uint8)
        self._times: dict[int, tuple[int, int, int]] = {}

    @staticmethod
    def size(pages: int) -> int:
        """Return the bytes of the bits for so many pages."""
        return min(MOST_BYTES, (pages + 7) // 8)

    def numbers(self, files: Int64s, pages: Int64s) -> Int64s:
        """Return the numbers of pages, given by file and by number in the file, among those of all files."""
        return self._before[files] + pages

    def bits(self, files: Int64s, fds: Int32s) -> UInt8s:
        """Return the bits, those of a file without any that was written to since it was last asked for.

        Parameters
        ----------
        files, fds
            The files that are going to be read, ascending, and their descriptors.
        """
        for at in np.flatnonzero(np.diff(files, prepend=-1)):
            file, status = int(files[at]), os.fstat(int(fds[at]))
            times = status.st_mtime_ns, status.st_ctime_ns, status.st_size
            if self._times.get(file) != times:
                self._times[file] = times
                # Whole bytes: a page of a neighbouring file that shares one is checked once more.
                end = self._before[file + 1] if file + 1 < self._before.size else 8 * self._bits.size
                self._bits[int(self._before[file]) // 8 : -(-int(end) // 8)] = 0
        return self._bits
