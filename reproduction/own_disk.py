"""The joins of [PQP] appendix A in real time: each page that they count is read from the disk of this machine."""

from __future__ import annotations

import mmap
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from headrace.clock import ManualClock, SystemClock
from headrace.progressive.rtree import Disk2008
from headrace.relation.disk import Disk

PAGES = 1 << 14  # of the file: 64 MiB, more than any of the sets takes
_MIB = 1 << 20


class RealClock(ManualClock):
    """The machine's seconds, where a clock is wanted that can be moved: moving it is waiting."""

    def __init__(self) -> None:
        self._system = SystemClock()
        super().__init__(self._system.now())

    def now(self) -> float:
        """Seconds since it was made."""
        return self._system.now() - self.start

    def advance(self, seconds: float) -> None:
        """Wait so long."""
        self._system.sleep(seconds)


@dataclass
class OwnDisk(Disk2008):
    """A request is a read of one page at a random place of a file, past the page cache; comparisons take what they take.

    The joins of the study count pages and keep boxes in arrays, so that it is not known which page a request is for, nor whether
    it is to be written. A file system without O_DIRECT is refused by name.
    """

    directory: Path = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        handle, name = tempfile.mkstemp(dir=self.directory)
        self._room = mmap.mmap(-1, _MIB)  # aligned, as O_DIRECT wants it
        for start in range(0, PAGES * self.page_size, _MIB):
            os.pwritev(handle, [self._room], start)
        os.fsync(handle)
        os.close(handle)
        try:
            self._file = Disk("direct").open(Path(name))
        finally:
            Path(name).unlink()  # it lives as long as it is open
        self._frame = mmap.mmap(-1, self.page_size)
        self._rng = np.random.default_rng(11)
        self.clock = RealClock()

    def charge(self, requests: int, tests: int) -> None:
        """Make the requests; the comparisons were made."""
        for page in self._rng.integers(0, PAGES, requests).tolist() if requests else ():
            os.preadv(self._file, [self._frame], page * self.page_size)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)
