"""The swappable part of the disk buffer, and the oldest waiting tuple that names what is loaded into it. [XHJ] §3"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headrace.arrays import Int32s, Int64s
from headrace.metrics import JoinStats
from headrace.relation import Relation
from headrace.relation.reader import PageReader, Version
from headrace.semistream.page_ranges import FilePages, ListedPages, PageRanks, all_places
from headrace.semistream.waiting_store import HashWindow


class PartitionLoader:
    """Loads the partition of k pages that a waiting tuple needs.

    Parameters
    ----------
    relation, stream_key
        R, and the stream's columns that must equal its key.
    H
        The tuples that wait.
    version
        The relation's version with an index that is not in memory as a whole, if it is not.
    """

    def __init__(
        self, relation: Relation, stream_key: tuple[str, ...], H: HashWindow, version: Version | None = None
    ) -> None:
        self._relation, self._version = relation, version or relation.opened
        self._stream_key = stream_key
        self._H = H
        self.k = 1
        # Pages that are loaded when they are needed. A list of them would be as large as the index.
        listed = self._version is relation.opened
        self.places: PageRanks = ListedPages(all_places(relation)) if listed else FilePages(self._version, bitmap=True)
        self.reader = PageReader(self._version, relation.page_size, whole=True)

    def resize(self, k: int, without: Int64s | None = None) -> None:
        """Load k pages at a time, and none of those that are always in memory."""
        self.k = k
        self.reader = PageReader(self._version, k * self._relation.page_size, whole=True)
        if without is not None:
            self.places = self.places.without(without)

    def oldest(self) -> tuple[Int32s, Int32s, int]:
        """The slot of the oldest tuple that may have a match, older ones that the index proves to have none, and its page."""
        looked = 1
        while True:
            slots = self._H.oldest(looked)
            places = self._places_of(slots)
            some = np.flatnonzero(places >= 0)
            if some.size:
                return slots[some[:1]], slots[: some[0]], int(places[some[0]])
            if looked >= self._H.used:
                return slots[:0], slots, -1
            looked *= 4  # in steps that grow: a run of absent keys takes few looks

    def _places_of(self, slots: Int32s) -> Int64s:
        """Where the index says that the keys of tuples are; -1 where nowhere."""
        places = np.full(slots.size, -1, np.int64)
        if slots.size:
            stream = self._H.columns(slots)
            keys, _ = self._version.codec.encode([stream.column(name) for name in self._stream_key])
            pairs = self._version.pairs(keys, keys.hashes(), np.arange(slots.size))
            places[pairs.key] = pairs.place
            self._relation.disk.spend({"c_X": slots.size})
        return places

    def partition(self, place: int) -> Int64s:
        """The aligned run of k pages that a page is in."""
        first = int(self.places.rank(np.array([place]))[0]) // self.k * self.k
        return self.places.run(first, self.k)

    def load(self, place: int, stats: JoinStats) -> Iterator[Int64s]:
        """Load the partition that a page is in; yields the addresses of its pages."""
        for _, _, addresses in self.reader.read(self.partition(place), stats, bridge=False):
            yield addresses


def concat_slots(slots: list[Int32s]) -> Int32s:
    """Slots in one array."""
    return np.concatenate([np.empty(0, np.int32), *slots])
