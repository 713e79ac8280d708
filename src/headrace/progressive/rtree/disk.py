"""The simulated disk of the study, which charges page accesses to a virtual clock, and an LRU buffer of its pages."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from headrace.arrays import Int64s
from headrace.clock import ManualClock
from headrace.errors import BadInput
from headrace.kernels.lru import READS, VISITS, WRITES, empty_lru, touch_page


@dataclass(slots=True)
class SpatialStats:
    """Counts what a join of the study has done so far."""

    tuples_in: int = 0
    """boxes that were taken in, of both sides"""
    results: int = 0
    """pairs that were sent"""
    build_reads: int = 0
    """pages read to store arriving boxes and to maintain indexes"""
    build_writes: int = 0
    """pages written to store arriving boxes and to maintain indexes"""
    join_reads: int = 0
    """pages read to find pairs"""
    join_writes: int = 0
    """changed pages that were evicted while pairs were searched"""
    pages_compared: int = 0
    """pairs of pages whose entries were compared; where boxes search a tree, nodes that were visited"""
    tests: int = 0
    """pairs of boxes that were compared, in nodes and in pages"""

    @property
    def build_io(self) -> int:
        """Pages read and written while building."""
        return self.build_reads + self.build_writes

    @property
    def join_io(self) -> int:
        """Pages read and written while joining."""
        return self.join_reads + self.join_writes

    @property
    def io(self) -> int:
        """Pages read and written."""
        return self.build_io + self.join_io

    def as_dict(self) -> dict[str, Any]:
        """All counters and sums by name."""
        return asdict(self) | {"build_io": self.build_io, "join_io": self.join_io, "io": self.io}


@dataclass
class Disk2008:
    """Simulates the disk of 7,200 rpm and the processor of the 2008 study. [PQP] §A.1.7

    Every request is for one page, since the algorithms have one frame to read into, and costs seek + transfer: 8 ms.

    Parameters
    ----------
    page_size, record_bytes
        The bytes of a page, and of a box with its identifier: 204 records a page.
    seek, transfer
        Seconds to get to a page, and to read or write it.
    test
        Seconds to compare two boxes. The text does not say; see docs/reference/rtree-joins.md.
    clock
        The clock that the time is charged to.

    Example
    -------
    >>> disk = Disk2008()
    >>> disk.charge(requests=10, tests=1_000_000)
    >>> disk.page_rows, round(disk.clock.now(), 3)
    (204, 0.09)
    """

    page_size: int = 4096
    record_bytes: int = 20
    seek: float = 7.95e-3
    transfer: float = 0.05e-3
    test: float = 10e-9
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        if self.page_rows < 4:
            raise BadInput(
                f"page_size={self.page_size} has room for {self.page_rows} records of record_bytes={self.record_bytes}; a node of"
                f" an R-tree needs 4, which is a page of {4 * self.record_bytes} bytes or more"
            )

    @property
    def page_rows(self) -> int:
        """The number of records of a page."""
        return self.page_size // self.record_bytes

    def charge(self, requests: int, tests: int) -> None:
        """Charge the time of page requests and of comparisons of two boxes to the clock."""
        self.clock.advance(requests * (self.seek + self.transfer) + tests * self.test)


class Buffer:
    """Simulates an LRU buffer of pages. A page is a number; the buffer holds no data, and counts reads and writes.

    Example
    -------
    >>> buffer = Buffer(frames=2)
    >>> for page in (0, 1, 0, 2, 1):  # 2 takes the place of 1, and 1 that of 0
    ...     buffer.touch(page)
    >>> buffer.counts()
    (4, 0)
    """

    def __init__(self, frames: int) -> None:
        self.frames = frames
        self.lru: Int64s = empty_lru(frames)
        self.where: Int64s = np.full(64, -1, np.int64)

    def ensure(self, pages: int) -> None:
        """Prepare for pages with numbers below `pages`."""
        if pages > self.where.size:
            more = np.full(max(pages, 2 * self.where.size), -1, np.int64)
            more[: self.where.size] = self.where
            self.where = more

    def touch(self, page: int, *, dirty: bool = False, fresh: bool = False) -> None:
        """Use a page. `dirty` says that it is changed, `fresh` that it is new and need not be read."""
        self.ensure(page + 1)
        touch_page(self.lru, self.where, page, dirty, fresh)

    def counts(self) -> tuple[int, int]:
        """The numbers of pages read and written since the last call."""
        reads, writes = int(self.lru[READS]), int(self.lru[WRITES])
        self.lru[READS] = self.lru[WRITES] = 0
        return reads, writes

    def visits(self) -> int:
        """The number of uses of a page since the last call, cached or not."""
        visits = int(self.lru[VISITS])
        self.lru[VISITS] = 0
        return visits
