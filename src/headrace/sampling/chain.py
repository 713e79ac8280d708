"""Chain: independent samples of one tuple each, a sample of the window with replacement. [PQP] app. D"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from headrace.arrays import Int32s, Int64s, UInt64s
from headrace.errors import BadInput
from headrace.kernels import chain_samples as kernels
from headrace.sampling.arriving import Arriving
from headrace.sampling.sampler import ROW_BYTES, Sampler, resized
from headrace.splitmix import start_of
from headrace.windows import RowWindow

_LENGTH = 5  # slots of a chain: it has 2 tuples in the mean, and seldom more than 5
_LENGTH_BY_TIME = (
    12  # in a window by time chains grow with the logarithm of the window, and a tuple may enter all of them
)
_SHRINK = 4  # chains that have outgrown their memory become fewer by 1/4 at a time


@dataclass
class ChainState:
    """The arrays of `kernels.chain_samples`, which says what they mean."""

    slot_bytes: ClassVar[int] = (
        3 * 8 + 3 * 4 + 12 + ROW_BYTES
    )  # 12: a chain has 44 bytes of its own, and 5 slots or more

    numbers: Int64s
    head: Int32s
    tail: Int32s
    awaited: Int64s
    fresh: Int64s
    event: Int64s
    drawn: Int64s
    heap: Int32s
    before: Int32s
    after: Int32s
    free: Int32s
    seq: Int64s
    until: Int64s
    tag: UInt64s

    @property
    def held(self) -> int:
        """The number of slots in use."""
        return int(self.seq.size - self.numbers[kernels.FREE])


class Chain(Sampler):
    """`size` independent samples of one tuple of the window each: the same tuple may be in the sample several times.

        sample j   x -> x -> (awaited)        x is live and the sample; the next of the chain follows when it expires

    Choose it where draws with replacement are wanted. In a window by rows a tuple costs a step for each sample to which
    something happens, some 3 of a window's length; by time it costs a step for each sample. Joins refuse it: pairs would repeat.

    Parameters
    ----------
    size, window, memory, seed, stream
        See Sampler.

    Windows by time: the number of a successor cannot be drawn where nobody knows how many tuples will be live. Each sample is
    the live tuple with the smallest of random tags instead, and its chain has the tuples that may become it (priority
    sampling).

    Example
    -------
    >>> import headrace as hr, pyarrow as pa
    >>> from headrace.sampling import Chain
    >>> s = Chain(size=3, window=hr.rows(4), seed=1)
    >>> s.insert(pa.record_batch({"x": [1, 2, 3, 4]}))
    >>> s.sample().num_rows
    3

    Reference: [PQP] app. D; Babcock, Datar, Motwani, SODA 2002.
    """

    def __init__(self, size: int | None = None, **arguments: Any) -> None:
        super().__init__(size, **arguments)
        if size is not None and size > kernels.STRIDE:
            raise BadInput(f"size={size} is more than {kernels.STRIDE} chains; give fewer, or use FairWindow")

    def _begin(self, size: int) -> None:
        slots = self._slots_for(size)
        numbers = np.zeros(kernels.NUMBERS, np.int64)
        numbers[kernels.FREE] = slots
        self._chains = ChainState(
            numbers,
            np.full(size, -1, np.int32),
            np.full(size, -1, np.int32),
            np.zeros(size, np.int64),
            np.ones(size, np.int64),
            np.ones(size, np.int64),
            np.zeros(size, np.int64),
            np.arange(size, dtype=np.int32),
            np.zeros(slots, np.int32),
            np.zeros(slots, np.int32),
            np.arange(slots - 1, -1, -1, dtype=np.int32),
            np.zeros(slots, np.int64),
            np.zeros(slots, np.int64),
            np.zeros(slots, np.uint64),
        )

    @property
    def _state(self) -> ChainState:
        return self._chains

    def _slots_for(self, size: int) -> int:
        return (_LENGTH if isinstance(self.window, RowWindow) else _LENGTH_BY_TIME) * size

    def members(self) -> Int32s:
        """The slots of the sample, in the order in which their tuples came; several slots may have the same tuple."""
        slots = self._chains.head[self._chains.head >= 0]
        return slots[np.argsort(self._chains.seq[slots], kind="stable")]

    def _decide(self, arriving: Arriving) -> tuple[Int64s, Int32s]:
        before, n, done = self.in_use(), arriving.clock.size, 0
        starts = start_of(self.seed, 2 * self.stream), start_of(self.seed, 2 * self.stream + 1)
        while True:
            c = self._chains
            if isinstance(self.window, RowWindow):
                chains = c.head, c.tail, c.awaited, c.fresh, c.event, c.drawn, c.heap
                links = c.before, c.after, c.free, c.seq, c.until
                done = kernels.by_sequence(c.numbers, *chains, *links, *starts, self.window.size, done, n)
            else:
                linked = c.numbers, c.head, c.tail, c.tag, c.before, c.after, c.free, c.seq, c.until
                done = kernels.by_time(*linked, starts[0], arriving.clock, arriving.until, done)
            if done == n:
                break
            self._more_slots()
        return np.full(n, -1, np.int64), before

    def _entered(self, first: int, taken: Int64s) -> tuple[Int32s, Int32s]:
        """The rows of a batch that are held after it, in ascending order, and their slots: a row may be in several chains."""
        slots = np.flatnonzero(self._chains.seq > first)
        slots = slots[np.argsort(self._chains.seq[slots], kind="stable")]
        return (self._chains.seq[slots] - first - 1).astype(np.int32), slots.astype(np.int32)

    def _more_slots(self) -> None:
        """Double the slots; if the memory has no room for them, give up some of the chains."""
        c, old, slots = self._chains, self.slots, 2 * self.slots
        if (slots - old) * c.slot_bytes > self.budget.left // 2 and self._size is not None and self._size > 1:
            self._size -= max(1, self._size // _SHRINK)
            self._shrink(self._size)
            return
        c.before, c.after, c.free, c.seq, c.until, c.tag = (
            resized(a, slots) for a in (c.before, c.after, c.free, c.seq, c.until, c.tag)
        )
        free = c.numbers[kernels.FREE]
        c.free[free : free + slots - old] = np.arange(slots - 1, old - 1, -1)
        c.numbers[kernels.FREE] += slots - old
        self._grow()

    def _shrink(self, size: int) -> Int32s:
        c, gone = self._chains, []
        for s in c.head[size:].tolist():
            while s >= 0:
                gone.append(s)
                s = int(c.after[s])
        freed = np.array(gone, np.int32)
        free = c.numbers[kernels.FREE]
        c.free[free : free + freed.size] = freed
        c.numbers[kernels.FREE] += freed.size
        c.seq[freed] = 0
        c.head, c.tail = c.head[:size].copy(), c.tail[:size].copy()
        c.awaited, c.fresh, c.event, c.drawn = (a[:size].copy() for a in (c.awaited, c.fresh, c.event, c.drawn))
        c.heap = np.argsort(c.event, kind="stable").astype(np.int32)
        return freed
