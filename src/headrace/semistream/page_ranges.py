"""The keys of stream tuples, and the pages they need: as runs of pages, listed a bounded number of pages at a time."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from headrace.arrays import Int32s, Int64s, UInt8s
from headrace.conditions import Between
from headrace.errors import BadInput
from headrace.kernels.cache import spell_out
from headrace.relation import Relation
from headrace.relation.keys import KeyCodec, Keys
from headrace.relation.reader import FILE_SHIFT, PAGE_MASK, SHARD_SHIFT, Version
from headrace.semistream.base import On

_LISTED = 1 << 16  # pages that are looked at together where all are: half a megabyte


def all_places(relation: Relation) -> Int64s:
    """Where every page of a relation lies, sorted."""
    shards = (relation.opened.places(s) for s in range(relation.num_shards))
    places: Int64s = np.sort(np.concatenate([np.empty(0, np.int64), *shards]))
    return places


class PageRanks(Protocol):
    """The pages of a relation, each with a rank that rises with its place."""

    @property
    def size(self) -> int:
        """How many ranks there are."""
        ...

    def rank(self, places: Int64s) -> Int64s:
        """The ranks of pages."""
        ...

    def __getitem__(self, ranks: Int32s | Int64s) -> Int64s:
        """Where the pages with these ranks lie."""
        ...

    def run(self, first: int, count: int) -> Int64s:
        """Where the pages in use lie whose ranks are `first` and the next ones, `count` in all."""
        ...

    def without(self, places: Int64s) -> PageRanks:
        """These pages without some that are no part of a run any more."""
        ...


class ListedPages:
    """Pages by a sorted list of their places."""

    def __init__(self, places: Int64s) -> None:
        self.places = places

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self.places.size

    def rank(self, places: Int64s) -> Int64s:
        """The ranks of pages."""
        return np.searchsorted(self.places, places)

    def __getitem__(self, ranks: Int32s | Int64s) -> Int64s:
        """Where the pages with these ranks lie."""
        return self.places[ranks]

    def run(self, first: int, count: int) -> Int64s:
        """Where the pages lie whose ranks are `first` and the next ones, `count` in all."""
        return self.places[first : first + count]

    def without(self, places: Int64s) -> ListedPages:
        """These pages without some; those behind them move up."""
        return ListedPages(np.setdiff1d(self.places, places, assume_unique=True))


class FilePages:
    """Pages by their numbers in files, for a relation whose places are too many to be listed.

    Pages that an update replaced have ranks too, though no index leads to them.

    Parameters
    ----------
    version
        The open version.
    bitmap
        Whether runs are asked for. They have pages in use only: a bitmap of these is made, if there are others.
    """

    def __init__(self, version: Version, *, bitmap: bool = False) -> None:
        shards = version.manifest.shards
        files = [
            (s << SHARD_SHIFT) + (f << FILE_SHIFT) for s, shard in enumerate(shards) for f in range(len(shard.files))
        ]
        pages = [file.pages for shard in shards for file in shard.files]
        self._file_at = np.array(files, np.int64)
        self._starts = np.append(0, np.cumsum(np.array(pages, np.int64)))
        self._out: Int64s = np.empty(0, np.int64)
        self._live: UInt8s | None = None
        if bitmap and sum(shard.pages for shard in shards) < self.size:
            self._live = self._pages_in_use(version)

    def _pages_in_use(self, version: Version) -> UInt8s:
        """A bit for each page."""
        live = np.zeros((self.size + 7) // 8, np.uint8)
        for index in version.indexes:
            for a in range(0, index.pages, _LISTED):
                ranks = self.rank(index.place(np.arange(a, min(a + _LISTED, index.pages))))
                np.bitwise_or.at(live, ranks >> 3, (1 << (ranks & 7)).astype(np.uint8))
        return live

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return int(self._starts[-1])

    def rank(self, places: Int64s) -> Int64s:
        """The ranks of pages."""
        file = np.searchsorted(self._file_at, places, side="right") - 1
        ranks: Int64s = self._starts[file] + (places & PAGE_MASK)
        return ranks

    def __getitem__(self, ranks: Int32s | Int64s) -> Int64s:
        """Where the pages with these ranks lie."""
        file = np.searchsorted(self._starts, ranks, side="right") - 1
        places: Int64s = self._file_at[file] + (ranks - self._starts[file])
        return places

    def run(self, first: int, count: int) -> Int64s:
        """Where the pages in use lie whose ranks are `first` and the next ones, `count` in all."""
        ranks = np.arange(first, min(first + count, self.size))
        if self._live is not None:
            ranks = ranks[(self._live[ranks >> 3] >> (ranks & 7)) & 1 == 1]
        return np.setdiff1d(self[ranks], self._out, assume_unique=True)

    def without(self, places: Int64s) -> FilePages:
        """These pages without some, which leave gaps."""
        other = copy.copy(self)
        other._out = places
        return other


@dataclass(frozen=True)
class Spans:
    """Tuple row[i] needs pages first[i] .. stop[i] of the index of a shard; tuples that need none are left out."""

    version: Version
    row: Int32s
    shard: Int32s
    first: Int32s
    stop: Int32s

    @classmethod
    def equal(cls, version: Version, keys: Keys) -> Spans:
        """The pages that tuples with these keys need."""
        shard = version.shards_of(keys.hashes()) if len(version.indexes) > 1 else np.zeros(len(keys), np.int32)
        parts = []
        for number, index in enumerate(version.indexes):
            mine = np.flatnonzero(shard == number)
            some = keys.take(mine)
            order = some.argsort()
            low, high = index.locate(some.take(order))
            parts.append((mine[order], number, low, high))
        return cls._of(version, parts)

    @classmethod
    def between(cls, version: Version, lows: Keys, highs: Keys) -> Spans:
        """The pages that tuples with these ranges of keys need, both ends included: a range has pages in every shard."""
        parts = []
        by_low, by_high = lows.argsort(), highs.argsort()
        low, high = np.empty(len(lows), np.int32), np.empty(len(lows), np.int32)
        for number, index in enumerate(version.indexes):
            # Below the first key: from the first page on
            low[by_low] = np.maximum(index.locate(lows.take(by_low))[0], 0)
            high[by_high] = index.locate(highs.take(by_high))[1]
            high[high < low] = -1
            parts.append((by_low, number, np.where(high < 0, -1, low)[by_low].astype(np.int32), high[by_low]))
        return cls._of(version, parts)

    @classmethod
    def _of(cls, version: Version, parts: list[tuple[Int64s, int, Int32s, Int32s]]) -> Spans:
        row, shard, first, stop = [], [], [], []
        for rows, number, low, high in parts:
            some = low >= 0
            row.append(rows[some].astype(np.int32))
            shard.append(np.full(row[-1].size, number, np.int32))
            first.append(low[some])
            stop.append(high[some] + np.int32(1))
        return cls(version, *(np.concatenate([np.empty(0, np.int32), *p]) for p in (row, shard, first, stop)))

    @property
    def size(self) -> int:
        """How many runs there are."""
        return self.row.size

    def pages(self, rows: int) -> Int32s:
        """How many pages each of so many tuples needs."""
        total = np.bincount(self.row, weights=self.stop - self.first, minlength=rows)
        return total.astype(np.int32)

    def some(self, stop: Int64s, most: int) -> tuple[Int32s, Int64s]:
        """The next pairs of a tuple and a place, at most so many; stop says how far this is, from (0, 0) to (size, 0)."""
        which, page = np.empty(most, np.int32), np.empty(most, np.int32)
        n = int(spell_out(self.first, self.stop, stop, which, page))
        return self.row[which[:n]], self.places(self.shard[which[:n]], page[:n])

    def places(self, shard: Int32s, page: Int32s) -> Int64s:
        """Where pages of indexes lie."""
        out = np.empty(page.size, np.int64)
        for number, index in enumerate(self.version.indexes):
            mine = shard == number
            out[mine] = index.place(page[mine])
        return out


def keys_of(codec: KeyCodec, batch: pa.RecordBatch, columns: Sequence[Sequence[str]]) -> tuple[list[Keys], Int64s]:
    """Keys of the rows of a batch without a null, one for each group of columns, and the numbers of these rows."""
    encoded = [codec.encode([batch.column(name) for name in names]) for names in columns]
    there = np.ones(batch.num_rows, np.bool_)
    for _, valid in encoded:
        if valid.size:
            there &= valid == 1
    rows = np.flatnonzero(there)
    return [keys.take(rows) if rows.size < len(keys) else keys for keys, _ in encoded], rows


def range_columns(condition: object, on: On | None, relation: Relation) -> tuple[str, str] | None:
    """The stream's columns that name a range of keys; refuses conditions that an index does not help with."""
    if condition is None:
        return None
    key = relation.key
    if not isinstance(condition, Between) or condition.of != "right" or (condition.column,) != key:
        raise BadInput(
            f"condition={condition!r} cannot be looked up in the index of {', '.join(key)}; give between({key[0]!r}, low, high,"
            " of='right') with two columns of the stream, for a relation with one key column"
        )
    if condition.inclusive != "both":
        raise BadInput(f"inclusive={condition.inclusive!r} cannot be looked up in an index; use 'both'")
    if on is not None:
        raise BadInput(f"on={on!r} and a condition are both given; join on one of them")
    if relation.order != "key":
        raise BadInput(
            f"{relation.path} is stored by popularity, and a range needs pages in the order of keys; create it without order"
        )
    return condition.low, condition.high
