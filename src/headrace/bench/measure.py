"""The measurements of a calibration: reads of several lengths, and each step of a join on the real data structures."""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.bench.overheads import measure_overheads
from headrace.clock import Clock, SystemClock
from headrace.cost.calibrate import Calibration, machine_facts, right_now
from headrace.cost.models import MODELS
from headrace.errors import BadInput, OutsideFailure
from headrace.files import close, is_directory, open_new, scratch_directory
from headrace.metrics import Factors, JoinStats
from headrace.relation import Disk, Relation
from headrace.relation.columns import address
from headrace.relation.disk import DiskKind
from headrace.relation.reader import PageReader, key_column, stored_keys
from headrace.relation.store import TupleSources, TupleStore
from headrace.semistream.hash_queue import HashQueue
from headrace.semistream.slot_window import SlotWindow
from headrace.units import format_duration

PAGE = 8192  # bytes; costs are given for pages of this size
_LENGTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # pages of the requests that are measured
_FILE = 128 << 20  # bytes of the file that is read: larger than the caches of disks
_QUICK = 3.0  # seconds of measuring below which a smaller file and fewer runs are used
_IN_FLIGHT = 32  # requests in flight, as a relation's disk has
_REPEATS = 5  # fewest measurements of a median
_W = 4096  # tuples that a step is measured with: a packet of [MESH]
_WAITING = 1 << 16  # tuples in H while steps are measured
_ROWS = 40_000  # tuples of the relation that is probed

Report = Callable[[int, int | None], None]


def calibrate(
    directory: str | Path, *, seconds: float = 10.0, clock: Clock | None = None, progress: Report | None = None
) -> Calibration:
    """Measure this machine and the device of a directory, in about `seconds` and some thirty more.

    A file of 128 MiB and a small relation are written to the directory and removed again. Each figure is a median.
    """
    directory = Path(directory)
    if not is_directory(directory):
        raise BadInput(f"directory={str(directory)!r} is not a directory; give one on the device that relations are on")
    if not 0 < seconds <= 3600:
        raise BadInput(f"seconds={seconds!r} is not a time to measure for; give more than 0, and an hour at most")
    clock, steps = clock or SystemClock(), iter(range(1, 100))
    told = progress or (lambda done, total: None)

    def report() -> None:
        told(next(steps), 3 * len(_LENGTHS) + 6 + len(MODELS))

    with scratch_directory(".headrace-calibrate-", directory) as where, _plausible(seconds):
        kind, disk = _disk(where)
        # Half of the time is for reads, the rest for steps of a join; writing files and running joins come on top.
        size = _FILE if seconds >= _QUICK else _FILE // 8
        with _readable(where, disk, size) as fd:
            each = seconds / 2 / (3 * len(_LENGTHS))
            alone = {b: _read_seconds(disk, fd, size, b, 1, each, clock, report) for b in _LENGTHS}
            scan = {b: _read_seconds(disk, fd, size, b, 1, each, clock, report, scan=True) for b in _LENGTHS}
            many = {b: _read_seconds(disk, fd, size, b, _IN_FLIGHT, each, clock, report) for b in _LENGTHS}
        factors = _steps(where, seconds / 2, clock, report)
        seek, transfer = fitted(alone)
        seek_many, transfer_many = fitted(many)
        follow = min(seek, max(0.0, float(np.median([t - b * transfer for b, t in scan.items()]))))
        found = Calibration(
            seek=seek,
            transfer=transfer,
            follow=follow,
            seek_in_flight=seek_many,
            transfer_in_flight=transfer_many,
            reads=alone,
            disk=kind,
            factors=factors,
            overheads={},
            machine=machine_facts(directory),
            date=right_now().isoformat(timespec="seconds"),
        )
        overheads = measure_overheads(
            where, found.as_disk(kind), found.as_machine(), quick=seconds < _QUICK, report=report
        )
        return replace(found, overheads=overheads)


@contextmanager
def _plausible(seconds: float) -> Iterator[None]:
    """Say what to do about figures that cannot be: other work has disturbed a measurement that was short."""
    try:
        yield
    except BadInput as error:
        longer = max(10, math.ceil(4 * seconds))
        raise OutsideFailure(
            f"the measurement of {format_duration(seconds)} gave what cannot be, as on a busy machine ({error}); measure"
            f" again when less runs here, or for {longer} seconds"
        ) from error


def fitted(reads: dict[int, float]) -> tuple[float, float]:
    """Fit S and T of c_I/O(b) = S + b * T by least squares of the relative error; neither is below 0.

    Example
    -------
    >>> S, T = fitted({1: 11.0, 10: 20.0, 100: 110.0})
    >>> round(S, 6), round(T, 6)
    (10.0, 1.0)
    """
    b, t = np.array(list(reads), float), np.array(list(reads.values()))
    weighted = np.column_stack([1 / t, b / t])
    seek, transfer = np.linalg.lstsq(weighted, np.ones(b.size), rcond=None)[0]
    if seek < 0:
        seek, transfer = 0.0, float(np.median(t / b))
    if transfer < 0:
        seek, transfer = float(np.median(t)), 0.0
    return float(seek), float(transfer)


# -- reads ---------------------------------------------------------------------------------------------------------------


def _disk(where: Path) -> tuple[DiskKind, Disk]:
    """Return a disk with direct reads, or with buffered ones if the file system has no direct reads."""
    path = where / "try"
    with open_new(path) as file:
        file.write(bytes(PAGE))
    disk = Disk("direct", workers=_IN_FLIGHT)
    with suppress(BadInput):
        close(disk.open(path))
        return "direct", disk
    return "buffered", Disk("buffered", workers=_IN_FLIGHT)


@contextmanager
def _readable(where: Path, disk: Disk, size: int) -> Iterator[int]:
    """Open a file of random bytes, since a device may not store zeros."""
    path = where / "file"
    block = np.random.default_rng(1).integers(0, 256, 1 << 22, np.uint8).tobytes()
    with open_new(path) as file:
        for _ in range(size // len(block)):
            file.write(block)
        file.sync()
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    fd = disk.open(path)
    try:
        yield fd
    finally:
        close(fd)


def _read_seconds(
    disk: Disk,
    fd: int,
    size: int,
    pages: int,
    in_flight: int,
    seconds: float,
    clock: Clock,
    report: Callable[[], None],
    *,
    scan: bool = False,
) -> float:
    """Return the median time of a request of so many pages, at random places or (scan) after the last one."""
    rng = np.random.default_rng(pages)
    buffer = np.frombuffer(mmap.mmap(-1, in_flight * pages * PAGE), np.uint8)  # files: memory without a name
    targets = address(buffer) + np.arange(in_flight, dtype=np.int64) * pages * PAGE
    sizes, fds = np.full(in_flight, pages * PAGE, np.int64), np.full(in_flight, fd, np.int32)
    times: list[float] = []
    begun = clock.now()
    while len(times) < _REPEATS or (clock.now() - begun < seconds and len(times) < 400):
        last = size // PAGE - pages
        offsets = (np.array([len(times) * pages % last]) if scan else rng.integers(0, last, in_flight)) * PAGE
        start = clock.now()
        # A single request is made by this thread, as handing it to another thread is not the device's time.
        disk.start(fds, offsets, sizes, targets, PAGE, most=in_flight).wait()
        times.append((clock.now() - start) / in_flight)
    report()
    return float(np.median(times))


# -- steps of a join -----------------------------------------------------------------------------------------------------


def _steps(where: Path, seconds: float, clock: Clock, report: Callable[[], None]) -> Factors:
    """Measure each step of [MESH] Table 1 with tuples of the paper's sizes: 120 bytes in R, 20 in the stream."""
    rng = np.random.default_rng(2)
    ids = np.arange(_ROWS)
    columns = {f"c{i}": rng.integers(0, 1 << 60, _ROWS) for i in range(14)}
    relation = Relation.create(where / "r", pa.table({"id": ids, **columns}), key="id", shards=1)
    bench = _Bench(relation, rng)
    medians: dict[str, float] = {}
    names = ("c_S", "c_A", "c_E", "c_H", "c_O", "c_X")
    times: dict[str, list[float]] = {name: [] for name in names}
    begun = clock.now()
    # Steps take turns, so that a slow period of the machine affects all of them.
    while len(times["c_S"]) < _REPEATS or (clock.now() - begun < seconds and len(times["c_S"]) < 200):
        for name, spent in bench.round(clock).items():
            times[name].append(spent)
    for name in names:
        medians[name] = float(np.median(times[name]))
        report()
    relation.close()
    return Factors(**medians)


class _Bench:
    """The data structures of a join, filled as they are while it runs."""

    def __init__(self, relation: Relation, rng: np.random.Generator) -> None:
        self.relation, self.version = relation, relation.opened
        keys = rng.integers(0, _ROWS, _WAITING + 64 * _W)
        self.batches = [
            pa.record_batch({"id": k, "n": k.astype(np.int32), "x": k.astype(np.float64)})
            for k in np.array_split(keys, keys.size // _W)
        ]
        self.next = 0
        self.H, self.numbered = HashQueue(_WAITING + _W), 0
        self.window = SlotWindow(self.batches[0].schema, self.H.capacity)
        self.reader = PageReader(self.version, 64 * relation.page_size, whole=True)
        self.places = self.version.places(0)[: self.reader.pages]
        ((_, _, self.addresses),) = self.reader.read(self.places, JoinStats(), bridge=False)
        self.results = TupleStore(self.version.payload, _W, {c.name: 0 for c in self.version.payload})
        for _ in range(_WAITING // _W):
            self._enter(self._batch())

    def round(self, clock: Clock) -> dict[str, float]:
        """Return the seconds of each step per tuple, measured over a packet of tuples."""
        spent: dict[str, float] = {}
        now = clock.now
        start = now()
        batch = pa.concat_batches([part := self._batch(), part])  # two arrivals put together, as the stream buffer does
        part = batch.slice(0, part.num_rows)
        spent["c_S"] = (now() - start) / part.num_rows
        start = now()
        keys, _ = self.version.codec.encode([part.column("id")])
        hashes = keys.hashes()
        self._insert(part, hashes)
        spent["c_A"] = (now() - start) / part.num_rows
        start = now()
        self.version.pairs(keys, hashes, np.arange(hashes.size))
        spent["c_X"] = (now() - start) / part.num_rows
        spent["c_H"], found, at, row = self._probe(clock)
        start = now()
        self._result(found, at, row)
        spent["c_O"] = (now() - start) / found.size
        start = now()
        slots = self.H.oldest(part.num_rows)
        gone = self.H.number[slots]
        self.H.remove(slots)
        self.window.leave(gone)
        spent["c_E"] = (now() - start) / part.num_rows
        return spent

    def _batch(self) -> pa.RecordBatch:
        self.next = (self.next + 1) % len(self.batches)
        return self.batches[self.next]

    def _enter(self, batch: pa.RecordBatch) -> None:
        keys, _ = self.version.codec.encode([batch.column("id")])
        self._insert(batch, keys.hashes())

    def _insert(self, batch: pa.RecordBatch, hashes: np.ndarray) -> None:
        numbers = np.arange(self.numbered, self.numbered + batch.num_rows)
        self.numbered += batch.num_rows
        self.window.enter(batch, numbers, self.H.insert(hashes, numbers, np.zeros(numbers.size)))

    def _probe(self, clock: Clock) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
        """Probe H with every tuple of the pages in the disk buffer; returns the time per tuple and some of the matches."""
        start = clock.now()
        store, at, row = self.reader.tuples(self.addresses, (key_column(self.version.codec),))
        hashes = stored_keys(store, self.version.codec.integer).hashes()
        stop = np.array([0, -1])
        r, slots = np.empty(_W, np.int32), np.empty(_W, np.int32)
        n = 0
        while stop[0] < hashes.size:
            n = self.H.probe(hashes, stop, r, slots) or n
        spent = (clock.now() - start) / hashes.size
        some = max(1, n)
        return spent, slots[:some], at[r[:some]], row[r[:some]]

    def _result(self, slots: np.ndarray, at: np.ndarray, row: np.ndarray) -> pa.RecordBatch:
        self.results.clear()
        self.results.append_from_pages(at, row)
        sources, src = TupleSources([self.results]), np.zeros(slots.size, np.int32)
        pos = np.arange(slots.size, dtype=np.int32)
        payload = [sources.gather(i, src, pos, outer=False) for i in range(len(self.version.payload))]
        stream = self.window.take(self.H.number[slots], slots)
        return pa.RecordBatch.from_arrays([*stream.columns, *payload], names=[str(i) for i in range(len(payload) + 3)])
