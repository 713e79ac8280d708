"""`Relation.verify`: every byte of a version read, and what index, filter, statistics and manifest say compared with the pages.

Reading finds damage by checksums, and pages that lead outside of themselves. Compared here is whether the parts of a version
agree: fences with the first keys of pages, index pages with the index, filter and shard with every key, counts with what the
pages hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from headrace.arrays import Bools, Int64s, UInt8s
from headrace.errors import DamagedRelation
from headrace.kernels.filter import filter_test
from headrace.metrics import JoinStats
from headrace.relation.index_pool import IndexFiles
from headrace.relation.keys import Keys, concat_keys, positions
from headrace.relation.manifest import manifest_path
from headrace.relation.reader import (
    SHARD_SHIFT,
    FenceIndex,
    PageFacts,
    PageReader,
    SecondaryIndex,
    Version,
    key_column,
    stored_keys,
)
from headrace.relation.writer import entries_above, index_entries, within_pages

_BAD_KEY = "a key in it is not of the key's types"
BUFFER = 16 << 20  # bytes of the read buffer: long runs, and little memory


@dataclass
class ColumnCounts:
    """What the manifest counts of the columns: nulls, and bytes of those of variable width."""

    nulls: dict[str, int]
    variable_bytes: dict[str, int]

    @classmethod
    def none(cls, version: Version) -> ColumnCounts:
        """Return zeros for the columns of a version."""
        return cls(dict.fromkeys(version.manifest.nulls, 0), dict.fromkeys(version.manifest.variable_bytes, 0))

    def add(self, other: ColumnCounts) -> None:
        """Add the counts of another shard."""
        for name, count in other.nulls.items():
            self.nulls[name] += count
        for name, count in other.variable_bytes.items():
            self.variable_bytes[name] += count


def verify_version(version: Version, progress: Callable[[int, int | None], None] | None) -> None:
    """Read every byte of a version; raises `DamagedRelation` at the first part that is damaged or contradicts another."""
    shards = version.manifest.shards
    pages, done, counts = sum(shard.pages for shard in shards), 0, ColumnCounts.none(version)

    def read(some: int, nbytes: int) -> None:
        nonlocal done
        done += some
        if progress and some:
            progress(done, pages)

    reader = PageReader(version, max(2 * version.page_size, min(BUFFER, 2 * pages * version.page_size)))
    for number in range(len(shards)):
        counts.add(verify_shard(version, number, reader, read))
    check_counts(version, counts)


def verify_shard(
    version: Version, number: int, reader: PageReader, read: Callable[[int, int], None] = lambda pages, nbytes: None
) -> ColumnCounts:
    """Read every byte of a shard and compare its parts; returns the counts of its columns.

    `read` is called with the pages and the bytes that were read.
    """
    facts, counts = version.manifest.shards[number], ColumnCounts.none(version)
    # Columns of the layout may all be null: those of the version are what the manifest says.
    columns = (key_column(version.codec), *version.layout.payload)
    check = _ShardCheck(version, number)
    read(0, facts.index.bytes + facts.filter.bytes + facts.stats.bytes)
    for some, store in reader.scan(check.places, columns, JoinStats()):
        check.compare(stored_keys(store, version.codec.integer), some)
        for i, column in enumerate(version.layout.payload):
            buffers = store.buffers(i + 1)
            counts.nulls[column.name] += store.used - int(np.count_nonzero(buffers.valid))
            if column.width == 0:
                counts.variable_bytes[column.name] += int(buffers.offsets[-1])
        read(some.rows.size, some.rows.size * version.page_size)
    check.finish()
    _check_index_pages(version, number)  # last: an index that is wrong itself is named first
    read(0, facts.fences.bytes if facts.fences else 0)
    return counts


def check_counts(version: Version, counts: ColumnCounts) -> None:
    """Refuse a manifest that counts other nulls or bytes of its columns than all its pages hold."""
    manifest = version.manifest
    for name, said, found in (
        ("nulls", manifest.nulls, counts.nulls),
        ("variable_bytes", manifest.variable_bytes, counts.variable_bytes),
    ):
        for column_name, count in found.items():
            _same(version, f"{name}[{column_name!r}]", said[column_name], count)


def _same(version: Version, name: str, said: int, found: int) -> None:
    """Refuse a count of the manifest that is not that of the pages."""
    if said != found:
        path = manifest_path(version.root, version.manifest.version)
        raise DamagedRelation(path, f"its field {name} is {said:,}; the pages hold {found:,}")


def _check_index_pages(version: Version, shard: int) -> None:
    """Compare the pages of a shard's index, level by level, with the index; a small index has none, and one before format 4."""
    facts = version.manifest.shards[shard]
    if facts.fences is None:
        return
    files, at = IndexFiles(version), shard << SHARD_SHIFT
    columns = (key_column(files.layout.codec), *(c.with_nullable(False) for c in files.layout.payload))
    reader = PageReader(files, max(2 * version.page_size, min(BUFFER, 2 * facts.fences.bytes)))
    keys, numbers, flags = index_entries(version.arrays(shard, "index"), version.codec)
    for level, pages in enumerate(facts.fences.levels):
        done, first = 0, [np.empty(0, np.int64)]
        for some, store in reader.scan(at + np.arange(pages), columns, JoinStats()):
            begins = done + np.append(0, np.cumsum(some.rows, dtype=np.int64))
            page, done = at + sum(part.size for part in first), int(begins[-1])
            rows = np.arange(begins[0], min(done, len(keys)))
            found = stored_keys(store, version.codec.integer).slice(0, rows.size)
            same = found.equal_at(keys, rows.astype(np.int32))  # type: ignore[arg-type]
            same &= store.buffers(1).values.view(np.int64)[: rows.size] == numbers[rows]
            same &= store.buffers(2).values[: rows.size] == flags[rows]
            wrong = np.append(rows[~same], len(keys))[:1]
            if wrong[0] < done or (some.rows == 0).any():
                number = int(np.searchsorted(begins[1:], wrong[0], side="right"))
                raise files.damaged(page + min(number, some.rows.size - 1), "its entries are not those of the index")
            first.append(begins[:-1])
        if done < len(keys):
            raise files.damaged(at, f"its level has {done:,} entries where the index has {len(keys):,}")
        at += pages
        keys, numbers, flags = entries_above(keys, numbers, np.concatenate(first), leaves=level == 0)


class _ShardCheck:
    """Compares the pages of one shard, in the order of its index, with what is said about them elsewhere."""

    def __init__(self, version: Version, number: int) -> None:
        self.version = version
        self.number = number
        self.index = version.read_index(number)
        self.places = self.index.place(np.arange(self.index.pages))
        self._words = version.filter(number)
        self._histogram: Int64s = version.arrays(number, "stats")["histogram"]
        self._pages = self._rows = self._used = self._distinct = 0
        self._longest = self._run = 0  # rows of the most frequent key, and of the last key as far as it was seen
        self._last: Keys | None = None
        self._seen: Bools = np.zeros(len(self.index.keys) if isinstance(self.index, SecondaryIndex) else 0, np.bool_)

    def compare(self, keys: Keys, facts: PageFacts) -> None:
        """Compare the next pages, whose rows have these keys."""
        self._refuse(np.flatnonzero(facts.rows == 0), "it has no rows")
        starts = np.append(0, np.cumsum(facts.rows, dtype=np.int64))
        self._decode(keys, starts)
        hashes = keys.hashes()
        found = np.zeros(len(keys), np.uint8)
        filter_test(self._words, hashes, np.arange(len(keys)), found)
        self._refuse_rows(starts, found == 0, "the filter does not know one of its keys")
        self._refuse_rows(starts, self.version.shards_of(hashes) != self.number, "it holds a key of another shard")
        if isinstance(self.index, FenceIndex):
            self._compare_fences(self.index, keys, starts)
        else:
            self._compare_entries(self.index, keys, starts)
        self._pages += facts.rows.size
        self._rows += len(keys)
        self._used += int(facts.used.sum())

    def _decode(self, keys: Keys, starts: Int64s) -> None:
        """Refuse the page with the first key that is none of the key's types."""
        try:
            self.version.codec.decode(keys)
        except DamagedRelation as error:
            for page, (a, b) in enumerate(pairwise(starts)):
                try:
                    self.version.codec.decode(keys.slice(int(a), int(b)))
                except DamagedRelation:
                    raise self.version.damaged(int(self.places[self._pages + page]), _BAD_KEY) from error
            raise

    def _compare_fences(self, index: FenceIndex, keys: Keys, starts: Int64s) -> None:
        """Compare pages in key order: each begins with its fence key, and no key is below the one before."""
        before = [] if self._last is None else [self._last]
        together = concat_keys([*before, keys], self.version.codec)
        backward = np.flatnonzero(np.diff(together.argsort()) < 0)
        if backward.size:
            raise DamagedRelation(self._file, "its keys are out of order", shard=self.number)
        repeats = together.repeats()[len(before) :]
        pages = np.arange(self._pages, self._pages + starts.size - 1)
        same = keys.take(starts[:-1]).equal_at(index.fence, pages.astype(np.int32))  # type: ignore[arg-type]
        self._refuse(np.flatnonzero(~same), "its first key is not the one in the index")
        continues = index.continues[pages] != repeats[starts[:-1]]
        self._refuse(np.flatnonzero(continues), "the index is wrong about a key that spans it and the page before")
        self._count(repeats)
        self._last = keys.slice(len(keys) - 1, len(keys)) if len(keys) else self._last

    def _count(self, repeats: UInt8s) -> None:
        """Count distinct keys, and the rows of the most frequent one."""
        fresh = np.flatnonzero(repeats == 0)
        runs = np.diff(np.concatenate([[-self._run], fresh, [repeats.size]]))
        self._distinct += fresh.size
        self._longest = max(self._longest, int(runs.max()))
        self._run = int(runs[-1])

    def _compare_entries(self, index: SecondaryIndex, keys: Keys, starts: Int64s) -> None:
        """Compare pages stored by frequency: each is sorted by key, and the index leads to it for all its keys."""
        page = np.repeat(np.arange(starts.size - 1), np.diff(starts))
        self._refuse(page[:-1][np.diff(within_pages(keys, starts)) < 0], "its keys are out of order")
        order = keys.argsort()
        at, known = positions(keys.take(order), index.keys)
        last = index.last_pages
        number = page[order] + self._pages
        known[known] &= (index.first[at[known]] <= number[known]) & (number[known] <= last[at[known]])
        self._refuse(np.sort(page[order][~known]), "the index does not lead to it for one of its keys")
        self._seen[at] = True

    def finish(self) -> None:
        """Compare the sums."""
        facts, where = self.version.manifest.shards[self.number], f"shards[{self.number}]"
        if isinstance(self.index, SecondaryIndex):
            self._distinct = int(np.count_nonzero(self._seen))
            self._longest = facts.max_frequency
            if not self._seen.all():
                path = self.version.root / facts.index.name
                raise DamagedRelation(path, "it has a key that no page holds", shard=self.number)
        for name, said, found in (
            ("rows", facts.rows, self._rows),
            ("used_bytes", facts.used_bytes, self._used),
            ("distinct", facts.distinct, self._distinct),
            ("max_frequency", facts.max_frequency, max(self._longest, facts.max_frequency)),  # it is a bound
        ):
            _same(self.version, f"{where}.{name}", said, found)
        if int(self._histogram.sum()) != self._distinct:
            path = self.version.root / facts.stats.name
            raise DamagedRelation(path, f"its histogram does not count {self._distinct:,} keys", shard=self.number)

    @property
    def _file(self) -> object:
        facts = self.version.manifest.shards[self.number]
        return self.version.root / facts.files[0].name

    def _refuse_rows(self, starts: Int64s, wrong: Bools, reason: str) -> None:
        self._refuse(np.searchsorted(starts, np.flatnonzero(wrong)[:1], side="right") - 1, reason)

    def _refuse(self, pages: Int64s, reason: str) -> None:
        """Raise for the first of some pages, numbered among those that are being compared."""
        if pages.size:
            raise self.version.damaged(int(self.places[self._pages + int(pages[0])]), reason)
