"""Read a version: keys to pages by the index, pages from disk by a plan, every page checked before it is used."""

from __future__ import annotations

import copy
import errno
import mmap
import os
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from headrace.errors import DamagedRelation, MemoryRefused, RelationError
from headrace.files import open_regular
from headrace.kernels.hashing import shards_of
from headrace.kernels.pages import BAD_CHECKSUM, BAD_LAYOUT, BAD_MAGIC, BAD_PLACE, expand_rows, page_facts, verify
from headrace.metrics import JoinStats
from headrace.relation.columns import Bytes, Column, Longs, address
from headrace.relation.disk import Disk, PlanKind, Reading
from headrace.relation.keys import ByteKeys, Hashes, IntKeys, Ints, KeyCodec, Keys, positions
from headrace.relation.manifest import FileFacts, Manifest
from headrace.relation.sidecar import arrays_in, read_arrays, read_arrays_into
from headrace.relation.store import TupleStore
from headrace.relation.writer import Layout
from headrace.units import format_size

# A place is where a page lies: shard, number of the file in its shard, page in the file. Neighbouring pages have
# neighbouring places, and no read plan bridges from one file to the next.
_SHARD, _FILE = 48, 32
_PAGE = (1 << _FILE) - 1

_WHAT = {
    BAD_CHECKSUM: "its checksum does not match its bytes",
    BAD_MAGIC: "it is not a page of a Headrace relation",
    BAD_PLACE: "it belongs to another place",
    BAD_LAYOUT: "its rows or offsets lie outside of it",
}


@dataclass(frozen=True)
class Index:
    """One fence key a page, in key order. [SSIJ] §III"""

    fence: Keys
    continues: Bytes
    places: Longs  # empty where page i of the index is page i of the first file
    base: int

    @classmethod
    def of(cls, arrays: dict[str, np.ndarray[Any, Any]], shard: int, codec: KeyCodec) -> Index:
        fence: Keys = (
            IntKeys(arrays["values"].view(np.int64)) if codec.integer else ByteKeys(arrays["values"], arrays["offsets"])
        )
        return cls(fence, arrays["continues"], arrays["places"], shard << _SHARD)

    @property
    def nbytes(self) -> int:
        return self.fence.nbytes + self.continues.nbytes + self.places.nbytes

    def locate(self, keys: Keys) -> tuple[Ints, Ints]:
        """First and last page of sorted keys, in key order; -1 where no page can hold one."""
        low, high = np.empty(len(keys), np.int32), np.empty(len(keys), np.int32)
        keys.locate(self.fence, self.continues, low, high)  # type: ignore[arg-type]
        return low, high

    def place(self, pages: Ints | Longs) -> Longs:
        return (self.places[pages] if self.places.size else pages) + np.int64(self.base)

    @property
    def pages(self) -> int:
        return len(self.fence)


@dataclass(frozen=True)
class SecondaryIndex:
    """Every key with the pages of its rows, for pages that are stored by popularity. It knows which keys there are not."""

    keys: Keys
    first: Ints
    last: Ints  # empty where no key has rows in several pages
    pages: int
    base: int

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.first.nbytes + self.last.nbytes

    def locate(self, keys: Keys) -> tuple[Ints, Ints]:
        """First and last page of sorted keys; -1 where a key is not in the relation."""
        at, known = positions(keys, self.keys)
        low, high = np.full(len(keys), -1, np.int32), np.full(len(keys), -1, np.int32)
        low[known] = self.first[at[known]]
        high[known] = (self.last if self.last.size else self.first)[at[known]]
        return low, high

    def place(self, pages: Ints | Longs) -> Longs:
        return pages + np.int64(self.base)


def index_of(
    arrays: dict[str, np.ndarray[Any, Any]], shard: int, codec: KeyCodec, pages: int
) -> Index | SecondaryIndex:
    """The index that a sidecar holds."""
    if "first" not in arrays:
        return Index.of(arrays, shard, codec)
    keys: Keys = (
        IntKeys(arrays["values"].view(np.int64)) if codec.integer else ByteKeys(arrays["values"], arrays["offsets"])
    )
    return SecondaryIndex(keys, arrays["first"], arrays["last"], pages, shard << _SHARD)


@dataclass(frozen=True)
class Pairs:
    """Which page each key needs: key number and place, in key order; a key has as many as its rows span."""

    key: Ints
    place: Longs

    @property
    def size(self) -> int:
        return self.key.size


@dataclass(frozen=True)
class PageFacts:
    """Of some pages: how many rows each has, and how many bytes it uses."""

    rows: Ints
    used: Longs


class Version:
    """An open version: its manifest, its files, its indexes. Filters and pages are read when asked for."""

    def __init__(self, root: Path, manifest: Manifest, disk: Disk) -> None:
        self.root = root
        self.manifest = manifest
        self.disk = disk
        self.layout = Layout.of(manifest.schema, manifest.key, manifest.page_size, manifest.fill, manifest.order)
        self.payload = tuple(c.with_nullable(manifest.nulls[c.name] > 0) for c in self.layout.payload)
        self.codec = self.layout.codec
        self._indexes: list[Index | SecondaryIndex] | None = None
        self._file_keys: Longs = np.empty(0, np.int64)
        self._fds: np.ndarray[Any, np.dtype[np.int32]] = np.empty(0, np.int32)
        self._names: list[str] = []
        self._tags = np.array([f.tag for shard in manifest.shards for f in shard.files], np.int64)
        self._sidecars: dict[str, int] = {}
        self._closed = [False]  # a list, so that all who share the version see it
        self._open_files()

    def _open_files(self) -> None:
        """Open everything now: this version is read to its end even if its files lose their names meanwhile."""
        keys: list[int] = []
        fds: list[int] = []
        try:
            for shard, facts in enumerate(self.manifest.shards):
                for number, file in enumerate(facts.files):
                    fds.append(self._open(file, shard, direct=True))
                    keys.append((shard << (_SHARD - _FILE)) + number)
                    self._names.append(file.name)
                for file in (facts.index, facts.filter, facts.stats):
                    self._sidecars[file.name] = self._open(file, shard, direct=False)
        except BaseException:
            self._fds = np.array(fds, np.int32)
            self.close()
            raise
        self._file_keys = np.array(keys, np.int64)
        self._fds = np.array(fds, np.int32)

    def _open(self, file: FileFacts, shard: int, *, direct: bool) -> int:
        path = self.root / file.name
        try:
            fd = self.disk.open(path) if direct else open_regular(path)
        except FileNotFoundError as error:
            raise DamagedRelation(path, "the file is missing", shard=shard) from error
        except OSError as error:
            if error.errno in (None, errno.ELOOP, errno.ENXIO):
                raise DamagedRelation(path, "it is not a regular file", shard=shard) from error
            raise
        size = os.fstat(fd).st_size
        if size != file.bytes:
            os.close(fd)
            what = "truncated" if size < file.bytes else "something was added"
            raise DamagedRelation(
                path, f"it has {size:,} bytes where {file.bytes:,} were written ({what})", shard=shard
            )
        return fd

    @property
    def closed(self) -> bool:
        return self._closed[0]

    def close(self) -> None:
        self._closed[0] = True
        for fd in (*self._fds, *self._sidecars.values()):
            os.close(int(fd))
        self._fds = np.empty(0, np.int32)
        self._sidecars = {}

    def check_sidecars(self) -> None:
        """Read indexes, filters and statistics, which checks them."""
        for shard in range(len(self.manifest.shards)):
            for part in ("index", "filter", "stats"):
                self.arrays(shard, part)

    def check_open(self) -> None:
        if self.closed:
            raise RelationError(f"the relation {self.root} is closed; open it again")

    def arrays(self, shard: int, part: Literal["index", "filter", "stats"]) -> dict[str, np.ndarray[Any, Any]]:
        """A sidecar of a shard, read and checked."""
        self.check_open()
        file: FileFacts = getattr(self.manifest.shards[shard], part)
        return read_arrays(self._sidecars[file.name], self.root / file.name, shard, file.bytes, file.tag)

    def sidecar(self, shard: int, part: Literal["index", "filter", "stats"], into: Bytes) -> None:
        """A sidecar of a shard as it is in its file, read into given memory and checked."""
        self.check_open()
        file: FileFacts = getattr(self.manifest.shards[shard], part)
        read_arrays_into(into, self._sidecars[file.name], self.root / file.name, shard, file.bytes, file.tag)

    def with_indexes(self, sidecars: list[Bytes]) -> Version:
        """The same open version for one user, who has the indexes in memory that `sidecar` filled."""
        other = copy.copy(self)
        other._indexes = [self._index(i, arrays_in(whole)) for i, whole in enumerate(sidecars)]
        return other

    @property
    def page_size(self) -> int:
        return self.manifest.page_size

    @property
    def indexes(self) -> list[Index | SecondaryIndex]:
        if self._indexes is None:
            shards = range(len(self.manifest.shards))
            self._indexes = [self._index(i, self.arrays(i, "index")) for i in shards]
        return self._indexes

    def _index(self, shard: int, arrays: dict[str, np.ndarray[Any, Any]]) -> Index | SecondaryIndex:
        return index_of(arrays, shard, self.codec, self.manifest.shards[shard].pages)

    def filter(self, shard: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
        return self.arrays(shard, "filter")["words"]

    def shards_of(self, hashes: Hashes) -> np.ndarray[Any, np.dtype[np.int32]]:
        out = np.zeros(hashes.size, np.int32)
        if len(self.manifest.shards) > 1:
            shards_of(hashes, len(self.manifest.shards), out)
        return out

    def pairs(self, keys: Keys, hashes: Hashes, rows: Longs) -> Pairs:
        """The pages that distinct keys need; hashes[rows] are theirs."""
        if len(self.indexes) == 1:
            return self._pairs_of_shard(0, keys, None)
        shard = self.shards_of(hashes[rows])
        parts = []
        for number in range(len(self.indexes)):
            mine = np.flatnonzero(shard == number).astype(np.int32)
            parts.append(self._pairs_of_shard(number, keys.take(mine), mine))
        return Pairs(np.concatenate([p.key for p in parts]), np.concatenate([p.place for p in parts]))

    def _pairs_of_shard(self, number: int, keys: Keys, names: Ints | None) -> Pairs:
        order = keys.argsort().astype(np.int32)
        index = self.indexes[number]
        low, high = index.locate(keys.take(order))
        numbers = order if names is None else names[order]
        if bool((low == high).all()) and low.min(initial=0) >= 0:
            return Pairs(numbers, index.place(low))
        spans = np.where(low >= 0, high - low + 1, 0)
        within = np.arange(int(spans.sum())) - np.repeat(np.cumsum(spans) - spans, spans)
        return Pairs(np.repeat(numbers, spans), index.place(np.repeat(low, spans) + within))

    def files_of(self, places: Longs) -> Longs:
        """Numbers of the files that sorted places are in."""
        begins = np.append(np.searchsorted(places, self._file_keys << _FILE), places.size)
        return np.repeat(np.arange(self._file_keys.size), np.diff(begins))

    def numbers(self, places: Longs, files: Longs) -> Longs:
        """What pages at these places, in these files, have in their header: the tag of the file, and the page in it."""
        return (self._tags[files] << _FILE) + (places & _PAGE)

    def damaged(self, place: int, reason: str) -> DamagedRelation:
        number = int(self.files_of(np.array([place]))[0])
        return DamagedRelation(self.root / self._names[number], reason, shard=place >> _SHARD, page=place & _PAGE)

    def fd_of(self, files: Longs) -> np.ndarray[Any, np.dtype[np.int32]]:
        return self._fds[files]

    def places(self, shard: int) -> Longs:
        """Every page of a shard, in key order or, where it is stored by popularity, the most popular first."""
        index = self.indexes[shard]
        return index.place(np.arange(index.pages))


@dataclass(frozen=True)
class Found:
    """Where the keys of some pairs are, in pages that are in memory: rows low[i] .. high[i] of the page at pages[i]."""

    pairs: slice | Longs
    pages: Longs
    low: Ints
    high: Ints
    total: int

    def copy_to(self, store: TupleStore) -> tuple[Ints, Ints]:
        """Copy the tuples to a store; returns position and count for each pair."""
        at, row = np.empty(self.total, np.int64), np.empty(self.total, np.int32)
        expand_rows(self.pages, self.low, self.high, at, row)
        start = store.append_from_pages(at, row)
        count = self.high - self.low
        return (start + np.cumsum(count) - count).astype(np.int32), count

    def only(self, kept: np.ndarray[Any, np.dtype[np.bool_]]) -> Found:
        """As if only some of the pairs had been asked for: the others have no tuples."""
        high = np.where(kept, self.high, self.low)
        return Found(self.pairs, self.pages, self.low, high, int((high - self.low).sum()))


class PageReader:
    """Reads sets of pages by a plan, through two halves of one buffer: one is read into while the other is used.

    Parameters
    ----------
    version
        What to read.
    memory
        Bytes of the buffer. At least two pages.
    buffer
        Page-aligned memory of that many bytes to use; its own by default.
    whole
        Read into all of it at a time, as the disk buffer of a published algorithm is; one page is enough then.
    plan, longest
        Another read plan than the disk's, with runs of at most so many pages.
    """

    def __init__(
        self,
        version: Version,
        memory: int,
        buffer: Bytes | None = None,
        *,
        whole: bool = False,
        plan: PlanKind | None = None,
        longest: int | None = None,
    ) -> None:
        self.version = version
        self.whole = whole
        self.plan, self.longest = plan, longest
        self.pages = memory // version.page_size
        self.half = self.pages // 2
        if self.half < 1 and not (whole and self.pages):
            raise MemoryRefused(
                f"read buffer asked for two pages of {format_size(version.page_size)}; {format_size(memory)} is there"
            )
        if buffer is None:
            # A mapping of its own is page-aligned, as direct reads need, and goes back to the system when dropped.
            buffer = np.frombuffer(
                mmap.mmap(-1, (self.pages if whole else 2 * self.half) * version.page_size), np.uint8
            )
        self._buffer = buffer
        self._end = -1  # place after the last page read

    @property
    def nbytes(self) -> int:
        return self._buffer.nbytes

    def read(self, places: Longs, stats: JoinStats, *, bridge: bool = True) -> Generator[tuple[int, int, Longs]]:
        """Read sorted distinct places; yields (from, to, addresses): places[from:to] are in memory until the next.

        Close it when leaving early: reads under way still write to the buffer.
        """
        if places.size == 0:
            return
        version, size = self.version, self.version.page_size
        version.check_open()
        # Reads that come from memory are copies made here and now, and a disk that serves one request at a time is waited for:
        # nothing to overlap, and one round takes the whole buffer.
        halves = 1 if self.whole or version.disk.cached or version.disk.workers == 1 else 2
        most = self.pages if self.whole else 2 * self.half // halves
        longest = most if halves == 1 or not bridge else max(1, most // 4)
        if self.longest is not None:
            longest = min(most, self.longest)
        if bridge and halves == 1 and version.disk.goes_on and self.plan is None:
            first, length = self._one_after_the_other(places, most)
        else:
            first, length = version.disk.runs(places, size, longest, bridge=bridge, plan=self.plan)
        # Both are sorted: cheaper than to look for each page's run.
        begins = np.append(np.searchsorted(places, first), places.size)
        run_of = np.repeat(np.arange(first.size), np.diff(begins))
        files = version.files_of(first)
        rounds = self._rounds(length, most)
        wanted_before = np.searchsorted(run_of, rounds)
        stats.pages_requested += places.size
        stats.pages_read += int(length.sum())
        stats.reads += length.size
        stats.bytes_read += int(length.sum()) * size
        under_way: list[tuple[Reading, Longs]] = []
        try:
            for r in range(rounds.size - 1):
                while r + len(under_way) < rounds.size - 1 and len(under_way) < halves:
                    r_next = r + len(under_way)
                    under_way.append(self._start(r_next, r_next % halves, rounds, first, length, files))
                reading, targets = under_way[0]
                bad = reading.wait()
                under_way.pop(0)
                runs = slice(rounds[r], rounds[r + 1])
                if bad >= 0:
                    raise version.damaged(int(first[runs][bad]), "it could not be read in full")
                a, b = int(wanted_before[r]), int(wanted_before[r + 1])
                if a == b:
                    continue  # read only to get on
                mine = run_of[a:b] - rounds[r]
                addresses = targets[mine] + (places[a:b] - first[runs][mine]) * size
                self._check(places[a:b], addresses, files[runs][mine])
                yield a, b, addresses
        finally:
            for reading, _ in under_way:
                reading.wait()

    def _one_after_the_other(self, places: Longs, most: int) -> tuple[Longs, Longs]:
        """A plan for a disk whose arm stays where it is: runs longer than the buffer, which are read piece by piece.

        The first begins where the last read ended, if to read that far is less than a seek.
        """
        disk, size = self.version.disk, self.version.page_size
        first, length = disk.runs(places, size, disk.longest, chunk=most)
        seek, transfer = disk.costs(size)
        near = disk.scan_costs(size)[0]
        gap = 0 if self._end < 0 else int(first[0]) - self._end
        if 0 < gap * (transfer + near / most) < seek - near:  # places of another file are far away
            first[0] -= gap
            length[0] += gap
        pieces = -(-length // most)
        within = np.arange(int(pieces.sum())) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        stops = np.repeat(first + length, pieces)
        first = np.repeat(first, pieces) + most * within
        length = np.minimum(most, stops - first)
        self._end = int(stops[-1])
        return first, length

    def read_into(self, places: Longs, targets: Longs, stats: JoinStats) -> None:
        """Read distinct places one after the other, a request each, to the addresses given."""
        if places.size == 0:
            return
        version, size = self.version, self.version.page_size
        version.check_open()
        order = np.argsort(places)
        files = version.files_of(places[order])
        fds = np.empty(places.size, np.int32)
        fds[order] = version.fd_of(files)
        sizes = np.full(places.size, size, np.int64)
        bad = version.disk.start(fds, (places & _PAGE) * size, sizes, targets, size, most=1).wait()
        if bad >= 0:
            raise version.damaged(int(places[bad]), "it could not be read in full")
        stats.pages_requested += places.size
        stats.pages_read += places.size
        stats.reads += places.size
        stats.bytes_read += places.size * size
        self._check(places[order], targets[order], files)

    def _rounds(self, length: Longs, pages: int) -> Longs:
        """Where each round starts, and the end: as many runs as fit one half of the buffer, or all of it."""
        ends = np.cumsum(length)
        bounds = [0]
        while bounds[-1] < length.size:
            before = int(ends[bounds[-1] - 1]) if bounds[-1] else 0
            bounds.append(int(np.searchsorted(ends, before + pages, side="right")))
        return np.array(bounds, np.int64)

    def _start(
        self, r: int, half: int, rounds: Longs, first: Longs, length: Longs, files: Longs
    ) -> tuple[Reading, Longs]:
        version, size = self.version, self.version.page_size
        runs = slice(rounds[r], rounds[r + 1])
        sizes = length[runs] * size
        base = address(self._buffer) + half * self.half * size
        targets = base + np.cumsum(sizes) - sizes
        fds = version.fd_of(files[runs])
        # A small buffer is for a small budget: as few threads as it can use.
        reading = version.disk.start(
            fds, (first[runs] & _PAGE) * size, sizes, targets, size, most=max(1, self.half // 8)
        )
        return reading, targets

    def _check(self, places: Longs, addresses: Longs, files: Longs) -> None:
        shards = places >> _SHARD
        numbers = self.version.numbers(places, files)
        verdict = np.empty(places.size, np.int32)
        start = 0
        while start < places.size:
            shard = int(shards[start])
            stop = int(np.searchsorted(shards, shard, side="right"))
            damaged = verify(
                addresses[start:stop],
                self.version.page_size,
                shard,
                numbers[start:stop],
                self.version.layout.widths,
                verdict[start:stop],
            )
            if damaged:
                bad = start + int(np.flatnonzero(verdict[start:stop])[0])
                raise self.version.damaged(int(places[bad]), _WHAT[int(verdict[bad])])
            start = stop

    def find(self, keys: Keys, pairs: Pairs, stats: JoinStats) -> Generator[Found]:
        """Read the pages of pairs and find their keys in them, a buffer at a time. Close it when leaving early."""
        order = np.argsort(pairs.place, kind="stable") if _unsorted(pairs.place) else None
        place = pairs.place if order is None else pairs.place[order]
        fresh = np.ones(place.size, np.bool_)
        np.not_equal(place[1:], place[:-1], out=fresh[1:])
        places = place[fresh]
        start_of = np.append(np.flatnonzero(fresh), place.size)
        with closing(self.read(places, stats)) as rounds:
            for a, b, addresses in rounds:
                p, q = int(start_of[a]), int(start_of[b])
                mine = slice(p, q) if order is None else order[p:q]
                pages = np.repeat(addresses, np.diff(start_of[a : b + 1]))
                low, high = np.empty(q - p, np.int32), np.empty(q - p, np.int32)
                total = keys.find(pages, pairs.key[mine], low, high)
                yield Found(mine, pages, low, high, total)

    def fetch(self, keys: Keys, pairs: Pairs, store: TupleStore, stats: JoinStats) -> tuple[Ints, Ints]:
        """Copy every tuple with one of the keys to the store; returns position and count for each pair."""
        where, count = np.zeros(pairs.size, np.int32), np.zeros(pairs.size, np.int32)
        with closing(self.find(keys, pairs, stats)) as rounds:
            for found in rounds:
                where[found.pairs], count[found.pairs] = found.copy_to(store)
        return where, count

    def scan(
        self, places: Longs, columns: tuple[Column, ...], stats: JoinStats
    ) -> Iterator[tuple[PageFacts, TupleStore]]:
        """All tuples of pages, in the order of places, with the facts of the pages they came from."""
        if not _unsorted(places):
            with closing(self.read(places, stats)) as rounds:
                for _, _, addresses in rounds:
                    yield self._all_rows(addresses, columns)
            return
        # Pages that updates moved come in key order all the same: half a buffer at a time, bridging nothing.
        for a in range(0, places.size, self.half):
            piece = places[a : a + self.half]
            order = np.argsort(piece, kind="stable")
            addresses = np.empty(piece.size, np.int64)
            with closing(self.read(piece[order], stats, bridge=False)) as rounds:
                for i, j, some in rounds:
                    addresses[order[i:j]] = some
            yield self._all_rows(addresses, columns)

    def _all_rows(self, addresses: Longs, columns: tuple[Column, ...]) -> tuple[PageFacts, TupleStore]:
        rows, used = np.empty(addresses.size, np.int32), np.empty(addresses.size, np.int64)
        page_facts(addresses, rows, used)
        return PageFacts(rows, used), self.tuples(addresses, columns)[0]

    def tuples(self, addresses: Longs, columns: tuple[Column, ...]) -> tuple[TupleStore, Longs, Ints]:
        """All tuples of pages in memory, with the page address and row of each."""
        n = addresses.size
        rows, used = np.empty(n, np.int32), np.empty(n, np.int64)
        page_facts(addresses, rows, used)
        total = int(rows.sum())
        at, row = np.empty(total, np.int64), np.empty(total, np.int32)
        expand_rows(addresses, np.zeros(n, np.int32), rows, at, row)
        store = TupleStore(columns, total, {c.name: int(used.sum()) for c in columns})
        store.append_from_pages(at, row)
        return store, at, row


def _unsorted(values: Longs) -> bool:
    return bool((values[1:] < values[:-1]).any())


def key_column(codec: KeyCodec) -> Column:
    """The key as stored in a page."""
    return Column("", pa.int64() if codec.integer else pa.binary(), codec.width, 0, nullable=False)


def stored_keys(store: TupleStore, integer: bool) -> Keys:
    """The keys in column 0 of a store."""
    buffers = store.buffers(0)
    if integer:
        return IntKeys(buffers.values.view(np.int64))
    return ByteKeys(buffers.values, buffers.offsets)
