"""Fifo: tuples enter as in reservoir sampling, and the oldest leaves. [PQP] §9.3.2, Alg. 11"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from headrace.arrays import Int32s, Int64s
from headrace.kernels import samplers as kernels
from headrace.kernels.samplers import OLDEST
from headrace.sampling.arriving import Arriving
from headrace.sampling.sampler import NO_SLOTS
from headrace.sampling.slot_sampler import SlotSampler


class Fifo(SlotSampler):
    """A queue that tuple n enters with probability size / n; the oldest of the queue leaves. It is here for comparison.

        stream  . . . . . . x . x . . . . x . . x        younger than a reservoir, and no fair sample of anything

    Parameters
    ----------
    size, memory, seed, stream
        See Sampler.
    window
        Only tells joins which of its tuples are live; in a window by time, late tuples are dropped. None for the whole stream.

    Example
    -------
    >>> import pyarrow as pa
    >>> from headrace.sampling import Fifo
    >>> s = Fifo(size=3, seed=1)
    >>> s.insert(pa.record_batch({"x": list(range(100))}))
    >>> s.sample().num_rows
    3

    Reference: [PQP] Alg. 11.

    Deviations: the text compares with < where <= is meant, and its example discards where rho > 3, which must be rho > |S|.
    """

    _windowless: ClassVar[bool] = True
    _expires: ClassVar[bool] = False

    def _decide(self, arriving: Arriving) -> tuple[Int64s, Int32s]:
        s, words = self._slots, self._draw(arriving)
        taken = np.empty(words.size, np.int64)
        kernels.fifo(s.numbers, s.place, s.seq, s.until, words, arriving.until, taken)
        return taken, NO_SLOTS

    def _ranked(self, slots: Int64s) -> Int64s:
        """Slots in the order in which they are kept when the queue must become shorter: the youngest first."""
        return slots[np.argsort(-self._slots.seq[slots])]

    def _shrink(self, size: int) -> Int32s:
        gone = super()._shrink(size)
        s = self._slots
        taken = self._in_place()
        s.place[: taken.size] = taken[np.argsort(s.seq[taken])]
        s.numbers[OLDEST] = 0
        return gone
