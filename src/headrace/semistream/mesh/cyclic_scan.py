"""The cyclic scan of R that MESHJOIN and its variants join with: pages in the order of their places, round and round."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headrace.arrays import Int64s
from headrace.metrics import JoinStats
from headrace.relation import Relation
from headrace.relation.reader import PageReader
from headrace.semistream.page_ranges import all_places


class CyclicScan:
    """Reads b pages at a time; after the last page comes the first.

    Parameters
    ----------
    relation
        R.
    """

    def __init__(self, relation: Relation) -> None:
        self._relation = relation
        self.places = all_places(relation)
        self.page = 0  # the next page to be joined
        self.resize(1)

    @property
    def pages(self) -> int:
        """N_R."""
        return self.places.size

    def resize(self, b: int) -> None:
        """Have a disk buffer of b pages."""
        self.b = b
        self.reader = PageReader(self._relation.opened, b * self._relation.page_size, whole=True)

    def go_to(self, page: int) -> None:
        """Begin at a page."""
        self.page = page

    def read(self, places: Int64s, stats: JoinStats) -> Iterator[Int64s]:
        """Read places into the disk buffer; yields the addresses of their pages."""
        for _, _, addresses in self.reader.read(places, stats, bridge=False):
            yield addresses

    def next_pages(self, stats: JoinStats, most: int | None = None) -> Iterator[Int64s]:
        """Read the next b pages, fewer before the end of R or if so many are the most; yields their addresses."""
        places = self.places[self.page : self.page + (self.b if most is None else min(self.b, most))]
        yield from self.read(places, stats)
        self.page = (self.page + places.size) % max(1, self.pages)


class SteppedScan(CyclicScan):
    """Reads b pages at a time and gives them out in steps, which need not be as long: R-MESHJOIN's scan. [XHJ] §2"""

    def __init__(self, relation: Relation) -> None:
        super().__init__(relation)
        self.step = 1  # pages an iteration
        self._loaded: Int64s = np.empty(0, np.int64)  # addresses of pages that were read and not given out
        self._ahead = 0  # the page after them

    def go_to(self, page: int) -> None:
        """Begin at a page."""
        self.page = self._ahead = page
        self._loaded = np.empty(0, np.int64)

    def next_pages(self, stats: JoinStats, most: int | None = None) -> Iterator[Int64s]:
        """The pages of the next step, from the buffer, which is filled when it is empty; yields their addresses."""
        wanted = min(self.step if most is None else min(self.step, most), self.pages - self.page)
        while wanted:
            if not self._loaded.size:
                places = self.places[self._ahead : self._ahead + self.b]
                (self._loaded,) = self.read(places, stats)
                self._ahead = (self._ahead + places.size) % self.pages
            some, self._loaded = self._loaded[:wanted], self._loaded[wanted:]
            yield some
            wanted -= some.size
            self.page = (self.page + some.size) % self.pages
