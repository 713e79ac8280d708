"""`hr.verify`: all damage of a relation, found at a pace that leaves the disk to others.

Every shard is verified as `Relation.verify` does. Of a shard that is not sound, each sidecar and each page is then checked by
itself, so that all that is damaged is named, and not the first part alone.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from headrace.arrays import Bools, Int32s, Int64s, UInt8s
from headrace.clock import Clock, SystemClock
from headrace.errors import BadInput, DamagedRelation, RelationError, shown
from headrace.files import close
from headrace.kernels.pages import verify as verify_pages
from headrace.paths import local_path
from headrace.relation.columns import NO_BYTES, address
from headrace.relation.disk import Disk, DiskKind, disk_of
from headrace.relation.index_pool import IndexFiles
from headrace.relation.manifest import Manifest, pin
from headrace.relation.reader import FILE_SHIFT, PAGE_DAMAGE, PAGE_MASK, SHARD_SHIFT, PageFiles, PageReader, Version
from headrace.relation.relation import Relation
from headrace.relation.verify import BUFFER, ColumnCounts, check_counts, verify_shard
from headrace.units import parse_size

_STEP = 128  # pages of a damaged shard that are checked at a time
_SHARE = 0.25  # seconds of its pace that a scrub reads at a time, so that it is even
_Part = Literal["index", "filter", "stats"]

Progress = Callable[[int, int | None], None]


def verify(
    relation: Relation | str | Path,
    *,
    pace: str | float | None = None,
    disk: DiskKind | Disk = "buffered",
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> list[DamagedRelation]:
    """Read every page and every other file of a version; returns all damage that is found, and none of a sound relation.

    It holds a read buffer, and the index and the filter of one shard. The version is not removed meanwhile, and writers go on.

    Parameters
    ----------
    relation
        The path of a relation, whose latest version is read, or an open relation, whose own version is.
    pace
        The most that is read a second, in bytes ("64MiB/s") or in pages (1000). As fast as it goes, by default.
    disk
        "buffered", or "direct" to read what is on the disk and not what the system's cache still holds of it.
    progress
        Called with the pages done and the total.
    clock
        The clock that the pace is kept by.

    Example
    -------
    >>> import tempfile, pyarrow as pa, headrace as hr
    >>> rel = hr.Relation.create(tempfile.mkdtemp() + "/r", pa.table({"k": [1, 2, 3]}), key="k")
    >>> hr.verify(rel, pace="64MiB/s")
    []
    """
    reading = disk_of(disk)
    if isinstance(relation, Relation):
        relation.opened.check_open()
        manifest = relation.opened.manifest
        return _verify(relation.path, manifest, reading, Pace(pace, manifest.page_size, clock), progress)
    root = local_path(relation)
    try:
        manifest, lock = pin(root, None)
    except DamagedRelation as error:
        return [error]
    try:
        return _verify(root, manifest, reading, Pace(pace, manifest.page_size, clock), progress)
    finally:
        close(lock)


def _verify(root: Path, manifest: Manifest, disk: Disk, pace: Pace, progress: Progress | None) -> list[DamagedRelation]:
    unopened: list[DamagedRelation] = []
    with closing(Version(root, manifest, disk, unopened)) as version:
        return scrub(version, unopened, pace, progress).damage


class Pace:
    """Keeps reads to so many bytes a second.

    Example
    -------
    >>> from headrace.clock import ManualClock
    >>> clock = ManualClock()
    >>> pace = Pace("1MiB/s", 8192, clock)
    >>> for _ in range(4):
    ...     pace.spend(1 << 19)
    >>> clock.now()
    2.0
    """

    def __init__(self, pace: str | float | None, page_size: int, clock: Clock | None = None) -> None:
        self.rate = _bytes_a_second(pace, page_size)
        self._clock = clock or SystemClock()
        self._due = self._clock.now()

    @property
    def buffer(self) -> int:
        """Bytes of a read buffer, half of which is read at a time."""
        return BUFFER if self.rate is None else min(BUFFER, int(2 * _SHARE * self.rate))

    def spend(self, nbytes: int) -> None:
        """Wait as long as these bytes take at the pace; time that a slow disk took is not made up for."""
        if self.rate is None or nbytes == 0:
            return
        now = self._clock.now()
        self._due = max(self._due, now - _SHARE) + nbytes / self.rate
        if self._due > now:
            self._clock.sleep(self._due - now)


def _bytes_a_second(pace: str | float | None, page_size: int) -> float | None:
    wanted = "give bytes, as in '64MiB/s', or a number of pages a second"
    if pace is None:
        return None
    rate: float
    if isinstance(pace, str) and (match := re.fullmatch(r"(.*?)\s*/\s*s", pace.strip())):
        rate = parse_size(match[1], name="pace")
    else:
        try:
            rate = float(pace) * page_size
        except (TypeError, ValueError) as error:
            raise BadInput(f"pace={shown(pace)} is not a pace; {wanted}") from error
    if isinstance(pace, bool) or not 0 < rate < float("inf"):
        raise BadInput(f"pace={shown(pace)} is not a pace; {wanted}")
    return rate


@dataclass
class Scrubbed:
    """What a scrub found: all damage, the shards that have some, and what the columns of each of the others hold."""

    damage: list[DamagedRelation] = field(default_factory=list)
    shards: list[int] = field(default_factory=list)
    counts: dict[int, ColumnCounts] = field(default_factory=dict)


def scrub(version: Version, unopened: list[DamagedRelation], pace: Pace, progress: Progress | None) -> Scrubbed:
    """Verify every shard of a version, some of whose files could perhaps not be opened."""
    found, done = Scrubbed(), 0
    pages = sum(shard.pages for shard in version.manifest.shards)
    reader = PageReader(version, max(2 * version.page_size, min(pace.buffer, 2 * pages * version.page_size)))

    def read(some: int, nbytes: int) -> None:
        nonlocal done
        done += some
        pace.spend(nbytes)
        if progress and some:
            progress(min(done, pages), pages)

    for number, facts in enumerate(version.manifest.shards):
        before, first = done, None
        if not any(damage.shard == number for damage in unopened):
            try:
                found.counts[number] = verify_shard(version, number, reader, read)
                continue
            except DamagedRelation as error:
                first = error
            except OSError as error:  # a disk that does not give a sidecar back
                first = DamagedRelation(error.filename, f"it cannot be read: {error.strerror}", shard=number)
        damage = [*_damage_of(version, number, unopened, lambda nbytes: read(0, nbytes))]
        if first is not None and not any((d.file, d.page) == (first.file, first.page) for d in damage):
            damage.insert(0, first)  # parts that are sound by themselves, and contradict each other
        found.shards.append(number)
        found.damage += damage
        done = before + facts.pages
    if not found.shards:
        total = ColumnCounts.none(version)
        for counts in found.counts.values():
            total.add(counts)
        try:
            check_counts(version, total)
        except DamagedRelation as error:
            found.damage.append(error)
    return found


def _damage_of(
    version: Version, number: int, unopened: list[DamagedRelation], read: Callable[[int], None]
) -> Iterator[DamagedRelation]:
    """Yield the damage of each file, sidecar and page of a shard."""
    facts = version.manifest.shards[number]
    lost = {damage.file for damage in unopened}
    yield from (damage for damage in unopened if damage.shard == number)
    for part in get_args(_Part):
        path = version.root / getattr(facts, part).name
        if str(path) in lost:
            continue
        read(getattr(facts, part).bytes)
        try:
            version.arrays(number, part)
        except DamagedRelation as error:
            yield error
        except OSError as error:
            yield DamagedRelation(path, f"it cannot be read: {error.strerror}", shard=number)
    places = np.sort(pages_of(version, number))
    opened = places[version.fd_of(version.files_of(places)) >= 0]
    for place, reason in damaged_pages(version, opened, read):
        yield version.damaged(place, reason)
    if facts.fences is not None and str(version.root / facts.fences.name) not in lost:
        files = IndexFiles(version)
        for place, reason in damaged_pages(files, (number << SHARD_SHIFT) + np.arange(facts.fences.pages), read):
            yield files.damaged(place, reason)


def pages_of(version: Version, shard: int) -> Int64s:
    """Return the places of the pages of a shard in the order of its index, or all that its files have if there is no index."""
    try:
        index = version.read_index(shard)
        return index.place(np.arange(index.pages))
    except (RelationError, OSError):
        files = version.manifest.shards[shard].files
        places = [(number << FILE_SHIFT) + np.arange(file.pages) for number, file in enumerate(files)]
        return (shard << SHARD_SHIFT) + np.concatenate([np.empty(0, np.int64), *places])


def damaged_pages(
    files: PageFiles, places: Int64s, read: Callable[[int], None] = lambda nbytes: None
) -> Iterator[tuple[int, str]]:
    """Yield the place of each damaged page of some sorted ones, and what is wrong with it."""
    size = files.page_size
    buffer: UInt8s = np.frombuffer(mmap.mmap(-1, _STEP * size), np.uint8)  # files: memory without a file
    for a in range(0, places.size, _STEP):
        some = places[a : a + _STEP]
        numbers = files.files_of(some)
        fds, offsets = files.fd_of(numbers), (some & PAGE_MASK) * size
        targets = address(buffer) + size * np.arange(some.size)
        there = _read_each(files.disk, fds, offsets, targets, size)
        read(some.size * size)
        known = np.flatnonzero(there)
        verdict, found = np.zeros(some.size, np.int32), np.empty(known.size, np.int32)
        headers = some[known] >> SHARD_SHIFT, files.numbers(some, numbers)[known]
        verify_pages(targets[known], size, *headers, files.layout.widths, some[known], NO_BYTES, found)
        verdict[known] = found
        for i in np.flatnonzero(~there | (verdict != 0)).tolist():
            yield int(some[i]), PAGE_DAMAGE[int(verdict[i])] if there[i] else "it could not be read in full"


def _read_each(disk: Disk, fds: Int32s, offsets: Int64s, targets: Int64s, size: int) -> Bools:
    """Read a page to each target; returns which could be read."""
    sizes = np.full(fds.size, size, np.int64)
    there = np.ones(fds.size, np.bool_)
    if disk.start(fds, offsets, sizes, targets, size, most=1).wait() >= 0:
        for i in range(fds.size):
            one = slice(i, i + 1)
            there[i] = disk.start(fds[one], offsets[one], sizes[one], targets[one], size, most=1).wait() < 0
    return there
