"""The non-swappable part of X-HYBRIDJOIN's disk buffer: the most popular pages of R, which stay. [XHJ] §4"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headrace.arrays import Int32s, Int64s, UInt64s
from headrace.metrics import JoinStats
from headrace.relation import Relation
from headrace.relation.keys import Keys
from headrace.relation.reader import PageReader, Version
from headrace.semistream.hash_probe import HashProbe


class NonSwappable:
    """Tuples of the l most popular pages, sorted by the hash of their key: new stream tuples look them up.

    Parameters
    ----------
    relation, version
        R, stored by popularity; and its version with an index that is not in memory as a whole, if it is not.
    """

    keys: Keys
    hashes: UInt64s

    def __init__(self, relation: Relation, version: Version | None = None) -> None:
        self._relation, self._version = relation, version or relation.opened
        self.new: list[
            tuple[Int32s, UInt64s]
        ] = []  # slots and hashes of stream tuples that have not looked anything up
        self.places: Int64s = np.empty(0, np.int64)  # of its pages
        self.at: Int64s = np.empty(0, np.int64)  # page address of each tuple
        self.row: Int32s = np.empty(0, np.int32)  # row of each tuple in its page

    @property
    def size(self) -> int:
        """Tuples in it: d_N."""
        return self.at.size

    def load(self, l: int, probe: HashProbe, stats: JoinStats) -> None:
        """Read l pages, which stay for good."""
        self.places = self.most_popular(l)
        # The addresses stay good as long as the reader does.
        self._reader = PageReader(self._relation.opened, max(1, l) * self._relation.page_size, whole=True)
        pages = [some for _, _, some in self._reader.read(self.places, stats, bridge=False)]
        keys, at, row = probe.tuples_of(self._reader, np.concatenate([np.empty(0, np.int64), *pages]))
        hashes = keys.hashes()
        by_hash = np.argsort(hashes)
        self.keys, self.hashes = keys.take(by_hash), hashes[by_hash]
        self.at, self.row = at[by_hash], row[by_hash]

    def most_popular(self, pages: int) -> Int64s:
        """The first pages of the relation; of each shard in proportion to its pages. Sorted."""
        shards = [self._version.places(s, pages) for s in range(self._relation.num_shards)]
        sizes = [max(1, index.pages) for index in self._version.indexes]
        places = np.concatenate([np.empty(0, np.int64), *shards])
        depths = ((np.arange(some.size) + 0.5) / size for some, size in zip(shards, sizes, strict=True))
        depth = np.concatenate([np.empty(0), *depths])
        return np.sort(places[np.argsort(depth, kind="stable")[:pages]])

    def served(self, most: int) -> Iterator[tuple[Int32s, Int32s]]:
        """KeyPages of a tuple here and the slot of a new stream tuple whose hashes are equal, at most so many at a time."""
        new = self.new[:]
        self.new.clear()
        for slots, wanted in new:
            low, high = np.searchsorted(self.hashes, wanted), np.searchsorted(self.hashes, wanted, side="right")
            many = high - low  # more than one where texts share a hash
            slots = np.repeat(slots, many)
            r = (np.repeat(low - np.cumsum(many) + many, many) + np.arange(slots.size)).astype(np.int32)
            for a in range(0, r.size, most):
                yield r[a : a + most], slots[a : a + most]
