"""Everything: all tuples of a window, for exact window joins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Int32s, Int64s
from headrace.errors import MemoryRefused, shown
from headrace.kernels import samplers as kernels
from headrace.sampling.arriving import Arriving
from headrace.sampling.sampler import resized
from headrace.sampling.slot_sampler import SlotSampler
from headrace.windows import RowWindow


class Everything(SlotSampler):
    """All live tuples of a window. There are as many slots as the window ever needed.

    Parameters
    ----------
    window, seed, stream
        See Sampler.
    memory
        The most that the window may take; None for no limit.
    counted
        Whether the live tuples of a window by time are counted, which estimates need. Without that, tuples may lie ahead of the
        clock.
    """

    def __init__(self, *, memory: int | str | None = None, counted: bool = True, **arguments: Any) -> None:
        super().__init__(1 if memory is None else None, memory=memory, **arguments)
        self._counted = counted

    def __repr__(self) -> str:
        return f"Everything(memory={self.memory!r}, window={self.window!r})"

    def _size_for(self, batch: pa.RecordBatch) -> int:
        """Slots are made as they are needed."""
        return 1

    def _arriving(self, n: int, times: Int64s | None, now: Int64s | None) -> Arriving:
        if self._counted or times is None or now is None:
            return super()._arriving(n, times, now)
        return Arriving(self._arrived, now, times + self.length, np.ones(n, np.int64))

    def _decide(self, arriving: Arriving) -> tuple[Int64s, Int32s]:
        s, n = self._slots, arriving.clock.size
        most = s.held + n
        if isinstance(self.window, RowWindow):
            most = min(most, self.window.size)
        if most > self.slots:
            slots = max(most, min(2 * self.slots, 2 * most))
            self._reserve_slots(slots)
            new = np.arange(self.slots, slots)
            s.free = resized(np.concatenate([new[::-1], s.free[: self.slots - s.held]]), slots)
            s.place = np.concatenate([s.place, new])
            s.heap, s.at, s.seq, s.until = (resized(a, slots) for a in (s.heap, s.at, s.seq, s.until))
            self._size = slots
            self._grow()
        # There is a free slot for every tuple, so nothing is drawn.
        return self._decide_by_expiry(kernels.winres, arriving, np.ones(n, np.int64))

    def _shrink(self, size: int) -> Int32s:
        raise MemoryRefused(
            f"the window does not fit memory={shown(self.memory)}; give more, or keep a sample of it with method='fair'"
        )
