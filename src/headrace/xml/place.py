"""The line and column that a scan of a document has reached."""

from __future__ import annotations

import numpy as np

from headrace.arrays import UInt8s
from headrace.kernels.xml_scan import walk

_LINE_FEED, _CARRIAGE_RETURN = 10, 13


class Place:
    """Counts lines, and characters of the last line, of bytes that come in pieces in one buffer; both from 0.

    Every byte of a document is counted, though a place is only asked for when something is wrong, so it must cost next to
    nothing. A kernel goes through bytes with carriage returns, of which the last may or may not end a line; others are counted
    in a sixth of its time.
    """

    def __init__(self, buffer: bytearray) -> None:
        self._buffer = buffer
        self._data: UInt8s = np.frombuffer(buffer, np.uint8)
        self._place = np.zeros(3, np.int64)  # lines, characters of the last, and the byte before
        self._found = np.empty(len(buffer), np.bool_)

    def reset(self) -> None:
        """Begin another document."""
        self._place[:] = 0

    def advance(self, stop: int) -> None:
        """Go over the first bytes of the buffer."""
        if not stop:
            return
        place = self._place
        if place[2] == _CARRIAGE_RETURN or self._buffer.find(b"\r", 0, stop) >= 0:
            walk(self._data, 0, stop, place)
            return
        line = self._buffer.rfind(b"\n", 0, stop) + 1
        if line:
            found = np.equal(self._data[:line], _LINE_FEED, out=self._found[:line])
            place[0] += np.count_nonzero(found)
            place[1] = 0
        place[1] += np.count_nonzero(self._data[line:stop] & 0xC0 != 0x80)
        place[2] = self._data[stop - 1]

    def at(self, stop: int) -> tuple[int, int]:
        """Return the line and column of a byte of the buffer, from 1, without going there."""
        place = self._place.copy()
        walk(self._data, 0, stop, place)
        if place[2] == _CARRIAGE_RETURN and self._data[stop] != _LINE_FEED:
            place[:2] = place[0] + 1, 0
        return int(place[0]) + 1, int(place[1]) + 1
