"""Disk: planned reads, several in flight, in three forms. (DESIGN D3)

`buffered` reads through the page cache; `direct` bypasses it (O_DIRECT), for honest measurements and for machines whose memory
is needed elsewhere; `simulated` reads the same bytes but charges seek + n * transfer per run to a virtual clock, one run
after the other, and so is deterministic.
"""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from headrace.arrays import Int32s, Int64s
from headrace.clock import ManualClock
from headrace.errors import BadInput, choice
from headrace.files import LocalFiles, files, open_regular
from headrace.kernels.plan import plan_greedy, plan_optimal
from headrace.metrics import Factors, Overhead
from headrace.relation.read_pool import PendingReads, read_pool, read_runs, read_runs_one_by_one
from headrace.relation.request_costs import RequestCosts

DiskKind = Literal["buffered", "direct", "simulated"]
PlanKind = Literal["optimal", "greedy", "none"]

# seconds of a request and of an 8 KiB page that come from the page cache, as measured
_CACHED_SEEK, _CACHED_TRANSFER = 1.2e-6, 0.9e-6
_CACHED_DELAY = 10e-6  # seconds beyond copying; requests with a smaller mean delay came from the page cache
_MOST_DELAY = 100e-6  # seconds that one call may add to the mean: longer delays are waits for a core, not for the disk
_OVERHEAD = Overhead(iteration=5e-4)  # a rough guess for machines without a calibration
_BUSY = 8  # threads that keep a disk busy: with fewer in flight requests tell nothing of the costs of one more
_WEIGHT = 0.05  # of one call in the running mean of delays


@dataclass
class Disk:
    """The way pages are read, and the cost of a read.

    Parameters
    ----------
    kind
        buffered, direct or simulated.
    seek, transfer
        Seconds for one request and for one 8 KiB page of it, with many requests in flight; the read plan weighs one
        against the other. The defaults were measured on an SSD at a queue depth of 16 to 32; alone, a request takes 53 µs.
        What requests are seen to cost takes their place.
    workers
        Requests in flight. A simulated disk serves one at a time.
    plan
        optimal ([SSIJ] §IV.D), greedy (Seeger et al.) or none (one request per page).
    longest
        The most pages of a planned request: maxScan of [SSIJ].
    factors
        Seconds of each step of a join on a simulated machine, charged to its clock by `spend`.
    clock
        The virtual clock of a simulated disk.
    follow
        Seconds for a request of a simulated disk that starts where the last one ended, as the arm is there already; `seek`
        by default.
    alone
        Seek and transfer of a request with no other in flight; `seek` and `transfer` by default.
    overheads
        What algorithms take on this machine besides reads and steps, by name. See `Calibration.as_disk`.
    """

    kind: DiskKind = "buffered"
    _: KW_ONLY
    seek: float = 9e-6
    transfer: float = 2.4e-6
    workers: int = 64
    plan: PlanKind = "optimal"
    longest: int = 200
    factors: Factors = field(default_factory=Factors)
    clock: ManualClock = field(default_factory=ManualClock)
    follow: float | None = None
    alone: tuple[float, float] | None = None
    overheads: Mapping[str, Overhead] = field(default_factory=dict)
    # running mean of the seconds that a buffered request takes beyond copying
    _delay: float = field(default=math.inf, repr=False, compare=False)
    # what requests were seen to cost; None before any were seen
    _learned: RequestCosts | None = field(default=None, repr=False, compare=False)
    # file descriptor and offset of the arm of a simulated disk
    _end: tuple[int, int] = field(default=(-1, -1), repr=False, compare=False)

    def __post_init__(self) -> None:
        choice("disk", self.kind, ("buffered", "direct", "simulated"))
        choice("plan", self.plan, ("optimal", "greedy", "none"))
        if self.kind == "simulated":
            self.workers = 1

    def open(self, path: Path) -> int:
        """Open a file for reading; returns a descriptor, which the caller closes."""
        if self.kind == "direct":
            try:
                return open_regular(path, os.O_DIRECT)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                raise BadInput(
                    f"disk='direct' is not possible for {path}: the file system refuses O_DIRECT ({error.strerror}); use"
                    " disk='buffered', or put the relation on another file system"
                ) from error
        fd = open_regular(path)
        # Requests are planned. What the system would read ahead of them is not wanted, and takes the disk's time.
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        return fd

    def spend(self, steps: Mapping[str, int]) -> None:
        """Charge steps of a join, counted by the names of `Factors`, to the clock of a simulated machine; others ignore it."""
        if self.kind == "simulated":
            self.clock.advance(sum(count * getattr(self.factors, name) for name, count in steps.items()))

    def costs(self, page_size: int, *, alone: bool = False, known: bool = False) -> tuple[float, float]:
        """Return the seconds of a request and of a page of it. A buffered disk whose reads come from the page cache costs less.

        With `known`, what this process has seen of the cache does not count, so that all processes get the same answer.
        """
        seek, transfer = (self.alone if alone else None) or (self.seek, self.transfer)
        if self.cached and not known:
            seek, transfer = _CACHED_SEEK, _CACHED_TRANSFER
        elif self._learned is not None and not known and not alone:
            seek, transfer = self._learned.now
        return seek, transfer * page_size / 8192

    def scan_costs(self, page_size: int, *, known: bool = False) -> tuple[float, float]:
        """Return the seconds of a request and of a page for a scan, where each request starts where the last one ended."""
        seek, transfer = self.costs(page_size, alone=True, known=known)
        return (seek if self.follow is None or (self.cached and not known) else self.follow), transfer

    def overhead(self, algorithm: str) -> Overhead:
        """Return the overhead of an algorithm on this machine."""
        return self.overheads.get(algorithm, Overhead() if self.kind == "simulated" else _OVERHEAD)

    @property
    def sequential_is_cheaper(self) -> bool:
        """Whether a request that starts where the last one ended costs less than a seek, as on a disk with an arm."""
        return self.kind == "simulated" and self.follow is not None and self.follow < self.seek

    @property
    def cached(self) -> bool:
        """Whether recent reads came from the system's page cache."""
        return self.kind == "buffered" and self._delay < _CACHED_DELAY

    def _took(self, requests: int, nbytes: int, nanoseconds: int, threads: int) -> None:
        """Take note of the time that so many requests took together, made by so many threads."""
        if threads >= _BUSY and requests >= threads and not self.cached:
            if self._learned is None:
                self._learned = RequestCosts(self.seek, self.transfer)
            self._learned.observe(nbytes / 8192 / requests, 1e-9 * nanoseconds / requests / threads)
        delay = max(0.0, 1e-9 * nanoseconds - nbytes / 8192 * _CACHED_TRANSFER) / requests
        delay = min(_MOST_DELAY, delay)
        self._delay = delay if math.isinf(self._delay) else self._delay + _WEIGHT * (delay - self._delay)

    def runs(
        self,
        places: Int64s,
        page_size: int,
        longest: int,
        *,
        bridge: bool = True,
        plan: PlanKind | None = None,
        chunk: int | None = None,
    ) -> tuple[Int64s, Int64s]:
        """Plan the reads of sorted distinct places; returns the first place and the length of every run.

        Without `bridge` only neighbouring pages share a run, and no unwanted page is read. With a `plan` of the caller's,
        `longest` alone limits a run. With `chunk`, a run is read in requests of so many pages, one after the other.
        """
        longest = max(1, min(self.longest, longest) if bridge and plan is None else longest)
        plan = plan or self.plan
        seek, transfer = self.costs(page_size)
        if chunk is not None:
            transfer += self.scan_costs(page_size)[0] / chunk
        if plan == "none":
            return _greedy(places, 0, 1)
        if not bridge:
            return _greedy(places, 0, longest)
        if plan == "greedy":
            return _greedy(places, int(seek / transfer), longest)
        if self._learned is None or self.cached:
            return _optimal(places, seek, transfer, longest)
        trial, gap = self._learned.trial(places.size)
        others = _greedy(places[:trial], gap, longest)
        rest = _optimal(places[trial:], seek, transfer, longest)
        return np.append(others[0], rest[0]), np.append(others[1], rest[1])

    def start(
        self,
        fds: Int32s,
        offsets: Int64s,
        sizes: Int64s,
        targets: Int64s,
        page_size: int,
        most: int,
    ) -> DiskReads:
        """Start to read runs into memory with at most `most` threads; the caller waits on what is returned."""
        if self.kind == "simulated":
            transfer = self.transfer * page_size / 8192
            self.clock.advance(self._arm(fds, offsets, sizes) + float(sizes.sum()) / page_size * transfer)
        n, total = fds.size, int(sizes.sum())
        if type(files()) is not LocalFiles:  # what they cost is no cost of a disk: 0 bytes tell it nothing
            bad = read_runs_one_by_one(fds, offsets, sizes, targets)
            return DiskReads(self, n, 0, 1, PendingReads(bad=bad))
        # Long runs keep the disk busy with few requests in flight.
        threads = min(self.workers, most, n, max(4, 8 * self.workers * n * page_size // total))
        alone = self.cached or self.workers == 1 or most == 1 or (n == 1 and total <= 4 * page_size)
        reading = None if alone else read_pool().start(fds, offsets, sizes, targets, threads)
        if reading is None:
            took = np.zeros(1, np.int64)
            reading = PendingReads(bad=int(read_runs(fds, offsets, sizes, targets, took)), nanoseconds=int(took[0]))
        return DiskReads(self, n, total, 1 if reading.pool is None else threads, reading)

    def _arm(self, fds: Int32s, offsets: Int64s, sizes: Int64s) -> float:
        """Return the seconds that the arm of a simulated disk takes to move to all runs, one after the other."""
        if self.follow is None or not fds.size:
            return fds.size * self.seek
        ends = offsets + sizes
        there = int(((fds[1:] == fds[:-1]) & (offsets[1:] == ends[:-1])).sum())
        there += self._end == (int(fds[0]), int(offsets[0]))
        self._end = int(fds[-1]), int(ends[-1])
        return there * self.follow + (fds.size - there) * self.seek


def _greedy(places: Int64s, gap: int, longest: int) -> tuple[Int64s, Int64s]:
    n = places.size
    first, length = np.empty(n, np.int64), np.empty(n, np.int64)
    count = plan_greedy(places, gap, longest, np.empty(n, np.int32), first, length)
    return first[:count], length[:count]


def _optimal(places: Int64s, seek: float, transfer: float, longest: int) -> tuple[Int64s, Int64s]:
    n = places.size
    first, length = np.empty(n, np.int64), np.empty(n, np.int64)
    scratch = np.empty(n + 1), np.empty(n, np.int32), np.empty(n, np.int32)
    count = plan_optimal(places, seek, transfer, longest, *scratch, first, length)
    return first[:count], length[:count]


@dataclass
class DiskReads:
    """Reads that a disk has started, which tell it how long they took."""

    disk: Disk
    requests: int
    nbytes: int
    threads: int
    reading: PendingReads

    def wait(self) -> int:
        """Wait for all reads; returns -1, or the number of a run that could not be read in full."""
        bad = self.reading.wait()
        if self.nbytes:
            self.disk._took(self.requests, self.nbytes, self.reading.nanoseconds, self.threads)
            self.nbytes = 0
        return bad


def disk_of(disk: DiskKind | Disk) -> Disk:
    """Return a disk as it is, or make one of a kind."""
    return disk if isinstance(disk, Disk) else Disk(kind=disk)
