"""The line and column that a scan of a document has reached."""

from __future__ import annotations

import numpy as np

from headrace.arrays import UInt8s
from headrace.kernels.xml_scan import walk

_LINE_FEED, _CARRIAGE_RETURN = 10, 13
_LAST = 256  # bytes in which the last line is looked for first: most lines are shorter


class Place:
    """Counts lines, and characters of the last line, of bytes that come in pieces; both from 0.

    A kernel goes through bytes in which lines end with carriage returns. Others, which are nearly all, take NumPy a tenth of
    that time, and every byte of a document is counted, though a place is only asked for when something is wrong.
    """

    def __init__(self, size: int) -> None:
        self._place = np.zeros(3, np.int64)
        self._found = np.empty(size, np.bool_)

    def advance(self, data: UInt8s, stop: int) -> None:
        """Go over data[:stop]."""
        if not stop:
            return
        piece, found, place = data[:stop], self._found[:stop], self._place
        if place[2] != _CARRIAGE_RETURN and not np.equal(piece, _CARRIAGE_RETURN, out=found).any():
            np.equal(piece, _LINE_FEED, out=found)
            last = np.flatnonzero(found[-_LAST:])
            if last.size:
                line = piece[stop - min(stop, _LAST) + int(last[-1]) + 1 :]
                place[0] += np.count_nonzero(found)
                place[1] = np.count_nonzero(line & 0xC0 != 0x80)
                place[2] = piece[-1]
                return
        walk(data, 0, stop, place)

    def at(self, data: UInt8s, stop: int) -> tuple[int, int]:
        """Return the line and column of data[stop], from 1, without going there."""
        place = self._place.copy()
        walk(data, 0, stop, place)
        return int(place[0]) + 1, int(place[1]) + 1
