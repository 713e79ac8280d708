"""Write one shard: sorted tables in, a file of sealed pages out, with its index, filter and key statistics."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.arrays import AnyArray, Int32s, Int64s, UInt8s, UInt32s, UInt64s
from headrace.errors import BadInput, shown
from headrace.files import open_new
from headrace.kernels.filter import BLOCK_BYTES, filter_add
from headrace.kernels.pages import ALIGNMENT, ENTRY, HEADER, OFFSET, paginate, seal, write_column
from headrace.relation.columns import NO_LONGS, Buffers, Column, address, from_arrow, width_of
from headrace.relation.keys import ByteKeys, IntKeys, KeyCodec, Keys, concat_keys
from headrace.relation.manifest import FileFacts, IndexFileFacts, ShardFacts, StorageOrder
from headrace.relation.sidecar import write_arrays

TAG_SHIFT = (
    32  # bits: the page number in a header is the file's tag, shifted by this, plus the page's number in the file
)
FILTER_BITS = 12  # bits of the filter per key; about 4 of 1,000 absent keys pass
HEAVY = 4096  # the most frequent keys per shard, whose exact frequency f_R is kept: less than 100 KiB
GOES_ON, GONE_ON = np.uint8(1), np.uint8(2)  # flags of an entry in an index page: see `index_entries`
INDEX_PIECE = 1 << 16  # entries of the index that are made into pages together: some megabytes
FREQUENCY_BINS = 40  # of the histogram; bin b counts keys with a frequency from 2**b up to 2**(b + 1)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The layout of a relation's pages: columns, key, page size and fill."""

    schema: pa.Schema
    key: tuple[str, ...]
    page_size: int
    fill: float
    codec: KeyCodec
    payload: tuple[Column, ...]
    order: StorageOrder = "key"

    @classmethod
    def of(
        cls,
        schema: pa.Schema,
        key: tuple[str, ...],
        page_size: int,
        fill: float,
        order: StorageOrder = "key",
        source: object = "the relation",
    ) -> Layout:
        codec = KeyCodec(key, [schema.field(name).type for name in key], source)
        rest = [f for f in schema if f.name not in key]
        payload = tuple(Column(f.name, f.type, width_of(f.type), i + 1) for i, f in enumerate(rest))
        return cls(schema=schema, key=key, page_size=page_size, fill=fill, codec=codec, payload=payload, order=order)

    @property
    def overhead(self) -> int:
        """Bytes of a page without nulls that are no rows: header, directory, last offsets and alignment, at most."""
        return HEADER + sum(ENTRY + _slack(int(width)) for width in self.widths)

    @property
    def fixed(self) -> int:
        """Bytes of a row without its variable values: packed values, and an offset per variable column."""
        return sum(int(width) or OFFSET for width in self.widths)

    @cached_property
    def widths(self) -> Int64s:
        """Bytes of a value of each stored column, the key first; 0 for one of variable width."""
        return np.array([self.codec.width, *(column.width for column in self.payload)], np.int64)

    @property
    def most_rows(self) -> int:
        """An upper bound of the rows of a page."""
        return (self.page_size - HEADER) // self.fixed


def _slack(width: int) -> int:
    """Bytes that a column of this width takes in a page beyond those of its rows, at most."""
    if width == 0:
        return OFFSET + ALIGNMENT - 1
    return ALIGNMENT - math.gcd(width, ALIGNMENT)


@dataclass
class BuiltPages:
    """Pages built from sorted rows."""

    pages: UInt8s
    starts: Int64s  # first row of each page, and the number of rows
    keys: Keys  # of the rows
    used_bytes: int

    @property
    def count(self) -> int:
        return self.starts.size - 1


@dataclass(frozen=True)
class _Encoded:
    """The rows of a table as they are stored: keys, payload columns, variable bytes a row (empty: none), nullable columns, and
    bytes of a page that are no rows, at most.
    """

    keys: Keys
    columns: list[Buffers]
    sizes: Int64s
    nullable: int
    overhead: int


class PageBuilder:
    """Builds sealed pages of one shard from rows, and counts their nulls and variable bytes."""

    def __init__(self, layout: Layout, shard: int, tag: int) -> None:
        self.layout = layout
        self.shard = shard
        self.tag = tag
        self.nulls = {column.name: 0 for column in layout.payload}
        self.variable_bytes = {c.name: 0 for c in layout.payload if c.width == 0}

    def rebuild(self, table: pa.Table, first_number: int, old_page: Int64s, group: Int64s) -> BuiltPages:
        """Build pages for the rows of pages that changed, in key order; `old_page` and `group` are the old page of each row, and
        the group of neighbours that the page is in.

        The rows of an old page stay together while they fit a page: the fill factor left room for that. A page whose rows do not
        fit is split evenly, so that the parts have room again. Neighbours that hold less than half of what they could are merged.
        """
        encoded = self._encode(table)
        breaks = self._breaks(encoded, old_page, group)
        return self._build(table, encoded, first_number, breaks, self.layout.page_size)

    def build(self, table: pa.Table, first_number: int, *, final: bool = True) -> BuiltPages:
        """Build pages for a sorted table, as full as the fill factor says.

        Unless final, the rows of the last, perhaps unfilled, page are left out. Where the table is sorted by popularity, rows of
        one page are put in key order: pages are searched by key.
        """
        layout = self.layout
        encoded = self._encode(table)
        room = max(int(layout.page_size * layout.fill), encoded.overhead + layout.fixed)
        return self._build(table, encoded, first_number, NO_LONGS, room, final=final)

    def _encode(self, table: pa.Table) -> _Encoded:
        layout = self.layout
        keys, _ = layout.codec.encode([table.column(name) for name in layout.key])
        columns = [from_arrow(table.column(c.name).combine_chunks()) for c in layout.payload]
        variable = [b.offsets for b in (keys.buffers(), *columns) if b.offsets.size]
        sizes = np.sum([np.diff(offsets) for offsets in variable], axis=0) if variable else NO_LONGS
        nullable = sum(1 for b in columns if b.valid.size)
        overhead = layout.overhead + nullable * (ALIGNMENT - 1)  # bitmaps are aligned, too
        self._check_sizes(table, sizes, nullable, overhead)
        return _Encoded(keys, columns, sizes, nullable, overhead)

    def _breaks(self, rows: _Encoded, old_page: Int64s, group: Int64s) -> Int64s:
        """Return the rows at which a new page starts: see `rebuild`."""
        layout, n = self.layout, old_page.size
        before = np.append(0, np.cumsum(layout.fixed + (rows.sizes if rows.sizes.size else np.zeros(n, np.int64))))
        room = max(1, int(layout.page_size * layout.fill) - rows.overhead)
        starts = np.flatnonzero(np.diff(old_page, prepend=-1) > 0)
        if starts.size == 0:
            return NO_LONGS
        size = np.diff(before[np.append(starts, n)])
        # The old pages of a group are one unit if they hold less than half of what they could, and a unit each otherwise.
        first = np.flatnonzero(np.diff(group[starts], prepend=-1) > 0)
        pages = np.diff(np.append(first, starts.size))
        sparse = np.repeat(np.add.reduceat(size, first) < 0.5 * room * pages, pages)
        sparse[first] = False
        starts = starts[~sparse]
        count = np.diff(np.append(starts, n))
        size = np.diff(before[np.append(starts, n)]) + rows.nullable * ((count + 7) // 8)
        parts = np.where(size + rows.overhead > layout.page_size, -(-size // room), 1)
        nth = np.arange(int(parts.sum())) - np.repeat(np.cumsum(parts) - parts, parts)
        cuts = np.repeat(before[starts], parts) + nth * np.repeat(size // parts, parts)
        return np.unique(np.searchsorted(before, cuts))

    def _build(
        self, table: pa.Table, rows: _Encoded, first_number: int, breaks: Int64s, room: int, *, final: bool = True
    ) -> BuiltPages:
        layout, n, keys, columns = self.layout, table.num_rows, rows.keys, rows.columns
        starts = np.empty(n + 1, np.int64)
        count = paginate(n, layout.fixed, rows.nullable, rows.sizes, breaks, rows.overhead, room, starts)
        if not final:
            count -= 1
        starts = starts[: count + 1].copy()
        sorted_keys = keys
        if layout.order == "frequency":
            order = within_pages(keys, starts)
            sorted_keys, table = keys.take(order), table.take(pa.array(order))
            columns = [from_arrow(table.column(c.name).combine_chunks()) for c in layout.payload]
        pages = np.zeros(count * layout.page_size, np.uint8)
        cursor = np.full(count, HEADER + ENTRY * (len(columns) + 1), np.int64)
        self._write(pages, starts, 0, layout.codec.width, sorted_keys.buffers(), cursor)
        for column, buffers in zip(layout.payload, columns, strict=True):
            self._write(pages, starts, column.position, column.width, buffers, cursor)
            used = int(starts[-1])
            if buffers.valid.size:
                self.nulls[column.name] += used - int(np.count_nonzero(buffers.valid[:used]))
            if column.width == 0:
                self.variable_bytes[column.name] += int(buffers.offsets[used] - buffers.offsets[0])
        seal(address(pages), layout.page_size, starts, self.shard, (self.tag << TAG_SHIFT) + first_number, cursor)
        return BuiltPages(pages, starts, keys.slice(0, int(starts[-1])), int(cursor.sum()))

    def _write(
        self, pages: UInt8s, starts: Int64s, position: int, width: int, buffers: Buffers, cursor: Int64s
    ) -> None:
        write_column(
            address(pages),
            self.layout.page_size,
            starts,
            position,
            width,
            address(buffers.values),
            buffers.offsets,
            buffers.valid,
            cursor,
        )

    def _check_sizes(self, table: pa.Table, sizes: Int64s, nullable: int, overhead: int) -> None:
        if sizes.size == 0:
            largest, row = 0, 0
        else:
            row = int(np.argmax(sizes))
            largest = int(sizes[row])
        needed = overhead + self.layout.fixed + nullable + largest
        if table.num_rows and needed > self.layout.page_size:
            key = ", ".join(f"{name}={shown(table.column(name)[row].as_py())}" for name in self.layout.key)
            size = -(-needed // 4096) * 4096
            raise BadInput(
                f"the row with key {key} needs {needed:,} bytes and a page has {self.layout.page_size:,}; create the"
                f" relation with page_size={size} or more"
            )


@dataclass
class KeyStatistics:
    """f_R, the number of rows of each key in R ([MESH] §4.2): exact for the most frequent keys, and a histogram of all."""

    codec: KeyCodec
    distinct: int = 0
    max_frequency: int = 0
    histogram: Int64s = field(default_factory=lambda: np.zeros(FREQUENCY_BINS, np.int64))
    heavy: Keys | None = None
    heavy_counts: Int64s = field(default_factory=lambda: np.empty(0, np.int64))

    def add(self, keys: Keys, counts: Int64s) -> None:
        """Add distinct keys, none of which was added before, with their frequencies."""
        if counts.size == 0:
            return
        self.distinct += counts.size
        self.max_frequency = max(self.max_frequency, int(counts.max()))
        bins = np.frexp(counts.astype(np.float64))[1] - 1
        self.histogram += np.bincount(bins, minlength=FREQUENCY_BINS)[:FREQUENCY_BINS]
        many = np.flatnonzero(counts > 1)
        if many.size == 0:
            return
        parts = [] if self.heavy is None else [self.heavy]
        together = concat_keys([*parts, keys.take(many)], self.codec)
        together_counts = np.concatenate([self.heavy_counts, counts[many]])
        best = np.argsort(-together_counts, kind="stable")[:HEAVY]
        self.heavy, self.heavy_counts = together.take(best), together_counts[best]

    def arrays(self) -> dict[str, AnyArray]:
        buffers = (self.heavy or concat_keys([], self.codec)).buffers()
        return {
            "histogram": self.histogram,
            "counts": self.heavy_counts,
            "values": buffers.values,
            "offsets": buffers.offsets,
        }


class SecondaryIndexBuilder:
    """Builds the secondary index of a shard stored by frequency: every distinct key with the first and last page of its rows.

    Keys are collected while pages are written, and sorted at the end.
    """

    def __init__(self, codec: KeyCodec) -> None:
        self._codec = codec
        self._keys: list[Keys] = []
        self._first: list[Int32s] = []
        self._last: list[Int32s] = []

    def add(self, run: BuiltPages, first_page: int) -> None:
        """Add the keys of new pages."""
        page = np.repeat(np.arange(run.count, dtype=np.int32) + np.int32(first_page), np.diff(run.starts))
        starts = np.flatnonzero(run.keys.repeats() == 0)
        self.add_entries(run.keys.take(starts), page[starts], page[np.append(starts[1:], page.size) - 1])

    def add_entries(self, keys: Keys, first: Int32s, last: Int32s) -> None:
        """Add keys with rows in pages first[i] to last[i], whose other pages, if they have any, were or will be added too."""
        self._keys.append(keys)
        self._first.append(first)
        self._last.append(last)

    def renumber(self, pages: Int32s) -> None:
        """Let page i, of all that was added so far, be page pages[i]."""
        self._first = [pages[some] for some in self._first]
        self._last = [pages[some] for some in self._last]

    def arrays(self) -> dict[str, AnyArray]:
        """Return the arrays of the index sidecar; `last` is empty if no key has rows in several pages."""
        keys = concat_keys(self._keys, self._codec)
        nothing = np.empty(0, np.int32)
        first, last = np.concatenate([nothing, *self._first]), np.concatenate([nothing, *self._last])
        order = keys.argsort()
        keys, first, last = keys.take(order), first[order], last[order]
        starts = np.flatnonzero(keys.repeats() == 0)
        if starts.size:
            first, last = np.minimum.reduceat(first, starts), np.maximum.reduceat(last, starts)
            keys = keys.take(starts)
        buffers = keys.buffers()
        spans = bool((first != last).any())
        return {
            "values": buffers.values,
            "offsets": buffers.offsets,
            "first": first,
            "last": last if spans else nothing,
        }


class ShardWriter:
    """Writes the pages of one shard to a new file, and the sidecars of a version that consists of that file alone.

    Used by ``with``, which closes the file of a writer that fails.
    """

    def __init__(self, root: Path, layout: Layout, shard: int, version: int, tag: str = "") -> None:
        self.root = root
        self.layout = layout
        self.stem = f"shard-{shard:04d}-{version:06d}{tag}"
        self.tag = FileFacts.new_tag()
        self.builder = PageBuilder(layout, shard, self.tag)
        self._file = open_new(root / f"{self.stem}.pages")
        self._pending: pa.Table | None = None
        self._rows = self._pages = self._used = 0
        self._fences: list[Keys] = []
        self._continues: list[UInt8s] = []
        self._dense = SecondaryIndexBuilder(layout.codec)
        self._hashes: list[UInt64s] = []
        self._statistics = KeyStatistics(layout.codec)
        self._open: tuple[Keys, int] | None = None  # the last key written and its rows so far: more may follow

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, table: pa.Table) -> None:
        """Append rows that sort after all earlier rows."""
        if self._pending is not None:
            table = pa.concat_tables([self._pending, table])
        self._append(table, final=False)

    def close(self) -> ShardFacts:
        """Write what is left, flush the file, and write the sidecars."""
        if self._pending is not None:
            self._append(self._pending, final=True)
        if self._open is not None:
            key, rows = self._open
            self._statistics.add(key, np.array([rows], np.int64))
            self._hashes.append(key.hashes())
        self._file.sync()
        self._file.close()
        pages = FileFacts(f"{self.stem}.pages", self._pages * self.layout.page_size, self.tag, self._pages)
        return write_sidecars(
            self.root,
            self.stem,
            self.builder,
            [pages],
            index=self._index(),
            pages=self._pages,
            words=new_filter(self._hashes, self._statistics.distinct),
            statistics=self._statistics,
            rows=self._rows,
            used_bytes=self._used,
        )

    def _append(self, table: pa.Table, *, final: bool) -> None:
        run = self.builder.build(table, self._pages, final=final)
        taken = int(run.starts[-1])
        self._pending = None if final else table.slice(taken)
        if run.count == 0:
            return
        self._file.write(run.pages.data)
        repeats = self._count_keys(run.keys)
        if self.layout.order == "frequency":
            self._dense.add(run, self._pages)
        else:
            self._fences.append(run.keys.take(run.starts[:-1]))
            self._continues.append(repeats[run.starts[:-1]])
        self._rows += taken
        self._pages += run.count
        self._used += run.used_bytes

    def _index(self) -> dict[str, AnyArray]:
        if self.layout.order == "frequency":
            return self._dense.arrays()
        continues = np.concatenate([np.empty(0, np.uint8), *self._continues])
        return fence_arrays(concat_keys(self._fences, self.layout.codec), continues, NO_LONGS)

    def _count_keys(self, keys: Keys) -> UInt8s:
        """Add keys that are complete to statistics and filter; returns 1 for each row that repeats the key before it."""
        repeats = keys.repeats()
        starts = np.flatnonzero(repeats == 0)
        counts = np.diff(starts, append=len(keys))
        distinct = keys.take(starts)
        if self._open is not None:
            last, rows = self._open
            if concat_keys([last, keys.slice(0, 1)], self.layout.codec).repeats()[1]:
                repeats[0] = 1
                counts[0] += rows
            else:
                self._statistics.add(last, np.array([rows], np.int64))
                self._hashes.append(last.hashes())
        n = len(distinct)
        self._open = (distinct.take(np.array([n - 1])), int(counts[-1]))
        done = distinct.slice(0, n - 1)
        self._statistics.add(done, counts[:-1])
        self._hashes.append(done.hashes())
        return repeats


def within_pages(keys: Keys, starts: Int64s) -> Int64s:
    """Return the order of rows that sorts each page by key and leaves the pages as they are."""
    page = np.repeat(np.arange(starts.size - 1), np.diff(starts))
    order = keys.slice(0, page.size).argsort()
    return order[np.argsort(page[order], kind="stable")]


def fence_arrays(fence: Keys, continues: UInt8s, places: Int64s) -> dict[str, AnyArray]:
    """Return the arrays of the index sidecar of a shard in key order."""
    buffers = fence.buffers()
    return {"values": buffers.values, "offsets": buffers.offsets, "continues": continues, "places": places}


def new_filter(hashes: list[UInt64s], distinct: int) -> UInt32s:
    blocks = max(1, -(-distinct * FILTER_BITS // (8 * BLOCK_BYTES)))
    words = np.zeros(blocks * BLOCK_BYTES // 4, np.uint32)
    for some in hashes:
        filter_add(words, some)
    return words


def write_shards(
    root: Path, layout: Layout, version: int, rows: Iterable[Iterable[pa.Table]]
) -> tuple[list[ShardFacts], dict[str, int], dict[str, int]]:
    """Write all shards of a version anew; `rows` gives the sorted tables of each. Returns the facts of the shards, and the nulls
    and variable bytes of the columns.
    """
    facts, nulls = [], {c.name: 0 for c in layout.payload}
    variable = {c.name: 0 for c in layout.payload if c.width == 0}
    for shard, tables in enumerate(rows):
        with ShardWriter(root, layout, shard, version) as writer:
            for table in tables:
                writer.write(table)
            facts.append(writer.close())
        for name, count in writer.builder.nulls.items():
            nulls[name] += count
        for name, count in writer.builder.variable_bytes.items():
            variable[name] += count
    return facts, nulls, variable


def write_sidecars(
    root: Path,
    stem: str,
    builder: PageBuilder,
    files: list[FileFacts],
    *,
    index: dict[str, AnyArray],
    pages: int,
    words: UInt32s,
    statistics: KeyStatistics,
    rows: int,
    used_bytes: int,
) -> ShardFacts:
    """Write index, index pages, filter and statistics of one version of the shard whose pages a builder made."""
    parts: dict[str, dict[str, AnyArray]] = {
        "index": index,
        "filter": {"words": words},
        "stats": statistics.arrays(),
    }
    facts = {}
    for part, arrays in parts.items():
        tag = FileFacts.new_tag()
        facts[part] = FileFacts(f"{stem}.{part}", write_arrays(root / f"{stem}.{part}", arrays, tag), tag)
    return ShardFacts(
        rows=rows,
        pages=pages,
        used_bytes=used_bytes,
        distinct=statistics.distinct,
        max_frequency=statistics.max_frequency,
        files=files,
        fences=write_index_pages(root / f"{stem}.fences", builder.layout, builder.shard, index),
        **facts,
    )


# -- index pages: see paged_index.py ---------------------------------------------------------------------------------------


def index_layout(page_size: int, *, integer: bool) -> Layout:
    """Return the layout of index pages: a key, a number, and flags."""
    key = pa.int64() if integer else pa.binary()
    schema = pa.schema([("key", key), ("number", pa.int64()), ("flags", pa.uint8())])
    return Layout.of(schema, ("key",), page_size, fill=1.0)  # they are never changed


def index_entries(index: dict[str, AnyArray], codec: KeyCodec) -> tuple[Keys, Int64s, UInt8s]:
    """Return the entries of the leaves for the arrays of an index: keys, numbers and flags.

    In key order an entry stands for a page: its fence key, its place, and whether its last key goes on in the next page (flag
    GOES_ON), or its first one is the last of the page before (flag GONE_ON). By frequency it stands for a key: its first page,
    and its last one in the upper half of the number.
    """
    values = index["values"]
    keys: Keys = IntKeys(values.view(np.int64)) if codec.integer else ByteKeys(values, index["offsets"])
    if "first" in index:
        first, last = index["first"].astype(np.int64), index["last"].astype(np.int64)
        return keys, first | ((last if last.size else first) << 32), np.zeros(len(keys), np.uint8)
    places, continues = index["places"], index["continues"]
    goes_on = np.append(continues[1:], np.zeros(min(1, len(keys)), np.uint8))
    return keys, places if places.size else np.arange(len(keys)), GOES_ON * goes_on | GONE_ON * continues


def entries_above(keys: Keys, numbers: Int64s, first: Int64s, *, leaves: bool) -> tuple[Keys, Int64s, UInt8s]:
    """Return the entries of a level for the one below, whose pages begin with its entries `first`.

    An entry has the first key of a page and, in one number, which entry of that level is its first and, in the upper half, which
    entry of the leaves that leads to.
    """
    rank = first if leaves else numbers[first] >> 32
    return keys.take(first), first | (rank << 32), np.zeros(first.size, np.uint8)


def write_index_pages(path: Path, layout: Layout, shard: int, index: dict[str, AnyArray]) -> IndexFileFacts | None:
    """Write the pages of an index, level by level.

    There are none, and None is returned, if the whole index would fit a page, if keys are so long that no two would, and if rows
    stored by frequency were changed: their entries lead to numbers of pages, and these lie anywhere until `compact`.
    """
    if "first" in index and "places" in index:
        return None
    pages_of = index_layout(layout.page_size, integer=layout.codec.integer)
    keys, numbers, flags = index_entries(index, layout.codec)
    lengths = np.diff(keys.buffers().offsets)  # of byte strings; integers have none
    whole, two = len(keys) * pages_of.fixed + int(lengths.sum()), 2 * (pages_of.fixed + int(lengths.max(initial=0)))
    if pages_of.overhead + max(whole, 1) <= layout.page_size or pages_of.overhead + two > layout.page_size:
        return None
    tag, levels = FileFacts.new_tag(), list[int]()
    builder = PageBuilder(pages_of, shard, tag)
    piece = max(INDEX_PIECE, 2 * pages_of.most_rows)  # the last page of a piece is made again with the next one
    with open_new(path) as file:
        while len(keys) and levels[-1:] != [1]:
            at, starts = 0, list[Int64s]()
            while at < len(keys):
                stop = min(at + piece, len(keys))
                columns = [*pages_of.codec.decode(keys.slice(at, stop)), numbers[at:stop], flags[at:stop]]
                table = pa.table(columns, names=pages_of.schema.names)
                first_number = sum(levels) + sum(some.size for some in starts)
                run = builder.build(table, first_number, final=stop == len(keys))
                file.write(run.pages.data)
                starts.append(at + run.starts[:-1])
                at += int(run.starts[-1])
            first = np.concatenate(starts)
            keys, numbers, flags = entries_above(keys, numbers, first, leaves=not levels)
            levels.append(first.size)
        file.sync()
    pages = sum(levels)
    moved = "places" in index and index["places"].size > 0
    return IndexFileFacts(path.name, pages * layout.page_size, tag, pages, levels, moved)
