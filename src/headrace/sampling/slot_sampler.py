"""SlotSampler: what the samplers of [PQP] §9.3 share. A sample has positions, and a tuple that enters takes one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from headrace.arrays import Int32s, Int64s
from headrace.kernels import samplers as kernels
from headrace.kernels.samplers import HELD, NEVER, OLDEST
from headrace.sampling.arriving import Arriving
from headrace.sampling.sampler import NO_SLOTS, ROW_BYTES, Sampler
from headrace.splitmix import draw


@dataclass
class SlotState:
    """The arrays of `kernels.samplers`, which says what they mean. The heap is empty where nothing needs to expire."""

    slot_bytes: ClassVar[int] = 6 * 8 + ROW_BYTES

    numbers: Int64s
    place: Int64s
    free: Int64s
    heap: Int64s
    at: Int64s
    seq: Int64s
    until: Int64s

    @property
    def held(self) -> int:
        """The number of slots in use."""
        return int(self.numbers[HELD])


class SlotSampler(Sampler):
    """A sample of which each tuple has a position."""

    #: Whether tuples that have expired leave by themselves.
    _expires: ClassVar[bool] = True

    def _begin(self, size: int) -> None:
        numbers = np.zeros(kernels.NUMBERS, np.int64)
        if self._expires:
            numbers[OLDEST] = NEVER
        ordered = size if self._expires else 0
        self._slots = SlotState(
            numbers,
            np.arange(size),
            np.arange(ordered)[::-1].copy(),
            np.zeros(ordered, np.int64),
            np.zeros(ordered, np.int64),
            np.zeros(size, np.int64),
            np.zeros(size, np.int64),
        )

    @property
    def _state(self) -> SlotState:
        return self._slots

    def members(self) -> Int32s:
        """The slots of the sample, in the order in which their tuples came."""
        slots = self._in_place()
        return slots[np.argsort(self._slots.seq[slots])].astype(np.int32)

    def advance(self, now: int) -> Int32s:
        """Let tuples of a window by time expire. Returns the slots that were freed; they keep their rows until `forget`."""
        if not self._expires:
            return NO_SLOTS
        s, gone = self._slots, self._none_gone(0)
        kernels.advance(s.numbers, s.place, s.free, s.heap, s.at, s.seq, s.until, gone, now)
        return gone[: s.numbers[kernels.GONE]]

    def _none_gone(self, more: int) -> Int32s:
        """Room for the slots that are freed while so many tuples come."""
        self._slots.numbers[kernels.GONE] = 0
        return np.empty(self._slots.held + more, np.int32)

    def _decide_by_expiry(self, kernel: object, arriving: Arriving, bounds: Int64s) -> tuple[Int64s, Int32s]:
        """Call a kernel that lets tuples expire."""
        s, words = self._slots, self._draw(arriving)
        taken, gone = np.empty(words.size, np.int64), self._none_gone(words.size)
        arguments = (words, arriving.clock, arriving.until, bounds, taken)
        kernel(s.numbers, s.place, s.free, s.heap, s.at, s.seq, s.until, gone, *arguments)  # type: ignore[operator]
        return taken, gone[: s.numbers[kernels.GONE]]

    def _ranked(self, slots: Int64s) -> Int64s:
        """Slots in the order in which they are kept when the sample must become smaller: at random."""
        return slots[np.argsort(draw(self.seed, ~self.stream, self._slots.seq[slots]))]

    def _in_place(self) -> Int64s:
        """The slots that hold a tuple, in the order of their positions."""
        return self._slots.place[self._slots.seq[self._slots.place] > 0]

    def _shrink(self, size: int) -> Int32s:
        s = self._slots
        ranked = self._ranked(self._in_place())
        keep, drop = ranked[:size], ranked[size:]
        free = s.place[s.seq[s.place] == 0]
        s.seq[drop] = 0
        s.place = np.concatenate([self._in_place(), free])[:size]
        s.numbers[HELD] = keep.size
        if self._expires:
            s.free[: size - keep.size] = s.place[keep.size :][::-1]
            heap = keep[np.lexsort((s.seq[keep], s.until[keep]))]  # in ascending order, which is a heap
            s.heap[: keep.size] = heap
            s.at[heap] = np.arange(keep.size)
        return drop.astype(np.int32)
