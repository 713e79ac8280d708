"""SavedHotSet: a group's hot set in a file, so that the first rows after a start find what the last run found popular.

    magic | checksum | numbers | list of segments | sketch | segments

Tuples are saved and not their keys alone: hot keys are scattered over the relation, and to read them again would be to read most
of it. The file is warmth and nothing else. One that is damaged, or of another version of the relation or another division of the
memory, is passed over, and a directory that cannot be written to goes without.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from headrace.arrays import Int64s, UInt8s
from headrace.files import (
    close,
    draft_name,
    expired,
    make_directory,
    open_new,
    open_regular,
    paths_in,
    read_into,
    remove,
    replace,
)
from headrace.semistream.adaptive.group_memory import GroupMemory
from headrace.semistream.adaptive.hot_set import SEGMENTS
from headrace.units import format_size

_log = logging.getLogger(__name__)

_MAGIC = b"HRHOT001"  # the last figures change with the arrays of a segment
_CHECKSUM = 16  # bytes
_CONTENT, _PUBLISHED, _WINDOW, _HOT_BYTES, _COUNT, _FIRST_SIZE = range(
    6
)  # the numbers: these, then the size of each segment
_NUMBERS = _FIRST_SIZE + SEGMENTS


class SavedHotSet:
    """The file of a group's hot set.

    Parameters
    ----------
    path
        Where it lies. Its directory is made when it is first saved.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def save(self, shared: GroupMemory) -> bool:
        """Write the current generation; returns whether that was possible. The caller may publish, and nobody else can."""
        directory = shared.directory(int(shared.header["generation"][0]))
        count = int(directory["count"][0])
        segments = directory["segments"][0][:count]
        pieces = [shared.memory.piece(*shared.region(int(region))) for region in segments["region"]]
        sizes = [min(piece.size, shared.room_of(segment)) for piece, segment in zip(pieces, segments, strict=True)]
        numbers = np.zeros(_NUMBERS, np.int64)
        header = shared.header
        numbers[:_FIRST_SIZE] = (
            shared.content,
            *(header[name][0] for name in ("published", "window", "hot_bytes")),
            count,
        )
        numbers[_FIRST_SIZE : _FIRST_SIZE + count] = sizes
        listed = np.ascontiguousarray(segments).view(np.uint8).reshape(-1)
        parts = [numbers.view(np.uint8), listed, shared.sketch_memory]
        parts += [piece[:size] for piece, size in zip(pieces, sizes, strict=True)]
        draft = draft_name(self.path)
        try:
            make_directory(self.path.parent)
            for left in paths_in(self.path.parent, ".draft-*"):
                if expired(left):  # a process that was killed left it
                    remove(left)
            with open_new(draft) as file:
                file.write(_MAGIC + _sum(parts))
                for part in parts:
                    file.write(part.data)
            replace(draft, self.path)
        except OSError as error:
            _log.info("the hot set cannot be saved to %s, so the next start begins without it: %s", self.path, error)
            with suppress(OSError):
                remove(draft)
            return False
        _log.info("saved the hot set to %s: %s", self.path, format_size(sum(part.size for part in parts)))
        return True

    def restore(self, shared: GroupMemory) -> bool:
        """Fill memory that holds no hot set yet with the one in the file; returns whether there is one that fits."""
        try:
            fd = open_regular(self.path)
        except OSError:
            return False
        try:
            fits = self._read(fd, shared)
            outcome = "begins with the hot set of an earlier run" if fits else "passes over a hot set that does not fit"
            _log.info("%s: %s", outcome, self.path)
            return fits
        finally:
            close(fd)

    def _read(self, fd: int, shared: GroupMemory) -> bool:
        begin = np.zeros(len(_MAGIC) + _CHECKSUM + 8 * _NUMBERS, np.uint8)
        if not self._fill(fd, 0, [begin]) or begin[: len(_MAGIC)].tobytes() != _MAGIC:
            return False
        numbers: Int64s = begin[len(_MAGIC) + _CHECKSUM :].copy().view(np.int64)
        count, sizes = int(numbers[_COUNT]), numbers[_FIRST_SIZE:]
        if numbers[_CONTENT] != shared.content or not 0 <= count <= SEGMENTS:
            return False
        directory = shared.directory(0)
        listed = np.zeros(count, directory["segments"].dtype.base)
        regions = [shared.memory.piece(*shared.region(number)) for number in range(count)]
        if any(not 0 <= size <= region.size for size, region in zip(sizes, regions, strict=False)):
            return False
        rest = [listed.view(np.uint8), shared.sketch_memory]
        rest += [region[: int(size)] for size, region in zip(sizes, regions, strict=False)]
        whole = self._fill(fd, begin.size, rest)
        sound = whole and _sum([numbers.view(np.uint8), *rest]) == begin[len(_MAGIC) :][:_CHECKSUM].tobytes()
        if not sound:
            shared.sketch_memory[:] = 0
            for number in range(count):
                shared.memory.free(*shared.region(number))
            return False
        listed["region"] = np.arange(count)
        directory["segments"][0][:count] = listed
        shared.written()[:count] = sizes[:count]
        header = shared.header
        header["published"][0], header["window"][0] = numbers[_PUBLISHED], numbers[_WINDOW]
        header["hot_bytes"][0] = numbers[_HOT_BYTES]
        directory["count"][0] = count
        return True

    def _fill(self, fd: int, at: int, parts: Sequence[UInt8s]) -> bool:
        """Read arrays one after the other from a place on; returns whether the file had as many bytes."""
        for part in parts:
            if read_into(fd, part.data, at, self.path) < part.size:
                return False
            at += part.size
        return True


def _sum(parts: Sequence[UInt8s]) -> bytes:
    checksum = hashlib.blake2b(digest_size=_CHECKSUM)
    for part in parts:
        checksum.update(part.data)
    return checksum.digest()
