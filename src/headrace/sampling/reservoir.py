"""Reservoir: a random sample of the whole stream so far. [PQP] §9.3.1, Alg. 10"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from headrace.arrays import Int32s, Int64s
from headrace.kernels import samplers as kernels
from headrace.sampling.arriving import Arriving
from headrace.sampling.sampler import NO_SLOTS
from headrace.sampling.slot_sampler import SlotSampler


class Reservoir(SlotSampler):
    """A random sample of all tuples so far, each with the same probability. Choose it for a stream without a window.

        stream  . . x . x . . . . x . . . . x . .        size = 4: anything, however old

    Tuple n takes a random position of 1..n; if there is no such position, it is dropped. Of a window it knows nothing: after
    a few windows most of the sample has expired.

    Parameters
    ----------
    size, memory, seed, stream
        See Sampler.
    window
        Only tells joins which of its tuples are live; in a window by time, late tuples are dropped. None for the whole stream.

    Example
    -------
    >>> import pyarrow as pa
    >>> from headrace.sampling import Reservoir
    >>> s = Reservoir(size=3, seed=1)
    >>> s.insert(pa.record_batch({"x": list(range(100))}))
    >>> s.sample().num_rows
    3

    Reference: [PQP] Alg. 10; McLeod and Bellhouse 1983.

    Deviations: the text compares with < where <= is meant.
    """

    _windowless: ClassVar[bool] = True
    _expires: ClassVar[bool] = False

    @property
    def simple_random(self) -> bool:
        """Whether every set of tuples is the sample with the same probability: of the whole stream."""
        return self.window is None

    def _decide(self, arriving: Arriving) -> tuple[Int64s, Int32s]:
        s, words = self._slots, self._draw(arriving)
        taken = np.empty(words.size, np.int64)
        kernels.reservoir(s.numbers, s.place, s.seq, s.until, words, arriving.until, taken)
        return taken, NO_SLOTS
