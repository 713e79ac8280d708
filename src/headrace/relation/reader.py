"""Reading of a version: the index maps keys to pages, a plan reads the pages, and every page is checked before use."""

from __future__ import annotations

import copy
import mmap
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import pyarrow as pa

from headrace.arrays import AnyArray, Bools, Int32s, Int64s, UInt8s, UInt32s, UInt64s
from headrace.errors import DamagedRelation, MemoryRefused, RelationError
from headrace.files import NotRegular, close, open_regular
from headrace.kernels.filter import WORDS
from headrace.kernels.hashing import shards_of
from headrace.kernels.pages import BAD_CHECKSUM, BAD_LAYOUT, BAD_MAGIC, BAD_PLACE, expand_rows, page_facts, verify
from headrace.metrics import JoinStats
from headrace.relation.checked_pages import CheckedPages
from headrace.relation.columns import NO_BYTES, Column, address
from headrace.relation.disk import Disk, DiskReads, PlanKind
from headrace.relation.keys import ByteKeys, IntKeys, KeyCodec, Keys, positions
from headrace.relation.manifest import FileFacts, Manifest, ShardFacts
from headrace.relation.sidecar import arrays_bytes, arrays_in, read_arrays, read_arrays_into
from headrace.relation.store import TupleStore
from headrace.relation.writer import FREQUENCY_BINS, TAG_SHIFT, Layout
from headrace.units import format_size

# A place is the position of a page as one number: shard (bits 48 up), file within the shard (bits 32 to 47) and page within the
# file (bits 0 to 31). Neighbouring pages have neighbouring places; those of two files are too far apart for a plan to bridge.
SHARD_SHIFT, FILE_SHIFT = 48, 32
PAGE_MASK = (1 << FILE_SHIFT) - 1

#: Read requests that a half of the read buffer has room for at least: a longer one would leave the disk idle beside it.
REQUESTS_A_HALF = 4

PAGE_DAMAGE = {
    BAD_CHECKSUM: "its checksum does not match its bytes",
    BAD_MAGIC: "it is not a page of a Headrace relation",
    BAD_PLACE: "it belongs to another place",
    BAD_LAYOUT: "its rows or offsets lie outside of it",
}

# Names and types of the arrays in sidecars, in their order.
_KEYS = (("values", np.uint8), ("offsets", np.int64))
_ARRAYS = {
    "index": (*_KEYS, ("continues", np.uint8), ("places", np.int64)),
    "secondary": (*_KEYS, ("first", np.int32), ("last", np.int32)),
    "moved secondary": (*_KEYS, ("first", np.int32), ("last", np.int32), ("places", np.int64)),
    "filter": (("words", np.uint32),),
    "stats": (("histogram", np.int64), ("counts", np.int64), *_KEYS),
}


class Index(Protocol):
    """The index of a shard: keys in, pages out, and where the pages lie. Pages are numbered in the order of the index."""

    @property
    def pages(self) -> int:
        """The number of pages of the shard."""
        ...

    def locate(self, keys: Keys) -> tuple[Int32s, Int32s]:
        """Return the first and the last page that can hold each of some sorted keys; -1 where none can."""
        ...

    def place(self, pages: Int32s | Int64s) -> Int64s:
        """Return the places of pages."""
        ...


class PageFiles(Protocol):
    """Files of pages that a PageReader reads: those of a version, or those of its index."""

    disk: Disk
    layout: Layout

    @property
    def page_size(self) -> int:
        """Bytes of a page."""
        ...

    def check_open(self) -> None:
        """Refuse to go on if the files were closed."""
        ...

    def files_of(self, places: Int64s) -> Int64s:
        """Return the numbers of the files that sorted places are in."""
        ...

    def fd_of(self, files: Int64s) -> Int32s:
        """Return the descriptors of files."""
        ...

    def numbers(self, places: Int64s, files: Int64s) -> Int64s:
        """Return the page numbers that the headers of pages at these places must have."""
        ...

    def checked(self, places: Int64s, files: Int64s) -> tuple[Int64s, UInt8s]:
        """Return a number for each page, and bits by number of the pages that need not be checked; no bits if all must be."""
        ...

    def damaged(self, place: int, reason: str) -> DamagedRelation:
        """Make the error that names file, shard and page of a damaged page."""
        ...


@dataclass(frozen=True)
class FenceIndex:
    """The index of a shard in key order: one fence key (the first key) per page. [SSIJ] §III"""

    fence: Keys
    continues: UInt8s  # 1 where the last key of the page before goes on in this page
    places: Int64s  # without the shard; empty where page i of the index is page i of the first file
    base: int  # the shard's part of a place

    @classmethod
    def of(cls, arrays: dict[str, AnyArray], shard: int, codec: KeyCodec) -> FenceIndex:
        """Make the index over the arrays of a sidecar."""
        fence: Keys = (
            IntKeys(arrays["values"].view(np.int64)) if codec.integer else ByteKeys(arrays["values"], arrays["offsets"])
        )
        return cls(fence, arrays["continues"], arrays["places"], shard << SHARD_SHIFT)

    @property
    def nbytes(self) -> int:
        return self.fence.nbytes + self.continues.nbytes + self.places.nbytes

    def locate(self, keys: Keys) -> tuple[Int32s, Int32s]:
        """Return the first and the last page that can hold each of some sorted keys; -1 where none can."""
        low, high = np.empty(len(keys), np.int32), np.empty(len(keys), np.int32)
        keys.locate(self.fence, self.continues, low, high)  # type: ignore[arg-type]
        return low, high

    def place(self, pages: Int32s | Int64s) -> Int64s:
        """Return the places of pages, which are numbered in key order."""
        return (self.places[pages] if self.places.size else pages) + np.int64(self.base)

    @property
    def pages(self) -> int:
        """The number of pages of the shard."""
        return len(self.fence)

    def leads_inside(self, facts: ShardFacts) -> bool:
        """Tell whether every place is one of a page of the shard's files: a checksum does not say so."""
        return self.pages == self.continues.size == facts.pages and _inside(self.places, self.pages, facts)


@dataclass(frozen=True)
class SecondaryIndex:
    """The index of a shard stored by frequency: every distinct key with the pages of its rows, so absent keys are known."""

    keys: Keys
    first: Int32s
    last: Int32s  # empty where no key has rows in several pages
    places: Int64s  # without the shard; empty where page i, by popularity, is page i of the first file
    pages: int
    base: int

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.first.nbytes + self.last.nbytes + self.places.nbytes

    @property
    def last_pages(self) -> Int32s:
        """The last page of each key."""
        return self.last if self.last.size else self.first

    def locate(self, keys: Keys) -> tuple[Int32s, Int32s]:
        """Return the first and the last page of each of some sorted keys; -1 where a key is not in the relation."""
        at, known = positions(keys, self.keys)
        low, high = np.full(len(keys), -1, np.int32), np.full(len(keys), -1, np.int32)
        low[known] = self.first[at[known]]
        high[known] = self.last_pages[at[known]]
        return low, high

    def place(self, pages: Int32s | Int64s) -> Int64s:
        """Return the places of pages, which are numbered from the most popular on."""
        return (self.places[pages] if self.places.size else pages) + np.int64(self.base)

    def leads_inside(self, facts: ShardFacts) -> bool:
        """Tell whether every page is one of the shard's files."""
        last = self.last_pages
        inside = self.first.size == last.size == len(self.keys) and _inside(self.places, self.pages, facts)
        return inside and bool(((self.first >= 0) & (self.first <= last) & (last < self.pages)).all())


def _inside(places: Int64s, count: int, facts: ShardFacts) -> bool:
    """Tell whether so many pages are at places of the shard's files; no places: they are the first of the first file."""
    pages = np.array([file.pages for file in facts.files], np.int64)
    if places.size == 0:
        return bool(count <= pages[:1].sum())
    files = places >> FILE_SHIFT
    known = bool(((files >= 0) & (files < pages.size)).all())
    return known and places.size == count and bool((places & PAGE_MASK < pages[files]).all())


def index_of(arrays: dict[str, AnyArray], shard: int, codec: KeyCodec, pages: int) -> FenceIndex | SecondaryIndex:
    """Make the index of a shard over the arrays of its sidecar, whose names tell the kind."""
    if "first" not in arrays:
        return FenceIndex.of(arrays, shard, codec)
    keys: Keys = (
        IntKeys(arrays["values"].view(np.int64)) if codec.integer else ByteKeys(arrays["values"], arrays["offsets"])
    )
    places = arrays.get("places", np.empty(0, np.int64))
    return SecondaryIndex(keys, arrays["first"], arrays["last"], places, pages, shard << SHARD_SHIFT)


@dataclass(frozen=True)
class KeyPages:
    """Pairs of a key (by its number) and the place of a page that may hold it; a key whose rows span pages has several."""

    key: Int32s
    place: Int64s

    @property
    def size(self) -> int:
        return self.key.size


@dataclass(frozen=True)
class PageFacts:
    """The number of rows and of bytes in use of each of some pages, from their headers."""

    rows: Int32s
    used: Int64s


class Version:
    """An open version: its manifest, open files and indexes. Filters and pages are read when asked for.

    Parameters
    ----------
    root, manifest, disk
        The relation's directory, what the version consists of, and how its pages are read.
    unopened
        Receives the damage of each file that is missing or has another size, which is then not read. By default the first one is
        raised.
    """

    def __init__(
        self, root: Path, manifest: Manifest, disk: Disk, unopened: list[DamagedRelation] | None = None
    ) -> None:
        self.root = root
        self.manifest = manifest
        self.disk = disk
        self.layout = Layout.of(manifest.schema, manifest.key, manifest.page_size, manifest.fill, manifest.order, root)
        self.payload = tuple(c.with_nullable(manifest.nulls[c.name] > 0) for c in self.layout.payload)
        self.codec = self.layout.codec
        self._indexes: Sequence[Index] | None = None
        self._file_keys: Int64s = np.empty(0, np.int64)
        self._fds: Int32s = np.empty(0, np.int32)
        self.index_fds: Int32s = np.empty(0, np.int32)  # of the files of index pages, one a shard where there are such
        self._names: list[str] = []
        files = [file for shard in manifest.shards for file in shard.files]
        self._tags = np.array([file.tag for file in files], np.int64)
        self._checked = CheckedPages(np.array([file.pages for file in files], np.int64))
        self._sidecars: dict[str, int] = {}
        self._unopened = unopened
        self._closed = [False]  # a list, so that copies made by `with_indexes` share it
        self._open_files()

    def _open_files(self) -> None:
        """Open all files now, so that this version can be read to its end even if its files are deleted meanwhile."""
        keys: list[int] = []
        fds: list[int] = []
        index_fds: list[int] = []
        try:
            for shard, facts in enumerate(self.manifest.shards):
                for number, file in enumerate(facts.files):
                    fds.append(self._open(file, shard, direct=True))
                    keys.append((shard << (SHARD_SHIFT - FILE_SHIFT)) + number)
                    self._names.append(file.name)
                for file in (facts.index, facts.filter, facts.stats):
                    self._sidecars[file.name] = self._open(file, shard, direct=False)
                if facts.fences is not None:
                    index_fds.append(self._open(facts.fences, shard, direct=True))
        except BaseException:
            self._fds, self.index_fds = np.array(fds, np.int32), np.array(index_fds, np.int32)
            self.close()
            raise
        self._file_keys = np.array(keys, np.int64)
        self._fds, self.index_fds = np.array(fds, np.int32), np.array(index_fds, np.int32)

    def _open(self, file: FileFacts, shard: int, *, direct: bool) -> int:
        try:
            return self._open_whole(file, shard, direct=direct)
        except DamagedRelation as error:
            if self._unopened is None:
                raise
            self._unopened.append(error)
            return -1

    def _open_whole(self, file: FileFacts, shard: int, *, direct: bool) -> int:
        path = self.root / file.name
        try:
            fd = self.disk.open(path) if direct else open_regular(path)
        except FileNotFoundError as error:
            raise DamagedRelation(path, "the file is missing", shard=shard) from error
        except NotRegular as error:
            raise DamagedRelation(path, "it is not a regular file", shard=shard) from error
        size = os.fstat(fd).st_size
        if size != file.bytes:
            close(fd)
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
        for fd in (*self._fds, *self.index_fds, *self._sidecars.values()):
            if fd >= 0:
                close(int(fd))
        self._fds = self.index_fds = np.empty(0, np.int32)
        self._sidecars = {}

    def check_sidecars(self) -> None:
        """Read indexes, filters and statistics, which checks them."""
        for shard in range(len(self.manifest.shards)):
            for part in ("index", "filter", "stats"):
                self.arrays(shard, part)

    def check_open(self) -> None:
        if self.closed:
            raise RelationError(f"the relation {self.root} is closed; open it again")

    def arrays(self, shard: int, part: Literal["index", "filter", "stats"]) -> dict[str, AnyArray]:
        """Read and check a sidecar of a shard; returns its arrays."""
        self.check_open()
        file: FileFacts = getattr(self.manifest.shards[shard], part)
        path = self.root / file.name
        arrays = read_arrays(self._sidecars[file.name], path, shard, file.bytes, file.tag)
        self._check_arrays(arrays, path, shard, part)
        return arrays

    def sidecar(self, shard: int, part: Literal["index", "filter", "stats"], into: UInt8s) -> None:
        """Read and check a sidecar of a shard into given memory, byte for byte; `with_indexes` uses such memory."""
        self.check_open()
        file: FileFacts = getattr(self.manifest.shards[shard], part)
        path = self.root / file.name
        arrays = read_arrays_into(into, self._sidecars[file.name], path, shard, file.bytes, file.tag)
        self._check_arrays(arrays, path, shard, part)

    def _check_arrays(self, arrays: dict[str, AnyArray], path: Path, shard: int, part: str) -> None:
        """Refuse arrays of other names, types or sizes than kernels take for granted: a checksum does not say that they fit."""
        kind = "secondary" if part == "index" and self.manifest.order == "frequency" else part
        if kind == "secondary" and "places" in arrays:  # pages were changed, and lie elsewhere
            kind = "moved secondary"
        if not _fit(arrays, _ARRAYS[kind], integer=self.codec.integer):
            raise DamagedRelation(path, "its arrays are not those of such a file", shard=shard)

    def with_indexes(self, sidecars: list[UInt8s]) -> Version:
        """Return a copy of this version that shares its files and takes its indexes from memory that `sidecar` filled."""
        return self.holding([self._index(i, arrays_in(whole)) for i, whole in enumerate(sidecars)])

    def holding(self, indexes: Sequence[Index]) -> Version:
        """Return a copy of this version that shares its files and has these indexes."""
        other = copy.copy(self)
        other._indexes = indexes
        return other

    @property
    def index_bytes(self) -> int:
        """Bytes of the indexes in memory as a whole; nothing is read but how large their arrays are."""
        files = [shard.index for shard in self.manifest.shards]
        self.check_open()
        return sum(arrays_bytes(self._sidecars[f.name], self.root / f.name, i) for i, f in enumerate(files))

    @property
    def page_size(self) -> int:
        return self.manifest.page_size

    @property
    def indexes(self) -> Sequence[Index]:
        if self._indexes is None:
            self._indexes = [self.read_index(i) for i in range(len(self.manifest.shards))]
        return self._indexes

    def drop_indexes(self) -> None:
        """Let go of the memory of the indexes; whoever still reads this version has them read again."""
        self._indexes = None

    def read_index(self, shard: int) -> FenceIndex | SecondaryIndex:
        """Read and check the index of a shard."""
        return self._index(shard, self.arrays(shard, "index"))

    def _index(self, shard: int, arrays: dict[str, AnyArray]) -> FenceIndex | SecondaryIndex:
        facts = self.manifest.shards[shard]
        index = index_of(arrays, shard, self.codec, facts.pages)
        if not index.leads_inside(facts):
            raise DamagedRelation(self.root / facts.index.name, "it leads to pages that are not there", shard=shard)
        return index

    def filter(self, shard: int) -> UInt32s:
        return self.arrays(shard, "filter")["words"]

    def shards_of(self, hashes: UInt64s) -> Int32s:
        out = np.zeros(hashes.size, np.int32)
        if len(self.manifest.shards) > 1:
            shards_of(hashes, len(self.manifest.shards), out)
        return out

    def pairs(self, keys: Keys, hashes: UInt64s, rows: Int64s) -> KeyPages:
        """Return the pages that distinct keys may be in. The hashes of the keys are hashes[rows]."""
        if len(self.indexes) == 1:
            return self._pairs_of_shard(0, keys, None)
        shard = self.shards_of(hashes[rows])
        parts = []
        for number in range(len(self.indexes)):
            mine = np.flatnonzero(shard == number).astype(np.int32)
            parts.append(self._pairs_of_shard(number, keys.take(mine), mine))
        return KeyPages(np.concatenate([p.key for p in parts]), np.concatenate([p.place for p in parts]))

    def _pairs_of_shard(self, number: int, keys: Keys, names: Int32s | None) -> KeyPages:
        order = keys.argsort().astype(np.int32)
        index = self.indexes[number]
        low, high = index.locate(keys.take(order))
        numbers = order if names is None else names[order]
        if bool((low == high).all()) and low.min(initial=0) >= 0:
            return KeyPages(numbers, index.place(low))
        spans = np.where(low >= 0, high - low + 1, 0)
        if spans.min(initial=0) < 0:
            path = self.root / self.manifest.shards[number].index.name
            raise DamagedRelation(path, "its keys are out of order", shard=number)
        within = np.arange(int(spans.sum())) - np.repeat(np.cumsum(spans) - spans, spans)
        return KeyPages(np.repeat(numbers, spans), index.place(np.repeat(low, spans) + within))

    def files_of(self, places: Int64s) -> Int64s:
        """Return the numbers of the files that sorted places are in."""
        begins = np.append(np.searchsorted(places, self._file_keys << FILE_SHIFT), places.size)
        return np.repeat(np.arange(self._file_keys.size), np.diff(begins))

    def numbers(self, places: Int64s, files: Int64s) -> Int64s:
        """Return the page numbers that the headers of pages at these places must have: the file's tag, and the page in it."""
        return (self._tags[files] << TAG_SHIFT) + (places & PAGE_MASK)

    def checked(self, places: Int64s, files: Int64s) -> tuple[Int64s, UInt8s]:
        """Return a number for each page, and bits by number of the pages that need not be checked; no bits if all must be."""
        if not self.disk.cached:
            return places, NO_BYTES
        return self._checked.numbers(files, places & PAGE_MASK), self._checked.bits(files, self._fds[files])

    def places_of(self, other: Version, places: Int64s) -> Int64s:
        """Return the places here, sorted, of pages of another version, as far as this one has their files."""
        files = other.files_of(places)
        order = np.argsort(self._tags)
        at = np.minimum(np.searchsorted(self._tags[order], other._tags[files]), max(0, order.size - 1))
        mine = order[at] if order.size else np.empty(0, np.int64)
        same = self._tags[mine] == other._tags[files]
        return np.sort((self._file_keys[mine[same]] << FILE_SHIFT) + (places[same] & PAGE_MASK))

    def damaged(self, place: int, reason: str) -> DamagedRelation:
        """Make the error that names file, shard and page of a damaged page."""
        number = int(self.files_of(np.array([place]))[0])
        return DamagedRelation(
            self.root / self._names[number], reason, shard=place >> SHARD_SHIFT, page=place & PAGE_MASK
        )

    def fd_of(self, files: Int64s) -> Int32s:
        return self._fds[files]

    def places(self, shard: int, first: int | None = None) -> Int64s:
        """Return the places of all pages of a shard, or of the `first` ones: by key or, if stored by frequency, by popularity."""
        index = self.indexes[shard]
        return index.place(np.arange(index.pages if first is None else min(first, index.pages)))


@dataclass(frozen=True)
class FoundRows:
    """Where keys are in pages in memory: rows low[i] to high[i] - 1 of the page at address pages[i] have the key of pair i."""

    pairs: slice | Int64s  # numbers of the pairs
    pages: Int64s  # addresses
    low: Int32s
    high: Int32s
    total: int  # rows of all pairs

    def copy_to(self, store: TupleStore) -> tuple[Int32s, Int32s]:
        """Copy the tuples to a store; returns the position of the first and their number for each pair."""
        at, row = np.empty(self.total, np.int64), np.empty(self.total, np.int32)
        expand_rows(self.pages, self.low, self.high, at, row)
        start = store.append_from_pages(at, row)
        count = self.high - self.low
        return (start + np.cumsum(count) - count).astype(np.int32), count

    def only(self, kept: Bools) -> FoundRows:
        """Return what would be found if only the `kept` pairs had been asked for; the others have no tuples."""
        high = np.where(kept, self.high, self.low)
        return FoundRows(self.pairs, self.pages, self.low, high, int((high - self.low).sum()))


@dataclass(frozen=True)
class _PageCheck:
    """Checks pages that lie in memory now: those at sorted places, and what their headers must say."""

    version: PageFiles
    places: Int64s
    addresses: Int64s
    shards: Int64s
    numbers: Int64s
    bit_of: Int64s
    checked: UInt8s

    @classmethod
    def of(cls, version: PageFiles, places: Int64s, addresses: Int64s, files: Int64s) -> _PageCheck:
        numbers = version.numbers(places, files)
        return cls(version, places, addresses, places >> SHARD_SHIFT, numbers, *version.checked(places, files))

    def __call__(self, a: int, b: int) -> None:
        """Refuse what is damaged of places[a:b]."""
        version, verdict = self.version, np.empty(b - a, np.int32)
        parts = self.addresses, self.shards, self.numbers, self.bit_of
        addresses, shards, numbers, bit_of = (part[a:b] for part in parts)
        widths = version.layout.widths
        if verify(addresses, version.page_size, shards, numbers, widths, bit_of, self.checked, verdict):
            bad = int(np.flatnonzero(verdict)[0])
            raise version.damaged(int(self.places[a + bad]), PAGE_DAMAGE[int(verdict[bad])])


class PageReader:
    """Reads sets of pages by a read plan, double-buffered: one half of the buffer is read into while the other is used.

    Parameters
    ----------
    version
        The open version to read, or the pages of its index.
    memory
        Bytes of the buffer. At least two pages.
    buffer
        Page-aligned memory of that many bytes; allocated by default.
    whole
        Fill the whole buffer at a time, as the disk buffers of the published algorithms do; one page is enough then.
    plan, longest
        A read plan other than the disk's, and the most pages of a run.
    """

    def __init__(
        self,
        version: PageFiles,
        memory: int,
        buffer: UInt8s | None = None,
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
            # An anonymous mapping is page-aligned, as direct reads need, and is returned to the system when dropped.
            pages = self.pages if whole else 2 * self.half
            buffer = np.frombuffer(mmap.mmap(-1, pages * version.page_size), np.uint8)  # files: memory without a file
        self._buffer = buffer
        self._end = -1  # place after the last page read: where the arm of a simulated disk is

    @property
    def nbytes(self) -> int:
        return self._buffer.nbytes

    def read(self, places: Int64s, stats: JoinStats, *, bridge: bool = True) -> Generator[tuple[int, int, Int64s]]:
        """Read sorted distinct places; yields (from, to, addresses): places[from:to] are in memory until the next item.

        Close the generator when leaving early, as pending reads still write to the buffer. Without `bridge` no unwanted page is
        read.
        """
        if places.size == 0:
            return
        version, size = self.version, self.version.page_size
        version.check_open()
        # Reads from the page cache are copies made by this thread, and a disk with one request at a time is waited for: there is
        # nothing to overlap, so one round takes the whole buffer.
        halves = 1 if self.whole or version.disk.cached or version.disk.workers == 1 else 2
        most = self.pages if self.whole else 2 * self.half // halves
        longest = most if halves == 1 or not bridge else max(1, most // REQUESTS_A_HALF)
        if self.longest is not None:
            longest = min(most, self.longest)
        if bridge and halves == 1 and version.disk.sequential_is_cheaper and self.plan is None:
            first, length = self._sequential_runs(places, most)
        else:
            first, length = version.disk.runs(places, size, longest, bridge=bridge, plan=self.plan)
        # Both are sorted, so searching the runs among the places is cheaper than searching the run of each place.
        begins = np.append(np.searchsorted(places, first), places.size)
        run_of = np.repeat(np.arange(first.size), np.diff(begins))
        files = version.files_of(first)
        rounds = self._rounds(length, most)
        wanted_before = np.searchsorted(run_of, rounds)
        stats.pages_requested += places.size
        stats.pages_read += int(length.sum())
        stats.reads += length.size
        stats.bytes_read += int(length.sum()) * size
        # Where every run and every page will lie: worked out for all rounds at once, since a round is short.
        before = np.cumsum(length) - length
        round_of = np.repeat(np.arange(rounds.size - 1), np.diff(rounds))
        targets = before - before[rounds[:-1]][round_of] + round_of % halves * self.half
        targets = address(self._buffer) + targets * size
        addresses = targets[run_of] + (places - first[run_of]) * size
        fds, offsets, sizes = version.fd_of(files), (first & PAGE_MASK) * size, length * size
        check = _PageCheck.of(version, places, addresses, files[run_of])
        pending: list[DiskReads] = []
        try:
            for r in range(rounds.size - 1):
                while r + len(pending) < rounds.size - 1 and len(pending) < halves:
                    runs = slice(rounds[r + len(pending)], rounds[r + len(pending) + 1])
                    # A small buffer means a small budget: use no more threads than it has room for.
                    some = fds[runs], offsets[runs], sizes[runs], targets[runs]
                    pending.append(version.disk.start(*some, size, most=max(1, self.half // 4)))
                bad = pending[0].wait()
                pending.pop(0)
                if bad >= 0:
                    raise version.damaged(int(first[rounds[r] + bad]), "it could not be read in full")
                a, b = int(wanted_before[r]), int(wanted_before[r + 1])
                if a == b:
                    continue  # a piece of a long run in which no page is wanted
                check(a, b)
                yield a, b, addresses[a:b]
        finally:
            for reading in pending:
                reading.wait()

    def _sequential_runs(self, places: Int64s, most: int) -> tuple[Int64s, Int64s]:
        """Plan for a disk whose arm stays where it is: runs may exceed the buffer and are read in pieces of `most` pages.

        The first run starts where the last read ended, if reading up to the first page costs less than a seek.
        """
        disk, size = self.version.disk, self.version.page_size
        first, length = disk.runs(places, size, disk.longest, chunk=most)
        seek, transfer = disk.costs(size)
        near = disk.scan_costs(size)[0]
        gap = 0 if self._end < 0 else int(first[0]) - self._end
        if 0 < gap * (transfer + near / most) < seek - near:  # never in another file: its places are too far away
            first[0] -= gap
            length[0] += gap
        pieces = -(-length // most)
        within = np.arange(int(pieces.sum())) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        stops = np.repeat(first + length, pieces)
        first = np.repeat(first, pieces) + most * within
        length = np.minimum(most, stops - first)
        self._end = int(stops[-1])
        return first, length

    def read_into(self, places: Int64s, targets: Int64s, stats: JoinStats) -> None:
        """Read distinct places one by one, with one request each, to the given addresses."""
        if places.size == 0:
            return
        version, size = self.version, self.version.page_size
        version.check_open()
        order = np.argsort(places)
        files = version.files_of(places[order])
        fds = np.empty(places.size, np.int32)
        fds[order] = version.fd_of(files)
        sizes = np.full(places.size, size, np.int64)
        bad = version.disk.start(fds, (places & PAGE_MASK) * size, sizes, targets, size, most=1).wait()
        if bad >= 0:
            raise version.damaged(int(places[bad]), "it could not be read in full")
        stats.pages_requested += places.size
        stats.pages_read += places.size
        stats.reads += places.size
        stats.bytes_read += places.size * size
        _PageCheck.of(version, places[order], targets[order], files)(0, places.size)

    def _rounds(self, length: Int64s, pages: int) -> Int64s:
        """Group runs into rounds of at most `pages` pages; returns the first run of each round, and the number of runs."""
        ends = np.cumsum(length)
        bounds = [0]
        while bounds[-1] < length.size:
            before = int(ends[bounds[-1] - 1]) if bounds[-1] else 0
            bounds.append(int(np.searchsorted(ends, before + pages, side="right")))
        return np.array(bounds, np.int64)

    def find(self, keys: Keys, pairs: KeyPages, stats: JoinStats) -> Generator[FoundRows]:
        """Read the pages of pairs and find the keys in them, one buffer at a time. Close the generator when leaving early."""
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
                yield FoundRows(mine, pages, low, high, total)

    def fetch(self, keys: Keys, pairs: KeyPages, store: TupleStore, stats: JoinStats) -> tuple[Int32s, Int32s]:
        """Copy every tuple with one of the keys to the store; returns the position of the first and their number per pair."""
        where, count = np.zeros(pairs.size, np.int32), np.zeros(pairs.size, np.int32)
        with closing(self.find(keys, pairs, stats)) as rounds:
            for found in rounds:
                where[found.pairs], count[found.pairs] = found.copy_to(store)
        return where, count

    def scan(
        self, places: Int64s, columns: tuple[Column, ...], stats: JoinStats
    ) -> Iterator[tuple[PageFacts, TupleStore]]:
        """Yield the tuples of pages, in the order of `places`, with the facts of the pages they come from."""
        with closing(self.in_order(places, stats)) as rounds:
            for addresses in rounds:
                yield self._all_rows(addresses, columns)

    def in_order(self, places: Int64s, stats: JoinStats) -> Generator[Int64s]:
        """Read distinct places and yield the addresses of pages in their order; each is there until the next item."""
        if not _unsorted(places):
            with closing(self.read(places, stats)) as rounds:
                for _, _, addresses in rounds:
                    yield addresses
            return
        # Updates have moved pages. Read half a buffer of them at a time, sorted by place, and put them back in key order.
        for a in range(0, places.size, self.half):
            piece = places[a : a + self.half]
            order = np.argsort(piece, kind="stable")
            addresses = np.empty(piece.size, np.int64)
            with closing(self.read(piece[order], stats, bridge=False)) as rounds:
                for i, j, some in rounds:
                    addresses[order[i:j]] = some
            yield addresses

    def _all_rows(self, addresses: Int64s, columns: tuple[Column, ...]) -> tuple[PageFacts, TupleStore]:
        rows, used = np.empty(addresses.size, np.int32), np.empty(addresses.size, np.int64)
        page_facts(addresses, rows, used)
        return PageFacts(rows, used), self.tuples(addresses, columns)[0]

    def tuples(self, addresses: Int64s, columns: tuple[Column, ...]) -> tuple[TupleStore, Int64s, Int32s]:
        """Copy the tuples of pages in memory to a new store; returns it with the page address and the row of each tuple."""
        n = addresses.size
        rows, used = np.empty(n, np.int32), np.empty(n, np.int64)
        page_facts(addresses, rows, used)
        total = int(rows.sum())
        at, row = np.empty(total, np.int64), np.empty(total, np.int32)
        expand_rows(addresses, np.zeros(n, np.int32), rows, at, row)
        store = TupleStore(columns, total, {c.name: int(used.sum()) for c in columns})
        store.append_from_pages(at, row)
        return store, at, row


def _fit(arrays: dict[str, AnyArray], wanted: tuple[tuple[str, type], ...], *, integer: bool) -> bool:
    """Tell whether the arrays of a sidecar have the wanted names and types, and sizes that fit each other."""
    if [(name, array.dtype) for name, array in arrays.items()] != [(name, np.dtype(type_)) for name, type_ in wanted]:
        return False
    if "words" in arrays:
        return arrays["words"].size > 0 and arrays["words"].size % WORDS == 0
    values, offsets = arrays["values"], arrays["offsets"]
    if integer:
        sound, keys = offsets.size == 0 and values.size % 8 == 0, values.size // 8
    else:
        ends = offsets.size > 0 and int(offsets[0]) == 0 and int(offsets[-1]) == values.size
        sound, keys = ends and not _unsorted(offsets), offsets.size - 1
    if "counts" in arrays:
        return sound and arrays["counts"].size == keys and arrays["histogram"].size == FREQUENCY_BINS
    return sound


def _unsorted(values: Int64s) -> bool:
    return bool((values[1:] < values[:-1]).any())


def key_column(codec: KeyCodec) -> Column:
    """Return the column of a page that holds the key."""
    return Column("", pa.int64() if codec.integer else pa.binary(), codec.width, 0, nullable=False)


def stored_keys(store: TupleStore, integer: bool) -> Keys:
    """Return the keys in column 0 of a store, without a copy."""
    buffers = store.buffers(0)
    if integer:
        return IntKeys(buffers.values.view(np.int64))
    return ByteKeys(buffers.values, buffers.offsets)
