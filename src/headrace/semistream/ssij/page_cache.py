"""CR: pages of the relation that stay in memory, with what decides which of them stay. [SSIJ] §IV.A, §IV.C"""

from __future__ import annotations

import mmap
from typing import Any, Literal

import numpy as np

from headrace.arrays import Bools, Int32s, Int64s, UInt8s
from headrace.kernels.cache import copy_pages
from headrace.relation.columns import address
from headrace.relation.reader import Version

Policy = Literal["utility", "lru"]
FRAME_BYTES = 56  # of a cached page, besides the page


class PageCache:
    """Frames for pages, in one piece of memory of which the first `frames` are in use.

        places  [ 3 | 17 | 18 | 40 ]  sorted          frames  [ p18 | p3 | p40 | p17 | . . . ]
        frame   [ 1 |  3 |  0 |  2 ]                  utility [  9  | 4  |  0  |  2  ]

    Parameters
    ----------
    page_size
        Bytes of a page.
    most
        Frames that there could ever be. Memory is taken when a frame is first used, and given back by `shrink`.
    policy
        "utility": pages that most stream tuples joined with since the last join phase stay. "lru": those used last.
    """

    def __init__(self, page_size: int, most: int, policy: Policy = "utility") -> None:
        self.page_size = page_size
        self.policy = policy
        self.most = most
        self.frames = 0  # all below are in use or free; all above have given their memory back
        self._map = mmap.mmap(-1, max(1, most) * page_size)  # files: memory without a file
        self._memory: UInt8s = np.frombuffer(self._map, np.uint8)
        self._base = address(self._memory)
        self.places: Int64s = np.empty(0, np.int64)
        self._frame: Int32s = np.empty(0, np.int32)
        self._utility = np.zeros(most, np.int64)
        self._used_at = np.zeros(most, np.int64)
        self._worth = np.zeros(most, np.int64)
        self._tick = 0

    @property
    def used(self) -> int:
        """Pages in it."""
        return self.places.size

    @property
    def utility(self) -> Int64s:
        """Stream tuples that joined with each page of `places` since the last join phase."""
        return self._utility[self._frame]

    @property
    def tail(self) -> float:
        """Uses since the last join phase of a page of the last quarter, by what was known when the pages were chosen.

        Judged by a time after the choice, and so not flattered by it: what one more page would serve, about.
        """
        last = np.argsort(-self._worth[self._frame], kind="stable")[-max(1, self.used // 4) :]
        return float(self.utility[last].mean()) if self.used else 0.0

    @property
    def used_at(self) -> Int64s:
        """When each page of `places` was last used, as a count of uses."""
        return self._used_at[self._frame]

    def find(self, places: Int64s) -> Int32s:
        """Frames of pages, -1 where a page is not here."""
        if not self.places.size:
            return np.full(places.size, -1, np.int32)
        at = np.minimum(np.searchsorted(self.places, places), self.places.size - 1)
        return np.where(self.places[at] == places, self._frame[at], np.int32(-1)).astype(np.int32)

    def addresses(self, frames: Int32s) -> Int64s:
        """Where frames are."""
        return self._base + frames.astype(np.int64) * self.page_size

    def count(self, frames: Int32s) -> None:
        """Stream tuples joined with the pages in these frames, once each time a frame is given."""
        uses = np.bincount(frames, minlength=1)
        self._utility[: uses.size] += uses
        self._tick += 1
        self._used_at[frames] = self._tick

    def choose(self, starts: Int32s, capacity: int) -> Bools:
        """Which of the pages about to be read are to stay: ToKeep. Pages that give way to them, ToRemove, leave now.

        Nothing but the read pages is needed during a join phase, so which page of ToRemove leaves when makes no difference.

        Parameters
        ----------
        starts
            Where the list of each page in II starts, and the end of the last: its length is what the page is worth.
        capacity
            Pages that may be here at the end.
        """
        have, wanted = self.used, starts.size - 1
        value: np.ndarray[tuple[int], np.dtype[Any]]
        if self.policy == "utility":
            value = np.empty(have + wanted, np.int32)
            value[:have] = self.utility
            np.subtract(starts[1:], starts[:-1], out=value[have:])
        else:
            value = np.concatenate([self.used_at, self._tick + 1 + np.arange(wanted)])
        stays = _largest(value, capacity)  # on a tie pages that are here: nothing is copied for the same gain
        self._worth[self._frame] = self.utility
        self._keep(stays[:have])
        if self.frames > capacity:
            self.shrink(capacity)
        return stays[have:]

    def put(self, places: Int64s, addresses: Int64s, uses: Int64s) -> None:
        """Copy pages in. The caller has made room."""
        if not places.size:
            return
        taken = np.zeros(self.frames + places.size, np.bool_)
        taken[self._frame] = True
        frames = np.flatnonzero(~taken)[: places.size].astype(np.int32)
        self.frames = max(self.frames, int(frames.max()) + 1)
        copy_pages(addresses, self.addresses(frames), self.page_size)
        self._utility[frames] = self._worth[frames] = uses
        self._used_at[frames] = self._tick + 1 + np.arange(places.size)
        self._tick += places.size
        merged = np.concatenate([self.places, places])
        order = np.argsort(merged, kind="stable")
        self.places, self._frame = merged[order], np.concatenate([self._frame, frames])[order]

    def shrink(self, capacity: int) -> None:
        """Hold at most so many pages: those worth least leave, the others move to the front, the rest of the memory goes back."""
        value = self.utility if self.policy == "utility" else self.used_at
        if self.used > capacity:
            stays = np.zeros(self.used, np.bool_)
            stays[np.lexsort((self.places, -self.used_at, -value))[:capacity]] = True
            self._keep(stays)
        beyond = np.flatnonzero(self._frame >= self.used)
        taken = np.zeros(self.frames + 1, np.bool_)
        taken[self._frame] = True
        holes = np.flatnonzero(~taken)[: beyond.size].astype(np.int32)
        old = self._frame[beyond]
        copy_pages(self.addresses(old), self.addresses(holes), self.page_size)
        for facts in (self._utility, self._used_at, self._worth):
            facts[holes] = facts[old]
        self._frame[beyond] = holes
        given = self.used * self.page_size
        if self.frames > self.used:
            self._map.madvise(mmap.MADV_DONTNEED, given, (self.frames - self.used) * self.page_size)
        self.frames = self.used

    def clear_counters(self) -> None:
        """A join phase is over: what was useful before it counts no more."""
        self._utility[:] = 0

    def follow(self, old: Version, new: Version, there: Int64s) -> None:
        """Go over to another version, whose pages are `there`, sorted; pages that it does not have leave.

        A page is known by the tag of its file and its number in it, and never changes; only its place does.
        """
        if not self.places.size:
            return
        mine = old.numbers(self.places, old.files_of(self.places))
        theirs = new.numbers(there, new.files_of(there))
        order = np.argsort(theirs)
        at = np.searchsorted(theirs[order], mine)
        at[at == theirs.size] = 0
        same = np.flatnonzero(theirs[order[at]] == mine) if theirs.size else np.empty(0, np.int64)
        places, frame = there[order[at[same]]], self._frame[same]
        rising = np.argsort(places)
        self.places, self._frame = places[rising], frame[rising]

    def dump(self) -> dict[str, Int64s]:
        """Its pages and their counters, to be read and set again by `load`."""
        return {
            "places": self.places,
            "utility": self.utility,
            "used_at": self.used_at,
            "worth": self._worth[self._frame],
        }

    def load(self, arrays: dict[str, Int64s]) -> None:
        """Counters of the pages, which are here again, as they once were."""
        at = self._frame
        self._utility[at], self._used_at[at], self._worth[at] = arrays["utility"], arrays["used_at"], arrays["worth"]
        self._tick = int(self._used_at[at].max(initial=0))

    def _keep(self, stays: Bools) -> None:
        self.places, self._frame = self.places[stays], self._frame[stays]


def _largest(value: Any, count: int) -> Bools:
    """Which of the values are the so many largest; of equal ones the first. Takes less memory than an order of all of them."""
    least = value.size - count
    if least <= 0 or count <= 0:
        return np.full(value.size, count > 0)
    limit = np.partition(value, least)[least]
    stays: Bools = value > limit
    ties = value == limit
    stays |= ties & (np.cumsum(ties, dtype=np.int32) <= count - int(stays.sum()))
    return stays
