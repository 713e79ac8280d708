"""FairWindow: a fair sample of a sliding window without a period, by random tags."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log
from typing import ClassVar

import numpy as np

from headrace.arrays import Int32s, Int64s, UInt64s
from headrace.kernels import fair_samples as kernels
from headrace.sampling.arriving import Arriving
from headrace.sampling.sampler import ROW_BYTES, Sampler, resized
from headrace.windows import RowWindow

_DOUBLE = 2  # times the expected candidates are slots, so that half of them come between two prunings
_FULL = 0.75  # of the slots: if more than that are taken after candidates were pruned, more slots are made
_SPREAD = 64  # slots beyond that: the number of candidates of a small sample varies
_SHRINK = 4  # a sample whose candidates have outgrown its memory loses 1/4 of its tuples at a time
_WINDOWS = 16  # a window by time is taken to have this many times the tuples of the sample, until more come


@dataclass
class FairState:
    """The arrays of `kernels.fair_samples`, which says what they mean."""

    slot_bytes: ClassVar[int] = 4 * 8 + 6 * 4 + ROW_BYTES

    numbers: Int64s
    chosen: Int32s
    spare: Int32s
    expiry: Int32s
    late: Int32s
    at: Int32s
    free: Int32s
    seq: Int64s
    until: Int64s
    since: Int64s
    tag: UInt64s

    @property
    def held(self) -> int:
        """The number of slots in use."""
        return int(self.numbers[kernels.EXPIRY])


class FairWindow(Sampler):
    """A random sample of the window, without replacement, each set of tuples with the same probability. The one to choose.

        window   .3  .9 [.1] .7 [.2] .8  .5 (.4) .6      tags; [k = 2 smallest: the sample], (a candidate: it enters when .1
        leaves)

    Every tuple gets a random tag; the live tuples with the `size` smallest tags are the sample. Tuples that may enter later,
    when others have expired, are kept as candidates: those with fewer than `size` smaller tags among the tuples that expire
    after them. They are size * (1 + ln(|W| / size)) in the mean, and twice as many are held before the rest is pruned.

    Parameters
    ----------
    size, window, memory, seed, stream
        See Sampler.

    Windows by time: nothing changes, since |W| is not used.

    Example
    -------
    >>> import headrace as hr, pyarrow as pa
    >>> from headrace.sampling import FairWindow
    >>> s = FairWindow(size=2, window=hr.rows(5), seed=1)
    >>> s.insert(pa.record_batch({"x": list(range(100))}))
    >>> (np.asarray(s.sample()["x"]) >= 95).tolist()
    [True, True]

    Reference: not of [PQP], whose samplers are periodic or lean towards recent tuples. Bottom-k samples over windows: Gemulla
    and Lehner, "Sampling time-based sliding windows in bounded space", SIGMOD 2008.
    """

    def _begin(self, size: int) -> None:
        slots = self._slots_for(size)
        ints, longs = (np.zeros((4, slots), np.int32), np.zeros((3, slots), np.int64))
        numbers = np.zeros(kernels.NUMBERS, np.int64)
        numbers[kernels.FREE], numbers[kernels.LIMIT] = slots, kernels.HIGHEST
        self._fair = FairState(
            numbers,
            np.zeros(size, np.int32),
            ints[0],
            ints[1],
            ints[2],
            ints[3],
            np.arange(slots - 1, -1, -1, dtype=np.int32),
            longs[0],
            longs[1],
            longs[2],
            np.zeros(slots, np.uint64),
        )

    @property
    def _state(self) -> FairState:
        return self._fair

    def _slots_for(self, size: int) -> int:
        ratio = self.window.size / size if isinstance(self.window, RowWindow) else _WINDOWS
        slots = ceil(_DOUBLE * size * (1 + log(ratio))) + _SPREAD
        return min(slots, self.window.size) if isinstance(self.window, RowWindow) else slots

    def members(self) -> Int32s:
        """The slots of the sample, in the order in which their tuples came."""
        f = self._fair
        slots = f.chosen[: f.numbers[kernels.CHOSEN]]
        return slots[np.argsort(f.seq[slots])]

    @property
    def simple_random(self) -> bool:
        """Whether every set of live tuples is the sample with the same probability: always."""
        return True

    @property
    def complete(self) -> bool:
        """Whether all live tuples are in the sample."""
        numbers = self._fair.numbers  # a candidate enters as soon as there is room
        return bool(numbers[kernels.CHOSEN] < self._fair.chosen.size)

    @property
    def since(self) -> Int64s:
        """The clock of the window from which on the tuple of each slot is in the sample; NEVER if it is not yet."""
        return self._fair.since

    def advance(self, now: int) -> Int32s:
        """Let tuples of a window by time expire. Returns the slots that were freed; they keep their rows until `forget`."""
        gone = self._none_gone(0)
        kernels.advance(*self._arguments(gone), now)
        return gone[: self._fair.numbers[kernels.GONE]]

    def _decide(self, arriving: Arriving) -> tuple[Int64s, Int32s]:
        tags = self._draw(arriving)
        n, done = tags.size, 0
        taken, gone = np.empty(n, np.int64), self._none_gone(n)
        while True:
            done = kernels.insert(*self._arguments(gone), tags, arriving.clock, arriving.until, done, taken)
            if done == n:
                return taken, gone[: self._fair.numbers[kernels.GONE]]
            kernels.prune(*self._arguments(gone))
            if self._fair.held > _FULL * self.slots:
                self._more_slots(gone)

    def _arguments(self, gone: Int32s) -> tuple[Int64s | Int32s | UInt64s, ...]:
        f = self._fair
        return f.numbers, f.chosen, f.spare, f.expiry, f.late, f.at, f.free, gone, f.seq, f.until, f.since, f.tag

    def _none_gone(self, more: int) -> Int32s:
        """Room for the slots that are freed while so many tuples come."""
        self._fair.numbers[kernels.GONE] = 0
        return np.empty(self._fair.held + more, np.int32)

    def _more_slots(self, gone: Int32s) -> None:
        """Double the slots; if the memory has no room for them, make the sample smaller until its candidates fit these slots."""
        f, old, slots = self._fair, self.slots, _DOUBLE * self.slots
        if isinstance(self.window, RowWindow):
            slots = min(slots, self.window.size)
        if (slots - old) * (f.slot_bytes + self.beside) > self.budget.left // _DOUBLE:
            while f.held > _FULL * old and self._size is not None and self._size > 1:
                self._size -= max(1, self._size // _SHRINK)
                self._make_smaller(self._size, gone)
            if f.held < old:
                return
        # Candidates have just been pruned, so that the queue begins at the first index.
        f.spare, f.expiry, f.late, f.at, f.free, f.seq, f.until, f.since, f.tag = (
            resized(a, slots) for a in (f.spare, f.expiry, f.late, f.at, f.free, f.seq, f.until, f.since, f.tag)
        )
        free = f.numbers[kernels.FREE]
        f.free[free : free + slots - old] = np.arange(slots - 1, old - 1, -1)
        f.numbers[kernels.FREE] += slots - old
        self._grow()

    def _shrink(self, size: int) -> Int32s:
        gone = self._none_gone(0)
        self._make_smaller(size, gone)
        return gone[: self._fair.numbers[kernels.GONE]]

    def _make_smaller(self, size: int, gone: Int32s) -> None:
        """Keep the tuples with the `size` smallest tags in the sample, and free those that cannot enter it any more."""
        f = self._fair
        kernels.shrink(f.numbers, f.chosen, f.spare, f.at, f.since, f.tag, size)
        f.chosen = f.chosen[:size].copy()
        kernels.prune(*self._arguments(gone))
